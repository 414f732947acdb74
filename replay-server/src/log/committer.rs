//! The log's thread: gathers entries for a moment, commits them together, tells what became of them.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::{Entry, Log, SegmentNumber, Volume};

/// A commit takes at most this many entries.
pub const COMMIT_ENTRIES_MAX: usize = 256;

/// What the log's thread is told.
#[derive(Debug)]
pub enum LogCommand {
    /// Make it durable; an event will answer.
    Append(Entry),
    /// So many samples were drawn; made durable now and then and with every commit.
    Samples(u64),
    /// No trajectory before this segment is held any more.
    DropBefore(SegmentNumber),
}

/// What the log's thread tells.
#[derive(Debug)]
pub enum LogEvent {
    /// These are durable.
    Committed {
        /// In the order in which they were appended.
        entries: Vec<Entry>,
        /// Where they lie.
        segment: SegmentNumber,
        /// Bytes of the whole log.
        bytes: u64,
    },
    /// None of these is durable, nor will be.
    Failed {
        /// In the order in which they were appended.
        entries: Vec<Entry>,
        /// Why, in words.
        error: String,
    },
}

/// Runs until all senders of `commands` are gone; everything received by then is committed.
///
/// `wait` is how long the first entry of a commit waits for company.
pub fn run<V: Volume>(
    mut log: Log<V>,
    commands: &Receiver<LogCommand>,
    wait: Duration,
    mut tell: impl FnMut(LogEvent),
) {
    let mut samples = log.state().counters.samples;
    while let Ok(first) = commands.recv() {
        let deadline = Instant::now() + wait;
        let mut entries = Vec::new();
        let mut drop_before = None;
        let mut next = Some(first);
        loop {
            match next.take() {
                Some(LogCommand::Append(entry)) => entries.push(entry),
                Some(LogCommand::Samples(total)) => samples = samples.max(total),
                Some(LogCommand::DropBefore(segment)) => drop_before = drop_before.max(Some(segment)),
                None => {}
            }
            if entries.len() >= COMMIT_ENTRIES_MAX {
                break;
            }
            match commands.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(command) => next = Some(command),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        commit(&mut log, entries, samples, &mut tell);
        if let Some(segment) = drop_before
            && let Err(error) = log.drop_before(segment)
        {
            tracing::warn!(%error, "cannot drop old segments of the replay log");
        }
    }
}

fn commit<V: Volume>(log: &mut Log<V>, entries: Vec<Entry>, samples: u64, tell: &mut impl FnMut(LogEvent)) {
    if entries.is_empty() && samples == log.state().counters.samples {
        return;
    }
    match log.commit(&entries, samples) {
        Ok(segment) if !entries.is_empty() => tell(LogEvent::Committed { entries, segment, bytes: log.bytes() }),
        Ok(_) => {}
        Err(error) => {
            tracing::error!(%error, entries = entries.len(), "cannot write the replay log: inserts are refused");
            tell(LogEvent::Failed { entries, error: error.to_string() });
        }
    }
}
