//! A learner with a replay server full of Connect Four, in a run with one actor that hardly plays.
//!
//! The learner draws, makes batches, publishes weights and writes checkpoints. With `learner.simulated_step_us` the
//! steps compute nothing and take a fixed time. The share of time in which the training thread waits for data,
//! publications or checkpoints is then the loss of an accelerator at that speed.

use std::path::Path;

use anyhow::{Context, ensure};
use fleet::{Rating, Role};
use training_cpu::Trainer;

use super::Args;
use super::case::Case;
use super::table::{SPEED, dimensions};
use crate::network::NetworkSize;
use crate::replay::games::Games;
use crate::replay::load;
use crate::report::{Report, Unit};
use crate::training_run::{self, Measured, RunArgs, Window};

/// Settings of a run with a full replay server, a rate limiter that never blocks, and an actor that evaluates one
/// position in ten seconds. All drawn items are used for training, and the learner only trains.
const RUN: [&str; 9] = [
    "actor.kernel=simulated",
    "actor.simulated_delay_us=10000000",
    "actor.threads=1",
    "selfplay.games=1",
    "replay.min_items=1",
    "replay.samples_per_insert=1.0",
    "replay.error_items=1e15",
    "learner.device=cpu",
    "learner.validation_share=0",
];

/// Positions in the replay server.
pub(super) const POSITIONS: u64 = 200_000;

/// Options of the part `live`: a learner with a replay server.
#[derive(Debug, Clone, clap::Args)]
pub struct LiveArgs {
    /// Duration of the part `live`, in seconds.
    #[arg(long, default_value_t = 30.0)]
    pub live_seconds: f64,
    /// Seconds between the first training step and the measurement.
    #[arg(long, default_value_t = 5.0)]
    pub warm_up_seconds: f64,
}

/// Returns the run of a case, with files in `folder`.
fn run(args: &Args, case: Case, folder: &Path) -> RunArgs {
    let Case { network: NetworkSize { blocks, channels, .. }, batch, precision, threads } = case;
    let own = [
        format!("run.seed={}", args.turns.seed),
        format!("network.blocks={blocks}"),
        format!("network.channels={channels}"),
        format!("learner.precision={precision}"),
        format!("learner.batch_size={batch}"),
        format!("learner.threads={threads}"),
    ];
    RunArgs {
        game: games::GameKind::ConnectFour,
        seconds: args.live.live_seconds,
        warm_up_seconds: args.live.warm_up_seconds,
        actors: Some(1),
        config: args.run.config.clone(),
        sets: RUN.map(str::to_owned).into_iter().chain(own).chain(args.run.sets.iter().cloned()).collect(),
        runs: Some(folder.to_owned()),
    }
}

/// Checks the options before minutes are spent on measuring.
///
/// # Errors
/// An option is invalid; the error names it.
pub(super) fn check(args: &LiveArgs) -> anyhow::Result<()> {
    let times = training_run::times(args.live_seconds, args.warm_up_seconds);
    times.context("parse --live-seconds and --warm-up-seconds").map(drop)
}

/// Measures a learner that trains with the CPU kernels.
///
/// # Errors
/// The learner cannot train the case, or a process dies or is not built.
pub(super) fn measure(args: &Args, case: Case, folder: &Path) -> anyhow::Result<Measured> {
    let is_connect_four = matches!(case.network, NetworkSize { height: 6, width: 7, .. });
    ensure!(is_connect_four, "the part `live` needs the board of Connect Four, 6x7");
    Trainer::check(&training::TrainerSettings { precision: case.precision, ..Default::default() })?;
    let games = Games::new(args.turns.seed);
    training_run::measure(&run(args, case, folder), Rating::Off, |fleet| {
        let runtime = tokio::runtime::Runtime::new().context("start the runtime")?;
        runtime.block_on(load::fill(&format!("http://{}", fleet.replay()[0]), &games, POSITIONS))
    })
}

/// Report section of learners with a replay server.
pub(super) const LIVE: &str = "live from a replay server";
const PROCESSES: &str = "processes";

/// Returns the dimensions of a row of a case.
fn at<'a>(case: &'a Case, name: &'static str, value: &'a dyn ToString) -> [(&'static str, &'a dyn ToString); 5] {
    let mut dimensions = dimensions(case, value);
    dimensions[4].0 = name;
    dimensions
}

/// Returns the positions per second that the learner trained on.
fn speed(window: &Window) -> f64 {
    window.metrics().rate(Role::Learner, "positions_total", &[]).unwrap_or(0.0)
}

