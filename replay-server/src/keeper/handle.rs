//! The commands to the keeper, and its answers.

use std::collections::BTreeMap;
use std::time::Duration;

use experience::{Trajectory, TrajectoryId, WeightsVersion};
use proto::replay::{ServerStats, Suspect, TableStats};
use replay::{Drawn, InvalidPriority, ItemKey, PriorityUpdate};
use tokio::sync::{mpsc, oneshot};

use super::COMMANDS_MAX;
use crate::config::{InvalidKey, TableIndex};
use crate::log::committer::LogEvent;
use crate::log::{EncodedTrajectory, UnixMillis};

/// The outcome of an insert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inserted {
    /// It is durable.
    New(TrajectoryId),
    /// It had been durable before.
    Duplicate(TrajectoryId),
    /// Its weights are too far behind for every table: it is not stored.
    Stale(TrajectoryId),
    /// The log cannot take it now; it may be sent again.
    NotStored(TrajectoryId, String),
    /// There is no room in memory; it may be sent again.
    OverMemory {
        /// The trajectory.
        id: TrajectoryId,
        /// The memory limit, in bytes.
        bytes_max: u64,
    },
    /// The server drains; it may be sent to the next one.
    Draining(TrajectoryId),
}

impl Inserted {
    /// Returns the id of the trajectory.
    #[must_use]
    pub fn id(&self) -> TrajectoryId {
        match *self {
            Self::New(id) | Self::Duplicate(id) | Self::Stale(id) | Self::NotStored(id, _) | Self::Draining(id) => id,
            Self::OverMemory { id, .. } => id,
        }
    }
}

/// An answer to a sampler.
#[derive(Debug)]
pub enum Sampled {
    /// A batch.
    Batch {
        /// Its draws.
        drawn: Vec<Drawn>,
        /// The table when it was drawn.
        table: Box<TableStats>,
    },
    /// The reason for which no batch is drawn.
    Waiting(String),
    /// The table never hands out so many items at once.
    TooLarge {
        /// The most that it does.
        items_max: u64,
    },
}

/// One batch for which a client has given credit.
#[derive(Debug)]
pub struct BatchRequest {
    /// Of which table.
    pub table: TableIndex,
    /// Items in it.
    pub items: u64,
    /// The reply channel.
    pub reply: mpsc::Sender<Sampled>,
}

/// A trajectory, and where it is.
#[derive(Debug, Clone)]
pub struct Found {
    /// It.
    pub trajectory: Trajectory,
    /// The tables that hold it.
    pub tables: Vec<String>,
    /// The time of the insert, since 1970.
    pub inserted: Duration,
    /// True if it is excluded from sampling.
    pub quarantined: bool,
}

/// The reason for which the keeper rejects a request.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// No table holds the trajectory.
    #[error("no table holds the trajectory {0}")]
    NotHeld(TrajectoryId),
    /// It was done, but a restart may not know of it.
    #[error("it holds until a restart only, since the log rejected it ({0}): retry")]
    NotDurable(String),
    /// More waits for the log than may; nothing was done.
    #[error("{waiting} priorities wait for the log already: try again later")]
    TooMany {
        /// The number of priorities in the queue.
        waiting: usize,
    },
    /// One is no priority; nothing was done.
    #[error(transparent)]
    Priority(#[from] InvalidPriority),
    /// A setting is out of range; nothing was done.
    #[error("{}: {}", .0.key, .0.reason)]
    Setting(InvalidKey),
}

