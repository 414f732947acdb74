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
use network_cpu::KernelPreference;
use network_torch::{DevicePreference, PrecisionPreference};

pub use markdown::markdown;
pub use plot::draw;
pub use report::{Compared, EvaluatorSpeed, Report, SelfplaySpeed};

use super::output::Destination;
use super::{Turns, machine};
use contestants::{Contestants, Engine};
use experience::Experience;
use play::Play;

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
    pub kernel: KernelPreference,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Turn;
    use crate::tests::{args, parsed};

    const TINY: &str = "--game tic_tac_toe --channels 16 --blocks 1 --threads 2 --games 4 --simulations 8 --batches 2,4 \
                    --seconds 0.02 --repeats 1 --device cpu --precision f32 --kernel auto";

    /// A report with numbers that tell each other apart.
    pub(super) fn report() -> Report {
        let alone = |batch, evaluations_per_second| EvaluatorSpeed { batch, evaluations_per_second };
        let whole = SelfplaySpeed {
            evaluations_per_second: 7000.0,
            simulations_per_second: 12_000.0,
            positions_per_second: 300.0,
            games_per_second: 10.0,
            mean_batch: 50.0,
            batch_fill: 0.78,
            cache_hit_share: 0.25,
            experience_bytes_per_position: 60.0,
        };
        Report {
            cpu: "a CPU".to_owned(),
            target: "x86_64 linux".to_owned(),
            cores: 2,
            game: "connect_four".to_owned(),
            network: "6x64".to_owned(),
            engine: "cpu avx2-f32".to_owned(),
            libtorch_engine: "libtorch on cpu".to_owned(),
            in_flight: None,
            threads: 2,
            pinned: false,
            games: 64,
            leaves: 1,
            simulations: 64,
            seconds: 1.0,
            repeats: 3,
            turn: Turn::Median,
            seed: 1,
            evaluator: vec![alone(1, 8000.0), alone(64, 10_000.0)],
            libtorch: vec![alone(1, 2000.0), alone(64, 6000.0)],
            plain: Some(SelfplaySpeed { evaluations_per_second: 9000.0, positions_per_second: 140.0, ..whole }),
            whole,
            share: Some(0.9),
            share_of_libtorch: Some(1.5),
            peak_memory_bytes: Some(100 << 20),
            compared: None,
        }
    }

    #[test]
    fn a_tiny_run_measures_everything() {
        let report = measure(&args(TINY)).unwrap();
        assert_eq!(report.evaluator.iter().map(|speed| speed.batch).collect::<Vec<_>>(), [2, 4]);
        assert!(report.evaluator.iter().all(|speed| speed.evaluations_per_second > 0.0));
        assert!(report.libtorch.iter().all(|speed| speed.evaluations_per_second > 0.0));
        let plain = report.plain.unwrap();
        assert!(plain.simulations_per_second > 0.0 && plain.cache_hit_share == 0.0);
        assert!(report.whole.cache_hit_share > 0.0);
        assert!(report.share.is_some() && report.share_of_libtorch.is_some());
    }

    #[test]
    fn whole_self_play_can_be_measured_by_itself() {
        let report = measure(&args(&format!("{TINY} --whole-only --experience dense"))).unwrap();
        assert!(report.evaluator.is_empty() && report.plain.is_none() && report.share.is_none());
        assert_eq!(report.whole.experience_bytes_per_position, f64::from(4 * (2 * 9 + 9 + 3)));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn pinned_threads_play_and_the_report_says_so() {
        let report = measure(&args(&format!("{TINY} --whole-only --pin"))).unwrap();
        assert!(report.pinned && report.whole.positions_per_second > 0.0);
        assert!(markdown(&report).contains("2 threads, each on a cpu of its own, with 4 games each"));
        assert_eq!(report.in_flight, None, "on a CPU nothing is in flight");
        assert!(measure(&args(&format!("{TINY} --in-flight 5"))).unwrap_err().to_string().contains("--in-flight"));
    }

    #[test]
    fn the_report_is_a_table_or_json() {
        let (mut table, mut json) = (Vec::new(), Vec::new());
        run(&args(TINY), &mut table).unwrap();
        run(&args(&format!("{TINY} --json --cache-positions 1000")), &mut json).unwrap();
        assert!(String::from_utf8(table).unwrap().contains("| **share of its evaluator's best batch** |"));
        let read: Report = serde_json::from_slice(&json).unwrap();
        assert!(read.whole.positions_per_second > 0.0);
    }

    #[test]
    fn the_table_says_what_the_share_is() {
        let table = markdown(&report());
        assert!(table.contains("| **share of its evaluator's best batch** | **90.0 %** |"), "{table}");
        assert!(table.contains("| whole | 300 | 10.0 | 12000 | 7000 | 78.0 % | 25.0 % | 60 |"), "{table}");
        let alone = Report { plain: None, share: None, evaluator: Vec::new(), ..report() };
        assert!(!markdown(&alone).contains("share"));
    }

    #[test]
    fn reports_are_written_and_compared() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display();
        run(&args(&format!("{TINY} --out {path}")), &mut Vec::new()).unwrap();
        let mut table = Vec::new();
        run(&args(&format!("{TINY} --compare {path}/selfplay.json")), &mut table).unwrap();
        assert!(String::from_utf8(table).unwrap().contains("- ratio to "));
        assert!(std::fs::read_to_string(folder.path().join("selfplay.svg")).unwrap().contains("<svg"));
        let error = run(&args(&format!("{TINY} --compare {path}/selfplay.md")), &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("selfplay.md"), "{error}");
    }

    #[test]
    fn options_that_make_no_sense_are_named() {
        let error = measure(&Args { batches: vec![0], ..args(TINY) }).unwrap_err();
        assert!(error.to_string().contains("--batches"));
        assert!(parsed::<Args>(["--game", "chess"]).is_err());
    }
}
