use std::sync::Arc;
use std::time::{Duration, Instant};

use ::selfplay::{Episodes, Round, Settings, SubtreeReuse, SymmetryReuse};
use anyhow::Context as _;
use evaluators::Backend;
use experience::TrajectoryId;
use game::{Action, Game};
use inference::{Batch, Cache, Evaluator, WeightsCache};
use network_cpu::KernelPreference;
use network_torch::Libtorch;
use proto::weights::Published;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use service::cpus::{self, Cpu};

use super::{Args, EVALUATIONS, EXPERIENCE, MEAN_BATCH, POSITIONS};
use crate::network::{LibtorchBackend, choose_evaluators, evaluations_per_second, random_weights};
use crate::report::{Unit, Value};
use crate::{machine, threads};

/// One network, and everything that is measured with it.
pub(super) struct Contestants<'a, G: Game> {
    game: &'a G,
    args: &'a Args,
    pub(super) threads: usize,
    /// The CPUs to which threads are pinned in turn; if empty, threads run anywhere.
    cpus: Vec<Cpu>,
    /// The evaluators that self-play uses.
    pub(super) selfplay: Arc<dyn Backend>,
    pub(super) libtorch: Arc<LibtorchBackend>,
    weights: Published,
}

impl<'a, G: Game> Contestants<'a, G> {
    /// Creates random weights, as a published version, and chooses the evaluators.
    pub(super) fn new(game: &'a G, args: &'a Args) -> anyhow::Result<Self> {
        let threads = machine::threads(args.threads);
        let weights = random_weights(game.spec(), args.blocks, args.channels, args.turns.seed)?;
        let libtorch = Libtorch::new(args.device, args.precision, Instant::now)?;
        libtorch.set_in_flight(args.in_flight);
        let libtorch = Arc::new(LibtorchBackend(libtorch));
        let selfplay = if libtorch.0.is_accelerated() && !matches!(args.kernel, KernelPreference::Only(_)) {
            // With the requested number of batches in flight, instead of the number that is measured to be best.
            Arc::clone(&libtorch) as Arc<dyn Backend>
        } else {
            let batch_max = args.batches.iter().copied().max().unwrap_or(1).max(args.games * args.leaves);
            let preference = (args.device, args.precision, args.kernel);
            choose_evaluators(preference, &weights.manifest.architecture, threads, batch_max)?
        };
        let cpus = if args.pin { cpus::allowed().context("pin threads")? } else { Vec::new() };
        Ok(Self { game, args, threads, cpus, selfplay, libtorch, weights })
    }

    /// Builds an evaluator for each thread.
    fn evaluators(&self, backend: &dyn Backend) -> anyhow::Result<Vec<Box<dyn Evaluator>>> {
        let Published { manifest, bytes } = &self.weights;
        (0..self.threads).map(|_| Ok(backend.build(manifest, bytes)?)).collect()
    }

    /// The name of the evaluator that self-play uses.
    pub(super) fn evaluator_name(&self) -> anyhow::Result<String> {
        let Published { manifest, bytes } = &self.weights;
        Ok(self.selfplay.build(manifest, bytes)?.attributes().name.to_string())
    }

    /// Measures the evaluations/s over all threads, on batches of random positions that were prepared in advance.
    pub(super) fn alone(&self, backend: &dyn Backend, positions: usize, time: Duration) -> anyhow::Result<f64> {
        let batch = |thread| random_batch(self.game, positions, self.args.turns.seed.wrapping_add(thread as u64));
        evaluations_per_second(&self.cpus, &mut self.evaluators(backend)?, batch, time)
    }

