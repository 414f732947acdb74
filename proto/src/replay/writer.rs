mod connection;
mod outstanding;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use connection::Connection;
use experience::{Trajectory, TrajectoryId};
use outstanding::Item;
use prost::Message as _;
use tokio::sync::{Semaphore, mpsc};

use super::{Origin, v1};
use crate::limits::{TRAJECTORY_BYTES_MAX, UNACKNOWLEDGED_MAX};
use crate::reconnect::{Reconnecting, entropy};

/// What a [`Writer`] writes, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriterSettings {
    /// The replay server: `http://host:port`, checked by [`check_endpoint`](crate::check_endpoint).
    pub endpoint: String,
    /// The actor, stable over restarts.
    pub actor: u64,
    /// Which life of that actor: grows with every start.
    pub epoch: u64,
    /// The name of the game, as in its spec.
    pub game: String,
    /// How many trajectories may wait for their acknowledgement, 1 to [`UNACKNOWLEDGED_MAX`]. They are kept in memory.
    pub in_flight_max: usize,
}

/// Hands trajectories to a replay server and keeps each until it is acknowledged.
///
/// A task of its own connects, and connects again with growing delays for as long as the writer lives; what was not
/// acknowledged on a broken stream is sent again in order, with the same ids. Dropping the writer stops the task and
/// forgets what it held; [`Writer::close`] waits and hands back the rest.
#[derive(Debug)]
pub struct Writer {
    origin: Origin,
    items: mpsc::Sender<Item>,
    in_flight: Arc<Semaphore>,
    in_flight_max: usize,
    counters: Arc<Counters>,
    connection: Reconnecting<Connection>,
}

/// Why a trajectory is not accepted. It was not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriterError {
    /// It carries another actor, epoch or game than the writer.
    #[error("trajectory {id} of {game} does not belong to the writer of {expected:?}")]
    NotOurs {
        /// Its id.
        id: TrajectoryId,
        /// Its game.
        game: String,
        /// What the writer writes.
        expected: Origin,
    },
    /// It does not fit into a message.
    #[error("trajectory {id} has {bytes} bytes, the limit is {TRAJECTORY_BYTES_MAX}")]
    TooLarge {
        /// Its id.
        id: TrajectoryId,
        /// Its size on the wire.
        bytes: usize,
    },
    /// The writer's task has ended.
    #[error("the writer has stopped")]
    Stopped,
}

/// What a writer has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriterStats {
    /// Trajectories acknowledged as new.
    pub inserted: u64,
    /// Trajectories acknowledged as stored before: an acknowledgement had been lost.
    pub duplicates: u64,
    /// Trajectories refused as invalid and dropped.
    pub refused: u64,
    /// Streams that broke, or could not be opened.
    pub broken_streams: u64,
}

#[derive(Debug, Default)]
struct Counters {
    inserted: AtomicU64,
    duplicates: AtomicU64,
    refused: AtomicU64,
    broken_streams: AtomicU64,
}

impl Writer {
    /// Starts the task. Must be called inside a tokio runtime.
    #[must_use]
    pub fn start(settings: WriterSettings) -> Self {
        let WriterSettings { endpoint, actor, epoch, game, in_flight_max } = settings;
        let in_flight_max = in_flight_max.clamp(1, UNACKNOWLEDGED_MAX);
        let origin = Origin { actor, epoch, game };
        let (items, received) = mpsc::channel(in_flight_max);
        let in_flight = Arc::new(Semaphore::new(in_flight_max));
        let counters = Arc::new(Counters::default());
        let connection =
            Connection::new(endpoint, origin.clone(), received, Arc::clone(&in_flight), Arc::clone(&counters));
        let connection = Reconnecting::start(connection, entropy());
        Self { origin, items, in_flight, in_flight_max, counters, connection }
    }

    /// Accepts a trajectory; waits while `in_flight_max` others are unacknowledged. Cancel-safe: a trajectory whose
    /// `insert` was dropped was not accepted.
    ///
    /// # Errors
    /// [`WriterError`]; a trajectory that the server finds invalid is no error here but counted, logged and dropped.
    pub async fn insert(&self, trajectory: Trajectory) -> Result<(), WriterError> {
        let Origin { actor, epoch, game } = &self.origin;
        let TrajectoryId { actor: its_actor, epoch: its_epoch, sequence: _ } = trajectory.id;
        if (its_actor, its_epoch, &trajectory.game) != (*actor, *epoch, game) {
            let (id, game) = (trajectory.id, trajectory.game);
            return Err(WriterError::NotOurs { id, game, expected: self.origin.clone() });
        }
        let message = v1::Trajectory::from(&trajectory);
        let bytes = message.encoded_len();
        if bytes > TRAJECTORY_BYTES_MAX {
            return Err(WriterError::TooLarge { id: trajectory.id, bytes });
        }
        let slot = self.in_flight.acquire().await.map_err(|_| WriterError::Stopped)?;
        // There is room: the channel holds as many as there are slots.
        self.items.try_send(Item { trajectory, message }).map_err(|_| WriterError::Stopped)?;
        // The task gives the slot back with the acknowledgement.
        slot.forget();
        Ok(())
    }

    /// How many trajectories were accepted and not yet acknowledged.
    #[must_use]
    pub fn unacknowledged(&self) -> usize {
        self.in_flight_max.saturating_sub(self.in_flight.available_permits())
    }

    /// What has been done so far.
    #[must_use]
    pub fn stats(&self) -> WriterStats {
        let Counters { inserted, duplicates, refused, broken_streams } = &*self.counters;
        WriterStats {
            inserted: inserted.load(Ordering::Relaxed),
            duplicates: duplicates.load(Ordering::Relaxed),
            refused: refused.load(Ordering::Relaxed),
            broken_streams: broken_streams.load(Ordering::Relaxed),
        }
    }

    /// Waits until everything is acknowledged, at most `timeout`, and hands back in order what is not.
    pub async fn close(self, timeout: Duration) -> Vec<Trajectory> {
        self.close_by(tokio::time::sleep(timeout)).await
    }

    /// Waits until everything is acknowledged, at most until `deadline` resolves, and hands back in order what is not.
    pub async fn close_by(self, deadline: impl Future<Output = ()>) -> Vec<Trajectory> {
        let Self { items, connection, .. } = self;
        // The connection has nothing left to do once nothing more can come.
        drop(items);
        connection.finish(deadline).await.into_unacknowledged()
    }
}

#[cfg(test)]
mod tests;
