//! `zerofleet bench selfplay`: evaluations/s of self-play, as a share of what its evaluator alone does, and libtorch alone.
//!
//! All sides use the same network, device and number of threads, in the same run. An evaluator alone answers batches that
//! are ready and full, at every batch size of a list; its best size is the bound. They are measured in turns, because a
//! machine slows down and speeds up while it is measured.

use std::io::Write;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use ::selfplay::{Episodes, Settings as SelfplaySettings};
use anyhow::{Context, anyhow, ensure};
use game::{Action, Game};
use games::{GameKind, with_game};
use inference::{Batch, Cache, Evaluator, Predictions};
use network::{Device, DevicePreference, Network, PrecisionPreference};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::Serialize;
use tower::Preference;
use weights::{Architecture, Digest, Manifest, WeightsVersion};

use super::{machine, output};
use crate::evaluators::Evaluators;

#[cfg(test)]
mod tests;

/// Options of `zerofleet bench selfplay`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The game.
    #[arg(long, default_value = "connect_four")]
    pub game: GameKind,
    /// Channels of the network's tower.
    #[arg(long, default_value_t = 64)]
    pub channels: usize,
    /// Residual blocks of the network's tower.
    #[arg(long, default_value_t = 4)]
    pub blocks: usize,
    /// Threads, each with its own evaluator; 0 takes one per core.
    #[arg(long, default_value_t = 0)]
    pub threads: usize,
    /// Games that advance together in each thread.
    #[arg(long, default_value_t = 64)]
    pub games: usize,
    /// Leaves of one game in one batch.
    #[arg(long, default_value_t = 1)]
    pub leaves: usize,
    /// Simulations of a full search; fast searches have a quarter of them.
    #[arg(long, default_value_t = 96)]
    pub simulations: u32,
    /// Positions the shared cache holds; 0 measures without one.
    #[arg(long, default_value_t = 0)]
    pub cache_positions: usize,
    /// Batch sizes at which the evaluator alone is measured.
    #[arg(long, value_delimiter = ',', default_value = "16,32,64,128,256,512")]
    pub batches: Vec<usize>,
    /// How long each of the measurements takes.
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
    /// How often everything is measured; the middle one counts.
    #[arg(long, default_value_t = 3)]
    pub repeats: usize,
    /// `auto`, `cpu`, `cuda`, `cuda:1` or `mps`.
    #[arg(long, default_value = "auto")]
    pub device: DevicePreference,
    /// `auto`, `f32` or `bf16`.
    #[arg(long, default_value = "auto")]
    pub precision: PrecisionPreference,
    /// What a CPU computes with: `auto`, `libtorch`, or a path of the CPU kernel such as `avx512-bf16`.
    #[arg(long, default_value = "auto")]
    pub kernel: Preference,
    /// Every random draw descends from it.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// One JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The game.
    pub game: String,
    /// Residual blocks and channels of the tower.
    pub network: String,
    /// What self-play evaluated with.
    pub engine: String,
    /// Where libtorch ran and in which precision, and why.
    pub libtorch_engine: String,
    /// Threads of both sides.
    pub threads: usize,
    /// Games in each thread.
    pub games: usize,
    /// The seed.
    pub seed: u64,
    /// The evaluator of self-play alone, by batch size.
    pub evaluator: Vec<EvaluatorSpeed>,
    /// libtorch alone, by batch size.
    pub libtorch: Vec<EvaluatorSpeed>,
    /// Self-play.
    pub selfplay: SelfplaySpeed,
    /// Evaluations/s of self-play over those of its evaluator alone at its best batch size.
    pub share: f64,
    /// The same over those of libtorch alone.
    pub share_of_libtorch: f64,
}

/// How fast the evaluator alone is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct EvaluatorSpeed {
    /// Positions in each batch.
    pub batch: usize,
    /// Over all threads.
    pub evaluations_per_second: f64,
}

/// How fast self-play is, over all threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct SelfplaySpeed {
    /// Positions the evaluator answered.
    pub evaluations_per_second: f64,
    /// Simulations completed, with those that needed no evaluation.
    pub simulations_per_second: f64,
    /// Moves played.
    pub moves_per_second: f64,
    /// Episodes finished.
    pub episodes_per_second: f64,
    /// Positions in a batch, on average.
    pub mean_batch: f64,
    /// Hits over lookups; 0 without a cache.
    pub cache_hit_share: f64,
}

/// Measures and prints.
///
/// # Errors
/// Options that make no sense, a network that cannot be built, an evaluator that fails.
pub fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    let report = measure(args)?;
    output::print(args.json, &report, || markdown(&report), out)
}

/// Measures.
///
/// # Errors
/// As [`run`].
pub fn measure(args: &Args) -> anyhow::Result<Report> {
    ensure!(args.games > 0 && args.leaves > 0, "--games and --leaves must be at least 1");
    ensure!(args.simulations > 0, "--simulations must be at least 1");
    ensure!(args.repeats > 0, "--repeats must be at least 1");
    ensure!(!args.batches.is_empty() && !args.batches.contains(&0), "--batches needs sizes of at least 1");
    let time = Duration::try_from_secs_f64(args.seconds).context("read --seconds")?;
    with_game!(args.game, |game| measure_game(&game, args, time))
}

