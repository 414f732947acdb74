//! `zerofleet bench selfplay`: how fast games are played, as a share of what their evaluator alone does; and what each
//! optimisation is worth.
//!
//! All sides use the same network, device and number of threads, in the same run. An evaluator alone answers batches that
//! are ready and full, at every batch size of a list; its best size is the bound. Self-play is measured twice: plain, without
//! cache and reuse, so that every simulation is paid for; and whole, as a run plays. Everything is measured in turns, because a
//! machine slows down and speeds up while it is measured. Start with [`run`].

pub mod ablation;
mod compare;
mod contestants;
mod experience;
mod markdown;
mod play;
mod plot;
mod report;

use std::io::Write;

use anyhow::ensure;
use game::Game;
use games::{GameKind, with_game};
use network::{DevicePreference, PrecisionPreference};
use tower::Preference;

pub use markdown::markdown;
pub use plot::draw;
pub use report::{Compared, EvaluatorSpeed, Report, SelfplaySpeed};

use super::output::Destination;
use super::{Turns, machine};
use contestants::{Contestants, Engine};
use experience::Experience;
use play::Play;

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
    #[arg(long, default_value_t = 6)]
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
    /// Simulations of every move.
    #[arg(long, default_value_t = 64)]
    pub simulations: u32,
    /// Positions that the cache of whole self-play holds; 0 plays without one.
    #[arg(long, default_value_t = 1 << 20)]
    pub cache_positions: usize,
    /// Whether whole self-play keeps the subtree below the move played.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub subtree_reuse: bool,
    /// Whether one answer serves a position and its images in whole self-play.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub symmetry_reuse: bool,
    /// What finished games are kept as.
    #[arg(long, value_enum, default_value_t)]
    pub experience: Experience,
    /// Measures whole self-play and nothing beside it.
    #[arg(long)]
    pub whole_only: bool,
    /// Takes the optimisations of self-play away one by one; each step is a process of its own.
    #[arg(long)]
    pub ablate: bool,
    /// Batch sizes at which the evaluators alone are measured.
    #[arg(long, value_delimiter = ',', default_value = "1,8,16,32,64,128,256,512")]
    pub batches: Vec<usize>,
    /// The turns of every measurement.
    #[command(flatten)]
    pub turns: Turns,
    /// `auto`, `cpu`, `cuda`, `cuda:1` or `mps`.
    #[arg(long, default_value = "auto")]
    pub device: DevicePreference,
    /// `auto`, `f32` or `bf16`.
    #[arg(long, default_value = "auto")]
    pub precision: PrecisionPreference,
    /// What a CPU computes with: `auto`, `libtorch`, or a path of the CPU kernel such as `avx512-bf16`.
    #[arg(long, default_value = "auto")]
    pub kernel: Preference,
    /// Batches that may be under way at once on an accelerator.
    #[arg(long, default_value_t = 2)]
    pub in_flight: usize,
    /// Keeps each thread on a cpu of its own.
    #[arg(long)]
    pub pin: bool,
    /// Every random draw descends from it.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Where the report goes.
    #[command(flatten)]
    pub destination: Destination,
}

/// Measures, prints and writes.
///
/// # Errors
/// Options that make no sense, a network that cannot be built, an evaluator that fails, a file that is no earlier report, a
/// folder that cannot be written.
pub fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    if args.ablate {
        return ablation::run(args, out);
    }
    // Before minutes are spent on measuring.
    let earlier = args.destination.earlier("selfplay")?;
    let mut report = measure(args)?;
    if let Some((path, earlier)) = &earlier {
        compare::compare(&mut report, path, earlier);
    }
    args.destination.write("selfplay", || markdown(&report), &report, |path| draw(path, &report))?;
    args.destination.print(&report, || markdown(&report), out)
}

/// Measures.
///
/// # Errors
/// As [`run`].
pub fn measure(args: &Args) -> anyhow::Result<Report> {
    args.check()?;
    with_game!(args.game, |game| measure_game(&game, args))
}

