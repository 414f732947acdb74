//! Texts as label values: a metric has a bounded number of series, however many texts a process reports.
//!
//! Start with [`Reasons::label`].

use std::sync::{Mutex, PoisonError};

/// Maximum kinds of texts that a metric distinguishes.
const KINDS_MAX: usize = 8;
/// Maximum length of a text in characters; longer texts are cut.
const LENGTH_MAX: usize = 300;
/// Label of every kind beyond the first `KINDS_MAX`.
pub const OTHER: &str = "other";

/// The kinds of texts that one metric has reported. Texts that differ only in digits are of one kind.
#[derive(Debug, Default)]
pub struct Reasons {
    /// First text of each kind.
    first: Mutex<Vec<String>>,
}

impl Reasons {
    /// Creates the kinds without a text.
    #[must_use]
    pub const fn new() -> Self {
        Self { first: Mutex::new(Vec::new()) }
    }

    /// Returns the label of a text: the first text of the same kind, as one line without control characters, or
    /// [`OTHER`].
    pub fn label(&self, text: &str) -> String {
        let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LENGTH_MAX).collect();
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = first.iter().find(|known| kind(known).eq(kind(&text))) {
            return known.clone();
        }
        if first.len() == KINDS_MAX {
            return OTHER.to_owned();
        }
        first.push(text.clone());
        text
    }
}

/// Returns the characters of a text except for digits, since indices and numbers change with every trajectory and
/// version.
fn kind(text: &str) -> impl Iterator<Item = char> + '_ {
    text.chars().filter(|c| !c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_differ_in_numbers_only_have_the_label_of_the_first() {
        let reasons = Reasons::new();
        let first = reasons.label("steps[0].action: 4224 is not below 4096");
        assert_eq!(first, "steps[0].action: 4224 is not below 4096");
        assert_eq!(reasons.label("steps[17].action: 5000 is not below 4096"), first);
        assert_eq!(reasons.label("steps: has 9 steps"), "steps: has 9 steps");
    }

    #[test]
    fn any_number_of_long_texts_makes_few_short_labels_of_one_line() {
        let reasons = Reasons::new();
        let text = |letters: usize| format!("a\n{}{}", "b".repeat(letters), "é".repeat(1000));
        let labels: std::collections::BTreeSet<String> = (0..100).map(|n| reasons.label(&text(n))).collect();
        assert_eq!(labels.len(), KINDS_MAX + 1, "{labels:?}");
        assert!(labels.contains(OTHER));
        assert!(labels.iter().all(|label| label.chars().count() <= LENGTH_MAX && !label.contains('\n')), "{labels:?}");
    }
}
