use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use experience::TrajectoryId;

/// The interval of all sequence numbers, which marks an epoch as retired: every id of the epoch counts as inserted.
const WHOLE: (u64, u64) = (0, u64::MAX);

/// Maximum number of epochs stored for each actor, to bound the cost of an insert. Each actor start is a new epoch.
const EPOCHS_MAX: usize = 1024;

/// The divisor for forgetting actors: 1/16 of all actors are forgotten at once, so that the actors need to be sorted
/// only once for many new actors.
const FORGOTTEN_PART: usize = 16;

/// Memory bounds of [`SeenIds`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenLimits {
    /// Maximum number of actors, at least 1. Beyond this number, the actors with the fewest ids are forgotten.
    pub actors_max: usize,
    /// Total number of intervals, divided equally among the actors.
    pub intervals: usize,
    /// Minimum number of intervals for each actor, even with many actors. At least 1.
    pub actor_intervals_min: usize,
}

impl SeenLimits {
    /// Limits that never apply.
    pub const UNBOUNDED: Self = Self { actors_max: usize::MAX, intervals: usize::MAX, actor_intervals_min: usize::MAX };
}

impl Default for SeenLimits {
    /// Returns limits for a replay server: four times as many actors as a server has streams. The intervals take a
    /// third of the maximum log record size, and about 10 MB in memory.
    fn default() -> Self {
        Self { actors_max: 1 << 14, intervals: 1 << 17, actor_intervals_min: 8 }
    }
}

/// The ids of all trajectories ever inserted, for rejecting duplicates even after trajectories are removed.
///
/// Actors number trajectories consecutively, so the sequence numbers of one epoch merge into a single interval. Memory
/// therefore grows with the number of gaps, not with the number of trajectories. [`SeenLimits`] bounds the memory for
/// any client behaviour: if an actor has more intervals than one actor may have, the lowest gaps are closed and the
/// lowest epochs retired. Ids in closed gaps and retired epochs count as inserted. An actor that follows the protocol
/// has few gaps, and loses an id in a retired epoch only after as many restarts as one actor may have intervals.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenIds {
    limits: SeenLimits,
    actors: BTreeMap<u64, Epochs>,
}

/// The ids of one actor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Epochs {
    /// The intervals of sequence numbers for each epoch, as a map from first to last; disjoint and not adjacent. Only
    /// the lowest epoch can be [`WHOLE`]: this epoch and all lower epochs are retired.
    epochs: BTreeMap<u64, BTreeMap<u64, u64>>,
    /// Total number of intervals in all epochs.
    intervals: usize,
}

impl SeenIds {
    /// Creates an empty set with the bounds `limits`.
    #[must_use]
    pub fn new(limits: SeenLimits) -> Self {
        Self { limits, actors: BTreeMap::new() }
    }

    /// Returns true if `id` was inserted or counts as inserted.
    #[must_use]
    pub fn contains(&self, id: TrajectoryId) -> bool {
        self.actors.get(&id.actor).is_some_and(|epochs| epochs.contains(id.epoch, id.sequence))
    }

    /// Adds `id`. Returns false if `id` was already inserted or counts as inserted.
    ///
    /// If the actor then has more intervals than one actor may have, the lowest gap in the epoch with the most
    /// intervals is closed. If there is no gap, the lowest epoch of the actor is retired.
    pub fn insert(&mut self, id: TrajectoryId) -> bool {
        if self.contains(id) {
            return false;
        }
        let (actors, share) = (self.actors.len(), self.share());
        self.insert_interval(id.actor, id.epoch, id.sequence..=id.sequence);
        if self.actors.len() > actors {
            self.welcome(id.actor, share);
        }
        let share = self.share();
        if let Some(epochs) = self.actors.get_mut(&id.actor) {
            epochs.shrink_to(share);
        }
        true
    }

    /// Applies the bounds after a new actor: forgets other actors if there are too many, and reduces the intervals of
    /// all actors if the maximum for one actor has fallen.
    fn welcome(&mut self, actor: u64, share: usize) {
        if self.actors.len() > self.limits.actors_max {
            self.forget(self.actors.len().div_ceil(FORGOTTEN_PART), Some(actor));
        }
        if self.share() < share {
            self.bound(self.limits);
        }
    }

    /// Adds an interval of sequence numbers, as returned by [`SeenIds::intervals`]. The interval may overlap existing
    /// intervals. The bounds are not applied until the next [`SeenIds::bound`].
    pub fn insert_interval(&mut self, actor: u64, epoch: u64, sequences: RangeInclusive<u64>) {
        if !sequences.is_empty() {
            self.actors.entry(actor).or_default().insert(epoch, sequences.into_inner());
        }
    }

