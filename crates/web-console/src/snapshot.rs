//! What all tabs see at one time.

/// Ids of the elements that change, in the order of the overview.
pub(crate) const IDS: [&str; 6] = ["warnings", "state", "now", "bottleneck", "charts", "events"];

/// A part of a page: an element with one of [`IDS`] as id.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fragment {
    /// Number of changes so far.
    pub(crate) version: u64,
    pub(crate) html: String,
}

/// The state of a run at one time, rendered once for all visitors. Fragments are in the order of [`IDS`].
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) fragments: [Fragment; IDS.len()],
}

impl Snapshot {
    /// Returns the next snapshot, in which a changed fragment has the next version.
    pub(crate) fn next(&self, rendered: [String; IDS.len()]) -> Self {
        let mut next = self.clone();
        for (fragment, html) in next.fragments.iter_mut().zip(rendered) {
            if fragment.html != html {
                *fragment = Fragment { version: fragment.version + 1, html };
            }
        }
        next
    }

    /// Returns the fragments that have changed since the versions `seen`, and updates these.
    pub(crate) fn changes(&self, seen: &mut [u64; IDS.len()]) -> String {
        let mut changes = String::new();
        for (fragment, seen) in self.fragments.iter().zip(seen) {
            if std::mem::replace(seen, fragment.version) != fragment.version {
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
        let second = first.next(["a", "b", "", "", "", ""].map(str::to_owned));
        assert_eq!((second.changes(&mut seen), second.changes(&mut seen)), ("ab".to_owned(), String::new()));
        let third = second.next(["a", "c", "", "", "", ""].map(str::to_owned));
        assert_eq!(third.changes(&mut seen), "c");
        assert_eq!(third.changes(&mut [0; IDS.len()]), "ac", "a new tab");
    }
}
