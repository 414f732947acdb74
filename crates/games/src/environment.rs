//! What the environments for one player share: hashes of several words, and the names of actions.

use game::{Action, Error, mix};

use crate::grid::narrow;

/// Hashes a position that consists of these words.
pub(crate) fn hash(words: impl IntoIterator<Item = u64>) -> u64 {
    words.into_iter().fold(0, |hash, word| mix(hash ^ word))
}

/// Replaces `actions` with the actions below `count`.
pub(crate) fn all_actions(count: usize, actions: &mut Vec<Action>) {
    actions.clear();
    actions.extend((0..count).map(|action| Action(narrow(action))));
}

/// Reads an action by its name: the action of index `i` is called `names[i]`.
pub(crate) fn parse_action(names: &[&str], text: &str) -> Result<Action, Error> {
    let index = names.iter().position(|&name| name == text.trim());
    let error = || Error::Notation { text: text.into(), expected: names.join(" or ") };
    index.map(|index| Action(narrow(index))).ok_or_else(error)
}