    /// Sets the bounds and applies the new bounds to all actors.
    pub fn bound(&mut self, limits: SeenLimits) {
        self.limits = limits;
        self.forget(self.actors.len().saturating_sub(limits.actors_max), None);
        let share = self.share();
        self.actors.values_mut().for_each(|epochs| epochs.shrink_to(share));
    }

    /// Forgets the `count` actors with the fewest ids, because a faulty client can invent such actors most cheaply. Ids
    /// of forgotten actors count as new.
    fn forget(&mut self, count: usize, except: Option<u64>) {
        if count == 0 {
            return;
        }
        let mut sizes: Vec<(u64, u64)> = self.actors.iter().map(|(&actor, epochs)| (epochs.ids(), actor)).collect();
        sizes.retain(|(_, actor)| Some(*actor) != except);
        sizes.sort_unstable();
        for (_, actor) in sizes.into_iter().take(count) {
            self.actors.remove(&actor);
        }
    }

    /// Returns the maximum number of intervals for one actor. It changes only when the number of actors doubles.
    fn share(&self) -> usize {
        let SeenLimits { intervals, actor_intervals_min, .. } = self.limits;
        (intervals / self.actors.len().next_power_of_two()).max(actor_intervals_min)
    }

    /// Returns the highest epoch among the ids of `actor`. `None` for an unknown actor.
    #[must_use]
    pub fn highest_epoch(&self, actor: u64) -> Option<u64> {
        self.actors.get(&actor)?.epochs.last_key_value().map(|(&epoch, _)| epoch)
    }

    /// Returns all ids in ascending order, as tuples of actor, epoch and interval of sequence numbers.
    pub fn intervals(&self) -> impl Iterator<Item = (u64, u64, RangeInclusive<u64>)> + '_ {
        self.actors.iter().flat_map(|(&actor, epochs)| {
            epochs.epochs.iter().flat_map(move |(&epoch, intervals)| {
                intervals.iter().map(move |(&first, &last)| (actor, epoch, first..=last))
            })
        })
    }
}

impl Epochs {
    fn contains(&self, epoch: u64, sequence: u64) -> bool {
        if self.is_retired(epoch) {
            return true;
        }
        let Some(intervals) = self.epochs.get(&epoch) else { return false };
        intervals.range(..=sequence).next_back().is_some_and(|(_, &last)| sequence <= last)
    }

    /// Returns true if all ids of `epoch` count as inserted.
    fn is_retired(&self, epoch: u64) -> bool {
        self.epochs.first_key_value().is_some_and(|(&lowest, first)| epoch <= lowest && is_whole(first))
    }

    /// Returns the number of ids, including ids in closed gaps and retired epochs.
    fn ids(&self) -> u64 {
        let intervals = self.epochs.values().flatten();
        intervals.fold(0, |ids: u64, (&first, &last)| ids.saturating_add(last - first).saturating_add(1))
    }

    fn insert(&mut self, epoch: u64, (mut first, mut last): (u64, u64)) {
        if self.is_retired(epoch) {
            return;
        }
        let intervals = self.epochs.entry(epoch).or_default();
        // Merges all overlapping and adjacent intervals into the new interval.
        while let Some((&other_first, &other_last)) = intervals.range(..=last.saturating_add(1)).next_back() {
            if other_last.saturating_add(1) < first {
                break;
            }
            intervals.remove(&other_first);
            self.intervals -= 1;
            first = first.min(other_first);
            last = last.max(other_last);
        }
        intervals.insert(first, last);
        self.intervals += 1;
        if (first, last) == WHOLE {
            self.retire(epoch);
        }
    }

    /// Closes gaps and retires epochs until at most `share` intervals are left. The highest epoch is never retired.
    fn shrink_to(&mut self, share: usize) {
        let epochs_max = if share == usize::MAX { share } else { EPOCHS_MAX.min(share) };
        while self.epochs.len() > epochs_max && self.retire_lowest() {}
        while self.intervals > share && (self.close_lowest_gap() || self.retire_lowest()) {}
    }

