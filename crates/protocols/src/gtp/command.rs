//! An input line as a command: [`Command`].

/// A command with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Command {
    /// Id as written, in decimal digits.
    pub(super) id: Option<String>,
    /// Name; empty if the line has only an id.
    pub(super) name: String,
    /// Arguments in order.
    pub(super) arguments: Vec<String>,
}

impl Command {
    /// Parses a line: control characters are removed, tabs become spaces, `#` starts a comment. `None` if nothing is
    /// left.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let line = line.split_once('#').map_or(line, |(before, _)| before);
        let is_kept = |c: &char| *c == '\t' || !c.is_ascii_control();
        let cleaned: String = line.chars().filter(is_kept).map(|c| if c == '\t' { ' ' } else { c }).collect();
        let mut words = cleaned.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).peekable();
        words.peek()?;
        let id = words.next_if(|word| word.bytes().all(|byte| byte.is_ascii_digit()));
        let name = words.next().unwrap_or_default();
        Some(Self { id, name, arguments: words.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Option<(Option<String>, String, Vec<String>)> {
        Command::parse(line).map(|Command { id, name, arguments }| (id, name, arguments))
    }

    #[test]
    fn a_line_is_preprocessed_as_the_specification_prescribes() {
        let expected = Some((Some("12".into()), "play".into(), vec!["black".into(), "D4".into()]));
        assert_eq!(parsed("12 play black D4"), expected);
        assert_eq!(parsed("\t12\tplay  black\u{7} D4 # a comment\r"), expected);
        assert_eq!(parsed("name"), Some((None, "name".into(), vec![])));
        assert_eq!(parsed("7"), Some((Some("7".into()), String::new(), vec![])));
        assert_eq!(parsed("1a x"), Some((None, "1a".into(), vec!["x".into()])));
        for nothing in ["", "  \t ", "# only a comment", "\r", "\u{1}\u{2}"] {
            assert_eq!(parsed(nothing), None, "{nothing:?}");
        }
    }
}