/// A command to the keeper.
#[derive(Debug)]
pub enum Command {
    /// A valid trajectory came in.
    Insert {
        /// It.
        trajectory: Trajectory,
        /// Its record for the log.
        content: EncodedTrajectory,
        /// The time of the insert, as in the record.
        inserted: UnixMillis,
        /// The reply channel. Must have room for the answer.
        reply: mpsc::Sender<Inserted>,
    },
    /// Answers with the highest epoch of an actor that a trajectory came in under; 0 for none.
    HighestEpoch {
        /// The actor.
        actor: u64,
        /// The reply channel.
        reply: oneshot::Sender<u64>,
    },
    /// An invalid trajectory was refused.
    CountRefused,
    /// A learner announces the newest weights version.
    NewestWeights(WeightsVersion),
    /// A batch is wanted.
    Sample(BatchRequest),
    /// The most items that a table ever hands out at once.
    BatchItemsMax {
        /// The table.
        table: TableIndex,
        /// The reply channel.
        reply: oneshot::Sender<u64>,
    },
    /// The size and counters of a table.
    Stats {
        /// The table.
        table: TableIndex,
        /// The reply channel.
        reply: oneshot::Sender<ServerStats>,
    },
    /// All that a table holds, newest first.
    Held {
        /// The table.
        table: TableIndex,
        /// The reply channel.
        reply: oneshot::Sender<Vec<Trajectory>>,
    },
    /// One trajectory, and where it is.
    Get {
        /// The trajectory.
        id: TrajectoryId,
        /// The reply channel; `None` if no table holds the trajectory.
        reply: oneshot::Sender<Option<Found>>,
    },
    /// Take a trajectory out of the sampling of all tables, soon durably; answers whether one of them held it.
    Report {
        /// The trajectory.
        id: TrajectoryId,
        /// The reply channel.
        reply: oneshot::Sender<bool>,
    },
    /// Take something out of sampling, durably.
    Quarantine {
        /// The target.
        suspect: Suspect,
        /// The reply channel: the number of items of the main table that were excluded.
        reply: oneshot::Sender<Result<u64, Refusal>>,
    },
    /// Put something back into sampling, durably.
    Release {
        /// The target.
        suspect: Suspect,
        /// The reply channel: the number of items of the main table that came back.
        reply: oneshot::Sender<Result<u64, Refusal>>,
    },
    /// Give items new priorities.
    UpdatePriorities {
        /// Of which table.
        table: TableIndex,
        /// The priorities; of two for one item the later counts.
        priorities: Vec<(ItemKey, f64)>,
        /// The reply channel.
        reply: oneshot::Sender<Result<PriorityUpdate, Refusal>>,
    },
    /// Change settings of a table, durably.
    Configure {
        /// The table.
        table: TableIndex,
        /// Keys and values, written as after `--set`.
        settings: BTreeMap<String, String>,
        /// The reply channel: the settings in force.
        reply: oneshot::Sender<Result<BTreeMap<String, String>, Refusal>>,
    },
    /// The log made entries durable, or could not.
    Log(LogEvent),
    /// Some time has passed: publish metrics, let go of what is too old, repeat what could not be sent.
    Tick,
    /// Accepts no inserts, draws no samples, and finishes the entries in flight to the disk.
    Drain,
}

/// A cheap way to talk to the keeper.
#[derive(Debug, Clone)]
pub struct Handle {
    commands: mpsc::Sender<Command>,
}

/// The keeper has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the replay tables have ended")]
pub struct Ended;

impl Handle {
    /// A handle and what the keeper receives from it.
    pub fn new() -> (Self, mpsc::Receiver<Command>) {
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        (Self { commands }, receiver)
    }

    /// Sends a command; waits while the keeper is behind.
    ///
    /// # Errors
    /// [`Ended`].
    pub async fn send(&self, command: Command) -> Result<(), Ended> {
        self.commands.send(command).await.map_err(|_| Ended)
    }

    /// Sends a command from a thread.
    ///
    /// # Errors
    /// [`Ended`].
    pub fn send_blocking(&self, command: Command) -> Result<(), Ended> {
        self.commands.blocking_send(command).map_err(|_| Ended)
    }

    /// Asks a question.
    ///
    /// # Errors
    /// [`Ended`].
    pub async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, Ended> {
        let (reply, answer) = oneshot::channel();
        self.send(question(reply)).await?;
        answer.await.map_err(|_| Ended)
    }
}
