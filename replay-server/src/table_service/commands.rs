//! The commands to the table service, and its answers.

use std::collections::BTreeMap;

use experience::{Invalid, Trajectory, TrajectoryId, WeightsVersion};
use proto::replay::{InsertWait, Located, Revisable, ReviseRefusal, ServerStats, Suspect, TableStats};
use replay::{Drawn, InvalidPriority, ItemKey, PriorityUpdate};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::COMMANDS_MAX;
use crate::config::TableIndex;
use crate::log::committer::LogEvent;
use crate::log::{EncodedTrajectory, UnixMillis};

/// The outcome of an insert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inserted {
    /// The trajectory is new and now durable.
    New(TrajectoryId),
    /// The trajectory was already durable.
    Duplicate(TrajectoryId),
    /// The trajectory was not stored: its weights are too far behind for every table.
    Stale(TrajectoryId),
    /// The log cannot store the trajectory now; it may be sent again.
    NotStored(TrajectoryId, String),
    /// The memory limit is reached; the trajectory may be sent again.
    OverMemory {
        /// The id of the trajectory.
        id: TrajectoryId,
        /// The memory limit, in bytes.
        bytes_max: u64,
    },
    /// The server is draining; the trajectory may be sent again after its restart.
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

/// The reply channel of an insert. The table service drops it with its answer.
#[derive(Debug)]
pub struct InsertReply {
    answers: mpsc::Sender<Inserted>,
    /// Returned to the client when this is dropped.
    _credit: Option<OwnedSemaphorePermit>,
}

impl InsertReply {
    /// Replies to `answers`, which has capacity for every outstanding answer. The client gets `credit` back with it.
    pub fn new(answers: mpsc::Sender<Inserted>, credit: Option<OwnedSemaphorePermit>) -> Self {
        Self { answers, _credit: credit }
    }

    /// Sends the answer; a disconnected client will retry.
    pub(super) fn answer(self, inserted: Inserted) {
        let _ = self.answers.try_send(inserted);
    }

    /// Returns true if the client is not waiting for the answer any more.
    pub(super) fn is_closed(&self) -> bool {
        self.answers.is_closed()
    }
}

impl From<mpsc::Sender<Inserted>> for InsertReply {
    /// A reply to a client whose trajectories are not limited.
    fn from(answers: mpsc::Sender<Inserted>) -> Self {
        Self::new(answers, None)
    }
}

/// An answer to a sampler.
#[derive(Debug)]
pub enum Sampled {
    /// A batch.
    Batch {
        /// The drawn items.
        drawn: Vec<Drawn>,
        /// The statistics of the table at the time of the draw.
        table: Box<TableStats>,
    },
    /// The reason for which no batch is drawn.
    Waiting(String),
    /// The batch is larger than the rate limiter ever allows.
    TooLarge {
        /// The maximum size of a batch, in items.
        items_max: u64,
    },
}

/// The reason for which the table service rejects a request.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// No table holds the trajectory.
    #[error("no table holds the trajectory {0}")]
    NotHeld(TrajectoryId),
    /// The change is in force, but a restart may lose it.
    #[error("it holds until a restart only, since the log rejected it ({0}): retry")]
    NotDurable(String),
    /// The queue of priorities to the log is full; nothing was changed.
    #[error("{waiting} priorities wait for the log already: try again later")]
    TooMany {
        /// The number of priorities in the queue.
        waiting: usize,
    },
    /// A priority is invalid; nothing was changed.
    #[error(transparent)]
    Priority(#[from] InvalidPriority),
    /// A setting is out of range; nothing was changed.
    #[error(transparent)]
    Setting(#[from] Invalid),
    /// A revision was computed from other searches than those of the trajectory now; nothing was changed.
    #[error("trajectory {id} is of revision {held}, the searches were computed from revision {from}")]
    StaleRevision {
        /// The trajectory.
        id: TrajectoryId,
        /// The revision that it has, or will have once a revision in flight to the disk is durable.
        held: u64,
        /// The revision that the refused one names.
        from: u64,
    },
    /// The stored searches are of newer weights than those of a revision; nothing was changed.
    #[error("the stored searches of trajectory {id} are of weights {held}, those of the revision of {sent}")]
    OlderWeights {
        /// The trajectory.
        id: TrajectoryId,
        /// The version of its last step.
        held: WeightsVersion,
        /// The version of the last step of the refused revision.
        sent: WeightsVersion,
    },
    /// A revision is of another episode than the trajectory; nothing was changed.
    #[error("the revision is not of this trajectory: {0}")]
    OtherEpisode(Invalid),
    /// As many revisions are in flight to the disk as the server keeps; nothing was changed.
    #[error("{0} revisions are on their way to the log already: try again later")]
    TooManyRevisions(usize),
    /// The memory of tables and of what is in flight has no room for a revision; nothing was changed.
    #[error(
        "the revision of trajectory {id} finds no room in the {bytes_max} bytes of replay.memory_bytes_max: raise it, or \
         lower the capacity of tables"
    )]
    OverMemory {
        /// The trajectory.
        id: TrajectoryId,
        /// The limit.
        bytes_max: u64,
    },
    /// The log cannot store a revision now; nothing was changed.
    #[error("the revision cannot be stored now ({0}): try again later")]
    RevisionNotStored(String),
    /// The server is draining; nothing was changed.
    #[error("the replay server is shutting down")]
    Draining,
}

