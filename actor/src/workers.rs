//! Runs the self-play threads. They communicate with tokio only in this file: weights arrive through a watch, finished
//! episodes leave through a bounded channel, and a full channel blocks the thread.

use std::future::pending;
use std::sync::{Arc, Once};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use evaluators::{Backend, Chosen, Network};
use game::{Environments, Game, Losses, mix};
use games::GameKind;
use inference::{Cache, WeightsCache};
use proto::weights::Published;
use run_file::actor::Settings;
use selfplay::Reanalysis;
use service::{Drain, Health, Live, Readiness};
use tokio::runtime::Handle;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use transport::servers::Servers;

use crate::adaptive_budget::AdaptiveBudget;
use crate::metrics;
use crate::play::{Call, Loaded, Pace, Play};
use crate::reanalysis::{self, Exchange, Reanalyst, Share};
use crate::spectators::Spectators;
use crate::traces::{Finished, Traces};

#[cfg(test)]
pub(crate) mod tests;

/// Maximum number of finished episodes between a thread and the writer, per thread.
const FINISHED_PER_THREAD_MAX: usize = 16;
/// Number of consecutive backend failures after which the process exits, so that the supervisor decides on a restart.
pub(crate) const FAILURES_MAX: u32 = 5;
/// Time without a finished batch after which a thread counts as stalled, in addition to the time limits of
/// environments: the first batch of a network waits for an engine trial, and a batch of a large network takes seconds.
const STALLED_AFTER: Duration = Duration::from_secs(300);
/// Time between two attempts with a failing backend.
pub(crate) const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// The latest weights, `None` before the first.
pub(crate) type Weights = watch::Receiver<Option<Arc<Published>>>;

/// The running threads, and the channel for finished episodes.
pub(crate) struct Workers {
    pub(crate) finished: mpsc::Receiver<Finished>,
    pub(crate) threads: Threads,
}

/// Threads that stop when the drain fires, and the tasks of reanalysis.
pub(crate) struct Threads {
    threads: Vec<JoinHandle<anyhow::Result<()>>>,
    exchanges: Vec<Exchange>,
}

impl Workers {
    /// Starts the threads, which use the timers of the calling tokio runtime and show games to `live`. Reanalysis
    /// fetches stored trajectories from `servers`.
    #[expect(clippy::too_many_arguments, reason = "the parts of the process, each borrowed from another owner")]
    pub(crate) fn start(
        settings: &Settings,
        epoch: u64,
        evaluators: Chosen,
        weights: Weights,
        freshness: Freshness,
        readiness: Readiness,
        drain: &Drain,
        health: &Health,
        live: &Live,
        servers: &Servers,
    ) -> anyhow::Result<Self> {
        let (Chosen { backend, threads: all }, cache_positions) = (evaluators, settings.actor.cache_positions);
        let (count, reanalysts) = reanalysis::threads(all, settings.reanalysis.share);
        let (sender, finished) = mpsc::channel(count * FINISHED_PER_THREAD_MAX);
        let cache = (cache_positions > 0).then(|| Arc::new(Cache::new(cache_positions)));
        let around = ThreadContext {
            backend,
            weights,
            freshness,
            finished: sender,
            cache,
            cached_weights: 0,
            readiness,
            drain: drain.clone(),
            runtime: Handle::current(),
            announced: Arc::new(Once::new()),
            share: (reanalysts > 0).then(|| Arc::new(Share::of(settings, reanalysts))),
        };
        let mut threads = Vec::with_capacity(count + reanalysts);
        for index in 0..count {
            let (around, drain) = (around.clone(), drain.clone());
            let seed = thread_seed(settings, epoch, index);
            let (selfplay, budget) = (settings.selfplay.clone(), AdaptiveBudget::new(&settings.selfplay));
            let (discount, spectators) = (settings.discount, Spectators::of_thread(live, index, count));
            let name = format!("selfplay-{index}");
            let builder = std::thread::Builder::new().name(name.clone());
            let outside = outside(settings, &drain)?;
            let environment = settings.environment.as_ref().map_or(Duration::ZERO, bridge::Settings::call_time_max);
            let beats = health.heartbeat("selfplay", STALLED_AFTER + environment);
            let thread = games::with_game!(settings.game, |game| builder.spawn(move || {
                let _beats = beats.of_thread();
                let play = Play::new(game, selfplay, discount, seed);
                let worker = |environments| Worker::new(play.in_environments(environments), budget, spectators, around);
                start_outside(outside, &drain, worker)
            }));
            threads.push(thread.with_context(|| format!("start the thread {name}"))?);
        }
        let mut exchanges = Vec::new();
        if let Some(share) = around.share.clone() {
            for index in 0..reanalysts {
                let (exchange, desk) = Exchange::start(servers.clone(), around.weights.clone(), drain);
                exchanges.push(exchange);
                let (around, share) = (around.clone(), Arc::clone(&share));
                let seed = thread_seed(settings, epoch, count + index);
                let (selfplay, discount) = (settings.reanalysis_searches(), settings.discount);
                let name = format!("reanalysis-{index}");
                let builder = std::thread::Builder::new().name(name.clone());
                let game = settings.game.rules();
                let beats = health.heartbeat("reanalysis", STALLED_AFTER);
                let thread = builder.spawn(move || {
                    let _beats = beats.of_thread();
                    let searches = Reanalysis::new(game.clone(), selfplay, discount, seed);
                    Reanalyst::new(game, searches, desk, share, around).run()
                });
                threads.push(thread.with_context(|| format!("start the thread {name}"))?);
            }
        }
        Ok(Self { finished, threads: Threads { threads, exchanges } })
    }
}

