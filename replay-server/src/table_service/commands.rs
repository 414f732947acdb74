//! The commands to the table service, and its answers.

use std::collections::BTreeMap;

use experience::{Invalid, Trajectory, TrajectoryId, WeightsVersion};
use proto::replay::{Located, ServerStats, Suspect, TableStats};
use replay::{Drawn, InvalidPriority, ItemKey, PriorityUpdate};
use tokio::sync::{mpsc, oneshot};

use super::COMMANDS_MAX;
use crate::config::TableIndex;
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

/// The reason for which the table service rejects a request.
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
    #[error(transparent)]
    Setting(#[from] Invalid),
}

/// The channel of one answer.
pub type Reply<T> = oneshot::Sender<T>;

/// A command to the table service.
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
    /// An invalid trajectory was refused.
    CountRefused,
    /// A learner announces the newest weights version.
    NewestWeights(WeightsVersion),
    /// One batch is wanted, for which a client has given credit.
    Sample {
        /// Of which table.
        table: TableIndex,
        /// Items in it.
        items: u64,
        /// The reply channel.
        reply: mpsc::Sender<Sampled>,
    },
    /// Answers with the highest epoch of an actor that a trajectory came in under; 0 for none.
    HighestEpoch(u64, Reply<u64>),
    /// Answers with the most items that a table ever hands out at once.
    BatchItemsMax(TableIndex, Reply<u64>),
    /// Answers with the size and counters of a table.
    Stats(TableIndex, Reply<ServerStats>),
    /// Answers with all that a table holds, newest first.
    Held(TableIndex, Reply<Vec<Trajectory>>),
    /// Answers with one trajectory, and where it is; `None` if no table holds it.
    Get(TrajectoryId, Reply<Option<Located>>),
    /// Takes a trajectory out of the sampling of all tables, soon durably; answers whether one of them held it.
    Report(TrajectoryId, Reply<bool>),
    /// Takes something out of sampling, durably; answers how many items of the main table went with it.
    Quarantine(Suspect, Reply<Result<u64, Refusal>>),
    /// Puts something back into sampling, durably; answers how many items of the main table came back.
    Release(Suspect, Reply<Result<u64, Refusal>>),
    /// Gives items of a table new priorities; of two for one item the later counts.
    UpdatePriorities(TableIndex, Vec<(ItemKey, f64)>, Reply<Result<PriorityUpdate, Refusal>>),
    /// Changes settings of a table, durably: keys and values, written as after `--set`. Answers with those in force.
    Configure(TableIndex, BTreeMap<String, String>, Reply<Result<BTreeMap<String, String>, Refusal>>),
    /// The log made entries durable, or could not.
    Log(LogEvent),
    /// Some time has passed: publish metrics, let go of what is too old, repeat what could not be sent.
    Tick,
    /// Accepts no inserts, draws no samples, and finishes the entries in flight to the disk.
    Drain,
}

/// A cheap way to send commands to the table service.
#[derive(Debug, Clone)]
pub struct Handle {
    commands: mpsc::Sender<Command>,
}

/// The table service has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the replay tables have ended")]
pub struct Ended;

impl Handle {
    /// A handle and what the table service receives from it.
    pub fn new() -> (Self, mpsc::Receiver<Command>) {
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        (Self { commands }, receiver)
    }

    /// Sends a command; waits while the table service is behind.
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

    /// Sends a command and returns its reply.
    ///
    /// # Errors
    /// [`Ended`].
    pub async fn request<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Ended> {
        let (reply, received) = oneshot::channel();
        self.send(command(reply)).await?;
        received.await.map_err(|_| Ended)
    }
}
