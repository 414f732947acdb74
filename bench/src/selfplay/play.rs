use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ::selfplay::{Episodes, Openings, Round, Settings, SubtreeReuse, SymmetryReuse};
use evaluators::{Backend, Calibration};
use experience::TrajectoryId;
use game::{Action, Game};
use inference::{Batch, Cache, EngineCounts, Evaluator, Predictions, WeightsCache};
use network_cpu::KernelPreference;
use network_torch::Libtorch;
use proto::weights::Published;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use run_file::actor::Config;
use service::config::Sources;
use weights::{Manifest, WeightsVersion};

use super::{Args, EVALUATIONS, EXPERIENCE, MEAN_BATCH, POSITIONS};
use crate::network::{LibtorchBackend, choose_evaluators, evaluations_per_second, random_weights};
use crate::report::{Report, Unit, Value};
use crate::{machine, threads, usage};

/// Batches in flight on an accelerator.
pub(super) const IN_FLIGHT: usize = 2;
/// Batches and positions per batch on which the kernel calibrates, as many as it takes in a sample.
const CALIBRATION: (u64, usize) = (64, 64);
/// Random games of which the length is averaged.
const RANDOM_GAMES: usize = 16;

/// One network, and the threads that play with it.
pub(super) struct Contestants<'a, G: Game> {
    game: &'a G,
    args: &'a Args,
    threads: usize,
    weights: Published,
    /// Random plies at most with which a game begins, so that the games are at different plies from the start.
    opening_plies_max: u16,
}

impl<'a, G: Game> Contestants<'a, G> {
    /// Creates random weights, as a published version.
    pub(super) fn new(game: &'a G, args: &'a Args) -> anyhow::Result<Self> {
        let weights = random_weights(game.spec(), args.blocks, args.channels, args.turns.seed)?;
        let opening_plies_max = opening_plies_max(game, args.turns.seed);
        Ok(Self { game, args, threads: machine::threads(args.threads), weights, opening_plies_max })
    }

    /// Adds the settings of self-play to a report.
    pub(super) fn describe(&self, report: &mut Report) {
        report.set("game", &self.game.spec().name);
        report.set("threads", self.threads);
        report.set("games per thread", self.args.games);
        report.set("leaves per batch", self.args.leaves);
        let simulations = self.args.simulations.map_or("of the preset".to_owned(), |number| number.to_string());
        report.set("simulations", simulations);
        report.set("random plies at most", self.opening_plies_max);
    }

    /// Chooses the evaluators for self-play, and the libtorch evaluators.
    pub(super) fn backends(&self) -> anyhow::Result<(Arc<dyn Backend>, Arc<LibtorchBackend>)> {
        let Self { args, threads, .. } = *self;
        let libtorch = Libtorch::new(args.device, args.precision, Instant::now)?;
        libtorch.set_in_flight(IN_FLIGHT);
        let libtorch = Arc::new(LibtorchBackend(libtorch));
        if libtorch.0.is_accelerated() && !matches!(args.kernel, KernelPreference::Only(_)) {
            // With a fixed number of batches in flight, instead of the number that is measured to be best.
            return Ok((Arc::clone(&libtorch) as Arc<dyn Backend>, libtorch));
        }
        let batch_max = args.batches.iter().copied().max().unwrap_or(1).max(args.games * args.leaves);
        let (preference, architecture) =
            ((args.device, args.precision, args.kernel), &self.weights.manifest.architecture);
        let calibration = Calibration::OnRecentPositions;
        let selfplay = choose_evaluators(preference, calibration, architecture, threads, batch_max)?;
        if args.kernel != KernelPreference::Libtorch {
            self.calibrate(&*selfplay)?;
        }
        Ok((selfplay, libtorch))
    }

    /// Evaluates positions with other weights: as in a run, the kernel chooses the precision of a version on positions
    /// of an earlier version.
    fn calibrate(&self, backend: &dyn Backend) -> anyhow::Result<()> {
        let Args { blocks, channels, turns, .. } = self.args;
        let Published { manifest, bytes } = random_weights(self.game.spec(), *blocks, *channels, !turns.seed)?;
        let (mut evaluator, mut predictions) = (backend.build(&manifest, &bytes)?, Predictions::new());
        for index in 0..CALIBRATION.0 {
            let batch = random_batch(self.game, CALIBRATION.1, turns.seed.wrapping_add(index));
            evaluator.evaluate(&batch, &mut predictions)?;
        }
        Ok(())
    }

    /// Builds an evaluator for each thread.
    fn evaluators(&self, backend: &dyn Backend) -> anyhow::Result<Vec<Box<dyn Evaluator>>> {
        let Published { manifest, bytes } = &self.weights;
        (0..self.threads).map(|_| Ok(backend.build(manifest, bytes)?)).collect()
    }

    /// Returns the name of the evaluators of a backend.
    pub(super) fn evaluator_name(&self, backend: &dyn Backend) -> anyhow::Result<String> {
        let Published { manifest, bytes } = &self.weights;
        Ok(backend.build(manifest, bytes)?.attributes().name.to_string())
    }