    /// Measures self-play over all threads with these options, which may differ from `self.args` in cache and reuse.
    pub(super) fn play(&self, args: &Args, repeat: u64, time: Duration) -> anyhow::Result<Vec<Value>> {
        let cache = (args.cache_positions > 0).then(|| Cache::new(args.cache_positions));
        let player = |(thread, evaluator)| {
            let seed = args.turns.seed.wrapping_add(repeat << 32).wrapping_add(thread);
            let episodes = Episodes::new(self.game.clone(), args.settings(), 1.0, seed);
            Player { game: self.game, evaluator, episodes, kept: (0, 0) }
        };
        let mut players: Vec<_> = (0..).zip(self.evaluators(&*self.selfplay)?).map(player).collect();
        let cached = || cache.as_ref().map(|cache| cache.of(self.weights.manifest.digest.key()));
        // All games begin with the same position: they must spread out before their speed is representative.
        let warm_up = |player: &mut Player<'_, G>| player.play(cached(), time / 2).map(drop);
        let play = |player: &mut Player<'_, G>| player.play(cached(), time);
        let played = threads::together(&self.cpus, &mut players, warm_up, play)?;
        Ok(speed(&played, args.games * args.leaves))
    }
}

impl Args {
    /// Returns the settings of the games.
    pub(super) fn settings(&self) -> Settings {
        Settings {
            games: self.games,
            leaves_per_tree: self.leaves,
            full_simulations: self.simulations,
            full_search_probability: 1.0,
            subtree_reuse: if self.subtree_reuse { SubtreeReuse::Keep } else { SubtreeReuse::Discard },
            symmetry_reuse: if self.symmetry_reuse { SymmetryReuse::Share } else { SymmetryReuse::Apart },
            ..Settings::default()
        }
    }
}

/// The games of one thread.
struct Player<'a, G: Game> {
    game: &'a G,
    evaluator: Box<dyn Evaluator>,
    episodes: Episodes<G>,
    /// Bytes and positions of the finished episodes as trajectories.
    kept: (usize, usize),
}

/// The results of self-play in one thread.
struct Played {
    round: Round,
    seconds: f64,
    kept: (usize, usize),
}

impl<G: Game> Player<'_, G> {
    /// Plays for `time` and returns the results.
    fn play(&mut self, cache: Option<WeightsCache<'_>>, time: Duration) -> anyhow::Result<Played> {
        let (start, mut round) = (Instant::now(), Round::default());
        while start.elapsed() < time {
            round += self.episodes.advance(self.evaluator.as_mut(), cache)?;
            for episode in self.episodes.drain_finished() {
                let id = TrajectoryId { actor: 0, epoch: 0, sequence: episode.number };
                let bytes = episode.trajectory(id, &self.game.spec().name)?.bytes();
                self.kept = (self.kept.0 + bytes, self.kept.1 + episode.steps.len());
            }
        }
        Ok(Played { round, seconds: start.elapsed().as_secs_f64(), kept: self.kept })
    }
}

/// Computes the speed of all threads together. Simulations include those that needed no evaluation; a full batch holds
/// the leaves of all games of a thread.
fn speed(played: &[Played], batch_max: usize) -> Vec<Value> {
    let per_second =
        |of: fn(&Round) -> usize| played.iter().map(|played| of(&played.round) as f64 / played.seconds).sum::<f64>();
    let sum = |of: fn(&Played) -> usize| played.iter().map(of).sum::<usize>() as f64;
    // 0 without batches, without a cache, and if no episode was finished.
    let ratio = |part: f64, whole: f64| if whole == 0.0 { 0.0 } else { part / whole };
    let mean_batch = ratio(sum(|played| played.round.evaluated), sum(|played| played.round.batches));
    let cache_hits = ratio(sum(|played| played.round.cache_hits), sum(|played| played.round.cache_lookups));
    let experience_bytes = ratio(sum(|played| played.kept.0), sum(|played| played.kept.1));
    vec![
        (POSITIONS, Unit::PerSecond, Some(per_second(|round| round.moves))),
        ("games/s", Unit::PerSecond, Some(per_second(|round| round.episodes_finished))),
        ("simulations/s", Unit::PerSecond, Some(per_second(|round| round.simulations))),
        (EVALUATIONS, Unit::PerSecond, Some(per_second(|round| round.evaluated))),
        (MEAN_BATCH, Unit::Count, Some(mean_batch)),
        ("batch fill", Unit::Share, Some(mean_batch / batch_max as f64)),
        ("cache hit rate", Unit::Share, Some(cache_hits)),
        (EXPERIENCE, Unit::Bytes, Some(experience_bytes)),
    ]
}

/// Positions of random games, each at a random ply.
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
