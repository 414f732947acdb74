//! Defines the head of a segment: state of earlier segments that must remain after these are removed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;

use proto::replay::Suspect;
use replay::SeenIds;
use serde::{Deserialize, Serialize};

use super::fields::{COMPRESSION_LEVEL, UnreadableRecord};
use super::operator_record::{OperatorRecord, TableCounters};

/// Maximum size of a decompressed head, in bytes: enough for millions of id intervals. A larger head is not
/// written, and counts as damage when read.
const HEAD_BYTES_MAX: usize = 256 << 20;

/// Counters since the start of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Trajectories inserted.
    pub trajectories: u64,
    /// Items inserted.
    pub items: u64,
    /// Items drawn.
    pub samples: u64,
}

/// The state of one table in the log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LoggedTable {
    /// Settings of the table, as text that the log does not interpret.
    #[serde(default)]
    pub settings: String,
    /// Counters of the table.
    #[serde(default)]
    pub counters: TableCounters,
}

/// The log's state before a segment, which makes each segment independent of dropped segments.
///
/// Quarantines, priorities and revisions of trajectories are deliberately absent: their records follow the trajectory
/// in the log, and so are never dropped before the trajectory.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Head {
    /// Name of the game of all trajectories.
    pub game: String,
    /// Totals since the start of the run.
    pub counters: Counters,
    /// Ids of all inserted trajectories.
    pub seen: SeenIds,
    /// Actors in quarantine.
    pub quarantined_actors: BTreeSet<u64>,
    /// State of each table, by name.
    pub tables: BTreeMap<String, LoggedTable>,
}

/// The head as stored in the file: human-readable JSON, since it is rare and small.
#[derive(Serialize, Deserialize)]
struct HeadText {
    game: String,
    counters: Counters,
    /// Intervals of trajectory ids, each as actor, epoch, first and last sequence number.
    seen: Vec<[u64; 4]>,
    quarantined_actors: BTreeSet<u64>,
    tables: BTreeMap<String, LoggedTable>,
}

impl Counters {
    /// Counts a trajectory with `items` items.
    pub fn count(&mut self, items: u32) {
        // The additions saturate, since the content of a file may be damaged.
        self.trajectories = self.trajectories.saturating_add(1);
        self.items = self.items.saturating_add(items.into());
    }

    /// Returns the maximum of each counter, which is the later value because totals only grow.
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

    /// Encodes the head as a record payload, without the kind.
    pub(super) fn encode(&self) -> std::io::Result<Vec<u8>> {
        let seen = self.seen.intervals().map(|(actor, epoch, s)| [actor, epoch, *s.start(), *s.end()]).collect();
        let Self { game, counters, seen: _, quarantined_actors, tables } = self.clone();
        let text = serde_json::to_vec(&HeadText { game, counters, seen, quarantined_actors, tables })?;
        if text.len() > HEAD_BYTES_MAX {
            return Err(std::io::Error::other(format!("a log head of {} bytes is too large", text.len())));
        }
        zstd::bulk::compress(&text, COMPRESSION_LEVEL)
    }

    /// Decodes the output of [`Head::encode`].
    pub(super) fn decode(compressed: &[u8]) -> Result<Self, UnreadableRecord> {
        let content = UnreadableRecord;
        let mut text = Vec::new();
        // The allocation grows with the data decompressed so far, not with the size in the header.
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