fn measure_game<G: Game>(game: &G, args: &Args, time: Duration) -> anyhow::Result<Report> {
    let threads = machine::threads(args.threads);
    let bench = Bench::new(game, args, time, threads)?;

    let mut evaluator: Vec<Vec<f64>> = vec![Vec::new(); args.batches.len()];
    let mut libtorch = evaluator.clone();
    let mut selfplay = Vec::new();
    for repeat in 0..args.repeats {
        for (index, &batch) in args.batches.iter().enumerate() {
            evaluator[index].push(bench.alone(Engine::Selfplay, batch)?);
            libtorch[index].push(bench.alone(Engine::Libtorch, batch)?);
        }
        selfplay.push(bench.selfplay(repeat as u64)?);
    }

    let selfplay = middle(selfplay, |speed| speed.evaluations_per_second);
    let (evaluator, libtorch) = (by_batch(&args.batches, evaluator), by_batch(&args.batches, libtorch));
    let share = |of: &[EvaluatorSpeed]| {
        let best = of.iter().map(|speed| speed.evaluations_per_second).fold(0.0, f64::max);
        if best > 0.0 { selfplay.evaluations_per_second / best } else { 0.0 }
    };
    Ok(Report {
        game: game.spec().name.clone(),
        network: format!("{}x{}", args.blocks, args.channels),
        engine: bench.evaluator(Engine::Selfplay)?.attributes().name,
        libtorch_engine: bench.evaluators.describe_libtorch(),
        threads,
        games: args.games,
        seed: args.seed,
        share: share(&evaluator),
        share_of_libtorch: share(&libtorch),
        evaluator,
        libtorch,
        selfplay,
    })
}

/// The middle speed at each batch size.
fn by_batch(batches: &[usize], speeds: Vec<Vec<f64>>) -> Vec<EvaluatorSpeed> {
    let middle = |speeds| middle(speeds, |&speed| speed);
    let speeds = speeds.into_iter().map(middle);
    batches.iter().zip(speeds).map(|(&batch, speed)| EvaluatorSpeed { batch, evaluations_per_second: speed }).collect()
}

/// Who evaluates.
#[derive(Debug, Clone, Copy)]
enum Engine {
    /// What self-play takes on this machine.
    Selfplay,
    /// libtorch, whatever self-play takes.
    Libtorch,
}

/// What all measurements share.
struct Bench<'a, G: Game> {
    game: &'a G,
    args: &'a Args,
    time: Duration,
    threads: usize,
    evaluators: Evaluators,
    manifest: Manifest,
    bytes: Vec<u8>,
}

/// What one thread counted, and how long it took.
struct Counted<T> {
    count: T,
    seconds: f64,
}

impl<'a, G: Game> Bench<'a, G> {
    /// Random weights, as a published version.
    fn new(game: &'a G, args: &'a Args, time: Duration, threads: usize) -> anyhow::Result<Self> {
        let (spec, shape) = (game.spec(), game.spec().observation);
        let architecture = Architecture {
            game: spec.name.clone(),
            planes: shape.planes,
            height: shape.height,
            width: shape.width,
            actions: spec.actions,
            channels: args.channels,
            blocks: args.blocks,
            squeeze_excitation: 0,
            global_pooling: 0,
        };
        let evaluators = Evaluators::new(args.device, args.precision, args.kernel);
        let bytes = Network::new(&architecture, Device::Cpu, args.seed)?.to_safetensors()?;
        let (digest, size_bytes) = (Digest::of(&bytes), bytes.len() as u64);
        let manifest = Manifest { version: WeightsVersion(1), training_step: 0, digest, size_bytes, architecture };
        Ok(Self { game, args, time, threads, evaluators, manifest, bytes })
    }

    fn evaluator(&self, engine: Engine) -> anyhow::Result<Box<dyn Evaluator>> {
        match engine {
            Engine::Selfplay => self.evaluators.evaluator(&self.manifest, &self.bytes),
            Engine::Libtorch => self.evaluators.libtorch(&self.manifest, &self.bytes),
        }
    }