impl Threads {
    /// Waits for all threads; returns the first failure.
    pub(crate) async fn join(self) -> anyhow::Result<()> {
        let Self { threads, exchanges } = self;
        let join = move || {
            let mut result = Ok(());
            for thread in threads {
                let ended = thread.join().unwrap_or_else(|_| Err(anyhow!("a self-play thread panicked")));
                result = result.and(ended);
            }
            result
        };
        let joined = tokio::task::spawn_blocking(join).await.context("join the self-play threads")?;
        for exchange in exchanges {
            exchange.join().await;
        }
        joined
    }
}

/// Starts a thread's environments outside this process.
type StartEnvironments = Box<dyn FnOnce() -> Result<Box<dyn Environments>, bridge::Error> + Send>;

/// Returns the start of environments outside this process; `None` if the game runs in this process.
fn outside(settings: &Settings, drain: &Drain) -> anyhow::Result<Option<StartEnvironments>> {
    let (GameKind::Recorded(described), Some(environment)) = (&settings.game, &settings.environment) else {
        return Ok(None);
    };
    let (environment, described) = (environment.clone(), described.clone());
    let drain = drain.pipe().context("open a pipe for the drain")?;
    let start: StartEnvironments =
        Box::new(move || Ok(Box::new(bridge::config::start(environment, &described, Some(drain))?)));
    Ok(Some(start))
}

/// Starts the environments, if any, and runs the worker that plays in them.
fn start_outside<G: Game>(
    outside: Option<StartEnvironments>,
    drain: &Drain,
    worker: impl FnOnce(Option<Box<dyn Environments>>) -> Worker<G>,
) -> anyhow::Result<()> {
    let started = outside.map(|start| start()).transpose().context("start the environments");
    if started.is_err() && drain.started() {
        // The drain abandoned the start of the environments.
        return Ok(());
    }
    if started.is_err() {
        // The other threads stop as well.
        drain.token().cancel();
    }
    worker(started?).run()
}

/// Returns a seed that differs between actors, epochs and threads: a restart must not play the same games again.
fn thread_seed(settings: &Settings, epoch: u64, thread: usize) -> u64 {
    [settings.actor.id, epoch, thread as u64].iter().fold(settings.seed, |seed, part| mix(seed ^ part))
}

