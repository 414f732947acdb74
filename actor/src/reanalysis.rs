//! Reanalysis: threads of an actor that search stored trajectories again with the newest weights.
//!
//! A [`Reanalyst`] searches on a thread of its own, because the latent states of a learned model belong to one thread,
//! and because a replay server that does not answer must not hold up self-play. `exchange` fetches trajectories and
//! sends their new searches; `share` limits the searches to a share of all of the actor's. Nothing is kept over a
//! restart: what is not sent yet is searched again by whichever actor draws it.

mod exchange;
mod share;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use evaluators::Network;
use experience::TrajectoryId;
use game::Game;
use inference::Error;
use proto::replay::{Revisable, Reviser};
use selfplay::Reanalysis;
use tokio::sync::mpsc::error::{TryRecvError, TrySendError};

pub(crate) use exchange::{Desk, Exchange, Searched, Stored};
pub(crate) use share::{Share, threads};

use crate::metrics;
use crate::workers::{FAILURES_MAX, RETRY_INTERVAL, ThreadContext};

#[cfg(test)]
mod tests;

/// A thread that searches stored trajectories again.
pub(crate) struct Reanalyst<G: Game> {
    game: G,
    searches: Reanalysis<G>,
    network: Option<Network>,
    /// The server of each trajectory under way, and the revision that was fetched.
    under_way: HashMap<TrajectoryId, (Reviser, u64)>,
    desk: Desk,
    share: Arc<Share>,
    failures: u32,
    around: ThreadContext,
}

impl<G: Game> Reanalyst<G> {
    pub(crate) fn new(game: G, searches: Reanalysis<G>, desk: Desk, share: Arc<Share>, around: ThreadContext) -> Self {
        let mut around = around;
        // Weights published before this thread started count as new.
        around.weights.mark_changed();
        Self { game, searches, network: None, under_way: HashMap::new(), desk, share, failures: 0, around }
    }

    /// Searches until the process drains.
    pub(crate) fn run(mut self) -> anyhow::Result<()> {
        // As in self-play, a process does not continue with some of its threads.
        let _ends_together = self.around.drain.token().drop_guard();
        while !self.around.drain.started() {
            self.swap_weights();
            if self.network.is_none() {
                self.wait_for_weights();
                continue;
            }
            self.take_stored();
            if self.searches.is_idle() {
                self.wait_for_stored();
                continue;
            }
            if !self.share.is_due() {
                self.wait_for_share();
                continue;
            }
            self.advance()?;
            self.hand_over();
        }
        Ok(())
    }

    /// Switches to newer weights if there are any; searches under way begin again.
    fn swap_weights(&mut self) {
        if !self.around.weights.has_changed().unwrap_or(false) {
            return;
        }
        let Some(published) = self.around.weights.borrow_and_update().clone() else { return };
        match self.around.network(&self.game, &published, self.network.is_some()) {
            Ok(Some(network)) => {
                self.network = Some(network);
                self.searches.restart();
            }
            // Another thread prepares it.
            Ok(None) => self.around.weights.mark_changed(),
            Err(error) => {
                let (version, error) = (published.manifest.version, service::chain(&error));
                tracing::error!(%version, error, "the weights cannot be used; reanalysis goes on without them");
            }
        }
    }

    /// Runs one round of searches.
    fn advance(&mut self) -> anyhow::Result<()> {
        let result = match &mut self.network {
            None => return Ok(()),
            Some(Network::Evaluator(evaluator)) => {
                self.searches.advance(evaluator.as_mut(), self.around.cache.as_deref())
            }
            Some(Network::Latent(model)) => self.searches.advance_latent(model.as_mut()),
        };
        match result {
            Ok(round) => {
                self.failures = 0;
                self.share.spend(round.simulations);
                metrics::reanalysed(round.simulations);
                Ok(())
            }
            Err(error) => self.recover(error),
        }
    }

    fn recover(&mut self, error: Error) -> anyhow::Result<()> {
        metrics::evaluator_failed();
        match error {
            Error::NotFinite { weights_version } => {
                tracing::error!(weights_version, "the weights answer NaN; reanalysis waits for the next version");
                self.network = None;
                Ok(())
            }
            Error::Backend(reason) if self.failures + 1 < FAILURES_MAX => {
                self.failures += 1;
                tracing::warn!(reason, failures = self.failures, "the evaluator failed, trying again");
                self.around.idle(async { tokio::time::sleep(RETRY_INTERVAL).await });
                Ok(())
            }
            error => Err(error).context("evaluate stored positions"),
        }
    }

    /// Takes stored trajectories until the batches are full, or none has arrived.
    fn take_stored(&mut self) {
        while self.searches.has_room() {
            match self.desk.stored.try_recv() {
                Ok(stored) => self.take(stored),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return,
            }
        }
    }

    fn take(&mut self, Stored { reviser, revisable: Revisable { trajectory, revision } }: Stored) {
        let id = trajectory.id();
        // It was drawn twice.
        if self.under_way.contains_key(&id) {
            return;
        }
        match self.searches.push(&trajectory) {
            Ok(()) => drop(self.under_way.insert(id, (reviser, revision))),
            Err(error) => {
                metrics::reanalysis_refused("unusable", 1);
                tracing::warn!(%id, %error, "a stored trajectory cannot be searched again");
            }
        }
    }

    /// Sends the finished trajectories; waits while the channel is full.
    fn hand_over(&mut self) {
        let finished: Vec<_> = self.searches.drain_finished().collect();
        for done in finished {
            let Some((reviser, revision)) = self.under_way.remove(&done.trajectory.id()) else { continue };
            let revisable = Revisable { trajectory: done.trajectory, revision };
            let searched = Searched { reviser, revisable, positions: done.positions };
            if let Err(TrySendError::Full(searched)) = self.desk.searched.try_send(searched) {
                let sender = self.desk.searched.clone();
                self.around.idle(async move { drop(sender.send(searched).await) });
            }
        }
        // A trajectory that was given up has no result.
        if self.searches.is_idle() {
            self.under_way.clear();
        }
    }

    fn wait_for_weights(&mut self) {
        let mut weights = self.around.weights.clone();
        self.around.idle(async move {
            if weights.changed().await.is_err() {
                // The subscriber is dropped only when the process ends.
                std::future::pending().await
            }
        });
        // The swap checks for a change, which this wait has already consumed.
        self.around.weights.mark_changed();
    }

    fn wait_for_stored(&mut self) {
        let ThreadContext { runtime, drain, .. } = &self.around;
        let stored = runtime.block_on(async {
            tokio::select! {
                () = drain.wait() => None,
                stored = self.desk.stored.recv() => stored,
            }
        });
        // What self-play has searched meanwhile is not caught up.
        self.share.forgive();
        match stored {
            Some(stored) => self.take(stored),
            // The task ends before the drain only by a panic, which must not make this thread spin.
            None => self.around.idle(std::future::pending()),
        }
    }

    fn wait_for_share(&self) {
        let share = Arc::clone(&self.share);
        self.around.idle(async move { share.due().await });
    }
}

/// The longest wait for the answer to new searches at the end of the process.
pub(crate) const LAST_ANSWERS_MAX: Duration = Duration::from_secs(1);
