//! A client that continuously inserts trajectories of known ids, so that every acknowledgement is known.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use experience::TrajectoryId;
use proto::replay::{Writer, WriterStats};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::trajectories::{answered, won, writer};

/// An id that no actor of the fleet has.
pub(super) const WITNESS: u64 = 1_000;
/// The only epoch of the witness.
pub(super) const EPOCH: u64 = 1;
/// Interval between inserts, short enough that inserts are in flight during every fault.
const INTERVAL: Duration = Duration::from_millis(50);

/// The client and its task.
#[derive(Debug)]
pub struct Witness {
    writer: Arc<Writer>,
    sent: Arc<AtomicU64>,
    /// The permit to insert, which pauses the inserts while a [`Rest`] holds it.
    turn: Arc<Semaphore>,
    task: JoinHandle<()>,
}

impl Witness {
    /// Starts to insert. Must be called on a runtime whose threads reach `endpoint`.
    #[must_use]
    pub fn start(endpoint: &str) -> Self {
        let writer = Arc::new(writer(endpoint, WITNESS, EPOCH));
        let (sent, turn) = (Arc::new(AtomicU64::new(0)), Arc::new(Semaphore::new(1)));
        let task = tokio::spawn(insert(Arc::clone(&writer), Arc::clone(&sent), Arc::clone(&turn)));
        Self { writer, sent, turn, task }
    }

    /// Returns the number of acknowledged trajectories.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        let WriterStats { inserted, duplicates, .. } = self.writer.stats();
        inserted + duplicates
    }

    /// Waits until every trajectory is acknowledged, and pauses the inserts until the returned value is dropped. That
    /// value holds the number of acknowledged trajectories, whose sequence numbers are all those below it.
    ///
    /// # Errors
    /// A trajectory is not acknowledged by the deadline, was rejected or was acknowledged twice.
    pub async fn rest(&self, deadline: Duration) -> anyhow::Result<Rest<'_>> {
        let turn = timeout(deadline, self.turn.acquire()).await.context("wait for the witness")??;
        answered(&self.writer, deadline).await.context("wait until the witness has its answers")?;
        let (sent, acknowledged) = (self.sent.load(Ordering::SeqCst), self.acknowledged());
        ensure!(self.writer.stats().refused == 0, "the witness was refused");
        ensure!(acknowledged == sent, "the witness sent {sent}, and received {acknowledged} acknowledgements");
        Ok(Rest { acknowledged, _turn: turn })
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The state in which no trajectory is in flight; inserts are paused until it is dropped.
#[derive(Debug)]
pub struct Rest<'a> {
    /// The number of acknowledged trajectories.
    pub acknowledged: u64,
    _turn: SemaphorePermit<'a>,
}

async fn insert(writer: Arc<Writer>, sent: Arc<AtomicU64>, turn: Arc<Semaphore>) {
    for sequence in 0.. {
        {
            let _turn = turn.acquire().await.expect("the semaphore is never closed");
            let id = TrajectoryId { actor: WITNESS, epoch: EPOCH, sequence };
            writer.insert(won(id)).await.expect("the writer takes what is its own");
            sent.store(sequence + 1, Ordering::SeqCst);
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