/// A thread's connections to the rest of the process.
#[derive(Clone)]
pub(crate) struct ThreadContext {
    backend: Arc<dyn Backend>,
    pub(crate) weights: Weights,
    freshness: Freshness,
    finished: mpsc::Sender<Finished>,
    cache: Option<Arc<Cache>>,
    /// Cache key of the weights in use by the thread.
    cached_weights: u64,
    readiness: Readiness,
    pub(crate) drain: Drain,
    pub(crate) runtime: Handle,
    /// Completed once a thread has logged the settings that a learned model ignores.
    announced: Arc<Once>,
    /// Counts the simulations of self-play for reanalysis; `None` without reanalysis.
    share: Option<Arc<Share>>,
}

impl ThreadContext {
    /// Builds the network for new weights. A thread with earlier weights (`is_loaded`) gets `None` while another thread
    /// prepares the network for all threads.
    pub(crate) fn network<G: Game>(
        &self,
        game: &G,
        published: &Published,
        is_loaded: bool,
    ) -> anyhow::Result<Option<Network>> {
        let manifest = evaluators::suited(&published.manifest, game.spec())?;
        if !manifest.architecture.model.has_dynamics() {
            selfplay::check_searchable(game)?;
        }
        if is_loaded {
            return Ok(self.backend.try_build_network(&manifest, &published.bytes)?);
        }
        Ok(Some(self.backend.build_network(&manifest, &published.bytes)?))
    }

    /// Returns the cached predictions of the thread's weights.
    pub(crate) fn cached(&self) -> Option<WeightsCache<'_>> {
        self.cache.as_deref().map(|cache| cache.of(self.cached_weights))
    }

    /// Records that the thread now plays with these weights, and removes other weights from the cache.
    pub(crate) fn loaded(&mut self, published: &Published) {
        self.cached_weights = published.manifest.digest.key();
        if let Some(cache) = &self.cache {
            cache.retain(&[self.cached_weights]);
        }
    }

    /// Waits for `event`; returns `None` if the process drains first. The wait does not count as self-play time. A
    /// timer must be created inside `event`, because timers need the runtime.
    pub(crate) fn idle<T>(&self, event: impl Future<Output = T>) -> Option<T> {
        service::waiting(|| self.runtime.block_on(self.drain.unless_started(event)))
    }

    /// Waits like [`idle`](Self::idle), and counts the time as self-play waiting for `part`.
    fn wait(&self, part: &'static str, event: impl Future<Output = ()>) {
        let start = Instant::now();
        self.idle(event);
        metrics::waited(part, start.elapsed());
    }

    /// Waits for weights newer than the last read, or for the drain; the next check of [`weights`](Self::weights)
    /// reports a change.
    pub(crate) fn idle_until_weights(&mut self) {
        let mut weights = self.weights.clone();
        self.idle(async {
            if weights.changed().await.is_err() {
                // The subscriber is dropped only when the process stops.
                pending().await
            }
        });
        self.weights.mark_changed();
    }
}

/// A self-play thread, with episodes and measurements.
struct Worker<G: Game> {
    play: Play<G>,
    budget: AdaptiveBudget,
    traces: Traces,
    spectators: Spectators,
    failures: u32,
    /// Counts of environment failures and lost episodes at the end of the last call.
    losses: Losses,
    around: ThreadContext,
}

impl<G: Game> Worker<G> {
    fn new(play: Play<G>, budget: AdaptiveBudget, spectators: Spectators, mut around: ThreadContext) -> Self {
        // Weights published before this thread started count as new.
        around.weights.mark_changed();
        let traces = Traces::new(play.slots());
        Self { play, budget, traces, spectators, failures: 0, losses: Losses::default(), around }
    }

