mod connection;
mod outbox;

use std::sync::Arc;
use std::time::Duration;

use connection::{Connection, Item};
use experience::{Trajectory, TrajectoryId};
pub use outbox::{EpochUse, Outbox, Received, UploadStatus, WriterStats};
use service::trace::Span;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::Instant;
use transport::reconnect::{Reconnecting, entropy};

use super::Origin;
use crate::limits::{TRAJECTORY_BYTES_MAX, UNACKNOWLEDGED_MAX};

/// The server of a [`Writer`], and the origin of the trajectories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriterSettings {
    /// The replay server: `http://host:port` or `https://host:port`, checked by
    /// [`check_endpoint`](transport::check_endpoint).
    pub endpoint: String,
    /// The actor, stable over restarts.
    pub actor: u64,
    /// The epoch of the actor: grows with every start.
    pub epoch: u64,
    /// Name of the game, as in the spec.
    pub game: String,
    /// Maximum number of unacknowledged trajectories, 1 to [`UNACKNOWLEDGED_MAX`]. They are kept in memory.
    pub in_flight_max: usize,
}

/// Sends trajectories to a replay server and keeps each trajectory until the server acknowledges it.
///
/// A background task connects, and reconnects with growing delays until the writer is dropped. The task resends the
/// unacknowledged trajectories of a broken stream in order, with the same ids. Dropping the writer stops the task and
/// discards the trajectories; [`Writer::close`] waits, and returns the unacknowledged trajectories.
#[derive(Debug)]
pub struct Writer {
    origin: Origin,
    items: mpsc::Sender<Item>,
    in_flight: Arc<Semaphore>,
    in_flight_max: usize,
    status: watch::Receiver<UploadStatus>,
    endpoint: watch::Sender<Arc<str>>,
    connection: Reconnecting<Connection>,
}

/// A reason why the writer rejects a trajectory without sending it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriterError {
    /// The trajectory has another actor, epoch or game than the writer.
    #[error("trajectory {id} of {game} does not belong to the writer of {expected:?}")]
    NotOurs {
        /// Id of the trajectory.
        id: TrajectoryId,
        /// Game of the trajectory.
        game: String,
        /// The actor, epoch and game of the writer.
        expected: Origin,
    },
    /// The trajectory does not fit into a message.
    #[error("trajectory {id} has {bytes} bytes, the limit is {TRAJECTORY_BYTES_MAX}")]
    TooLarge {
        /// Id of the trajectory.
        id: TrajectoryId,
        /// Size of the columns, in bytes.
        bytes: usize,
    },
    /// The writer's task has stopped.
    #[error("the writer has stopped")]
    Stopped,
}

impl Writer {
    /// Starts the task, for an epoch that may have been used for trajectories before. Must be called inside a tokio
    /// runtime.
    #[must_use]
    pub fn start(settings: WriterSettings) -> Self {
        Self::start_with(settings, EpochUse::Known)
    }

    /// Starts the task, for an epoch that has never been used: see [`epoch_taken`](Self::epoch_taken). Must be called
    /// inside a tokio runtime.
    #[must_use]
    pub fn start_epoch(settings: WriterSettings) -> Self {
        Self::start_with(settings, EpochUse::New)
    }

    fn start_with(settings: WriterSettings, epoch_use: EpochUse) -> Self {
        let WriterSettings { endpoint, actor, epoch, game, in_flight_max } = settings;
        let in_flight_max = in_flight_max.clamp(1, UNACKNOWLEDGED_MAX);
        let origin = Origin { actor, epoch, game };
        let (items, received) = mpsc::channel(in_flight_max);
        let in_flight = Arc::new(Semaphore::new(in_flight_max));
        let outbox = Outbox::new(origin.clone(), epoch_use, Instant::now().into_std());
        let (sender, status) = watch::channel(outbox.status());
        let (endpoint, now_at) = watch::channel(endpoint.into());
        let slots = Arc::clone(&in_flight);
        let connection = Connection { endpoint: now_at, items: received, outbox, in_flight: slots, status: sender };
        let connection = Reconnecting::start(connection, entropy());
        Self { origin, items, in_flight, in_flight_max, status, endpoint, connection }
    }

