use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use experience::TrajectoryId;

/// The ids of all trajectories ever inserted, kept after the trajectories are removed, so that each insert counts once.
///
/// Actors number their trajectories consecutively, so the sequences of one epoch merge into a single interval, and
/// memory grows with the number of gaps, not of trajectories.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenIds {
    /// The intervals of sequences of each actor and epoch, from first to last; disjoint and not adjacent.
    intervals: BTreeMap<(u64, u64), BTreeMap<u64, u64>>,
}

impl SeenIds {
    /// Returns true if `id` was inserted before.
    #[must_use]
    pub fn contains(&self, id: TrajectoryId) -> bool {
        let Some(intervals) = self.intervals.get(&(id.actor, id.epoch)) else { return false };
        intervals.range(..=id.sequence).next_back().is_some_and(|(_, &last)| id.sequence <= last)
    }

    /// Adds `id`; returns false if it was inserted before.
    pub fn insert(&mut self, id: TrajectoryId) -> bool {
        if self.contains(id) {
            return false;
        }
        let intervals = self.intervals.entry((id.actor, id.epoch)).or_default();
        let before = intervals.range(..id.sequence).next_back().map(|(&first, &last)| (first, last));
        let first = match before {
            Some((first, last)) if last + 1 == id.sequence => first,
            _ => id.sequence,
        };
        let after = id.sequence.checked_add(1).and_then(|next| intervals.remove(&next));
        intervals.insert(first, after.unwrap_or(id.sequence));
        true
    }

    /// Adds a whole interval of sequences, as returned by [`SeenIds::intervals`]. It may touch or overlap existing
    /// intervals.
    pub fn insert_interval(&mut self, actor: u64, epoch: u64, sequences: RangeInclusive<u64>) {
        if sequences.is_empty() {
            return;
        }
        let intervals = self.intervals.entry((actor, epoch)).or_default();
        let (mut first, mut last) = sequences.into_inner();
        // All intervals that overlap or touch the new one are merged into it.
        while let Some((&other_first, &other_last)) = intervals.range(..=last.saturating_add(1)).next_back() {
            if other_last.saturating_add(1) < first {
                break;
            }
            intervals.remove(&other_first);
            first = first.min(other_first);
            last = last.max(other_last);
        }
        intervals.insert(first, last);
    }

    /// Returns the highest epoch of the ids of `actor`; `None` if there are none.
    #[must_use]
    pub fn highest_epoch(&self, actor: u64) -> Option<u64> {
        self.intervals.range((actor, 0)..=(actor, u64::MAX)).next_back().map(|(&(_, epoch), _)| epoch)
    }

    /// Returns all ids in ascending order, as actor, epoch and interval of sequences.
    pub fn intervals(&self) -> impl Iterator<Item = (u64, u64, RangeInclusive<u64>)> + '_ {
        self.intervals.iter().flat_map(|(&(actor, epoch), intervals)| {
            intervals.iter().map(move |(&first, &last)| (actor, epoch, first..=last))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn id(actor: u64, sequence: u64) -> TrajectoryId {
        TrajectoryId { actor, epoch: 1, sequence }
    }

    #[test]
    fn an_id_is_new_once() {
        let mut seen = SeenIds::default();
        assert!(seen.insert(id(1, 0)));
        assert!(!seen.insert(id(1, 0)));
        assert!(seen.insert(id(2, 0)));
    }

    #[test]
    fn the_highest_epoch_is_that_of_the_same_actor() {
        let mut seen = SeenIds::default();
        for (actor, epoch) in [(1, 4), (1, 2), (3, u64::MAX), (4, 1)] {
            seen.insert(TrajectoryId { actor, epoch, sequence: 0 });
        }
        assert_eq!(
            [0, 1, 2, 3, 4, 5].map(|actor| seen.highest_epoch(actor)),
            [None, Some(4), None, Some(u64::MAX), Some(1), None]
        );
    }

    #[test]
    fn sequences_in_any_order_close_up_to_one_interval() {
        let mut seen = SeenIds::default();
        for sequence in [5, 3, 4, 0, 2, 1, u64::MAX] {
            assert!(seen.insert(id(7, sequence)));
        }
        let intervals: Vec<_> = seen.intervals().collect();
        assert_eq!(intervals, [(7, 1, 0..=5), (7, 1, u64::MAX..=u64::MAX)]);
    }

    proptest! {
        #[test]
        fn the_intervals_agree_with_a_set_of_ids(sequences in prop::collection::vec((0_u64..3, 0_u64..40), 0..200)) {
            let mut seen = SeenIds::default();
            let mut naive = HashSet::new();
            for (actor, sequence) in sequences {
                prop_assert_eq!(seen.contains(id(actor, sequence)), naive.contains(&(actor, sequence)));
                prop_assert_eq!(seen.insert(id(actor, sequence)), naive.insert((actor, sequence)));
            }
            for (actor, sequence) in (0..3).flat_map(|actor| (0..41).map(move |sequence| (actor, sequence))) {
                prop_assert_eq!(seen.contains(id(actor, sequence)), naive.contains(&(actor, sequence)));
            }
            let again = seen.intervals().fold(SeenIds::default(), |mut again, (actor, epoch, sequences)| {
                again.insert_interval(actor, epoch, sequences);
                again
            });
            prop_assert_eq!(again, seen);
        }

        #[test]
        fn whole_intervals_agree_with_their_members(spans in prop::collection::vec((0_u64..60, 0_u64..10), 0..30)) {
            let mut seen = SeenIds::default();
            let mut one_by_one = SeenIds::default();
            for (first, more) in spans {
                seen.insert_interval(3, 1, first..=first + more);
                for sequence in first..=first + more {
                    one_by_one.insert(id(3, sequence));
                }
            }
            prop_assert_eq!(seen, one_by_one);
        }
    }
}