impl Refusal {
    /// Returns the kind of refusal that the sender of a revision sees.
    pub fn of_revision(&self) -> ReviseRefusal {
        match self {
            Self::NotHeld(_) => ReviseRefusal::Evicted,
            Self::StaleRevision { .. } => ReviseRefusal::Stale,
            Self::OlderWeights { .. } => ReviseRefusal::Older,
            Self::OtherEpisode(_) | Self::Setting(_) | Self::Priority(_) => ReviseRefusal::Invalid,
            Self::TooManyRevisions(_)
            | Self::OverMemory { .. }
            | Self::RevisionNotStored(_)
            | Self::Draining
            | Self::NotDurable(_)
            | Self::TooMany { .. } => ReviseRefusal::Busy,
        }
    }
}

/// The channel for one reply.
pub type Reply<T> = oneshot::Sender<T>;

/// A command to the table service.
#[derive(Debug)]
pub enum Command {
    /// Inserts a valid trajectory.
    Insert {
        /// The trajectory.
        trajectory: Trajectory,
        /// The trajectory's record for the log.
        content: EncodedTrajectory,
        /// The time of the insert, as in the record.
        inserted: UnixMillis,
        /// The reply channel.
        reply: InsertReply,
    },
    /// Counts an invalid trajectory that was rejected.
    CountRefused,
    /// Sets the newest weights version, as announced by a learner.
    NewestWeights(WeightsVersion),
    /// Requests one batch, for which a client has given credit.
    Sample {
        /// The table to draw from.
        table: TableIndex,
        /// The number of items in the batch.
        items: u64,
        /// The reply channel.
        reply: mpsc::Sender<Sampled>,
    },
    /// Answers with the highest epoch of an actor among its trajectories; 0 if there are none.
    HighestEpoch(u64, Reply<u64>),
    /// Answers with the reason for which inserts wait now, or would wait.
    InsertWait(Reply<InsertWait>),
    /// Answers with the maximum size of a batch of a table, in items.
    BatchItemsMax(TableIndex, Reply<u64>),
    /// Answers with the size and counters of a table.
    Stats(TableIndex, Reply<ServerStats>),
    /// Answers with all trajectories of a table, newest first.
    Held(TableIndex, Reply<Vec<Trajectory>>),
    /// Answers with one trajectory and the tables that hold it; `None` if no table does.
    Get(TrajectoryId, Reply<Option<Located>>),
    /// Quarantines a trajectory in all tables, durably after a delay; answers true if a table held it.
    Report(TrajectoryId, Reply<bool>),
    /// Quarantines a trajectory or an actor durably; answers with the number of affected items of the main table.
    Quarantine(Suspect, Reply<Result<u64, Refusal>>),
    /// Releases a trajectory or an actor from quarantine durably; answers with the number of restored items of the main
    /// table.
    Release(Suspect, Reply<Result<u64, Refusal>>),
    /// Answers with a trajectory of a table whose searches are older than a version, which is counted as no sample;
    /// `None` if a few draws find none.
    Choose(TableIndex, WeightsVersion, Reply<Option<Revisable>>),
    /// Replaces the searches of a trajectory durably; answers with its revision from now on.
    Revise {
        /// The trajectory with its new searches, and the revision that they were computed from.
        revised: Revisable,
        /// The revision's record for the log.
        content: EncodedTrajectory,
        /// The time of the revision, as in the record.
        at: UnixMillis,
        /// The reply channel.
        reply: Reply<Result<u64, Refusal>>,
    },
    /// Updates the priorities of items of a table; of two for one item, the later one takes effect.
    UpdatePriorities(TableIndex, Vec<(ItemKey, f64)>, Reply<Result<PriorityUpdate, Refusal>>),
    /// Changes settings of a table durably: keys and values, in the syntax of `--set`. Answers with the settings in
    /// force.
    Configure(TableIndex, BTreeMap<String, String>, Reply<Result<BTreeMap<String, String>, Refusal>>),
    /// Handles an event of the log: entries became durable, or failed to.
    Log(LogEvent),
    /// Runs the periodic work: publishes metrics, removes expired trajectories and resends messages that could not be
    /// sent.
    Tick,
    /// Stops accepting inserts and drawing samples, and finishes the entries in flight to the disk.
    Drain,
}

/// A handle to send commands to the table service; cheap to clone.
#[derive(Debug, Clone)]
pub struct Handle {
    commands: mpsc::Sender<Command>,
}

/// The table service has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the replay tables have ended")]
pub struct Ended;

impl Handle {
    /// Creates a handle and the receiver of its commands, for the table service.
    pub fn new() -> (Self, mpsc::Receiver<Command>) {
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        (Self { commands }, receiver)
    }

    /// Sends a command; waits while the channel is full.
    ///
    /// # Errors
    /// [`Ended`].
    pub async fn send(&self, command: Command) -> Result<(), Ended> {
        self.commands.send(command).await.map_err(|_| Ended)
    }

    /// Sends a command from a thread outside tokio, blocking while the channel is full.
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

    /// Sends a command and returns the receiver of its reply, without waiting; `None` if the channel is full.
    pub fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Option<oneshot::Receiver<T>> {
        let (reply, received) = oneshot::channel();
        self.commands.try_send(command(reply)).ok().map(|()| received)
    }
}