/// Adds a learner; `from_memory` is the speed of the same steps from memory.
pub(super) fn add(report: &mut Report, case: &Case, measured: &Measured, from_memory: Option<f64>) {
    let Measured { config, window, .. } = measured;
    let learner = |name: &str, labels: &[(&str, &str)]| window.increase(Role::Learner, name, labels).unwrap_or(0.0);
    let [wait, train, publish] =
        ["wait", "train", "publish"].map(|phase| learner("seconds_total", &[("phase", phase)]));
    let all = wait + train + publish;
    let simulated_us = config.learner.simulated_step_us as f64;
    let bound = (simulated_us > 0.0).then(|| 1e6 * case.batch as f64 / simulated_us);
    // The code that computed the training steps, as the learner reports it.
    let backend = || window.metrics().label(Role::Learner, "device", "backend").unwrap_or("unknown");
    let steps = if bound.is_some() { "simulated" } else { backend() };
    let (trained, prepare) =
        (learner("positions_total", &[]), learner("prepare_seconds_total", &[("part", "prepare")]));
    let cores = window.sum(Role::Learner, |process| process.cpu_seconds_of_threads("prepare")).filter(|cpu| *cpu > 0.0);
    // On a CPU one thread prepares unless the settings give another number.
    let preparing_threads = config.learner.prepare_threads.max(1);
    let skipped = ["weights", "checkpoint"].map(|what| learner("writes_skipped_total", &[("what", what)]));
    let writing = |what| learner("write_seconds_total", &[("what", what)]) / window.seconds;
    report
        .at(LIVE, &at(case, "steps", &steps))
        .value(SPEED, Unit::PerSecond, speed(window))
        .value("of the speed from memory", Unit::Share, from_memory.map(|speed_max| speed(window) / speed_max))
        .value("of the fastest possible", Unit::Share, bound.map(|bound| speed(window) / bound))
        .value("waiting for data", Unit::Share, wait / all)
        .value("copying for weights and checkpoints", Unit::Share, publish / all)
        .value("share lost", Unit::Share, (wait + publish) / all)
        .value("positions/s of one busy preparing thread", Unit::PerSecond, (prepare > 0.0).then(|| trained / prepare))
        .value("positions/s per core of preparing threads", Unit::PerSecond, cores.map(|cpu| trained / cpu))
        .value("preparing threads busy", Unit::Share, prepare / (window.seconds * preparing_threads as f64))
        .value("busy writing weights", Unit::Share, writing("weights"))
        .value("busy writing checkpoints", Unit::Share, writing("checkpoint"))
        .value("writes skipped", Unit::Count, skipped.iter().sum::<f64>());
    for process in window.processes.iter().filter(|process| process.role != Role::Actor) {
        let cores = process.cpu_seconds().map(|seconds| seconds / window.seconds);
        report.at(PROCESSES, &at(case, "process", &process.name)).value("cores", Unit::Cores, cores);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::report::Unit;
    use crate::tests::args;
    use crate::training_run::Reading;
    use crate::training_run::tests::{learner, usage, window};

    /// Returns ten seconds in which a learner trained on 102,400 positions, waited for one second and copied for one.
    pub(in super::super) fn measured(sets: impl FnOnce(&mut run_file::RunFile)) -> Measured {
        let text = |scale: u32| {
            [
                ("device{backend=\"CPU kernels\"}", 1),
                ("positions_total", 102_400),
                ("seconds_total{phase=\"wait\"}", 1),
                ("seconds_total{phase=\"train\"}", 8),
                ("seconds_total{phase=\"publish\"}", 1),
                ("prepare_seconds_total{part=\"prepare\"}", 4),
                ("prepare_seconds_total{part=\"wait\"}", 16),
            ]
            .map(|(name, value)| format!("zerofleet_learner_{name} {}\n", value * scale))
            .concat()
        };
        let begin =
            Reading { usage: Some(usage(&[(1, "prepare-0", 1.0), (2, "prepare-1", 1.0)])), ..learner(&text(1)) };
        let end = Reading { usage: Some(usage(&[(1, "prepare-0", 2.0), (2, "prepare-1", 3.0)])), ..learner(&text(2)) };
        let window = window(10.0, vec![begin], vec![end]);
        let mut config = run_file::RunFile::default();
        sets(&mut config);
        Measured { config, actors: 1, window, accelerators: Vec::new() }
    }

    #[test]
    fn waiting_and_copying_are_what_a_learner_loses_and_preparing_is_counted_per_thread_and_core() {
        let measured = measured(|config| {
            (config.learner.simulated_step_us, config.learner.prepare_threads) = (20_000, 2);
        });
        let network = NetworkSize { blocks: 20, channels: 256, height: 6, width: 7 };
        let case = Case { network, batch: 1024, precision: network_torch::Precision::F32, threads: 1 };
        let mut report = Report::new("learner", "Steps");
        add(&mut report, &case, &measured, None);
        let value = |section, dimension, metric| report.value(section, &[dimension], metric).unwrap();
        let training = |metric| value(LIVE, ("steps", "simulated"), metric);
        assert_eq!((training("positions/s"), training("of the fastest possible")), (10_240.0, 0.2));
        assert_eq!((training("waiting for data"), training("share lost")), (0.1, 0.2));
        assert_eq!(training("positions/s of one busy preparing thread"), 25_600.0);
        assert!((training("positions/s per core of preparing threads") - 102_400.0 / 3.0).abs() < 1e-6);
        assert_eq!(training("preparing threads busy"), 0.2);
        assert!(report.rows.iter().any(|row| row.section == PROCESSES && row.unit == Unit::Cores), "{report:?}");
    }

    #[test]
    fn the_settings_of_a_run_are_keys_of_the_run_file() {
        let args: Args = args("--set learner.prepare_threads=2");
        let network = NetworkSize { blocks: 1, channels: 8, height: 6, width: 7 };
        let case = Case { network, batch: 32, precision: network_torch::Precision::F32, threads: 1 };
        let folder = tempfile::tempdir().unwrap();
        let sets = run(&args, case, folder.path()).sets;
        let sources = service::config::Sources { file: None, env: std::iter::empty(), sets };
        let config: run_file::RunFile = sources.read(games::preset).unwrap().load().unwrap();
        assert_eq!((config.learner.prepare_threads, config.learner.batch_size), (2, 32));
        config.check_settings().unwrap();
    }
}
