//! Converts between log and tables: encodes trajectories as records, and rebuilds the tables from the log at a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::num::NonZeroUsize;

use experience::{Trajectory, TrajectoryId};
use proto::replay::Suspect;
use replay::{Retention, SeenIds, SeenLimits, TableTotals};
use run_file::replay::{LiveTable, NamedTable, Settings, TableIndex};

use crate::defect::{Defect, Planted};
use crate::log::{
    EncodedTrajectory, Head, Log, LogSettings, OpenError, OperatorRecord, Recovered, Repair, UnixMillis, Volume,
};
use crate::table_service::{Restored, Segments, TableState};

/// Encodes the log record of a trajectory: the compressed columns.
///
/// # Errors
/// The trajectory exceeds the size limit of the wire.
pub fn encode(trajectory: &Trajectory, inserted: UnixMillis) -> io::Result<EncodedTrajectory> {
    EncodedTrajectory::new(trajectory.id(), items(trajectory), inserted, trajectory.columns())
}

/// Encodes the log record of a revision: the compressed columns with the new searches.
///
/// # Errors
/// The trajectory exceeds the size limit of the wire.
pub fn encode_revision(searched: &Trajectory, revision: u64, revised: UnixMillis) -> io::Result<EncodedTrajectory> {
    EncodedTrajectory::revision(searched.id(), revision, revised, searched.columns())
}

/// Returns the number of items in a trajectory, as counted by the log.
pub(crate) fn items(trajectory: &Trajectory) -> u32 {
    u32::try_from(trajectory.full_steps()).expect("an episode has under 2^32 steps")
}

/// Parses the content of a record. The validation is as strict as for wire input, since the disk may corrupt it.
pub(crate) fn decode(id: TrajectoryId, content: &[u8], settings: &Settings) -> Result<Trajectory, String> {
    let trajectory = Trajectory::parse(id, content, settings.limits).map_err(|invalid| invalid.to_string())?;
    if trajectory.game() != settings.game {
        return Err(format!("game: is {:?}, the table holds {:?}", trajectory.game(), settings.game));
    }
    Ok(trajectory)
}

/// The inputs of a restore that depend on the machine and the time.
#[derive(Debug, Clone, Copy)]
pub struct Startup {
    /// Time of the restore, by which trajectories expire.
    pub now: UnixMillis,
    /// Number of threads that read the log, without effect on the result.
    pub threads: NonZeroUsize,
    /// Seed for the salts of new segments.
    pub salt_seed: [u8; 32],
    /// Maximum memory of the trajectories, in bytes; `None` is unlimited.
    pub memory_bytes_max: Option<u64>,
    /// A defect planted by a simulation.
    pub planted: Planted,
}

impl Startup {
    /// Returns the startup for the current time, and for cores and memory of this machine.
    pub fn now(salt_seed: [u8; 32]) -> Self {
        let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        // The rest is for a segment with the decoded records. Without a limit the system would kill the process.
        let memory_bytes_max = service::machine::memory_bytes().map(|bytes| bytes / 8 * 7);
        Self { now: UnixMillis::now(), threads, salt_seed, memory_bytes_max, planted: Planted::default() }
    }

    #[cfg(test)]
    pub(crate) fn in_tests() -> Self {
        let (threads, planted) = (NonZeroUsize::MIN, Planted::default());
        Self { now: UnixMillis(0), threads, salt_seed: [5; 32], memory_bytes_max: None, planted }
    }
}

/// Returns the settings for opening the log.
pub(crate) fn log_settings(settings: &Settings, startup: Startup) -> LogSettings {
    let Startup { now: _, memory_bytes_max: _, threads, salt_seed, planted } = startup;
    let is_bounded = !planted.is(Defect::SeenUnbounded);
    LogSettings {
        game: settings.game.clone(),
        segment_bytes: settings.segment_bytes,
        threads,
        salt_seed,
        seen: if is_bounded { settings.seen } else { SeenLimits::UNBOUNDED },
        damaged_head: settings.damaged_head,
        planted,
    }
}

