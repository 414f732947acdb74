//! Defines operator records: changes to quarantines, priorities and tables, which the log stores along with the
//! trajectories.

use std::io;

use experience::TrajectoryId;
use proto::limits::NAME_BYTES_MAX;
use proto::replay::Suspect;
use replay::ItemKey;
use serde::{Deserialize, Serialize};

use super::fields::{Fields, UnreadableRecord, put_id, put_text, put_words, too_large};

/// Maximum number of updates in one priorities record: a few of the largest batches.
pub const PRIORITIES_MAX: usize = 1 << 16;

/// Maximum size of table settings, in bytes.
pub const TABLE_SETTINGS_BYTES_MAX: usize = 64 << 10;

/// Size of one priority update, in bytes: an id of three words, a ply and a priority.
const PRIORITY_BYTES: usize = 3 * 8 + 4 + 8;

pub(super) const KIND_QUARANTINE: u8 = 3;
pub(super) const KIND_RELEASE: u8 = 6;
pub(super) const KIND_QUARANTINE_ACTOR: u8 = 7;
pub(super) const KIND_RELEASE_ACTOR: u8 = 8;
pub(super) const KIND_PRIORITIES: u8 = 9;
pub(super) const KIND_TABLE: u8 = 10;
pub(super) const KIND_TABLE_COUNTERS: u8 = 11;

/// An operator's change to trajectories, actors or tables, or table counters, to be restored after a restart.
#[derive(Debug, Clone, PartialEq)]
pub enum OperatorRecord {
    /// A trajectory, or all present and future trajectories of an actor, entered quarantine.
    Quarantine(Suspect),
    /// A trajectory, or the trajectories of an actor, left quarantine.
    Release(Suspect),
    /// Items received new priorities.
    Priorities {
        /// Name of the table.
        table: String,
        /// Updates in request order; at most [`PRIORITIES_MAX`]. Priorities are finite and not negative.
        updates: Vec<(ItemKey, f64)>,
    },
    /// A table was created or changed, or, without settings, removed.
    Table {
        /// Name of the table.
        name: String,
        /// Settings of the table, as text that the log does not interpret.
        settings: Option<String>,
    },
    /// The counters of a table so far: a periodic snapshot.
    TableCounters {
        /// Name of the table.
        table: String,
        /// Totals of the table.
        counters: TableCounters,
    },
}

/// Totals of one table since the start of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TableCounters {
    /// Items inserted.
    pub items: u64,
    /// Items drawn.
    pub samples: u64,
}

impl TableCounters {
    /// Returns the maximum of each counter, which is the later value because totals only grow.
    pub fn max(self, other: Self) -> Self {
        Self { items: self.items.max(other.items), samples: self.samples.max(other.samples) }
    }
}

impl OperatorRecord {
    /// Encodes the record as a frame payload, kind first.
    ///
    /// # Errors
    /// The record exceeds the limits for decoding.
    pub fn encode(&self) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        match self {
            Self::Quarantine(Suspect::Trajectory(id)) => put_with_id(&mut out, KIND_QUARANTINE, *id),
            Self::Release(Suspect::Trajectory(id)) => put_with_id(&mut out, KIND_RELEASE, *id),
            Self::Quarantine(Suspect::Actor(actor)) => put_words(&mut out, KIND_QUARANTINE_ACTOR, [*actor]),
            Self::Release(Suspect::Actor(actor)) => put_words(&mut out, KIND_RELEASE_ACTOR, [*actor]),
            Self::Priorities { table, updates } => {
                let count = u32::try_from(updates.len()).ok().filter(|&count| count as usize <= PRIORITIES_MAX);
                let count = count.ok_or_else(|| too_large("a batch of priorities", updates.len(), PRIORITIES_MAX))?;
                out.push(KIND_PRIORITIES);
                put_text(&mut out, table, NAME_BYTES_MAX)?;
                out.extend_from_slice(&count.to_le_bytes());
                for (ItemKey { trajectory, ply }, priority) in updates {
                    put_id(&mut out, *trajectory);
                    let ply = u32::try_from(*ply).map_err(|_| too_large("a ply", *ply, u32::MAX as usize))?;
                    out.extend_from_slice(&ply.to_le_bytes());
                    out.extend_from_slice(&priority.to_le_bytes());
                }
            }
            Self::Table { name, settings } => {
                out.push(KIND_TABLE);
                put_text(&mut out, name, NAME_BYTES_MAX)?;
                out.push(u8::from(settings.is_some()));
                put_text(&mut out, settings.as_deref().unwrap_or_default(), TABLE_SETTINGS_BYTES_MAX)?;
            }
            Self::TableCounters { table, counters: TableCounters { items, samples } } => {
                out.push(KIND_TABLE_COUNTERS);
                put_text(&mut out, table, NAME_BYTES_MAX)?;
                [items, samples].iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
            }
        }
        Ok(out)
    }

    /// Decodes the bytes after the kind; `None` if the kind belongs to no operator record.
    pub(super) fn decode(kind: u8, rest: &[u8]) -> Result<Option<Self>, UnreadableRecord> {
        let mut rest = Fields(rest);
        let record = match kind {
            KIND_QUARANTINE => Self::Quarantine(Suspect::Trajectory(rest.id()?)),
            KIND_RELEASE => Self::Release(Suspect::Trajectory(rest.id()?)),
            KIND_QUARANTINE_ACTOR => Self::Quarantine(Suspect::Actor(rest.word()?)),
            KIND_RELEASE_ACTOR => Self::Release(Suspect::Actor(rest.word()?)),
            KIND_PRIORITIES => Self::decode_priorities(&mut rest)?,
            KIND_TABLE => {
                let name = rest.text(NAME_BYTES_MAX)?;
                let is_kept = rest.take::<1>()? != [0];
                let settings = rest.text(TABLE_SETTINGS_BYTES_MAX)?;
                Self::Table { name, settings: is_kept.then_some(settings) }
            }
            KIND_TABLE_COUNTERS => {
                let table = rest.text(NAME_BYTES_MAX)?;
                Self::TableCounters { table, counters: TableCounters { items: rest.word()?, samples: rest.word()? } }
            }
            _ => return Ok(None),
        };
        rest.end().map(|()| Some(record))
    }

    fn decode_priorities(rest: &mut Fields<'_>) -> Result<Self, UnreadableRecord> {
        let table = rest.text(NAME_BYTES_MAX)?;
        let count = u32::from_le_bytes(rest.take()?) as usize;
        // The count is checked before the allocation.
        if count > PRIORITIES_MAX || rest.0.len() != count * PRIORITY_BYTES {
            return Err(UnreadableRecord(format!("{} bytes cannot be {count} priorities", rest.0.len())));
        }
        let update = |_| {
            let item = ItemKey { trajectory: rest.id()?, ply: u32::from_le_bytes(rest.take()?) as usize };
            let priority = f64::from_le_bytes(rest.take()?);
            let is_priority = priority.is_finite() && priority >= 0.0;
            let update = is_priority.then_some((item, priority));
            update.ok_or_else(|| UnreadableRecord(format!("{priority} is not a priority")))
        };
        Ok(Self::Priorities { table, updates: (0..count).map(update).collect::<Result<_, _>>()? })
    }
}

