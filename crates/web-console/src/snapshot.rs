//! What all tabs see at one time.

use std::sync::Arc;

use run_metrics::History;
use tokio::sync::watch;

use crate::games::{self, Selected, Visits};
use crate::matches;

/// Path of the page of the fleet.
pub(crate) const FLEET: &str = "/fleet";
/// Ids of the elements that change, in the order of every page.
pub(crate) const IDS: [&str; 10] =
    ["warnings", "state", "processes", "now", "bottleneck", "load", "boards", "charts", "events", "games"];

/// Returns true if the page at this path has the element.
fn is_on(path: &str, id: &str) -> bool {
    match path {
        games::PATH => ["warnings", "games"].contains(&id),
        matches::PAGE => false,
        FLEET => ["warnings", "processes", "bottleneck", "load", "events"].contains(&id),
        _ => !["processes", "load", "games"].contains(&id),
    }
}

/// A part of a page: an element with one of [`IDS`] as id.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fragment {
    /// Number of changes so far.
    pub(crate) version: u64,
    pub(crate) html: String,
}

/// The state of a run at one time, rendered once for all visitors. Fragments are in the order of [`IDS`].
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) fragments: [Fragment; IDS.len()],
    /// Games that a page can show large, drawn for the first page that does.
    pub(crate) selected: Selected,
    /// The recorded metrics; `None` before the run is read for the first time.
    pub(crate) history: Option<Arc<History>>,
    /// The chart of distinct positions; empty if they were never measured.
    pub(crate) distinct: Arc<str>,
    /// True while a session trains the run.
    pub(crate) is_trained: bool,
}

/// The snapshots of a run, and the visits of pages that show them.
#[derive(Debug, Clone)]
pub(crate) struct Feed {
    pub(crate) snapshots: watch::Receiver<Arc<Snapshot>>,
    pub(crate) visits: Visits,
}

impl Snapshot {
    /// Returns the next snapshot, in which a changed fragment has the next version.
    pub(crate) fn next(&self, rendered: [String; IDS.len()], selected: Selected) -> Self {
        let mut next = Self { fragments: self.fragments.clone(), selected, ..Self::default() };
        for (fragment, html) in next.fragments.iter_mut().zip(rendered) {
            if fragment.html != html {
                *fragment = Fragment { version: fragment.version + 1, html };
            }
        }
        next
    }

    /// Returns all fragments of the page at this path.
    pub(crate) fn page(&self, path: &str) -> String {
        self.changes(path, &mut [u64::MAX; IDS.len()])
    }

    /// Returns the fragments of a page that have changed since the versions `seen`, and updates these.
    pub(crate) fn changes(&self, path: &str, seen: &mut [u64; IDS.len()]) -> String {
        let mut changes = String::new();
        for ((fragment, seen), id) in self.fragments.iter().zip(seen).zip(IDS) {
            if is_on(path, id) && std::mem::replace(seen, fragment.version) != fragment.version {
                changes.push_str(&fragment.html);
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changed_fragments_are_sent_again() {
        let (first, mut seen) = (Snapshot::default(), [0; IDS.len()]);
        let next = |last: &Snapshot, parts: [&str; IDS.len()]| last.next(parts.map(str::to_owned), Selected::new());
        let second = next(&first, ["a", "b", "d", "", "", "", "", "", "", "g"]);
        assert_eq!((second.changes("", &mut seen), second.changes("", &mut seen)), ("ab".to_owned(), String::new()));
        let third = next(&second, ["a", "c", "d", "", "", "", "", "", "", "g"]);
        assert_eq!(third.changes("", &mut seen), "c");
        assert_eq!(third.changes("", &mut [0; IDS.len()]), "ac", "a new tab");
        assert_eq!(["/", games::PATH, FLEET].map(|path| third.page(path)), ["ac", "ag", "ad"]);
    }
}
