//! Reanalysis in an actor: separate threads search stored trajectories again with the latest weights.
//!
//! A [`Reanalyst`] searches on a separate thread, because the latent states of a learned model belong to one thread,
//! and an unresponsive replay server must not delay self-play. `exchange` fetches trajectories and sends new searches;
//! `share` limits the searches to a fraction of the actor's simulations. No state survives a restart: the next actor
//! that draws a trajectory with unsent results searches that trajectory again.

mod exchange;
mod share;

use std::collections::HashMap;
use std::sync::Arc;

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

/// A thread that searches stored trajectories again.
pub(crate) struct Reanalyst<G: Game> {
    game: G,
    searches: Reanalysis<G>,
    network: Option<Network>,
    /// The server and the revision from which each trajectory in progress was fetched.
    under_way: HashMap<TrajectoryId, (Reviser, u64)>,
    desk: Desk,
    share: Arc<Share>,
    failures: u32,
    around: ThreadContext,
}

impl<G: Game> Reanalyst<G> {
    pub(crate) fn new(
        game: G,
        searches: Reanalysis<G>,
        desk: Desk,
        share: Arc<Share>,
        mut around: ThreadContext,
    ) -> Self {
        // Weights published before this thread started count as new.
        around.weights.mark_changed();
        Self { game, searches, network: None, under_way: HashMap::new(), desk, share, failures: 0, around }
    }

    /// Searches until the process drains.
    pub(crate) fn run(mut self) -> anyhow::Result<()> {
        // As in self-play, the process drains if any thread stops.
        let _ends_together = self.around.drain.token().drop_guard();
        while !self.around.drain.started() {
            service::beat();
            self.swap_weights();
            if self.network.is_none() {
                self.around.idle_until_weights();
                continue;
            }
            self.take_stored();
            if self.searches.is_idle() {
                self.wait_for_stored();
                continue;
            }
            if !self.share.is_due() {
                self.around.idle(self.share.due());
                continue;
            }
            self.advance()?;
            self.hand_over();
        }
        Ok(())
    }

    /// Switches to newer weights, if any; searches in progress restart.
    fn swap_weights(&mut self) {
        if !self.around.weights.has_changed().unwrap_or(false) {
            return;
        }
        let Some(published) = self.around.weights.borrow_and_update().clone() else { return };
        match self.around.network(&self.game, &published, self.network.is_some()) {
            Ok(Some(network)) => {
                self.network = Some(network);
                self.around.loaded(&published);
                self.searches.restart();
            }
            // Another thread is preparing the network.
            Ok(None) => self.around.weights.mark_changed(),
            Err(error) => {
                let (version, error) = (published.manifest.version, service::chain(&error));
                tracing::error!(%version, error, "cannot use weights; reanalysis continues with the previous version");
            }
        }
    }

