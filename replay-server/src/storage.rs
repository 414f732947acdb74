//! From the log to a table and back: how a trajectory is encoded, and how a restart finds everything again.

use std::collections::BTreeSet;
use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;

use experience::{PackedTrajectory, Trajectory};
use prost::Message as _;
use proto::replay::Suspect;
use proto::replay::v1;
use replay::{ItemKey, Signature, TableTotals};

use crate::config::{Settings, TableIndex};
use crate::keeper::{Restored, Segments, Served};
use crate::log::{self, Framed, Head, Log, LogSettings, Note, OpenError, Recovered, Repair, UnixMillis, Volume};

/// A trajectory as it lies in the log: the wire's message, which may grow fields without breaking old logs; compressed.
///
/// # Errors
/// It is larger than any that comes over the wire.
pub fn encode(trajectory: &Trajectory, inserted: UnixMillis) -> io::Result<Framed> {
    let items = u32::try_from(trajectory.full_plies().count()).expect("an episode has under 2^32 steps");
    Framed::trajectory(trajectory.id, items, inserted, &v1::Trajectory::from(trajectory).encode_to_vec())
}

/// The other way around; the log is checked like the wire, since bits may rot.
fn decode(content: &[u8], signature: &Signature) -> Result<PackedTrajectory, String> {
    let message = v1::Trajectory::decode(content).map_err(|error| error.to_string())?;
    let trajectory = Trajectory::try_from(message).map_err(|invalid| invalid.to_string())?;
    signature.check(&trajectory).map_err(|invalid| invalid.to_string())?;
    Ok(PackedTrajectory::pack(&trajectory))
}

/// Opens the log and rebuilds the tables with their limiters from it.
///
/// # Errors
/// [`OpenError`].
pub fn restore<V: Volume>(volume: V, settings: &Settings) -> Result<(Log<V>, Restored, Vec<Repair>), OpenError> {
    let mut tables: Vec<Served> = settings.tables.iter().cloned().map(Served::new).collect();
    let mut segments = Segments::default();
    let log_settings = LogSettings {
        game: settings.game.clone(),
        segment_bytes: settings.segment_bytes,
        threads: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
    };
    let (signature, start) = (settings.signature(), UnixMillis::now());
    let decode = |content: &[u8]| decode(content, &signature);
    let (log, repairs) = Log::open(volume, log_settings, decode, |segment, recovered| match recovered {
        Recovered::Trajectory { content, inserted, .. } => {
            // Who does not know its age takes it for new.
            let inserted = inserted.unwrap_or(start).since_1970();
            let trajectory = Arc::new(content);
            segments.push(segment);
            tables.iter_mut().for_each(|table| table.insert(Arc::clone(&trajectory), inserted));
            segments.keep(tables.iter().map(|table| table.table().trajectories()).max().unwrap_or(0));
        }
        Recovered::Note(note) => replay_note(&mut tables, note),
    })?;
    let Head { counters, seen, quarantined_actors, tables: states, .. } = log.state();
    for table in &mut tables {
        hold_to(table, quarantined_actors);
    }
    let totals = TableTotals { trajectories: counters.trajectories, items: counters.items };
    for (index, table) in tables.iter_mut().enumerate() {
        let own = states.get(table.name()).map(|state| state.counters.samples);
        table.resume(totals, if index == TableIndex::MAIN.0 { Some(counters.samples) } else { own });
    }
    let (seen, log_bytes) = (seen.clone(), log.bytes());
    Ok((log, Restored { tables, seen, segments, log_bytes }, repairs))
}

/// What the limiters count meanwhile, they count anew at the end.
fn replay_note(tables: &mut [Served], note: Note) {
    match note {
        Note::Quarantine(id) => tables.iter_mut().for_each(|table| _ = table.quarantine(Suspect::Trajectory(id))),
        Note::Release(id) => tables.iter_mut().for_each(|table| _ = table.release(Suspect::Trajectory(id))),
        Note::QuarantineActor(actor) => tables.iter_mut().for_each(|table| _ = table.quarantine(Suspect::Actor(actor))),
        Note::ReleaseActor(actor) => tables.iter_mut().for_each(|table| _ = table.release(Suspect::Actor(actor))),
        Note::Priorities { table: name, updates } => {
            // The table may be of an earlier run file.
            let Some(table) = tables.iter_mut().find(|table| table.name() == name) else { return };
            let item =
                |log::PriorityUpdate { id, ply, priority }| (ItemKey { trajectory: id, ply: ply as usize }, priority);
            let priorities: Vec<_> = updates.into_iter().map(item).collect();
            // The log has checked them; what is gone is unknown.
            let _ = table.update_priorities(&priorities);
        }
        // They are in the head.
        Note::Table { .. } | Note::TableCounters { .. } => {}
    }
}

/// Actors that were put into quarantine in a segment that is gone are in no note any more.
fn hold_to(table: &mut Served, quarantined_actors: &BTreeSet<u64>) {
    let now: BTreeSet<u64> = table.table().quarantined_actors().collect();
    for &actor in quarantined_actors.difference(&now) {
        let _ = table.quarantine(Suspect::Actor(actor));
    }
    for &actor in now.difference(quarantined_actors) {
        let _ = table.release(Suspect::Actor(actor));
    }
}

#[cfg(test)]
mod tests;
