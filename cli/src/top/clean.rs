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
mod tests;
