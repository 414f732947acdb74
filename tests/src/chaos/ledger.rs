//! Compares the stored trajectories with the acknowledged trajectories.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use experience::TrajectoryId;

use super::watch::Acknowledged;

/// Maximum number of sequence numbers reported per epoch; the first few are enough to find the fault.
const SHOWN_MAX: usize = 5;

/// Ids of the trajectories that are stored, or spooled by the actor for the next start.
#[derive(Debug, Default)]
pub struct Ledger {
    sequences: BTreeMap<(u64, u64), Vec<u64>>,
}

impl Ledger {
    /// Creates a ledger of these ids.
    #[must_use]
    pub fn new(ids: impl IntoIterator<Item = TrajectoryId>) -> Self {
        let mut ledger = Self::default();
        for TrajectoryId { actor, epoch, sequence } in ids {
            ledger.sequences.entry((actor, epoch)).or_default().push(sequence);
        }
        ledger.sequences.values_mut().for_each(|sequences| sequences.sort_unstable());
        ledger
    }

    /// Returns the number of trajectories.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sequences.values().map(Vec::len).sum()
    }

    /// Returns true if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sequences.is_empty()
    }

    /// Returns repeated sequence numbers, and the [missing](Self::missing) numbers.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let doubled = self.of_each_epoch("doubled", |sequences| {
            sequences.windows(2).filter(|two| two[0] == two[1]).map(|two| two[0]).collect()
        });
        [doubled, self.missing()].concat()
    }

    /// Returns the sequence numbers missing below the highest in an epoch: actors number trajectories without gaps, and
    /// send them in order.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        self.of_each_epoch("missing", |sequences| {
            let last = sequences.last().copied().unwrap_or(0);
            (0..last).filter(|sequence| sequences.binary_search(sequence).is_err()).collect()
        })
    }

    /// Returns a message for each epoch in which `find` finds sequence numbers.
    fn of_each_epoch(&self, what: &str, find: impl Fn(&[u64]) -> Vec<u64>) -> Vec<String> {
        let found = self.sequences.iter().map(|(epoch, sequences)| (epoch, find(sequences)));
        found
            .filter(|(_, those)| !those.is_empty())
            .map(|((actor, epoch), those)| {
                let shown = &those[..those.len().min(SHOWN_MAX)];
                format!("actor {actor}, epoch {epoch}: {} {what}: {shown:?} …", those.len())
            })
            .collect()
    }

    /// Returns a message for each start of an actor with fewer held than acknowledged trajectories.
    #[must_use]
    pub fn lost(&self, actor: u64, acknowledged: &[Acknowledged]) -> Vec<String> {
        let held = |epochs: &RangeInclusive<u64>| {
            let of_start = self.sequences.range((actor, *epochs.start())..=(actor, *epochs.end()));
            of_start.map(|(_, sequences)| sequences.len() as u64).sum::<u64>()
        };
        let lost = acknowledged.iter().filter(|start| held(&start.epochs) < start.count);
        lost.map(|Acknowledged { epochs, count }| {
            format!("actor {actor}, epochs {epochs:?}: {count} acknowledged, {} held", held(epochs))
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(actor: u64, epoch: u64, sequences: &[u64]) -> Vec<TrajectoryId> {
        sequences.iter().map(|&sequence| TrajectoryId { actor, epoch, sequence }).collect()
    }

    #[test]
    fn complete_sequences_have_no_faults_in_any_order() {
        let ledger = Ledger::new([ids(1, 1, &[2, 0, 1]), ids(1, 2, &[0]), ids(2, 1, &[1, 0])].concat());
        assert_eq!(ledger.len(), 6);
        assert!(ledger.faults().is_empty(), "{:?}", ledger.faults());
    }

    #[test]
    fn a_gap_and_a_duplicate_are_reported_with_actor_epoch_and_sequence() {
        let faults = Ledger::new([ids(1, 1, &[0, 1, 3]), ids(2, 5, &[0, 1, 1])].concat()).faults();
        assert_eq!(faults.len(), 2);
        assert!(faults[0].contains("actor 2, epoch 5: 1 doubled: [1]"), "{}", faults[0]);
        assert!(faults[1].contains("actor 1, epoch 1: 1 missing: [2]"), "{}", faults[1]);
    }

    #[test]
    fn a_tail_that_was_acknowledged_and_is_not_held_is_lost_whatever_epochs_the_start_has() {
        let ledger = Ledger::new([ids(1, 1, &[0, 1, 2]), ids(1, 2, &[0, 1]), ids(1, 4, &[0])].concat());
        let start = |epochs, count| Acknowledged { epochs, count };
        assert!(ledger.lost(1, &[start(0..=2, 5), start(3..=4, 1)]).is_empty());
        assert_eq!(ledger.lost(1, &[start(0..=2, 6), start(3..=4, 2), start(5..=5, 1)]).len(), 3);
    }
}
