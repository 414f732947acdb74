//! The dashboards in the repository are those that `cargo xtask dashboards` writes.

use super::Source;
use crate::dashboards;

/// Dashboards that are missing or were changed by hand.
pub(super) fn changed(sources: &[Source]) -> Vec<String> {
    let kept = |path: &str| sources.iter().find(|source| source.path == path).map(|source| source.text.as_str());
    let written = dashboards::files().into_iter();
    written
        .filter(|(path, text)| kept(path) != Some(text.as_str()))
        .map(|(path, _)| format!("{path}: is not what `cargo xtask dashboards` writes"))
        .collect()
}
