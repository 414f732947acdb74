//! Text that other processes sent, as a terminal may show it.

/// What is shown for a character that could do something to a terminal, or to the columns of a table.
const STAND_IN: char = '?';

/// Plain ASCII of at most `length_max` characters: no control characters, no escapes, nothing that turns a line around or takes two
/// columns.
pub(super) fn clean(text: &str, length_max: usize) -> String {
    let shown = |c: char| if c == ' ' || c.is_ascii_graphic() { c } else { STAND_IN };
    // One more than is shown, to know that there is more.
    let mut cleaned: String = text.trim().chars().take(length_max.saturating_add(1)).map(shown).collect();
    if cleaned.len() > length_max {
        cleaned.truncate(length_max.saturating_sub(1));
        cleaned.push('~');
    }
    cleaned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_moves_a_cursor_or_turns_a_line_comes_through() {
        assert_eq!(clean("a\x1b[2Jb\r\nc\x07\u{202e}d\u{200b}漢", 40), "a?[2Jb??c??d??");
        assert_eq!(clean("\u{9b}31mred\x7f", 40), "?31mred?");
        assert_eq!(clean("  waiting for the first weights \n", 40), "waiting for the first weights");
    }

    #[test]
    fn what_is_too_long_is_cut_and_says_so() {
        assert_eq!(clean("1234567890", 10), "1234567890");
        assert_eq!(clean("12345678901", 10), "123456789~");
        assert_eq!(clean(&"x".repeat(1 << 20), 3), "xx~");
    }
}
