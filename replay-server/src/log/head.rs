//! The head of a segment: the state of earlier segments that must survive their removal.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;

use proto::replay::Suspect;
use replay::SeenIds;
use serde::{Deserialize, Serialize};

use super::fields::{COMPRESSION_LEVEL, UnreadableRecord};
use super::operator_record::{OperatorRecord, TableCounters};

/// The maximum size of a decompressed head: enough for millions of intervals of ids. A larger head is not written, and
/// counts as damage when read.
const HEAD_BYTES_MAX: usize = 256 << 20;

/// The counters since the run began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Trajectories inserted.
    pub trajectories: u64,
    /// Items inserted.
    pub items: u64,
    /// Items drawn.
    pub samples: u64,
}

/// The log's state of one table.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LoggedTable {
    /// The settings of the table, as text that the log does not interpret.
    #[serde(default)]
    pub settings: String,
    /// The counters of the table.
    #[serde(default)]
    pub counters: TableCounters,
}

/// The state of the log before a segment: it makes each segment independent of the dropped ones.
///
/// The quarantine, the priorities and the revisions of a trajectory are deliberately absent: their records follow the
/// trajectory's own in the log, so they are never dropped before it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Head {
    /// The name of the game of all trajectories.
    pub game: String,
    /// The totals since the run began.
    pub counters: Counters,
    /// The ids of all trajectories inserted.
    pub seen: SeenIds,
    /// The actors in quarantine.
    pub quarantined_actors: BTreeSet<u64>,
    /// The state of each table, by name.
    pub tables: BTreeMap<String, LoggedTable>,
}

/// The head as stored in the file: human-readable JSON, because it is rare and small.
#[derive(Serialize, Deserialize)]
struct HeadText {
    game: String,
    counters: Counters,
    /// The intervals of ids, each as actor, epoch, first and last sequence.
    seen: Vec<[u64; 4]>,
    quarantined_actors: BTreeSet<u64>,
    tables: BTreeMap<String, LoggedTable>,
}

impl Counters {
    /// Counts a trajectory with this number of items.
    pub fn count(&mut self, items: u32) {
        // The additions saturate, because the content of a file may be damaged.
        self.trajectories = self.trajectories.saturating_add(1);
        self.items = self.items.saturating_add(items.into());
    }

    /// Returns the larger value of each counter: totals only grow.
    pub fn max(self, other: Self) -> Self {
        Self {
            trajectories: self.trajectories.max(other.trajectories),
            items: self.items.max(other.items),
            samples: self.samples.max(other.samples),
        }
    }
}

impl Head {
    /// Applies the changes of a record.
    pub(super) fn record(&mut self, record: &OperatorRecord) {
        match record {
            OperatorRecord::Quarantine(Suspect::Actor(actor)) => drop(self.quarantined_actors.insert(*actor)),
            OperatorRecord::Release(Suspect::Actor(actor)) => drop(self.quarantined_actors.remove(actor)),
            OperatorRecord::Table { name, settings } => match settings {
                Some(settings) => self.tables.entry(name.clone()).or_default().settings.clone_from(settings),
                None => drop(self.tables.remove(name)),
            },
            OperatorRecord::TableCounters { table, counters } => {
                let state = self.tables.entry(table.clone()).or_default();
                state.counters = state.counters.max(*counters);
            }
            OperatorRecord::Quarantine(Suspect::Trajectory(_))
            | OperatorRecord::Release(Suspect::Trajectory(_))
            | OperatorRecord::Priorities { .. } => {}
        }
    }

    /// Merges the head of a later segment, which includes this state unless the disk has failed.
    pub(super) fn merge(&mut self, later: Self) {
        let Self { game: _, counters, seen, quarantined_actors, tables } = later;
        self.counters = self.counters.max(counters);
        for (actor, epoch, sequences) in seen.intervals() {
            self.seen.insert_interval(actor, epoch, sequences);
        }
        self.quarantined_actors = quarantined_actors;
        self.tables = tables;
    }

    /// Encodes the head as the payload of its record, without the kind.
    pub(super) fn encode(&self) -> std::io::Result<Vec<u8>> {
        let seen = self.seen.intervals().map(|(actor, epoch, s)| [actor, epoch, *s.start(), *s.end()]).collect();
        let Self { game, counters, seen: _, quarantined_actors, tables } = self.clone();
        let text = serde_json::to_vec(&HeadText { game, counters, seen, quarantined_actors, tables })?;
        if text.len() > HEAD_BYTES_MAX {
            return Err(std::io::Error::other(format!("the ids seen take {} bytes", text.len())));
        }
        zstd::bulk::compress(&text, COMPRESSION_LEVEL)
    }

    /// Decodes the output of [`Head::encode`].
    pub(super) fn decode(compressed: &[u8]) -> Result<Self, UnreadableRecord> {
        let content = UnreadableRecord;
        let mut text = Vec::new();
        // The allocation grows with the data decompressed so far, not with the size that the header claims.
        let decoder = zstd::stream::read::Decoder::new(compressed);
        let read = decoder.and_then(|decoder| decoder.take(HEAD_BYTES_MAX as u64).read_to_end(&mut text));
        read.map_err(|error| content(error.to_string()))?;
        let HeadText { game, counters, seen: intervals, quarantined_actors, tables } =
            serde_json::from_slice(&text).map_err(|error| content(error.to_string()))?;
        let mut seen = SeenIds::default();
        for [actor, epoch, first, last] in intervals {
            seen.insert_interval(actor, epoch, first..=last);
        }
        Ok(Self { game, counters, seen, quarantined_actors, tables })
    }
}