    /// Measures the evaluations/s over all threads, on prepared batches of random positions.
    pub(super) fn alone(&self, backend: &dyn Backend, positions: usize, time: Duration) -> anyhow::Result<f64> {
        let batch = |thread| random_batch(self.game, positions, self.args.turns.seed.wrapping_add(thread as u64));
        evaluations_per_second(&mut self.evaluators(backend)?, batch, time)
    }

    /// Measures self-play over all threads with these options, which may differ from `self.args` in cache and reuse.
    /// New weights are published at the interval of `swap`, if there is one.
    pub(super) fn play(
        &self,
        backend: &dyn Backend,
        args: &Args,
        repeat: u64,
        time: Duration,
        swap: Option<Duration>,
    ) -> anyhow::Result<Vec<Value>> {
        let cache = (args.cache_positions > 0).then(|| Cache::new(args.cache_positions));
        let newest = AtomicU64::new(self.weights.manifest.version.0);
        let settings = args.settings(self.opening_plies_max)?;
        let player = |(thread, evaluator)| {
            let seed = args.turns.seed.wrapping_add(repeat << 32).wrapping_add(thread);
            let episodes = Episodes::new(self.game.clone(), settings.clone(), 1.0, seed);
            let weights = &self.weights;
            Player { game: self.game, backend, weights, newest: &newest, evaluator, episodes, kept: (0, 0) }
        };
        let mut players: Vec<_> = (0..).zip(self.evaluators(backend)?).map(player).collect();
        let cached = || cache.as_ref().map(|cache| cache.of(self.weights.manifest.digest.key()));
        // A whole number of intervals, so that each has new weights once.
        let whole = |interval: Duration| interval.mul_f64(time.div_duration_f64(interval).ceil().max(1.0));
        let time = swap.map_or(time, whole);
        let (us, cpu_before) = (Some(std::process::id()), OnceLock::new());
        // Games and trees must spread out before the speed is representative.
        let warm_up = |player: &mut Player<'_, G>| player.play(cached(), time / 2).map(drop);
        let play = |player: &mut Player<'_, G>| {
            cpu_before.get_or_init(|| usage::cpu_seconds(us));
            player.play(cached(), time)
        };
        let (over, waiting) = mpsc::channel::<()>();
        let played = std::thread::scope(|scope| {
            if let Some(interval) = swap {
                let newest = &newest;
                scope.spawn(move || {
                    while waiting.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                        newest.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let played = threads::together(&mut players, warm_up, play);
            drop(over);
            played
        })?;
        let cpu = usage::cpu_since(us, cpu_before.into_inner().flatten());
        let merged = backend.engine_counts().map_or_else(Vec::new, merged);
        Ok([speed(&played, args.games * args.leaves, cpu), merged].concat())
    }
}

impl Args {
    /// Returns the settings of the games: as in a run by the preset of the game, except for the options.
    ///
    /// # Errors
    /// The preset is invalid.
    pub(super) fn settings(&self, random_plies_max: u16) -> anyhow::Result<Settings> {
        let sets = vec![format!("run.game={}", self.game)];
        let sources = Sources { file: None, env: std::iter::empty(), sets };
        let config: Config = sources.read(games::preset)?.load()?;
        let mut settings = config.selfplay.settings(config.search.settings()?)?;
        if let Some(simulations) = self.simulations {
            (settings.full_simulations, settings.full_search_probability) = (simulations, 1.0);
        }
        Ok(Settings {
            games: self.games,
            leaves_per_tree: self.leaves,
            openings: Openings { probability: 1.0, random_plies_max, ..settings.openings },
            subtree_reuse: if self.subtree_reuse { SubtreeReuse::Keep } else { SubtreeReuse::Discard },
            symmetry_reuse: if self.symmetry_reuse { SymmetryReuse::Share } else { SymmetryReuse::Apart },
            ..settings
        })
    }
}

/// Games of one thread.
struct Player<'a, G: Game> {
    game: &'a G,
    backend: &'a dyn Backend,
    weights: &'a Published,
    /// Latest version of the weights.
    newest: &'a AtomicU64,
    evaluator: Box<dyn Evaluator>,
    episodes: Episodes<G>,
    /// Bytes and positions of the finished episodes as trajectories.
    kept: (usize, usize),
}

/// Results of self-play in one thread.
struct Played {
    round: Round,
    seconds: f64,
    kept: (usize, usize),
}

impl<G: Game> Player<'_, G> {
    /// Plays for `time`, as a thread of an actor does, and returns the results.
    fn play(&mut self, cache: Option<WeightsCache<'_>>, time: Duration) -> anyhow::Result<Played> {
        let (start, mut round) = (Instant::now(), Round::default());
        while start.elapsed() < time {
            round += self.take_newest(cache)?;
            round += self.episodes.advance(self.evaluator.as_mut(), cache)?;
            for episode in self.episodes.drain_finished() {
                let id = TrajectoryId { actor: 0, epoch: 0, sequence: episode.number };
                let bytes = episode.trajectory(id, &self.game.spec().name)?.bytes();
                self.kept = (self.kept.0 + bytes, self.kept.1 + episode.steps.len());
            }
        }
        Ok(Played { round, seconds: start.elapsed().as_secs_f64(), kept: self.kept })
    }

