//! Runs the log thread, which gathers entries, commits them together and reports each result.
//!
//! [`Committer`] decides what is written and reported, [`run`] decides when. While a commit syncs, the entries for
//! the next one accumulate in the channel, so a client with many inserts in flight never waits for a timer.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use run_file::replay::{Ack, CommitSettings};

use super::{Entry, Log, SegmentNumber, Volume};

/// Maximum number of entries per commit.
pub const COMMIT_ENTRIES_MAX: usize = 256;

/// Size at which a commit takes no more entries, in bytes.
pub const COMMIT_BYTES_MAX: usize = 16 << 20;

/// Number of entries from which on a commit waits for more entries only for [`QUIET`], since writers with this many
/// entries in flight are probably waiting for this commit.
const COMPANY_ENTRIES: usize = 8;

/// Idle time after which no more entries are expected: far longer than a writer takes from a reply to the next
/// trajectory, and far shorter than any useful gathering time.
const QUIET: Duration = Duration::from_millis(1);

/// A command to the log thread.
#[derive(Debug)]
pub enum LogCommand {
    /// Make an entry durable; an event reports the result.
    Append(Entry),
    /// Total number of samples drawn, which every commit makes durable.
    Samples(u64),
    /// Drop the segments before this one, from which no table holds a trajectory any more.
    DropBefore(SegmentNumber),
}

/// An event from the log thread.
#[derive(Debug)]
pub enum LogEvent {
    /// The entries have reached the point of acknowledgement of the configured [`Ack`].
    Committed {
        /// The entries, in the order in which they were appended.
        entries: Vec<Entry>,
        /// The segment of the entries; with [`Ack::Memory`] a lower bound.
        segment: SegmentNumber,
        /// The size of the whole log, in bytes.
        bytes: u64,
    },
    /// The entries could not be written, and none will be acknowledged.
    Failed {
        /// The entries, in the order in which they were appended.
        entries: Vec<Entry>,
        /// Human-readable reason.
        error: String,
    },
    /// The log thread panicked: commands in flight receive no result.
    Panicked,
}

