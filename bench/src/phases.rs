//! `zerofleet bench phases`: where the time of a real training run goes, what holds it up, and what a longer run takes.
//!
//! It starts the processes of `zerofleet train` in a temporary folder, waits until the learner trains, and reads what they
//! tell at the beginning and at the end of a window of time; the differences are shares. Nothing is traced: processes add up
//! their own phases, a few times for each batch. Start with [`run`]; `shares` is what is made of the run, `bottleneck` the
//! rules.

mod compare;
mod cost;
mod markdown;
mod plot;
mod report;
mod shares;

use std::io::Write;

use anyhow::ensure;

pub use cost::Cost;
pub use markdown::markdown;
pub use plot::draw;
pub use report::{Compared, Phase, PhaseTime, Process, Rates, Report, Threads, ThreadsName};

pub use super::accelerator::Accelerator;
pub(super) use shares::{learner_device, rates};

use super::machine;
use super::output::Destination;
use super::training_run::{self, Measured, Times};
use cost::{Speed, cost, epoch_positions};
use fleet::Role;
use fleet::bottleneck::bottleneck;

/// Options of `zerofleet bench phases`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Which run, and for how long.
    #[command(flatten)]
    pub run: training_run::RunArgs,
    /// For how many epochs of training time and price are foretold; an epoch is as many training positions as the window
    /// holds.
    #[arg(long, default_value_t = 10.0)]
    pub epochs: f64,
    /// What an hour of this machine costs, in any money.
    #[arg(long, value_name = "PRICE")]
    pub price_per_hour: Option<f64>,
    /// Where the report goes.
    #[command(flatten)]
    pub destination: Destination,
}

/// Trains, prints and writes.
///
/// # Errors
/// Options that make no sense, a process that dies, a file that is no earlier report, a folder that cannot be written.
pub fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    let times = checked(args)?;
    // Before minutes are spent on measuring.
    let earlier = args.destination.earlier("phases")?;
    let mut report = report(args, &training_run::measure(&args.run, times)?);
    if let Some((path, earlier)) = &earlier {
        compare::compare(&mut report, path, earlier);
    }
    args.destination.write("phases", || markdown(&report), &report, |path| draw(path, &report))?;
    args.destination.print(&report, || markdown(&report), out)
}

/// What is not left to others to check.
fn checked(args: &Args) -> anyhow::Result<Times> {
    let finite = |name: &str, value: f64| {
        ensure!(value.is_finite() && value >= 0.0, "{name} must be a number, 0 or above");
        Ok(())
    };
    finite("--epochs", args.epochs)?;
    finite("--price-per-hour", args.price_per_hour.unwrap_or(0.0))?;
    args.run.times()
}