/// Opens the log, and rebuilds the tables and rate limiters from it.
///
/// # Errors
/// [`OpenError`].
pub fn restore<V: Volume>(
    volume: V,
    settings: &Settings,
    startup: Startup,
) -> Result<(Log<V>, Restored, Vec<Repair>), OpenError> {
    let mut tables: Vec<TableState> = settings.tables.iter().map(unbounded).collect();
    let mut segments = Segments::default();
    let planted = startup.planted;
    let decode = |id, content: &[u8]| decode(id, content, settings);
    let (mut needed_bytes, bytes_max) = (0, startup.memory_bytes_max.unwrap_or(u64::MAX));
    let (log, repairs) =
        Log::open(volume, log_settings(settings, startup), decode, |segment, recovered| match recovered {
            Recovered::Trajectory { content, inserted, .. } => {
                let inserted = inserted.since_1970();
                needed_bytes += content.bytes() as u64;
                // The rest of the log is only counted, for the error.
                if needed_bytes > bytes_max {
                    return;
                }
                segments.push(segment);
                if planted.is(Defect::RecordsAppliedTwice) {
                    tables.iter_mut().for_each(|table| table.insert(content.clone(), inserted));
                }
                tables.iter_mut().for_each(|table| table.insert(content.clone(), inserted));
            }
            Recovered::Revision { .. } if planted.is(Defect::RevisionsLost) => {}
            Recovered::Revision { revision, revised, content, .. } => {
                replay_revision(&mut tables, &content, revision, revised);
            }
            Recovered::Operator(record) if is_lost(&record, planted) => {}
            Recovered::Operator(record) => replay_record(&mut tables, record),
        })?;
    if needed_bytes > bytes_max {
        return Err(OpenError::Memory { needed_bytes, bytes_max });
    }
    let Head { counters, seen, quarantined_actors, tables: states, .. } = log.state();
    let now = startup.now.since_1970();
    for (table, written) in tables.iter_mut().zip(&settings.tables) {
        if !planted.is(Defect::QuarantineLost) {
            quarantine_exactly(table, quarantined_actors);
        }
        let states = if planted.is(Defect::SettingsNotRestored) { &BTreeMap::new() } else { states };
        let live = states.get(table.name()).and_then(|state| LiveTable::restored(&state.settings, &written.section));
        let mut bounded = live.unwrap_or_else(|| written.clone());
        bounded.table.window.capacity_items += u64::from(planted.is(Defect::CapacityOffByOne));
        table.hold_to(bounded);
        table.expire(now);
    }
    segments.keep(tables.iter().map(|table| table.table().trajectories()).max().unwrap_or(0));
    let totals = TableTotals { trajectories: counters.trajectories, items: counters.items };
    for (index, table) in tables.iter_mut().enumerate() {
        if planted.is(Defect::LimiterNotRestored) {
            continue;
        }
        let own = states.get(table.name()).map(|state| state.counters.samples);
        table.resume(totals, if index == TableIndex::MAIN.0 { Some(counters.samples) } else { own });
    }
    let is_gone = |name: &&String| tables.iter().all(|table| table.name() != name.as_str());
    let tables_gone = states.keys().filter(is_gone).cloned().collect();
    let seen = if planted.is(Defect::DuplicatesNotChecked) { SeenIds::default() } else { seen.clone() };
    let log_bytes = log.bytes();
    Ok((log, Restored { tables, tables_gone, seen, segments, log_bytes, planted }, repairs))
}

/// Returns settings without retention or capacity limits, because the limits in force at the end of the log are unknown
/// while the log is read. Memory suffices, since the log holds about as many trajectories as the tables.
fn unbounded(settings: &NamedTable) -> TableState {
    let mut table = TableState::new(settings.clone());
    table.hold_to(without_bounds(settings.clone()));
    table
}

fn without_bounds(mut settings: NamedTable) -> NamedTable {
    settings.table.window.capacity_items = u64::MAX;
    settings.table.retention = Retention::default();
    settings
}

/// Applies a revision. The later of two records with the same number applies, since the earlier was written by a
/// failed commit. A number below the trajectory's revision, or another episode, comes from a faulty disk.
fn replay_revision(tables: &mut [TableState], searched: &Trajectory, revision: u64, revised: UnixMillis) {
    // Every table holds all trajectories read so far, so the trajectory is the same in all tables.
    let held = tables.iter_mut().find_map(|table| {
        let held = table.lookup(searched.id()).filter(|held| held.revision <= revision)?;
        held.trajectory.revised_by(searched).ok()
    });
    if let Some(trajectory) = held {
        tables.iter_mut().for_each(|table| _ = table.revise(&trajectory, revision, revised.since_1970()));
    }
}

/// Applies an operator record; the limiter counts of this phase are replaced at the end.
fn replay_record(tables: &mut [TableState], record: OperatorRecord) {
    match record {
        OperatorRecord::Quarantine(suspect) => tables.iter_mut().for_each(|table| _ = table.quarantine(suspect)),
        OperatorRecord::Release(suspect) => tables.iter_mut().for_each(|table| _ = table.release(suspect)),
        OperatorRecord::Priorities { table: name, updates } => {
            // The table may come from an earlier run file.
            let Some(table) = tables.iter_mut().find(|table| table.name() == name) else { return };
            // The updates were checked while decoding the record; items of removed trajectories are ignored.
            let _ = table.update_priorities(&updates);
        }
        OperatorRecord::Table { name, settings: Some(settings) } => {
            let Some(table) = tables.iter_mut().find(|table| table.name() == name) else { return };
            // Later priority updates need a table with a selector that uses priorities.
            if let Some(live) = LiveTable::restored(&settings, table.written()) {
                table.hold_to(without_bounds(live));
            }
        }
        // The head holds the content of these records.
        OperatorRecord::Table { settings: None, .. } | OperatorRecord::TableCounters { .. } => {}
    }
}

/// Returns true if a planted defect loses the record.
fn is_lost(record: &OperatorRecord, planted: Planted) -> bool {
    match record {
        OperatorRecord::Quarantine(_) => planted.is(Defect::QuarantineLost),
        OperatorRecord::Priorities { .. } => planted.is(Defect::PrioritiesNotRestored),
        OperatorRecord::Table { .. } => planted.is(Defect::SettingsNotRestored),
        OperatorRecord::Release(_) | OperatorRecord::TableCounters { .. } => false,
    }
}

/// Makes the quarantined actors of the table equal to the actors in the head, because dropped segments may have held
/// some of the records.
fn quarantine_exactly(table: &mut TableState, quarantined_actors: &BTreeSet<u64>) {
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
