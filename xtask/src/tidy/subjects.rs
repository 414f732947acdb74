//! Checks the subjects of commits.

use std::path::Path;
use std::process::Command;

use crate::workspace;

/// The last commit before the rule.
const RULE_SINCE: &str = "31c0f0ea";
const COLUMNS_MAX: usize = 70;

/// Returns the commits since the rule with a subject that is too long, or not a capitalised sentence without a full
/// stop. Nothing without git, or in a clone without the history.
pub(super) fn unfit(root: &Path) -> Vec<String> {
    let mut log = Command::new("git");
    log.args(["log", "--no-merges", "--format=%h %s", &format!("{RULE_SINCE}..HEAD")]).current_dir(root);
    workspace::output(&mut log).unwrap_or_default().lines().filter_map(defect).collect()
}

/// Returns the defect of a line of hash and subject.
fn defect(line: &str) -> Option<String> {
    let (hash, subject) = line.split_once(' ')?;
    let columns = subject.chars().count();
    if columns > COLUMNS_MAX {
        return Some(format!("commit {hash}: the subject has {columns} characters of at most {COLUMNS_MAX}"));
    }
    let is_sentence = subject.starts_with(|first: char| !first.is_lowercase()) && !subject.ends_with('.');
    (!is_sentence).then(|| format!("commit {hash}: the subject starts with a capital and has no full stop"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_short_and_capitalised_and_have_no_full_stop() {
        assert_eq!(defect("1234abcd Reject duplicate match games"), None);
        let subject = "w".repeat(71);
        assert_eq!(
            defect(&format!("1234abcd {subject}")).as_deref(),
            Some("commit 1234abcd: the subject has 71 characters of at most 70")
        );
        assert!(defect("1234abcd reject duplicate match games").is_some());
        assert!(defect("1234abcd Reject duplicate match games.").is_some());
    }
}