fn put_with_id(out: &mut Vec<u8>, kind: u8, id: TrajectoryId) {
    out.push(kind);
    put_id(out, id);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(sequence: u64) -> TrajectoryId {
        TrajectoryId { actor: 1, epoch: 2, sequence }
    }

    fn records() -> Vec<OperatorRecord> {
        let update = |ply| (ItemKey { trajectory: id(9), ply }, ply as f64 / 3.0);
        vec![
            OperatorRecord::Quarantine(Suspect::Trajectory(id(1))),
            OperatorRecord::Release(Suspect::Trajectory(id(2))),
            OperatorRecord::Quarantine(Suspect::Actor(u64::MAX)),
            OperatorRecord::Release(Suspect::Actor(0)),
            OperatorRecord::Priorities { table: "uniform".into(), updates: (0..5).map(update).collect() },
            OperatorRecord::Priorities { table: String::new(), updates: Vec::new() },
            OperatorRecord::Table { name: "late".into(), settings: Some("{}".into()) },
            OperatorRecord::Table { name: "gone".into(), settings: None },
            OperatorRecord::TableCounters { table: "late".into(), counters: TableCounters { items: 3, samples: 4 } },
        ]
    }

    fn decode(payload: &[u8]) -> Result<Option<OperatorRecord>, UnreadableRecord> {
        OperatorRecord::decode(payload[0], &payload[1..])
    }

    #[test]
    fn every_record_comes_back_as_it_was() {
        for record in records() {
            assert_eq!(decode(&record.encode().unwrap()), Ok(Some(record)));
        }
    }

    #[test]
    fn a_record_that_is_cut_or_has_something_behind_it_is_refused() {
        for record in records() {
            let payload = record.encode().unwrap();
            (1..payload.len()).for_each(|length| drop(decode(&payload[..length]).unwrap_err()));
            decode(&[payload.as_slice(), &[0]].concat()).unwrap_err();
        }
    }

    #[test]
    fn an_invalid_priority_is_refused() {
        for priority in [f64::NAN, f64::INFINITY, -1.0] {
            let updates = vec![(ItemKey { trajectory: id(1), ply: 0 }, priority)];
            decode(&OperatorRecord::Priorities { table: "t".into(), updates }.encode().unwrap()).unwrap_err();
        }
    }

    #[test]
    fn an_operator_record_that_could_not_be_read_back_is_not_written() {
        let update = (ItemKey { trajectory: id(1), ply: 0 }, 1.0);
        let records = [
            OperatorRecord::Priorities { table: "t".into(), updates: vec![update; PRIORITIES_MAX + 1] },
            OperatorRecord::Table { name: "x".repeat(NAME_BYTES_MAX + 1), settings: None },
            OperatorRecord::Table { name: "t".into(), settings: Some("x".repeat(TABLE_SETTINGS_BYTES_MAX + 1)) },
        ];
        records.iter().for_each(|record| drop(record.encode().unwrap_err()));
    }
}
