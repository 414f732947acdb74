//! From the log to a table and back: how a trajectory is encoded, and how a restart finds everything again.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;

use experience::{PackedTrajectory, Trajectory};
use prost::Message as _;
use proto::replay::v1;
use replay::{Signature, TableTotals};

use crate::config::{Settings, TableIndex};
use crate::keeper::{Restored, Segments, Served};
use crate::log::{Framed, Head, Log, LogSettings, Note, OpenError, Recovered, Repair, UnixMillis, Volume};

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
        Recovered::Note(Note::Quarantine(id)) => {
            for table in &mut tables {
                // The limiter counts anew at the end.
                let _ = table.quarantine(id);
            }
        }
        // Nobody writes the others yet.
        Recovered::Note(_) => {}
    })?;
    let Head { counters, seen, .. } = log.state();
    let totals = TableTotals { trajectories: counters.trajectories, items: counters.items };
    for (index, table) in tables.iter_mut().enumerate() {
        let sampled = (index == TableIndex::MAIN.0).then_some(counters.samples);
        table.resume(totals, sampled);
    }
    let (seen, log_bytes) = (seen.clone(), log.bytes());
    Ok((log, Restored { tables, seen, segments, log_bytes }, repairs))
}

#[cfg(test)]
mod tests;