impl Args {
    fn check(&self) -> anyhow::Result<()> {
        ensure!(self.games > 0 && self.leaves > 0, "--games and --leaves must be at least 1");
        ensure!(self.simulations > 0, "--simulations must be at least 1");
        let depths = 1..=inference::DEPTH_MAX;
        ensure!(depths.contains(&self.in_flight), "--in-flight must be from 1 to {}", depths.end());
        ensure!(!self.batches.is_empty() && !self.batches.contains(&0), "--batches needs sizes of at least 1");
        self.turns.time().map(drop)
    }

    /// How a run plays.
    fn whole(&self) -> Play {
        Play {
            threads: machine::threads(self.threads),
            games: self.games,
            leaves: self.leaves,
            simulations: self.simulations,
            cache_positions: self.cache_positions,
            subtree_reuse: self.subtree_reuse,
            symmetry_reuse: self.symmetry_reuse,
            experience: self.experience,
        }
    }
}

fn measure_game<G: Game>(game: &G, args: &Args) -> anyhow::Result<Report> {
    let (time, turn) = (args.turns.time()?, args.turns.turn);
    let whole = args.whole();
    let plain = Play { cache_positions: 0, subtree_reuse: false, symmetry_reuse: false, ..whole.clone() };
    let contestants = Contestants::new(game, args, whole.threads)?;

    let (mut evaluator, mut libtorch) = (vec![Vec::new(); args.batches.len()], vec![Vec::new(); args.batches.len()]);
    let (mut plain_speeds, mut whole_speeds) = (Vec::new(), Vec::new());
    for repeat in 0..args.turns.repeats as u64 {
        if !args.whole_only {
            for (index, &batch) in args.batches.iter().enumerate() {
                evaluator[index].push(contestants.alone(Engine::Selfplay, batch, time)?);
                libtorch[index].push(contestants.alone(Engine::Libtorch, batch, time)?);
            }
            plain_speeds.push(contestants.play(&plain, repeat, time)?);
        }
        whole_speeds.push(contestants.play(&whole, repeat, time)?);
    }

    let by_batch = |speeds: Vec<Vec<f64>>| -> Vec<EvaluatorSpeed> {
        let speeds = args.batches.iter().zip(speeds);
        let speeds = speeds.filter_map(|(&batch, speeds)| Some((batch, turn.speed(&speeds)?)));
        speeds.map(|(batch, evaluations_per_second)| EvaluatorSpeed { batch, evaluations_per_second }).collect()
    };
    let (evaluator, libtorch) = (by_batch(evaluator), by_batch(libtorch));
    let plain = turn.of(plain_speeds, |speed| speed.evaluations_per_second);
    let share = |of: &[EvaluatorSpeed]| {
        let best = of.iter().map(|speed| speed.evaluations_per_second).max_by(f64::total_cmp)?;
        plain.map(|plain| plain.evaluations_per_second / best)
    };
    Ok(Report {
        cpu: machine::cpu_model(),
        target: machine::target(),
        cores: machine::cores(),
        game: game.spec().name.clone(),
        network: format!("{}x{}", args.blocks, args.channels),
        engine: contestants.evaluator(Engine::Selfplay)?.attributes().name.to_string(),
        libtorch_engine: contestants.describe_libtorch(),
        in_flight: contestants.in_flight(),
        threads: whole.threads,
        pinned: args.pin,
        games: args.games,
        leaves: args.leaves,
        simulations: args.simulations,
        seconds: args.turns.seconds,
        repeats: args.turns.repeats,
        turn,
        seed: args.seed,
        share: share(&evaluator),
        share_of_libtorch: share(&libtorch),
        evaluator,
        libtorch,
        plain,
        whole: turn.of(whole_speeds, |speed| speed.positions_per_second).unwrap_or_default(),
        peak_memory_bytes: machine::peak_memory_bytes(),
        compared: None,
    })
}