    /// Runs `body` in every thread with an evaluator of its own; all begin at the same moment, once warm.
    fn in_threads<T: Send>(
        &self,
        engine: Engine,
        body: impl Fn(usize, &mut dyn Evaluator, &Barrier) -> anyhow::Result<T> + Sync,
    ) -> anyhow::Result<Vec<T>> {
        let evaluators = (0..self.threads).map(|_| self.evaluator(engine));
        let evaluators = evaluators.collect::<anyhow::Result<Vec<_>>>()?;
        let (barrier, body) = (&Barrier::new(self.threads), &body);
        std::thread::scope(|scope| {
            let threads: Vec<_> = evaluators
                .into_iter()
                .enumerate()
                .map(|(index, mut evaluator)| scope.spawn(move || body(index, evaluator.as_mut(), barrier)))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().map_err(|_| anyhow!("a thread of the benchmark panicked"))?)
                .collect()
        })
    }

    /// Evaluations/s over all threads, on batches of random positions that are ready.
    fn alone(&self, engine: Engine, positions: usize) -> anyhow::Result<f64> {
        let counted = self.in_threads(engine, |index, evaluator, barrier| {
            let mut rng = ChaCha8Rng::seed_from_u64(self.args.seed.wrapping_add(index as u64));
            let batch = random_batch(self.game, positions, &mut rng);
            let mut predictions = Predictions::new();
            // The first passes choose kernels and grow buffers. Whoever fails still meets the others at the barrier.
            let warm = (0..3).try_for_each(|_| evaluator.evaluate(&batch, &mut predictions));
            barrier.wait();
            warm?;
            let (start, mut count) = (Instant::now(), 0_usize);
            while start.elapsed() < self.time {
                evaluator.evaluate(&batch, &mut predictions)?;
                count += batch.len();
            }
            Ok(Counted { count, seconds: start.elapsed().as_secs_f64() })
        })?;
        Ok(counted.iter().map(|thread| thread.count as f64 / thread.seconds).sum())
    }

    fn selfplay(&self, repeat: u64) -> anyhow::Result<SelfplaySpeed> {
        let cache = (self.args.cache_positions > 0).then(|| Cache::new(self.args.cache_positions));
        let settings = SelfplaySettings {
            games: self.args.games,
            leaves_per_tree: self.args.leaves,
            full_simulations: self.args.simulations,
            fast_simulations: (self.args.simulations / 4).max(1),
            ..SelfplaySettings::default()
        };
        let counted = self.in_threads(Engine::Selfplay, |index, evaluator, barrier| {
            let seed = self.args.seed.wrapping_add(repeat << 32).wrapping_add(index as u64);
            let mut episodes = Episodes::new(self.game.clone(), settings.clone(), seed);
            let mut sum = ::selfplay::Round::default();
            // All games begin with the same position: they must spread out before their speed means anything.
            let warm_up = Instant::now();
            let warm = loop {
                if warm_up.elapsed() >= self.time / 2 {
                    break Ok(());
                }
                if let Err(error) = episodes.advance(evaluator, cache.as_ref()) {
                    break Err(error);
                }
            };
            barrier.wait();
            warm?;
            let start = Instant::now();
            while start.elapsed() < self.time {
                sum += episodes.advance(evaluator, cache.as_ref())?;
                episodes.drain_finished().for_each(drop);
            }
            Ok(Counted { count: sum, seconds: start.elapsed().as_secs_f64() })
        })?;

        let mut speed = SelfplaySpeed::default();
        let mut sum = ::selfplay::Round::default();
        for Counted { count, seconds } in &counted {
            speed.evaluations_per_second += count.evaluated as f64 / seconds;
            speed.simulations_per_second += count.simulations as f64 / seconds;
            speed.moves_per_second += count.moves as f64 / seconds;
            speed.episodes_per_second += count.episodes_finished as f64 / seconds;
            sum += *count;
        }
        speed.mean_batch = ratio(sum.evaluated, sum.batches);
        speed.cache_hit_share = ratio(sum.cache_hits, sum.cache_lookups);
        Ok(speed)
    }
}

/// Positions of random games, each at a random ply.
fn random_batch<G: Game>(game: &G, positions: usize, rng: &mut ChaCha8Rng) -> Batch {
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

fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The median by `key`; the upper one of an even number.
fn middle<T>(mut values: Vec<T>, key: impl Fn(&T) -> f64) -> T {
    values.sort_by(|a, b| key(a).total_cmp(&key(b)));
    values.swap_remove(values.len() / 2)
}

/// The report as a table for people and documents.
#[must_use]
pub fn markdown(report: &Report) -> String {
    let Report { game, network, engine, libtorch_engine, threads, games, seed, selfplay, .. } = report;
    let mut text = format!(
        "{game}, network {network}, {threads} threads, {games} games each, seed {seed}\n\
         - self-play evaluates with: {engine}\n- libtorch: {libtorch_engine}\n\n\
         | | evaluations/s |\n|---|---:|\n"
    );
    for (who, speeds) in [("its evaluator alone", &report.evaluator), ("libtorch alone", &report.libtorch)] {
        for EvaluatorSpeed { batch, evaluations_per_second } in speeds {
            text += &format!("| {who}, batch {batch} | {evaluations_per_second:.0} |\n");
        }
    }
    text += &format!("| self-play, mean batch {:.1} | {:.0} |\n", selfplay.mean_batch, selfplay.evaluations_per_second);
    text += &format!("| **share of its evaluator's best batch** | **{:.1} %** |\n", 100.0 * report.share);
    text += &format!("| share of libtorch's best batch | {:.1} % |\n\n", 100.0 * report.share_of_libtorch);
    text += &format!(
        "Self-play: {:.0} simulations/s, {:.1} moves/s, {:.2} episodes/s, {:.1} % cache hits\n",
        selfplay.simulations_per_second,
        selfplay.moves_per_second,
        selfplay.episodes_per_second,
        100.0 * selfplay.cache_hit_share
    );
    text
}
