//! `zerofleet bench feed`: everything around the training steps of a learner, at the speed of an accelerator.
//!
//! A real learner draws Connect Four from a real replay server, makes batches, publishes weights and writes
//! checkpoints, but its steps compute nothing and take a fixed time (`learner.simulated_step_us`). The share of its
//! time in which the training thread waits for data, publications or checkpoints is what an accelerator of that speed
//! would lose. Start with [`run`].

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use fleet::Role;

use crate::fleet::publisher::{tower, tower_name};
use crate::learner_process::{LearnerProcess, Lost, filled_server, replay_reading};
use crate::output::Destination;
use crate::replay::games::Games;
use crate::report::{Report, Unit};
use crate::training_run::{Reading, TemporaryFolder, Window, cpu_seconds, of_threads};

/// Options of `zerofleet bench feed`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The network whose weights are published and kept, BLOCKSxCHANNELS.
    #[arg(long, value_parser = tower, default_value = "20x256")]
    pub network: [usize; 2],
    /// Positions of a training step.
    #[arg(long, default_value_t = 1_024)]
    pub batch: usize,
    /// The time that a training step takes.
    #[arg(long, default_value_t = 20_000)]
    pub step_us: u64,
    /// Preparing threads of the learner.
    #[arg(long, default_value_t = 1)]
    pub prepare_threads: usize,
    /// Positions that the replay server holds.
    #[arg(long, default_value_t = 200_000)]
    pub positions: u64,
    /// Steps of a trajectory.
    #[arg(long, default_value_t = 30)]
    pub steps: usize,
    /// The duration of the measurement.
    #[arg(long, default_value_t = 60.0)]
    pub seconds: f64,
    /// The wait between the first training step and the measurement.
    #[arg(long, default_value_t = 5.0)]
    pub warm_up_seconds: f64,
    /// The seed of all random numbers.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Overrides one key of the learner's run file; may be given many times.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    pub sets: Vec<String>,
    /// The folder of logs, weights and checkpoints during the measurement [default: the system's folder of temporary
    /// files].
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
    /// The destination of the report.
    #[command(flatten)]
    pub destination: Destination,
}

/// Measures, then prints and writes the report.
///
/// # Errors
/// Invalid options, a process that dies or is not built, an invalid earlier report, a folder that cannot be written.
pub fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    args.destination.run("feed", out, |_| measure(args))
}

/// Runs the measurement and returns the report.
///
/// # Errors
/// The errors of [`run`].
pub fn measure(args: &Args) -> anyhow::Result<Report> {
    ensure!(args.step_us > 0 && args.batch > 0, "--step-us and --batch must be at least 1");
    let measured = Duration::try_from_secs_f64(args.seconds).context("read --seconds")?;
    ensure!(!measured.is_zero(), "--seconds must be above 0");
    let warm_up = Duration::try_from_secs_f64(args.warm_up_seconds).context("read --warm-up-seconds")?;
    let games = Games::new(args.steps, args.seed)?;
    let folder = TemporaryFolder::new(args.folder.as_deref())?;
    let server = filled_server(folder.path(), &games, args.positions)?;
    let mut learner = LearnerProcess::start(&sets(args), &server.endpoint, folder.path())?;
    learner.wait_for_the_first_step()?;
    learner.run_for(warm_up)?;
    let processes = |learner: &mut LearnerProcess| -> anyhow::Result<Vec<Reading>> {
        Ok(vec![replay_reading(&server), learner.read()?])
    };
    let (began, begin) = (Instant::now(), processes(&mut learner)?);
    learner.run_for(measured)?;
    let (seconds, end) = (began.elapsed().as_secs_f64(), processes(&mut learner)?);
    Ok(report(args, &Window { seconds, begin, end }))
}

const TRAINING: &str = "training thread";
const PREPARING: &str = "preparing threads";
const WRITING: &str = "writing thread";
const PROCESSES: &str = "processes";
const LOST: &str = "share lost";

/// The settings of the learner.
fn sets(args: &Args) -> Vec<String> {
    let Args { network: [blocks, channels], batch, step_us, prepare_threads, seed, sets, .. } = args;
    let own = [
        format!("run.seed={seed}"),
        format!("network.blocks={blocks}"),
        format!("network.channels={channels}"),
        "learner.precision=f32".to_owned(),
        format!("learner.batch_size={batch}"),
        format!("learner.simulated_step_us={step_us}"),
        format!("learner.prepare_threads={prepare_threads}"),
    ];
    own.into_iter().chain(sets.iter().cloned()).collect()
}

