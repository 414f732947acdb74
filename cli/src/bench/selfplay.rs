//! `zerofleet bench selfplay`: evaluations/s of self-play, as a share of what the evaluator alone does.
//!
//! Both sides use the same network, device, precision and number of threads, in the same run. The evaluator alone answers
//! batches that are ready and full, at every batch size of a list; its best size is the bound. The two are measured in
//! turns, because a machine slows down and speeds up while it is measured.

use std::io::Write;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use ::selfplay::{Episodes, Settings as SelfplaySettings};
use anyhow::{Context, anyhow, ensure};
use game::{Action, Game};
use games::{GameKind, with_game};
use inference::{Batch, Cache, Evaluator, Predictions};
use network::{Device, DevicePreference, LibtorchEvaluator, Network, Precision, PrecisionPreference};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::Serialize;
use weights::{Architecture, WeightsVersion};

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
    /// Where it ran, and why there.
    pub device: String,
    /// In which precision, and why.
    pub precision: String,
    /// Threads of both sides.
    pub threads: usize,
    /// Games in each thread.
    pub games: usize,
    /// The seed.
    pub seed: u64,
    /// The evaluator alone, by batch size.
    pub evaluator: Vec<EvaluatorSpeed>,
    /// Self-play.
    pub selfplay: SelfplaySpeed,
    /// Evaluations/s of self-play over those of the evaluator alone at its best batch size.
    pub share: f64,
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
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &report).context("write the report")?;
        writeln!(out)?;
    } else {
        write!(out, "{}", markdown(&report))?;
    }
    Ok(())
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
    let device = network::choose_device(args.device);
    if device.device == Device::Cpu {
        network::set_threads(1);
    }
    let precision = network::choose_precision(args.precision, device.device, &mut Instant::now);
    let threads = match args.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let bench = Bench { game, args, time, threads, device: device.device, precision: precision.precision };
    let bytes = Network::new(&bench.architecture(), device.device, args.seed)?.to_safetensors()?;

    let mut evaluator: Vec<Vec<f64>> = vec![Vec::new(); args.batches.len()];
    let mut selfplay = Vec::new();
    for repeat in 0..args.repeats {
        for (&batch, speeds) in args.batches.iter().zip(&mut evaluator) {
            speeds.push(bench.evaluator_alone(&bytes, batch)?);
        }
        selfplay.push(bench.selfplay(&bytes, repeat as u64)?);
    }

    let evaluator: Vec<_> = args
        .batches
        .iter()
        .zip(evaluator)
        .map(|(&batch, speeds)| EvaluatorSpeed { batch, evaluations_per_second: middle(speeds, |&speed| speed) })
        .collect();
    let selfplay = middle(selfplay, |speed| speed.evaluations_per_second);
    let best = evaluator.iter().map(|speed| speed.evaluations_per_second).fold(0.0, f64::max);
    Ok(Report {
        game: game.spec().name.clone(),
        network: format!("{}x{}", args.blocks, args.channels),
        device: device.to_string(),
        precision: precision.to_string(),
        threads,
        games: args.games,
        seed: args.seed,
        share: if best > 0.0 { selfplay.evaluations_per_second / best } else { 0.0 },
        evaluator,
        selfplay,
    })
}

/// What all measurements share.
struct Bench<'a, G: Game> {
    game: &'a G,
    args: &'a Args,
    time: Duration,
    threads: usize,
    device: Device,
    precision: Precision,
}

/// What one thread counted, and how long it took.
struct Counted<T> {
    count: T,
    seconds: f64,
}

impl<G: Game> Bench<'_, G> {
    fn architecture(&self) -> Architecture {
        let (spec, shape) = (self.game.spec(), self.game.spec().observation);
        Architecture {
            game: spec.name.clone(),
            planes: shape.planes,
            height: shape.height,
            width: shape.width,
            actions: spec.actions,
            channels: self.args.channels,
            blocks: self.args.blocks,
            squeeze_excitation: 0,
            global_pooling: 0,
        }
    }

    /// Runs `body` in every thread with an evaluator of its own; all begin at the same moment, once warm.
    fn in_threads<T: Send>(
        &self,
        bytes: &[u8],
        body: impl Fn(usize, &mut LibtorchEvaluator, &Barrier) -> anyhow::Result<T> + Sync,
    ) -> anyhow::Result<Vec<T>> {
        let mut evaluators = Vec::with_capacity(self.threads);
        for _ in 0..self.threads {
            let architecture = self.architecture();
            let version = WeightsVersion(1);
            evaluators.push(LibtorchEvaluator::new(&architecture, version, bytes, self.device, self.precision)?);
        }
        let (barrier, body) = (&Barrier::new(self.threads), &body);
        std::thread::scope(|scope| {
            let threads: Vec<_> = evaluators
                .into_iter()
                .enumerate()
                .map(|(index, mut evaluator)| scope.spawn(move || body(index, &mut evaluator, barrier)))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().map_err(|_| anyhow!("a thread of the benchmark panicked"))?)
                .collect()
        })
    }

    /// Evaluations/s over all threads, on batches of random positions that are ready.
    fn evaluator_alone(&self, bytes: &[u8], positions: usize) -> anyhow::Result<f64> {
        let counted = self.in_threads(bytes, |index, evaluator, barrier| {
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

    fn selfplay(&self, bytes: &[u8], repeat: u64) -> anyhow::Result<SelfplaySpeed> {
        let cache = (self.args.cache_positions > 0).then(|| Cache::new(self.args.cache_positions));
        let settings = SelfplaySettings {
            games: self.args.games,
            leaves_per_tree: self.args.leaves,
            full_simulations: self.args.simulations,
            fast_simulations: (self.args.simulations / 4).max(1),
            ..SelfplaySettings::default()
        };
        let counted = self.in_threads(bytes, |index, evaluator, barrier| {
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
    let Report { game, network, device, precision, threads, games, seed, evaluator, selfplay, share } = report;
    let mut text = format!(
        "{game}, network {network}, {threads} threads, {games} games each, seed {seed}\n\
         - device: {device}\n- precision: {precision}\n\n\
         | | evaluations/s |\n|---|---:|\n"
    );
    for EvaluatorSpeed { batch, evaluations_per_second } in evaluator {
        text += &format!("| evaluator alone, batch {batch} | {evaluations_per_second:.0} |\n");
    }
    text += &format!("| self-play, mean batch {:.1} | {:.0} |\n", selfplay.mean_batch, selfplay.evaluations_per_second);
    text += &format!("| **share of the best batch** | **{:.1} %** |\n\n", 100.0 * share);
    text += &format!(
        "Self-play: {:.0} simulations/s, {:.1} moves/s, {:.2} episodes/s, {:.1} % cache hits\n",
        selfplay.simulations_per_second,
        selfplay.moves_per_second,
        selfplay.episodes_per_second,
        100.0 * selfplay.cache_hit_share
    );
    text
}