    fn run(mut self) -> anyhow::Result<()> {
        let played = {
            // Starts the drain on every exit of the thread: a process that continued with half of the threads would
            // hide a bug.
            let _ends_together = self.around.drain.token().drop_guard();
            self.play_until_drained()
        };
        // Done on every exit of the thread; an error means that the receiver was dropped.
        let _ = self.hand_over();
        metrics::unfinished(self.play.under_way());
        played
    }

    fn play_until_drained(&mut self) -> anyhow::Result<()> {
        while !self.around.drain.started() {
            self.swap_weights()?;
            if !self.play.is_loaded() {
                self.wait_for_weights();
                continue;
            }
            if let Some(away) = self.around.freshness.outdated_for() {
                self.wait_for_learner(away);
                continue;
            }
            self.call(Pace::Advance)?;
            if self.hand_over().is_err() {
                break;
            }
            if let Some(simulations) = self.budget.revise() {
                tracing::debug!(simulations, "number of simulations per full search changed");
                self.play.search_fully_with(simulations);
                metrics::full_simulations(simulations);
            }
        }
        Ok(())
    }

    /// Calls the episodes once, if there is a network, and handles failures.
    fn call(&mut self, pace: Pace) -> anyhow::Result<()> {
        if !self.play.is_loaded() {
            return Ok(());
        }
        let (cache, trace) = (self.around.cached(), self.traces.begin_evaluation());
        let Some(Call { result, parts, shown }) = self.play.call(pace, cache, trace) else { return Ok(()) };
        self.traces.advanced(&self.play, parts, shown);
        self.budget.played(parts.sum());
        let losses = self.play.losses();
        metrics::environments_failed(&std::mem::replace(&mut self.losses, losses), &losses);
        match result {
            Ok(round) => {
                self.failures = 0;
                metrics::played(parts, round.observing);
                metrics::advanced(&round);
                self.spectators.show(&mut self.play);
                if let Some(share) = &self.around.share {
                    share.earn(round.simulations);
                }
                Ok(())
            }
            Err(error) => {
                // The next round reports the observing time.
                metrics::played(parts, Duration::ZERO);
                self.recover(error)
            }
        }
    }

    fn recover(&mut self, error: selfplay::Error) -> anyhow::Result<()> {
        let error = match error {
            selfplay::Error::Model(error) => error,
            // A draining process does not wait for environments.
            selfplay::Error::Environments(_) if self.around.drain.started() => return Ok(()),
            selfplay::Error::Environments(error) => return Err(error).context("play episodes"),
        };
        metrics::evaluator_failed();
        match error {
            inference::Error::NotFinite { weights_version } => {
                tracing::error!(weights_version, "network output is not finite; self-play waits for the next version");
                metrics::weights_refused(weights_version, "network output is not finite");
                self.around.readiness.not_ready(format!("output of weights version {weights_version} is not finite"));
                self.play.unload();
                Ok(())
            }
            inference::Error::Backend(reason) if self.failures + 1 < FAILURES_MAX => {
                self.failures += 1;
                tracing::warn!(reason, failures = self.failures, "evaluator failed; retrying");
                self.around.wait("evaluator", async { tokio::time::sleep(RETRY_INTERVAL).await });
                Ok(())
            }
            error @ inference::Error::Lost { .. } if !self.around.drain.started() => service::device_loss::end(&error),
            error => Err(error).context("evaluate positions"),
        }
    }

