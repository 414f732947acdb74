//! Formats and parses CSV lines (RFC 4180).

/// Formats `fields` as a CSV line with a line break; only fields that need quotes get quotes.
pub(crate) fn line<S: AsRef<str>>(fields: impl IntoIterator<Item = S>) -> String {
    let fields: Vec<String> = fields.into_iter().map(|field| quoted(field.as_ref())).collect();
    fields.join(",") + "\n"
}

/// Parses a CSV line from [`line`], without the final line break, into fields. No field may contain a line break.
pub(crate) fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut field, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if is_quoted && characters.next_if_eq(&'"').is_some() => field.push('"'),
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(std::mem::take(&mut field)),
            other => field.push(other),
        }
    }
    fields.push(field);
    fields
}

fn quoted(field: &str) -> String {
    if field.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::{fields, line};

    #[test]
    fn fields_with_commas_quotes_and_line_ends_are_quoted() {
        assert_eq!(line(["a", "b,c", "d\"e", "f\ng", ""]), "a,\"b,c\",\"d\"\"e\",\"f\ng\",\n");
    }
    #[test]
    fn the_fields_of_a_line_are_read_back() {
        let written = ["a", "b,c", "d\"e", "", "\"\"", "Intel(R) Xeon(R) @ 2.10GHz, virtual"];
        assert_eq!(fields(line(written).trim_end()), written);
        assert_eq!(fields(""), [""]);
    }
}