    /// Runs one round of searches.
    fn advance(&mut self) -> anyhow::Result<()> {
        let result = match &mut self.network {
            None => return Ok(()),
            Some(Network::Evaluator(evaluator)) => self.searches.advance(evaluator.as_mut(), self.around.cached()),
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
                tracing::error!(weights_version, "network output is not finite; reanalysis waits for the next version");
                self.network = None;
                Ok(())
            }
            Error::Backend(reason) if self.failures + 1 < FAILURES_MAX => {
                self.failures += 1;
                tracing::warn!(reason, failures = self.failures, "evaluator failed; retrying");
                self.around.idle(async { tokio::time::sleep(RETRY_INTERVAL).await });
                Ok(())
            }
            error @ Error::Lost { .. } if !self.around.drain.started() => service::device_loss::end(&error),
            error => Err(error).context("evaluate stored positions"),
        }
    }

    /// Takes stored trajectories until the batches are full or the channel is empty.
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
        // The trajectory was drawn twice.
        if self.under_way.contains_key(&id) {
            return;
        }
        match self.searches.push(&trajectory) {
            Ok(()) => drop(self.under_way.insert(id, (reviser, revision))),
            Err(error) => {
                metrics::reanalysis_refused("unusable", 1);
                tracing::warn!(%id, %error, "cannot search a stored trajectory again; skipping it");
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
        // An abandoned trajectory has no result.
        if self.searches.is_idle() {
            self.under_way.clear();
        }
    }

    fn wait_for_stored(&mut self) {
        let stored = self.around.idle(self.desk.stored.recv());
        // Reanalysis does not catch up on self-play simulations from the time without trajectories.
        self.share.forgive();
        match stored {
            Some(Some(stored)) => self.take(stored),
            // The task stops before the drain only after a panic, which must not make this thread spin.
            Some(None) => {
                self.around.idle(std::future::pending::<()>());
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use experience::{Step, StepKind, Trajectory, WeightsVersion};
    use games::TicTacToe;
    use inference::Hashing;
    use proto::replay::TableStats;
    use scripted::{ReplayScript, trajectory, within};
    use service::Drain;
    use tokio::sync::watch;
    use transport::servers::Servers;

    use super::*;
    use crate::workers::tests::{context_of_reanalysis, published, selfplay};

    const SEED: u64 = 11;

    /// A reanalysis thread, with a replay server that the test drives.
    struct Bench {
        server: ReplayScript,
        weights: watch::Sender<Option<Arc<proto::weights::Published>>>,
        share: Arc<Share>,
        drain: Drain,
        exchange: Exchange,
        thread: std::thread::JoinHandle<anyhow::Result<()>>,
    }

    fn searches() -> Reanalysis<TicTacToe> {
        Reanalysis::new(TicTacToe::new(), selfplay(), 1.0, SEED)
    }

    /// Starts a reanalysis thread, and a server with scripted trajectories of these sequence numbers, searched with
    /// weights version 2.
    async fn start(sequences: &[u64]) -> Bench {
        let ids = sequences.iter().map(|&sequence| trajectory(sequence).id()).collect();
        let server = ReplayScript::holding(TableStats::default(), ids).await;
        let drain = Drain::new();
        let (around, weights) = context_of_reanalysis(&drain, tokio::runtime::Handle::current());
        let servers = Servers::resolved(&server.endpoint().parse().unwrap());
        let (exchange, desk) = Exchange::start(servers, around.weights.clone(), &drain);
        let share = Arc::new(Share::new(0.5, 1000));
        let reanalyst = Reanalyst::new(TicTacToe::new(), searches(), desk, Arc::clone(&share), around);
        let thread = std::thread::spawn(move || reanalyst.run());
        Bench { server, weights, share, drain, exchange, thread }
    }

    impl Bench {
        fn publish(&self, version: u64) {
            self.weights.send_replace(Some(published(&TicTacToe::new(), version)));
        }

        async fn stop(self) {
            self.drain.start();
            within(self.exchange.join()).await;
            within(tokio::task::spawn_blocking(|| self.thread.join())).await.unwrap().unwrap().unwrap();
        }
    }

    /// Returns a trajectory as searched by the network of this version.
    fn by_hand(before: &Trajectory, version: u64) -> Trajectory {
        let mut searches = searches();
        searches.push(before).unwrap();
        let mut evaluator = Hashing::new(TicTacToe::new().spec().observation, version);
        while !searches.is_idle() {
            searches.advance(&mut evaluator, None).unwrap();
        }
        searches.drain_finished().next().unwrap().trajectory
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn stored_trajectories_come_back_with_the_policies_and_values_of_a_search_by_the_newest_weights() {
        let mut bench = start(&[4]).await;
        bench.share.earn(1_000_000);
        bench.publish(3);
        let revised = bench.server.revised().await;
        assert_eq!(revised.revision, 3, "the revision that was fetched");
        assert_eq!(revised.trajectory, by_hand(&trajectory(4), 3));
        assert_ne!(revised.trajectory, trajectory(4));
        assert_eq!(revised.trajectory.last_weights_version(), WeightsVersion(3));
        // The script always returns the trajectory of version 2, so the next weights search that trajectory again. New
        // weights may arrive in the middle of a trajectory, which then has steps of both versions.
        bench.publish(4);
        let is_of_next = |step: Step| step.kind == StepKind::Opening || step.weights_version == WeightsVersion(4);
        let by_next = async {
            loop {
                let revised = bench.server.revised().await;
                if revised.trajectory.steps().all(is_of_next) {
                    return revised;
                }
            }
        };
        assert_eq!(within(by_next).await.trajectory, by_hand(&trajectory(4), 4));
        bench.stop().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn nothing_is_searched_that_the_newest_weights_have_searched_or_before_self_play_has_searched() {
        let mut bench = start(&[4]).await;
        bench.share.earn(1_000_000);
        // The script's trajectories have version 2.
        bench.publish(2);
        let quiet = tokio::time::timeout(Duration::from_millis(300), bench.server.revised()).await;
        assert!(quiet.is_err(), "{quiet:?}");
        bench.stop().await;

        let mut bench = start(&[4]).await;
        bench.publish(3);
        let quiet = tokio::time::timeout(Duration::from_millis(300), bench.server.revised()).await;
        assert!(quiet.is_err(), "{quiet:?}");
        bench.share.earn(1_000_000);
        assert_eq!(bench.server.revised().await.trajectory, by_hand(&trajectory(4), 3));
        bench.stop().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_thread_that_waits_for_weights_trajectories_or_its_share_ends_with_the_drain() {
        start(&[]).await.stop().await;
        let bench = start(&[]).await;
        bench.publish(3);
        bench.stop().await;
        let bench = start(&[1]).await;
        bench.publish(3);
        bench.stop().await;
    }
}