    /// Accepts a trajectory; waits while `in_flight_max` trajectories are unacknowledged. Cancel-safe: dropping the
    /// future of an unfinished `insert` leaves the trajectory unaccepted.
    ///
    /// # Errors
    /// [`WriterError`]. A trajectory that the server finds invalid is no error here but counted, logged and dropped.
    pub async fn insert(&self, trajectory: Trajectory) -> Result<(), WriterError> {
        self.insert_traced(trajectory, None).await
    }

    /// Inserts a trajectory as [`insert`](Self::insert) does, as part of a trace: `span` ends with the
    /// acknowledgement and is the parent of the server's span.
    ///
    /// # Errors
    /// The errors of [`insert`](Self::insert).
    pub async fn insert_traced(&self, trajectory: Trajectory, span: Option<Span>) -> Result<(), WriterError> {
        let Origin { actor, epoch, game } = &self.origin;
        let id = trajectory.id();
        if (id.actor, id.epoch, trajectory.game()) != (*actor, *epoch, game.as_str()) {
            let game = trajectory.game().to_owned();
            return Err(WriterError::NotOurs { id, game, expected: self.origin.clone() });
        }
        let bytes = trajectory.columns().len();
        if bytes > TRAJECTORY_BYTES_MAX {
            return Err(WriterError::TooLarge { id, bytes });
        }
        let slot = self.in_flight.acquire().await.map_err(|_| WriterError::Stopped)?;
        // The channel has capacity for every slot.
        self.items.try_send(Item { trajectory, trace: span }).map_err(|_| WriterError::Stopped)?;
        // The task releases the slot on acknowledgement.
        slot.forget();
        Ok(())
    }

    /// Waits until everything accepted so far is acknowledged. Cancel-safe.
    pub async fn flushed(&self) {
        let slots = u32::try_from(self.in_flight_max).unwrap_or(u32::MAX);
        // The semaphore is not closed while the writer exists.
        drop(self.in_flight.acquire_many(slots).await);
    }

    /// Returns the number of accepted, unacknowledged trajectories.
    #[must_use]
    pub fn unacknowledged(&self) -> usize {
        self.in_flight_max.saturating_sub(self.in_flight.available_permits())
    }

    /// Sets a new address of the same server, which the next stream connects to. It must be the same server because
    /// unacknowledged trajectories are sent there again.
    pub fn moved(&self, endpoint: &str) {
        self.endpoint.send_if_modified(|now_at| {
            let is_new = **now_at != *endpoint;
            if is_new {
                *now_at = endpoint.into();
            }
            is_new
        });
    }

    /// Returns the time since the server became unreachable or stopped storing trajectories. `None` while it works,
    /// even if the rate limiter blocks inserts. See [`UploadStatus::away_for`].
    #[must_use]
    pub fn away_for(&self) -> Option<Duration> {
        self.status.borrow().away_for(Instant::now().into_std())
    }

    /// Returns the highest epoch of this actor that the server has stored, if not below the new epoch of this writer.
    /// The writer then sends nothing: the trajectories need new ids under a higher epoch.
    #[must_use]
    pub fn epoch_taken(&self) -> Option<u64> {
        self.status.borrow().epoch_taken
    }

    /// Waits until everything accepted so far is acknowledged, or the epoch is taken. Cancel-safe.
    pub async fn settled(&self) {
        let mut status = self.status.clone();
        tokio::select! {
            () = self.flushed() => {}
            // An error means that the task has stopped, as it does once the epoch is taken.
            _ = status.wait_for(|status| status.epoch_taken.is_some()) => {}
        }
    }

    /// Returns the counters so far.
    #[must_use]
    pub fn stats(&self) -> WriterStats {
        self.status.borrow().stats
    }

    /// Waits until all trajectories are acknowledged, at most `timeout`; returns unacknowledged trajectories in
    /// order.
    pub async fn close(self, timeout: Duration) -> Vec<Trajectory> {
        self.close_by(tokio::time::sleep(timeout)).await
    }

    /// Waits until all trajectories are acknowledged, at most until `deadline` resolves; returns unacknowledged
    /// trajectories in order.
    pub async fn close_by(self, deadline: impl Future<Output = ()>) -> Vec<Trajectory> {
        let Self { items, connection, .. } = self;
        // After the channel closes, the connection stops once all trajectories are acknowledged.
        drop(items);
        connection.finish(deadline).await.into_unacknowledged()
    }
}

#[cfg(test)]
mod tests;