    /// Switches to newer weights, if any. First finishes searches in progress with the old weights; searches that
    /// cannot finish restart with the new weights.
    fn swap_weights(&mut self) -> anyhow::Result<()> {
        if !self.around.weights.has_changed().unwrap_or(false) {
            return Ok(());
        }
        let Some(published) = self.around.weights.borrow_and_update().clone() else { return Ok(()) };
        let version = published.manifest.version;
        let start = Instant::now();
        let built = self.around.network(self.play.game(), &published, self.play.is_loaded());
        metrics::spent("load", start.elapsed());
        let network = match built {
            Ok(Some(network)) => network,
            Ok(None) => {
                self.around.weights.mark_changed();
                return Ok(());
            }
            Err(error) => {
                let error = service::chain(&error);
                metrics::weights_refused(version.0, &error);
                tracing::error!(%version, error, "cannot use weights; self-play continues with the previous version");
                return Ok(());
            }
        };
        self.call(Pace::Settle)?;
        if matches!(network, Network::Latent(_)) {
            self.around.announced.call_once(|| {
                tracing::info!(
                    "MuZero network: search.solver, selfplay.subtree_reuse, selfplay.symmetry_reuse and \
                     actor.cache_positions have no effect on search in latent states"
                );
            });
        }
        if let Loaded::Replaced { dropped } = self.play.load(network) {
            tracing::warn!(%version, dropped, "the new weights have another network kind; restarting all episodes");
            metrics::unfinished(dropped);
            self.traces = Traces::new(self.play.slots());
        }
        self.around.loaded(&published);
        self.around.readiness.ready();
        metrics::loaded(version.0, self.around.backend.describe());
        tracing::debug!(%version, "playing with new weights");
        Ok(())
    }

    fn wait_for_weights(&mut self) {
        let start = Instant::now();
        self.around.idle_until_weights();
        metrics::waited("weights", start.elapsed());
    }

    /// Pauses self-play while the weights may be too old. Games in progress resume when the learner is reachable
    /// again.
    fn wait_for_learner(&mut self, away: Duration) {
        let (readiness, mut freshness) = (self.around.readiness.clone(), self.around.freshness.clone());
        let reason = "self-play is paused: learner unreachable for longer than actor.weights_away_seconds_max";
        // Only the first thread that pauses logs this.
        if readiness.reason().is_none() {
            tracing::warn!(away_seconds = away.as_secs(), "{reason}");
        }
        readiness.not_ready(reason);
        let restored = async {
            freshness.restored().await;
            readiness.ready();
        };
        self.around.wait("weights", restored);
    }

    /// Sends the finished episodes; waits while the channel is full. An error means that the receiver was dropped.
    fn hand_over(&mut self) -> Result<(), mpsc::error::SendError<()>> {
        let (start, mut waited, mut any) = (Instant::now(), Duration::ZERO, false);
        for episode in self.play.drain_finished() {
            any = true;
            match self.around.finished.try_send(self.traces.finished(episode)) {
                Ok(()) => {}
                Err(TrySendError::Closed(_)) => return Err(mpsc::error::SendError(())),
                Err(TrySendError::Full(episode)) => {
                    let start = Instant::now();
                    let sent = || self.around.finished.blocking_send(episode).map_err(|_| mpsc::error::SendError(()));
                    service::waiting(sent)?;
                    let time = start.elapsed();
                    // Each wait is reported as soon as it is over, since it may be long.
                    metrics::waited("replay", time);
                    self.budget.waited(time);
                    waited += time;
                }
            }
        }
        if any {
            metrics::spent("upload", start.elapsed().saturating_sub(waited));
        }
        Ok(())
    }
}

/// Decides whether the weights may be too old to play with, because the learner has been unreachable for too long.
#[derive(Debug, Clone)]
pub(crate) struct Freshness {
    /// Time since which newer weights may exist; `None` while the latest weights are present.
    pub(crate) away: watch::Receiver<Option<tokio::time::Instant>>,
    /// Maximum time for which the learner may be unreachable; `None` for no limit.
    pub(crate) most: Option<Duration>,
}

impl Freshness {
    /// Returns the time for which the learner has been unreachable, if above the maximum.
    fn outdated_for(&self) -> Option<Duration> {
        let away = (*self.away.borrow())?.elapsed();
        self.most.filter(|most| away > *most).map(|_| away)
    }

    /// Resolves once the latest weights are available. Cancel-safe.
    async fn restored(&mut self) {
        if self.away.wait_for(Option::is_none).await.is_err() {
            // The subscriber is dropped only when the process stops.
            pending().await
        }
    }
}
