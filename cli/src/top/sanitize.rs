//! Makes text from other processes safe to print in a terminal.

/// Replaces characters that could control a terminal or break the columns of a table.
const REPLACEMENT: char = '?';

/// Returns printable ASCII of at most `length_max` characters, without control characters, escapes, bidirectional marks
/// or wide characters.
pub(super) fn sanitize(text: &str, length_max: usize) -> String {
    let shown = |c: char| if c == ' ' || c.is_ascii_graphic() { c } else { REPLACEMENT };
    // Reads one character more than is shown, to detect a cut.
    let mut sanitized: String = text.trim().chars().take(length_max.saturating_add(1)).map(shown).collect();
    if sanitized.len() > length_max {
        sanitized.truncate(length_max.saturating_sub(1));
        sanitized.push('~');
    }
    sanitized
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_bidirectional_characters_are_replaced() {
        assert_eq!(sanitize("a\x1b[2Jb\r\nc\x07\u{202e}d\u{200b}漢", 40), "a?[2Jb??c??d??");
        assert_eq!(sanitize("\u{9b}31mred\x7f", 40), "?31mred?");
        assert_eq!(sanitize("  waiting for the first weights \n", 40), "waiting for the first weights");
    }

    #[test]
    fn long_text_is_cut_with_a_mark() {
        assert_eq!(sanitize("1234567890", 10), "1234567890");
        assert_eq!(sanitize("12345678901", 10), "123456789~");
        assert_eq!(sanitize(&"x".repeat(1 << 20), 3), "xx~");
    }
}