    /// Closes the lowest gap of the epoch with the most intervals. Returns false if no epoch has a gap.
    fn close_lowest_gap(&mut self) -> bool {
        let most = self.epochs.iter_mut().max_by_key(|(_, intervals)| intervals.len());
        let Some((&epoch, intervals)) = most.filter(|(_, intervals)| intervals.len() > 1) else { return false };
        let mut lowest = intervals.iter().map(|(&first, &last)| (first, last));
        let (Some((first, _)), Some((second, last))) = (lowest.next(), lowest.next()) else { return false };
        intervals.remove(&second);
        intervals.insert(first, last);
        self.intervals -= 1;
        if (first, last) == WHOLE {
            self.retire(epoch);
        }
        true
    }

    /// Retires the lowest active epoch, unless only one active epoch is left. Returns true if an epoch was retired.
    fn retire_lowest(&mut self) -> bool {
        let mut open = self.epochs.iter().filter(|(_, intervals)| !is_whole(intervals)).map(|(&epoch, _)| epoch);
        let (Some(lowest), Some(_)) = (open.next(), open.next()) else { return false };
        self.retire(lowest);
        true
    }

    /// Makes all ids of `epoch` and all lower epochs count as inserted.
    fn retire(&mut self, epoch: u64) {
        self.epochs = self.epochs.split_off(&epoch);
        self.epochs.insert(epoch, BTreeMap::from([WHOLE]));
        self.intervals = self.epochs.values().map(BTreeMap::len).sum();
    }
}

fn is_whole(intervals: &BTreeMap<u64, u64>) -> bool {
    intervals.first_key_value() == Some((&WHOLE.0, &WHOLE.1))
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

    const FEW: SeenLimits = SeenLimits { actors_max: 4, intervals: 16, actor_intervals_min: 2 };

    fn total(seen: &SeenIds) -> usize {
        seen.intervals().count()
    }

    #[test]
    fn gaps_beyond_the_share_close_from_the_lowest() {
        let mut seen = SeenIds::new(SeenLimits { intervals: 3, ..FEW });
        for sequence in [10, 20, 30, 40, 50] {
            assert!(seen.insert(id(1, sequence)));
        }
        let left: Vec<_> = seen.intervals().map(|(.., sequences)| sequences).collect();
        assert_eq!(left, [10..=30, 40..=40, 50..=50]);
        assert!(seen.contains(id(1, 15)), "an id in a closed gap counts as inserted");
        assert!(!seen.contains(id(1, 45)));
    }

    #[test]
    fn the_lowest_epochs_are_retired_and_the_highest_one_is_kept() {
        let mut seen = SeenIds::new(SeenLimits { intervals: 3, ..FEW });
        for epoch in 1..=9 {
            assert!(seen.insert(TrajectoryId { actor: 1, epoch, sequence: 0 }));
        }
        assert!(total(&seen) <= 3);
        assert_eq!(seen.highest_epoch(1), Some(9));
        assert!(seen.contains(TrajectoryId { actor: 1, epoch: 2, sequence: 77 }));
        assert!(!seen.contains(TrajectoryId { actor: 1, epoch: 9, sequence: 1 }));
        seen.insert_interval(1, 2, 0..=5);
        assert!(seen.contains(TrajectoryId { actor: 1, epoch: 1, sequence: 0 }), "a retired epoch stays retired");
    }

    #[test]
    fn a_new_actor_is_admitted_at_the_expense_of_those_with_the_fewest_ids() {
        let mut seen = SeenIds::new(FEW);
        for sequence in 0..100 {
            seen.insert(id(50, sequence));
        }
        for invented in 1000..2000 {
            assert!(seen.insert(id(invented, 7)));
            assert!(seen.contains(id(invented, 7)));
        }
        assert!((0..100).all(|sequence| seen.contains(id(50, sequence))));
        assert!(seen.insert(id(60, 0)));
    }

    proptest! {
        #[test]
        fn the_intervals_are_bounded_whatever_is_inserted(
            ids in prop::collection::vec((0_u64..9, 0_u64..9, any::<u64>()), 0..400),
        ) {
            let mut seen = SeenIds::new(FEW);
            for (actor, epoch, sequence) in ids {
                let id = TrajectoryId { actor, epoch, sequence };
                let was_new = !seen.contains(id);
                prop_assert_eq!(seen.insert(id), was_new);
                prop_assert!(seen.contains(id));
                // The highest epoch of an actor is kept next to retired epochs.
                prop_assert!(total(&seen) <= FEW.intervals + FEW.actors_max);
                let mut read = SeenIds::default();
                seen.intervals().for_each(|(actor, epoch, sequences)| read.insert_interval(actor, epoch, sequences));
                read.bound(FEW);
                prop_assert_eq!(&read, &seen);
            }
        }

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