/// Runs until all senders of `commands` are dropped; entries received by then are committed and synced. Calls
/// `on_round` after every command and every commit.
pub fn run<V: Volume>(
    log: Log<V>,
    commands: &Receiver<LogCommand>,
    settings: CommitSettings,
    on_round: impl Fn(),
    mut on_event: impl FnMut(LogEvent),
) {
    let CommitSettings { ack, wait } = settings;
    let mut committer = Committer::new(log, ack);
    let mut sync_due = None;
    loop {
        let received = match sync_due {
            None => commands.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(due) => commands.recv_timeout(remaining(due)),
        };
        match received {
            Ok(command) => {
                committer.take(command);
                gather(&mut committer, commands, settings);
                committer.commit(&mut on_event);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        on_round();
        // A steady stream of commands must not postpone the sync.
        if sync_due.is_some_and(|due| remaining(due).is_zero()) {
            committer.sync();
            sync_due = None;
        }
        if committer.is_behind() {
            sync_due = sync_due.or_else(|| Some(Instant::now() + wait));
        }
    }
    committer.finish();
}

/// Gathers entries for one commit, until the commit is full or no more entries are expected in time.
fn gather<V: Volume>(committer: &mut Committer<V>, commands: &Receiver<LogCommand>, settings: CommitSettings) {
    let deadline = Instant::now() + settings.wait;
    while !committer.is_full() {
        let patience = match settings.ack {
            Ack::Fsync if committer.entries.len() >= COMPANY_ENTRIES => remaining(deadline).min(QUIET),
            Ack::Fsync => remaining(deadline),
            // Waiting for more entries gains nothing: a later sync covers all entries written by then.
            Ack::Flushed | Ack::Memory => Duration::ZERO,
        };
        match commands.recv_timeout(patience) {
            Ok(command) => committer.take(command),
            Err(_) => return,
        }
    }
}

fn remaining(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// The logic of the log thread, without clock and channel.
pub struct Committer<V: Volume> {
    log: Log<V>,
    ack: Ack,
    /// Gathered entries whose result has not been reported.
    entries: Vec<Entry>,
    /// The approximate size of the entries in the log.
    bytes: usize,
    /// Acknowledged entries that are not written because writes fail; at most one commit.
    pub(crate) unwritten: Vec<Entry>,
    samples: u64,
    drop_before: Option<SegmentNumber>,
    /// True while the disk fails. Only the first failure and the recovery are logged.
    pub(crate) is_failing: bool,
}

impl<V: Volume> Committer<V> {
    /// Creates a committer with no gathered entries.
    pub fn new(log: Log<V>, ack: Ack) -> Self {
        let samples = log.state().counters.samples;
        Self {
            log,
            ack,
            entries: Vec::new(),
            bytes: 0,
            unwritten: Vec::new(),
            samples,
            drop_before: None,
            is_failing: false,
        }
    }

    /// Applies a command; an entry waits for the next commit.
    pub fn take(&mut self, command: LogCommand) {
        match command {
            LogCommand::Append(entry) => {
                self.bytes += entry.bytes();
                self.entries.push(entry);
            }
            LogCommand::Samples(total) => self.samples = self.samples.max(total),
            LogCommand::DropBefore(segment) => self.drop_before = self.drop_before.max(Some(segment)),
        }
    }

    /// Returns true if the gathered entries fill a commit.
    pub fn is_full(&self) -> bool {
        self.entries.len() >= COMMIT_ENTRIES_MAX || self.bytes >= COMMIT_BYTES_MAX
    }

    /// Returns true if a crash of the machine would lose acknowledged entries.
    pub fn is_behind(&self) -> bool {
        self.log.is_dirty() || !self.unwritten.is_empty()
    }

    /// Returns the log.
    pub fn log(&self) -> &Log<V> {
        &self.log
    }

    /// Commits the gathered entries and reports the result of each.
    pub fn commit(&mut self, on_event: &mut impl FnMut(LogEvent)) {
        self.bytes = 0;
        let entries = std::mem::take(&mut self.entries);
        if !entries.is_empty() || self.samples > self.log.state().counters.samples {
            match self.ack {
                Ack::Memory => self.report_then_write(entries, on_event),
                Ack::Flushed | Ack::Fsync => self.write_then_report(entries, on_event),
            }
        }
        if let Some(segment) = self.drop_before.take()
            && let Err(error) = self.log.drop_before(segment)
        {
            tracing::warn!(%error, "cannot remove old segments of the replay log");
        }
    }

    /// Makes early acknowledged entries durable.
    pub fn sync(&mut self) {
        let written = self.write_unwritten();
        let synced = written.and_then(|()| self.log.sync());
        let what = "cannot sync the replay log; entries acknowledged since the last sync may not survive a power loss";
        self.report(synced.err().as_ref(), what);
    }

    /// Runs the last sync, and logs the loss of acknowledged entries that could not be written.
    pub fn finish(&mut self) {
        self.sync();
        if !self.unwritten.is_empty() {
            let entries = self.unwritten.len();
            tracing::error!(entries, "acknowledged entries lost: they could not be written to the replay log");
        }
    }

    fn write_then_report(&mut self, entries: Vec<Entry>, on_event: &mut impl FnMut(LogEvent)) {
        let written = match self.ack {
            Ack::Fsync => self.log.commit(&entries, self.samples),
            Ack::Flushed | Ack::Memory => self.log.write(&entries, self.samples),
        };
        self.report_write(written.as_ref().err());
        // A commit of counters alone has no recipient.
        if entries.is_empty() {
            return;
        }
        match written {
            Ok(segment) => on_event(LogEvent::Committed { entries, segment, bytes: self.log.bytes() }),
            Err(error) => on_event(LogEvent::Failed { entries, error: error.to_string() }),
        }
    }

    fn report_then_write(&mut self, entries: Vec<Entry>, on_event: &mut impl FnMut(LogEvent)) {
        if let Err(error) = self.write_unwritten() {
            self.report_write(Some(&error));
            return on_event(LogEvent::Failed { entries, error: error.to_string() });
        }
        self.unwritten.clone_from(&entries);
        if !entries.is_empty() {
            on_event(LogEvent::Committed { entries, segment: self.log.segment(), bytes: self.log.bytes() });
        }
        let written = self.write_now();
        self.report_write(written.as_ref().err());
    }

    fn write_unwritten(&mut self) -> std::io::Result<()> {
        if self.unwritten.is_empty() { Ok(()) } else { self.write_now() }
    }

    fn write_now(&mut self) -> std::io::Result<()> {
        self.log.write(&self.unwritten, self.samples)?;
        self.unwritten.clear();
        Ok(())
    }

    fn report_write(&mut self, error: Option<&std::io::Error>) {
        self.report(error, "cannot write the replay log; rejecting inserts until it is writable");
    }

    fn report(&mut self, error: Option<&std::io::Error>, what: &str) {
        match (error, std::mem::replace(&mut self.is_failing, error.is_some())) {
            (Some(error), false) => tracing::error!(%error, "{what}"),
            (None, true) => tracing::info!("the replay log is writable again"),
            _ => {}
        }
    }
}