    /// Continues with the latest weights once they are available; searches in progress finish with the old weights.
    fn take_newest(&mut self, cache: Option<WeightsCache<'_>>) -> anyhow::Result<Round> {
        let newest = self.newest.load(Ordering::Relaxed);
        if newest == self.evaluator.attributes().weights_version {
            return Ok(Round::default());
        }
        let manifest = Manifest { version: WeightsVersion(newest), ..self.weights.manifest.clone() };
        let Some(evaluator) = self.backend.try_build(&manifest, &self.weights.bytes)? else {
            return Ok(Round::default());
        };
        let round = self.episodes.settle(self.evaluator.as_mut(), cache)?;
        self.evaluator = evaluator;
        Ok(round)
    }
}

/// Computes the total speed of all threads. Simulations count even without an evaluation; a full batch holds the leaves
/// of all games in a thread.
fn speed(played: &[Played], batch_max: usize, cpu_seconds: Option<f64>) -> Vec<Value> {
    let per_second =
        |of: fn(&Round) -> usize| played.iter().map(|played| of(&played.round) as f64 / played.seconds).sum::<f64>();
    let sum = |of: fn(&Played) -> usize| played.iter().map(of).sum::<usize>() as f64;
    // 0 without batches, without a cache, and without a finished episode.
    let ratio = |part: f64, whole: f64| if whole == 0.0 { 0.0 } else { part / whole };
    let mean_batch = ratio(sum(|played| played.round.evaluated), sum(|played| played.round.batches));
    let cache_hits = ratio(sum(|played| played.round.cache_hits), sum(|played| played.round.cache_lookups));
    let experience_bytes = ratio(sum(|played| played.kept.0), sum(|played| played.kept.1));
    let seconds = played.iter().map(|played| played.seconds).fold(0.0, f64::max);
    vec![
        (POSITIONS, Unit::PerSecond, Some(per_second(|round| round.moves))),
        ("games/s", Unit::PerSecond, Some(per_second(|round| round.episodes_finished))),
        ("simulations/s", Unit::PerSecond, Some(per_second(|round| round.simulations))),
        (EVALUATIONS, Unit::PerSecond, Some(per_second(|round| round.evaluated))),
        (MEAN_BATCH, Unit::Count, Some(mean_batch)),
        ("batch fill", Unit::Share, Some(mean_batch / batch_max as f64)),
        ("cache hit rate", Unit::Share, Some(cache_hits)),
        (EXPERIENCE, Unit::Bytes, Some(experience_bytes)),
        ("cores used", Unit::Cores, cpu_seconds.map(|cpu| cpu / seconds)),
    ]
}

/// Returns the batches of an engine that merges the requests of all threads.
fn merged(counts: EngineCounts) -> Vec<Value> {
    let EngineCounts { batches, positions, padded_positions, busy, in_flight, .. } = counts;
    let share = |part: u64, whole: u64| Some(part as f64 / whole.max(1) as f64);
    let in_flight = in_flight.div_duration_f64(busy.max(Duration::from_nanos(1)));
    vec![
        ("mean merged batch", Unit::Count, share(positions, batches)),
        ("fill of merged batches", Unit::Share, share(positions, padded_positions)),
        ("mean batches in flight", Unit::Count, Some(in_flight)),
    ]
}

/// Returns half of the mean plies of random games, which are longer than played games in Go and chess.
fn opening_plies_max<G: Game>(game: &G, seed: u64) -> u16 {
    let (mut rng, mut legal, mut plies) = (ChaCha8Rng::seed_from_u64(seed), Vec::new(), 0);
    for _ in 0..RANDOM_GAMES {
        let (mut position, end) = (game.start(), plies + game.spec().max_plies);
        while plies < end && game.outcome(&position).is_none() {
            game.legal_actions(&position, &mut legal);
            game.play(&mut position, legal[rng.random_range(0..legal.len())]);
            plies += 1;
        }
    }
    u16::try_from(plies / (2 * RANDOM_GAMES)).unwrap_or(u16::MAX)
}

/// Returns positions of random games, each at a random ply.
fn random_batch<G: Game>(game: &G, positions: usize, seed: u64) -> Batch {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut batch = Batch::new(game.spec().observation);
    let mut legal: Vec<Action> = Vec::new();
    let mut position = game.start();
    while batch.len() < positions {
        game.legal_actions(&position, &mut legal);
        batch.push(&legal, |planes| game.observe(&position, planes));
        game.play(&mut position, legal[rng.random_range(0..legal.len())]);
        if game.outcome(&position).is_some() {
            position = game.start();
        }
    }
    batch
}
