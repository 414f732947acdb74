//! Commands to the table service, and the replies.

use std::collections::BTreeMap;

use experience::{Invalid, Trajectory, TrajectoryId, WeightsVersion};
use proto::replay::{InsertWait, Located, Revisable, ReviseRefusal, ServerStats, Suspect, TableStats};
use replay::{Drawn, InvalidPriority, ItemKey, PriorityUpdate};
use run_file::replay::TableIndex;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::COMMANDS_MAX;
use super::search::Search;
use crate::log::committer::LogEvent;
use crate::log::{EncodedTrajectory, UnixMillis};

/// The outcome of an insert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inserted {
    /// The trajectory is new and now durable.
    New(TrajectoryId),
    /// The trajectory was already durable.
    Duplicate(TrajectoryId),
    /// The trajectory was not stored: the policy lag exceeds the limit of every table.
    Stale(TrajectoryId),
    /// The log cannot store the trajectory now; it may be sent again.
    NotStored(TrajectoryId, String),
    /// The memory limit is reached; the trajectory may be sent again.
    OverMemory {
        /// Id of the trajectory.
        id: TrajectoryId,
        /// Memory limit, in bytes.
        bytes_max: u64,
    },
    /// The server is draining; the trajectory may be sent again after the restart.
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

/// The reply channel of an insert. The table service drops it with the reply.
#[derive(Debug)]
pub struct InsertReply {
    answers: mpsc::Sender<Inserted>,
    /// The client's credit, which is returned to the client when this is dropped.
    _credit: Option<OwnedSemaphorePermit>,
}

impl InsertReply {
    /// Replies to `answers`, which has capacity for every outstanding reply. The reply returns `credit` to the client.
    pub fn new(answers: mpsc::Sender<Inserted>, credit: Option<OwnedSemaphorePermit>) -> Self {
        Self { answers, _credit: credit }
    }

    /// Sends the reply; a disconnected client will retry.
    pub(super) fn answer(self, inserted: Inserted) {
        let _ = self.answers.try_send(inserted);
    }

    /// Returns true if the client no longer waits for the reply.
    pub(super) fn is_closed(&self) -> bool {
        self.answers.is_closed()
    }
}

impl From<mpsc::Sender<Inserted>> for InsertReply {
    /// Creates a reply to a client without a limit on trajectories.
    fn from(answers: mpsc::Sender<Inserted>) -> Self {
        Self::new(answers, None)
    }
}

/// A reply to a sampler.
#[derive(Debug)]
pub enum Sampled {
    /// A complete batch.
    Batch {
        /// Drawn items.
        drawn: Vec<Drawn>,
        /// Statistics of the table at the time of the draw.
        table: Box<TableStats>,
    },
    /// The reason why no batch is drawn.
    Waiting(String),
    /// The batch is larger than the rate limiter can ever allow.
    TooLarge {
        /// Maximum size of a batch, in items.
        items_max: u64,
    },
}

/// The reason why the table service rejects a request.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// No table holds the trajectory.
    #[error("no table holds trajectory {0}")]
    NotHeld(TrajectoryId),
    /// The change is in force, but a restart may lose it.
    #[error("the change will be lost at the next restart: the log rejected it ({0}); retry")]
    NotDurable(String),
    /// The queue of priorities to the log is full; nothing was changed.
    #[error("too many priorities waiting for the log ({waiting}); retry later")]
    TooMany {
        /// Number of priorities in the queue.
        waiting: usize,
    },
    /// A priority is invalid; nothing was changed.
    #[error(transparent)]
    Priority(#[from] InvalidPriority),
    /// A setting is out of range; nothing was changed.
    #[error(transparent)]
    Setting(#[from] Invalid),
    /// A revision is not based on the current searches of the trajectory; nothing was changed.
    #[error("trajectory {id} has revision {held}, the searches are based on revision {from}")]
    StaleRevision {
        /// Id of the trajectory.
        id: TrajectoryId,
        /// Current revision of the trajectory, or the revision in flight to the disk.
        held: u64,
        /// Base of the rejected revision.
        from: u64,
    },
    /// The stored searches used later weights than the revision; nothing was changed.
    #[error("the stored searches of trajectory {id} have weights {held}, the revision has the older {sent}")]
    OlderWeights {
        /// Id of the trajectory.
        id: TrajectoryId,
        /// Weights version of the last stored step.
        held: WeightsVersion,
        /// Weights version of the last step in the rejected revision.
        sent: WeightsVersion,
    },
    /// A revision does not belong to the episode of the trajectory; nothing was changed.
    #[error("the revision does not match the trajectory: {0}")]
    OtherEpisode(Invalid),
    /// The maximum number of revisions is in flight to the disk; nothing was changed.
    #[error("too many revisions in flight ({0}); retry later")]
    TooManyRevisions(usize),
    /// A revision does not fit into the memory that tables and data in flight leave; nothing was changed.
    #[error(
        "the revision of trajectory {id} does not fit in {bytes_max} bytes (replay.memory_bytes_max); raise the limit, \
         or lower the capacity of tables"
    )]
    OverMemory {
        /// Id of the trajectory.
        id: TrajectoryId,
        /// Memory limit, in bytes.
        bytes_max: u64,
    },
    /// The log cannot store a revision now; nothing was changed.
    #[error("the revision cannot be stored now ({0}); retry later")]
    RevisionNotStored(String),
    /// The server is draining; nothing was changed.
    #[error("the replay server is shutting down")]
    Draining,
}

