//! What is stored, held against what was acknowledged.

use std::collections::BTreeMap;

use experience::TrajectoryId;

use super::witness::{EPOCH, WITNESS};

#[cfg(test)]
mod tests;

/// Sequence numbers that are told of one epoch: a person needs to see where they are, not all of them.
const TOLD_MAX: usize = 5;

/// The ids that are stored, or kept by their actor for its next start.
#[derive(Debug, Default)]
pub struct Ledger {
    sequences: BTreeMap<(u64, u64), Vec<u64>>,
}

impl Ledger {
    /// That of these ids.
    #[must_use]
    pub fn new(ids: impl IntoIterator<Item = TrajectoryId>) -> Self {
        let mut ledger = Self::default();
        for TrajectoryId { actor, epoch, sequence } in ids {
            ledger.sequences.entry((actor, epoch)).or_default().push(sequence);
        }
        ledger.sequences.values_mut().for_each(|sequences| sequences.sort_unstable());
        ledger
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sequences.values().map(Vec::len).sum()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sequences.is_empty()
    }

    /// What is doubled, or missing between others: actors number without gaps, and are acknowledged in order.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for ((actor, epoch), sequences) in &self.sequences {
            let doubled: Vec<_> = sequences.windows(2).filter(|two| two[0] == two[1]).map(|two| two[0]).collect();
            let last = sequences.last().copied().unwrap_or(0);
            let missing: Vec<_> = (0..last).filter(|sequence| sequences.binary_search(sequence).is_err()).collect();
            for (what, those) in [("doubled", doubled), ("missing", missing)] {
                if !those.is_empty() {
                    let told = &those[..those.len().min(TOLD_MAX)];
                    faults.push(format!("actor {actor}, epoch {epoch}: {} {what}: {told:?} …", those.len()));
                }
            }
        }
        faults
    }

    /// What is missing of an actor's epochs that was acknowledged: so many of each.
    #[must_use]
    pub fn lost(&self, actor: u64, acknowledged: &BTreeMap<u64, u64>) -> Vec<String> {
        let held = |epoch| self.sequences.get(&(actor, epoch)).map_or(0, Vec::len) as u64;
        let lost = acknowledged.iter().filter(|&(&epoch, &count)| held(epoch) < count);
        lost.map(|(&epoch, count)| format!("actor {actor}, epoch {epoch}: {count} acknowledged, {} held", held(epoch)))
            .collect()
    }

    /// What is missing of the witness, to whom all below `acknowledged` were.
    #[must_use]
    pub fn lost_to_witness(&self, acknowledged: u64) -> Vec<String> {
        self.lost(WITNESS, &BTreeMap::from([(EPOCH, acknowledged)]))
    }
}
