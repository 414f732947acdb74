//! What all tabs see at one time.

use std::sync::Arc;

use tokio::sync::watch;

use crate::charts::Charts;
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

/// The state of a run at one time, rendered once for all visitors. Fragments are elements with [`IDS`], in this order.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) fragments: [String; IDS.len()],
    /// Games that a page can show large, drawn for the first page that does.
    pub(crate) selected: Selected,
    /// The recorded metrics with charts; `None` before the run is read for the first time.
    pub(crate) charts: Option<Arc<Charts>>,
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
    /// Returns all fragments of the page at this path.
    pub(crate) fn page(&self, path: &str) -> String {
        self.changes(path, &Self::default())
    }

    /// Returns the fragments of a page that are different in the snapshot `seen`.
    pub(crate) fn changes(&self, path: &str, seen: &Self) -> String {
        let fragments = self.fragments.iter().zip(&seen.fragments).zip(IDS);
        let changed = fragments.filter(|((html, seen), id)| is_on(path, id) && html != seen);
        changed.map(|((html, _), _)| html.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changed_fragments_are_sent_again() {
        let of = |parts: [&str; IDS.len()]| Snapshot { fragments: parts.map(str::to_owned), ..Snapshot::default() };
        let second = of(["a", "b", "d", "", "", "", "", "", "", "g"]);
        assert_eq!(
            (second.changes("", &Snapshot::default()), second.changes("", &second)),
            ("ab".to_owned(), String::new())
        );
        let third = of(["a", "c", "d", "", "", "", "", "", "", "g"]);
        assert_eq!(third.changes("", &second), "c");
        assert_eq!(["/", games::PATH, FLEET].map(|path| third.page(path)), ["ac", "ag", "ad"]);
    }
}