impl Refusal {
    /// Returns the kind of refusal for the sender of a revision.
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

/// Channel for one reply.
pub type Reply<T> = oneshot::Sender<T>;

/// A command to the table service.
#[derive(Debug)]
pub enum Command {
    /// Inserts a valid trajectory.
    Insert {
        /// The valid trajectory.
        trajectory: Trajectory,
        /// Encoded record for the log.
        content: EncodedTrajectory,
        /// Time of the insert, as in the record.
        inserted: UnixMillis,
        /// Reply channel.
        reply: InsertReply,
    },
    /// Counts a trajectory that was rejected as invalid.
    CountRefused,
    /// Sets the latest weights version, as announced by a learner.
    NewestWeights(WeightsVersion),
    /// Requests one batch, for which the client has credit.
    Sample {
        /// Table to draw from.
        table: TableIndex,
        /// Number of items in the batch.
        items: u64,
        /// Reply channel.
        reply: mpsc::Sender<Sampled>,
    },
    /// Returns the highest epoch of an actor among all ids seen or pending; 0 if there are none.
    HighestEpoch(u64, Reply<u64>),
    /// Returns the reason why inserts wait now, or would wait.
    InsertWait(Reply<InsertWait>),
    /// Returns the maximum size of a batch from a table, in items.
    BatchItemsMax(TableIndex, Reply<u64>),
    /// Returns the size and counters of a table.
    Stats(TableIndex, Reply<ServerStats>),
    /// Returns all trajectories of a table, newest first.
    Held(TableIndex, Reply<Vec<Trajectory>>),
    /// Examines the next slice of a table for a search, and returns the search.
    Search(TableIndex, Box<Search>, Reply<Box<Search>>),
    /// Returns one trajectory and the tables that hold it; `None` if no table does.
    Get(TrajectoryId, Reply<Option<Located>>),
    /// Quarantines a trajectory in all tables, durably after a delay; returns true if a table held it.
    Report(TrajectoryId, Reply<bool>),
    /// Quarantines a trajectory or an actor durably; returns the number of affected items in the main table.
    Quarantine(Suspect, Reply<Result<u64, Refusal>>),
    /// Releases a trajectory or an actor from quarantine durably; returns the number of restored items in the main
    /// table.
    Release(Suspect, Reply<Result<u64, Refusal>>),
    /// Returns a trajectory of a table that was last searched by a version before the given version, without counting
    /// a sample; `None` if a few draws find none.
    Choose(TableIndex, WeightsVersion, Reply<Option<Revisable>>),
    /// Replaces the searches of a trajectory durably; returns the new revision.
    Revise {
        /// The trajectory with the new searches, and the base revision.
        revised: Revisable,
        /// Encoded record for the log.
        content: EncodedTrajectory,
        /// Time of the revision, as in the record.
        at: UnixMillis,
        /// Reply channel.
        reply: Reply<Result<u64, Refusal>>,
    },
    /// Updates priorities of items in a table; the later of two updates for one item takes effect.
    UpdatePriorities(TableIndex, Vec<(ItemKey, f64)>, Reply<Result<PriorityUpdate, Refusal>>),
    /// Changes settings of a table durably: keys and values, in the syntax of `--set`. Returns the settings in force.
    Configure(TableIndex, BTreeMap<String, String>, Reply<Result<BTreeMap<String, String>, Refusal>>),
    /// Handles an event from the log: entries became durable, or failed to.
    Log(LogEvent),
    /// Runs the periodic work: publishes metrics, removes expired trajectories and resends messages that did not fit
    /// into a channel.
    Tick,
    /// Stops accepting inserts and drawing samples, and finishes the entries in flight to the disk.
    Drain,
}

/// A handle to send commands to the table service; cheap to clone.
#[derive(Debug, Clone)]
pub struct Handle {
    commands: mpsc::Sender<Command>,
}

/// The table service has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the replay tables have stopped")]
pub struct Ended;

impl Handle {
    /// Creates a handle, and the receiver of the commands for the table service.
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

    /// Sends a command and waits for the reply.
    ///
    /// # Errors
    /// [`Ended`].
    pub async fn request<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Ended> {
        let (reply, received) = oneshot::channel();
        self.send(command(reply)).await?;
        received.await.map_err(|_| Ended)
    }

    /// Sends a command and returns the receiver of the reply, without waiting; `None` if the channel is full.
    pub fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Option<oneshot::Receiver<T>> {
        let (reply, received) = oneshot::channel();
        self.commands.try_send(command(reply)).ok().map(|()| received)
    }
}
