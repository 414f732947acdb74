//! From the log to a table and back: how a trajectory is encoded, and how a restart finds everything again.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroUsize;

use experience::{PackedTrajectory, Trajectory};
use prost::Message as _;
use proto::replay::v1;
use replay::{Insertion, RateLimiter, RateLimiterCounts, Table, TableTotals};

use crate::config::Settings;
use crate::keeper::{Restored, count_in_segment, forget_oldest};
use crate::log::{Framed, Log, LogSettings, Note, OpenError, Recovered, Repair, SegmentNumber, UnixMillis, Volume};

/// A trajectory as it lies in the log: the wire's message, which may grow fields without breaking old logs; compressed.
///
/// # Errors
/// It is larger than any that comes over the wire.
pub fn encode(trajectory: &Trajectory, inserted: UnixMillis) -> io::Result<Framed> {
    let items = u32::try_from(trajectory.full_plies().count()).expect("an episode has under 2^32 steps");
    Framed::trajectory(trajectory.id, items, inserted, &v1::Trajectory::from(trajectory).encode_to_vec())
}

/// The other way around; the log is checked like the wire, since bits may rot.
fn decode(content: &[u8], settings: &Settings) -> Result<PackedTrajectory, String> {
    let message = v1::Trajectory::decode(content).map_err(|error| error.to_string())?;
    let trajectory = Trajectory::try_from(message).map_err(|invalid| invalid.to_string())?;
    trajectory.validate(settings.limits).map_err(|invalid| invalid.to_string())?;
    if trajectory.game != settings.game {
        return Err(format!("it is of the game {}", trajectory.game));
    }
    Ok(PackedTrajectory::pack(&trajectory))
}

/// Opens the log and rebuilds table and limiter from it.
///
/// # Errors
/// [`OpenError`].
pub fn restore<V: Volume>(volume: V, settings: &Settings) -> Result<(Log<V>, Restored, Vec<Repair>), OpenError> {
    let mut table = Table::new(settings.window);
    let mut segments: VecDeque<(SegmentNumber, u64)> = VecDeque::new();
    let log_settings = LogSettings {
        game: settings.game.clone(),
        segment_bytes: settings.segment_bytes,
        threads: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
    };
    let decode = |content: &[u8]| decode(content, settings);
    let (log, repairs) = Log::open(volume, log_settings, decode, |segment, recovered| match recovered {
        Recovered::Trajectory { content, .. } => {
            if let Insertion::Inserted { removed, .. } = table.insert(content.into()) {
                count_in_segment(&mut segments, segment);
                removed.iter().for_each(|_| forget_oldest(&mut segments));
            }
        }
        Recovered::Note(Note::Quarantine(id)) => drop(table.quarantine(id)),
        // Nobody writes the others yet.
        Recovered::Note(_) => {}
    })?;
    let head = log.state();
    let counters = head.counters;
    table.remember(&head.seen, TableTotals { trajectories: counters.trajectories, items: counters.items });
    let mut limiter = settings.limiter();
    let inserted = table.totals().items;
    let deleted = inserted - table.items();
    limiter.resume(RateLimiterCounts { inserted, deleted, sampled: counters.samples });
    let log_bytes = log.bytes();
    Ok((log, Restored { table, limiter, segments, log_bytes }, repairs))
}

impl Settings {
    /// A fresh limiter with these settings.
    pub fn limiter(&self) -> RateLimiter {
        RateLimiter::new(self.rate_limiter).expect("settings are checked")
    }
}

#[cfg(test)]
mod tests;