fn report(args: &Args, window: &Window) -> Report {
    let Args {
        network, batch, step_us, prepare_threads, positions, steps, seconds, warm_up_seconds, seed, sets, ..
    } = args;
    let mut report = Report::new("feed", "A learner at the speed of an accelerator");
    report.set("network", tower_name(*network));
    report.set("positions of a step", batch);
    report.set("time of a step", crate::report::time(*step_us as f64));
    report.set("preparing threads", prepare_threads);
    let sets: String = sets.iter().map(|set| format!(", {set}")).collect();
    report.note(format!(
        "steps are simulated; the replay server holds {positions} positions of Connect Four in trajectories of {steps} steps; \
         {seconds} s, {warm_up_seconds} s after the first step; seed {seed}; both processes share the cores of this \
         machine{sets}"
    ));
    let learner = |name: &str, labels: &[(&str, &str)]| {
        window.growth(Role::Learner, &format!("zerofleet_learner_{name}"), labels).unwrap_or(0.0)
    };
    let Lost { waiting, copying } = Lost::of(window);
    let trained = learner("positions_total", &[]);
    report
        .at(TRAINING, &[("steps", &"simulated")])
        .value("positions/s", Unit::PerSecond, trained / window.seconds)
        .value(
            "of the fastest possible",
            Unit::Share,
            trained / window.seconds / (1e6 * *batch as f64 / *step_us as f64),
        )
        .value("waiting for data", Unit::Share, waiting)
        .value("copying for weights and checkpoints", Unit::Share, copying)
        .value(LOST, Unit::Share, waiting + copying);

    let prepare = learner("prepare_seconds_total", &[("part", "prepare")]);
    let cores = window.cpu_seconds_of_threads(Role::Learner, "prepare");
    report
        .at(PREPARING, &[("threads", prepare_threads)])
        .value("positions/s of one busy thread", Unit::PerSecond, (prepare > 0.0).then(|| trained / prepare))
        .value("positions/s per core", Unit::PerSecond, cores.filter(|cpu| *cpu > 0.0).map(|cpu| trained / cpu))
        .value("busy", Unit::Share, prepare / (window.seconds * *prepare_threads as f64));
    for what in ["weights", "checkpoint"] {
        report
            .at(WRITING, &[("file", &what)])
            .value("busy", Unit::Share, learner("write_seconds_total", &[("what", what)]) / window.seconds)
            .value("skipped", Unit::Count, learner("writes_skipped_total", &[("what", what)]));
    }
    for (begin, end) in window.processes() {
        let per_second = |seconds: Option<f64>| seconds.map(|seconds| seconds / window.seconds);
        let usage = begin.usage.as_ref().zip(end.usage.as_ref());
        let threads = |prefix| usage.and_then(|(begin, end)| of_threads(begin, end, prefix));
        report
            .at(PROCESSES, &[("process", &end.name)])
            .value("cores", Unit::Cores, per_second(cpu_seconds(begin, end)))
            .value("cores of sockets", Unit::Cores, per_second(threads("tokio")))
            .value("memory", Unit::Bytes, usage.and_then(|(_, end)| Some(end.memory_bytes? as f64)));
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::args;
    use crate::training_run::tests::{learner, usage};

    #[test]
    fn waiting_and_copying_are_what_a_learner_loses_and_preparing_is_counted_per_thread_and_core() {
        let args: Args = args("--batch 1024 --step-us 20000 --prepare-threads 2");
        let text = |scale: u32| {
            [
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
        let report = report(&args, &Window { seconds: 10.0, begin: vec![begin], end: vec![end] });
        let value = |section, dimension, metric| report.value(section, &[dimension], metric).unwrap();
        let training = |metric| value(TRAINING, ("steps", "simulated"), metric);
        assert_eq!((training("positions/s"), training("of the fastest possible")), (10_240.0, 0.2));
        assert_eq!((training("waiting for data"), training(LOST)), (0.1, 0.2));
        let preparing = |metric| value(PREPARING, ("threads", "2"), metric);
        assert_eq!(preparing("positions/s of one busy thread"), 25_600.0);
        assert!((preparing("positions/s per core") - 102_400.0 / 3.0).abs() < 1e-6);
        assert_eq!(preparing("busy"), 0.2);
    }

    #[test]
    fn options_that_make_no_sense_are_named() {
        let error = |line: &str| format!("{:#}", run(&args(line), &mut Vec::new()).unwrap_err());
        assert!(error("--step-us 0").contains("--step-us"));
        assert!(error("--seconds 0").contains("--seconds"));
        assert!(error("--steps 50").contains("--steps"));
    }
}
