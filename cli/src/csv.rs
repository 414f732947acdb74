//! Lines of CSV (RFC 4180).

/// Returns the fields as a line, each quoted if it must be.
pub(crate) fn line<S: AsRef<str>>(fields: impl IntoIterator<Item = S>) -> String {
    let fields: Vec<String> = fields.into_iter().map(|field| quoted(field.as_ref())).collect();
    fields.join(",") + "\n"
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
    use super::line;

    #[test]
    fn fields_with_commas_quotes_and_line_ends_are_quoted() {
        assert_eq!(line(["a", "b,c", "d\"e", "f\ng", ""]), "a,\"b,c\",\"d\"\"e\",\"f\ng\",\n");
    }
}