/// What is made of a run.
fn report(args: &Args, measured: &Measured) -> Report {
    let Measured { config, actors, window, accelerators } = measured;
    let cores = machine::cores();
    let threads = shares::threads(window, actors * config.actor.threads);
    let cores_used = window.cpu_seconds().map(|cpu| cpu / (window.seconds * cores as f64));
    let rates = shares::rates(window);
    let speed = Speed {
        training_positions_per_second: rates.training_positions_per_second,
        positions_per_second: rates.positions_per_second,
    };
    let epoch_positions = epoch_positions(rates.window_items, config.replay.window_items_min);
    let label = |role, name, label| window.label(role, name, label).map(str::to_owned);
    Report {
        cpu: machine::cpu_model(),
        target: machine::target(),
        cores,
        game: args.run.game.to_string(),
        network: format!("{}x{}", config.network.blocks, config.network.channels),
        sets: args.run.sets.clone(),
        actors: *actors,
        actor_threads: config.actor.threads,
        evaluator: label(Role::Actor, "zerofleet_actor_evaluator", "evaluator"),
        learner_device: shares::learner_device(window).map(str::to_owned),
        learner_precision: label(Role::Learner, "zerofleet_learner_device", "precision"),
        seconds: window.seconds,
        warm_up_seconds: args.run.warm_up_seconds,
        compared: None,
        bottleneck: bottleneck(&shares::load(&threads, cores_used)),
        transfers: shares::transfers(window),
        accelerators: accelerators.clone(),
        threads,
        processes: shares::processes(window),
        cost: cost(args.epochs, epoch_positions, args.price_per_hour, speed),
        rates,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{args, parsed};
    use crate::training_run::Window;
    use crate::training_run::tests::{actor, learner};
    use fleet::bottleneck::Part;
    use fleet::config::Fleet as Config;

    fn time(phase: Phase, seconds: f64, wall_share: f64, cpu_share: f64) -> PhaseTime {
        PhaseTime { phase, seconds, wall_share, cpu_share: Some(cpu_share), wall_share_change: None }
    }

    /// A report of made-up numbers.
    pub(super) fn report() -> Report {
        let threads = vec![
            Threads {
                name: ThreadsName::SelfPlay,
                count: 2,
                cpu_seconds: Some(8.0),
                phases: vec![
                    time(Phase::Selection, 2.0, 0.1, 0.125),
                    time(Phase::Evaluation, 8.0, 0.4, 0.5),
                    time(Phase::WaitingForReplay, 8.0, 0.4, 0.0),
                    time(Phase::Other, 2.0, 0.1, 0.0),
                ],
            },
            Threads {
                name: ThreadsName::Preparing,
                count: 1,
                cpu_seconds: Some(1.0),
                phases: vec![time(Phase::Preparation, 1.0, 0.1, 0.05), time(Phase::WaitingForTraining, 9.0, 0.9, 0.0)],
            },
            Threads {
                name: ThreadsName::Training,
                count: 1,
                cpu_seconds: Some(6.0),
                phases: vec![
                    time(Phase::Sampling, 0.2, 0.02, 0.0),
                    time(Phase::Forward, 3.0, 0.3, 0.15),
                    time(Phase::Backward, 5.0, 0.5, 0.25),
                    time(Phase::Optimiser, 1.0, 0.1, 0.05),
                    time(Phase::Checkpoint, 0.0, 0.0, 0.0),
                    time(Phase::Other, 0.8, 0.08, 0.0),
                ],
            },
        ];
        let process = |name: &str, cpu_seconds: f64, sockets_cpu_seconds| Process {
            name: name.to_owned(),
            cpu_seconds: Some(cpu_seconds),
            cpu_share: Some(cpu_seconds / 16.0),
            sockets_cpu_seconds,
            memory_bytes: Some(64 << 20),
        };
        let speed = Speed { training_positions_per_second: Some(2000.0), positions_per_second: Some(500.0) };
        Report {
            cpu: "Some CPU".to_owned(),
            target: "x86_64 linux".to_owned(),
            cores: 2,
            game: "connect_four".to_owned(),
            network: "4x64".to_owned(),
            sets: Vec::new(),
            actors: 1,
            actor_threads: 2,
            evaluator: Some("CPU kernel".to_owned()),
            learner_device: Some("cpu".to_owned()),
            learner_precision: Some("f32".to_owned()),
            seconds: 10.0,
            warm_up_seconds: 5.0,
            compared: None,
            bottleneck: bottleneck(&shares::load(&threads, Some(0.8))),
            threads,
            transfers: "none".to_owned(),
            accelerators: Vec::new(),
            processes: vec![process("actor-0", 9.0, Some(1.0)), process("learner", 7.0, Some(0.5))],
            rates: Rates {
                positions_per_second: speed.positions_per_second,
                training_positions_per_second: speed.training_positions_per_second,
                ..Rates::default()
            },
            cost: cost(10.0, 100_000.0, Some(3.0), speed),
        }
    }

    #[test]
    fn a_run_becomes_a_report() {
        let told = |seconds: f64, positions: f64| {
            let actor = actor(&format!(
                "zerofleet_actor_seconds_total{{phase=\"evaluate\"}} {seconds}\nzerofleet_actor_moves_total {positions}\n\
             zerofleet_actor_evaluator{{evaluator=\"CPU kernel\"}} 3"
            ));
            let learner = learner(&format!(
                "zerofleet_learner_positions_total {}\n\
             zerofleet_learner_device{{device=\"cpu\",precision=\"bf16\"}} 1\n\
             zerofleet_learner_seconds_total{{phase=\"wait\"}} {seconds}",
                positions * 4.0
            ));
            vec![actor, learner]
        };
        let mut config = Config::default();
        (config.actor.threads, config.replay.window_items_min) = (2, 72_000);
        let window = Window { seconds: 10.0, begin: told(1.0, 100.0), end: told(9.0, 1100.0) };
        let args = args("--epochs 2 --price-per-hour 5 --game tic_tac_toe --set learner.threads=1");
        let report = super::report(&args, &Measured { config, actors: 1, window, accelerators: Vec::new() });
        assert_eq!((report.threads[0].count, report.game.as_str()), (2, "tic_tac_toe"));
        assert_eq!(report.bottleneck.part, Part::SelfPlay, "{:?}", report.bottleneck);
        assert_eq!(
            (report.evaluator.as_deref(), report.learner_precision.as_deref()),
            (Some("CPU kernel"), Some("bf16"))
        );
        assert_eq!(report.rates.training_positions_per_second, Some(400.0));
        assert_eq!((report.cost.hours, report.cost.price), (Some(0.1), Some(0.5)));
    }

    #[test]
    fn options_that_make_no_sense_are_named() {
        let error = |line: &str| format!("{:#}", run(&args(line), &mut Vec::new()).unwrap_err());
        assert!(error("--seconds 0").contains("--seconds"));
        assert!(error("--seconds=-1").contains("--seconds"));
        assert!(error("--warm-up-seconds=-1").contains("--warm-up-seconds"));
        assert!(error("--epochs=-1").contains("--epochs"));
        assert!(error("--price-per-hour NaN").contains("--price-per-hour"));
        assert!(error("--compare /nowhere/earlier.json").contains("/nowhere/earlier.json"));
        assert!(parsed::<Args>(["--game", "chess"]).is_err());
    }
}
