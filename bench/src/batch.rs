//! `zerofleet bench batch`: sizes of batches and micro-batches for the network of a run on a CPU: positions/s of
//! training steps, and the peak memory of a process that takes them.
//!
//! Each pair of sizes is measured in a process of its own, since the system reports the peak of a whole process. The
//! backend is the kernels of the CPU. Start with [`run`]; [`step`] is the other process.

mod examples;
pub mod step;

use std::io::Write;
use std::process::Command;

use anyhow::{Context, ensure};
use learner::config::Config;

use self::step::Measured;
use crate::output::Destination;
use crate::report::{Report, Unit, bytes};
use crate::{Turn, Turns, ascending};

const SECTION: &str = "training steps";
const SPEED: &str = "positions/s";
const PEAK: &str = "peak memory";
const STATED: &str = "stated memory";

/// The run whose network is trained.
#[derive(Debug, Clone, clap::Args)]
pub struct Run {
    /// A run file to begin from (TOML, one section per role).
    #[arg(long, value_name = "FILE")]
    pub config: Option<std::path::PathBuf>,
    /// Overrides one key of the run file; may be given many times.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    pub sets: Vec<String>,
}

impl Run {
    /// The configuration of the learner.
    fn config(&self) -> anyhow::Result<Config> {
        let sources =
            service::config::Sources { file: self.config.clone(), env: std::env::vars_os(), sets: self.sets.clone() };
        Ok(sources.read(games::preset)?.load()?)
    }

    /// The options as words, for another process.
    fn words(&self) -> Vec<String> {
        let config = self.config.iter().flat_map(|path| ["--config".to_owned(), path.display().to_string()]);
        config.chain(self.sets.iter().flat_map(|set| ["--set".to_owned(), set.clone()])).collect()
    }
}

/// Options of `zerofleet bench batch`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The run whose network is trained.
    #[command(flatten)]
    pub run: Run,
    /// Positions of a training step.
    #[arg(long, value_delimiter = ',', default_value = "128,256,512,1024")]
    pub batches: Vec<usize>,
    /// Positions that are run through the network at once, where they are fewer; whole batches are always measured.
    #[arg(long, value_delimiter = ',', default_value = "64,256")]
    pub micro_batches: Vec<usize>,
    /// The most memory of a recommended process, in GiB [default: that of this machine].
    #[arg(long)]
    pub memory_gib: Option<f64>,
    /// The turns of every measurement.
    #[command(flatten)]
    pub turns: Turns,
    /// The destination of the report.
    #[command(flatten)]
    pub destination: Destination,
}

/// A pair of sizes and what was measured with it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Case {
    batch: usize,
    /// 0 for the whole batch.
    micro_batch: usize,
    measured: Measured,
}

/// Measures, then prints and writes the report.
///
/// # Errors
/// Invalid options or settings, a process that fails, an invalid earlier report, a folder that cannot be written.
pub fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    args.destination.run("batch", out, |so_far| measure(args, so_far))
}

/// Runs the measurements and returns the report; calls `so_far` with the unfinished report after each pair of sizes.
///
/// # Errors
/// The errors of [`run`].
pub fn measure(args: &Args, so_far: &mut dyn FnMut(&Report) -> anyhow::Result<()>) -> anyhow::Result<Report> {
    args.turns.time()?;
    let config = args.run.config()?;
    let budget = budget(args)?;
    let mut report = Report::new("batch", "Sizes of batches");
    report.set("game", &config.run.game);
    let [channels, blocks] = config.network.size();
    report.set("network", format!("{blocks}x{channels}"));
    report.set("threads", step::threads(&config));
    report.note_turns(args.turns);
    report.note(format!(
        "learner.recompute, learner.moments: {:?}, {:?}",
        config.learner.recompute, config.learner.moments
    ));
    let mut cases = Vec::new();
    for [batch, micro_batch] in sizes(args)? {
        let measured = in_a_process(args, batch, micro_batch, budget)
            .with_context(|| format!("measure batches of {batch} in micro-batches of {micro_batch}"))?;
        let case = Case { batch, micro_batch, measured };
        add(&mut report, case);
        cases.push(case);
        so_far(&report)?;
    }
    report.finding(recommendation(&cases, budget));
    Ok(report)
}

/// The most bytes of a recommended process.
fn budget(args: &Args) -> anyhow::Result<Option<u64>> {
    match args.memory_gib {
        None => Ok(service::machine::memory_bytes()),
        Some(gibibytes) => {
            ensure!(gibibytes > 0.0 && gibibytes.is_finite(), "--memory-gib must be above 0");
            Ok(Some((gibibytes * f64::from(1 << 30)) as u64))
        }
    }
}

/// The pairs of batch and micro-batch, 0 for the whole batch.
fn sizes(args: &Args) -> anyhow::Result<Vec<[usize; 2]>> {
    let batches = ascending("--batches", &args.batches)?;
    let micro_batches = ascending("--micro-batches", &args.micro_batches)?;
    let of_batch = |batch: usize| {
        let fewer = micro_batches.iter().copied().filter(move |&micro_batch| micro_batch < batch);
        fewer.chain([0]).map(move |micro_batch| [batch, micro_batch]).collect::<Vec<_>>()
    };
    Ok(batches.into_iter().flat_map(of_batch).collect())
}

/// Takes training steps in another process.
fn in_a_process(args: &Args, batch: usize, micro_batch: usize, budget: Option<u64>) -> anyhow::Result<Measured> {
    let Turns { seconds, repeats, turn, seed } = args.turns;
    let program = std::env::current_exe().context("find this program")?;
    let mut command = Command::new(program);
    command.arg("batch-step").args(args.run.words());
    command.args([format!("--batch={batch}"), format!("--micro-batch={micro_batch}")]);
    command.args([format!("--seconds={seconds}"), format!("--repeats={repeats}"), format!("--seed={seed}")]);
    command.arg(if turn == Turn::Best { "--turn=best" } else { "--turn=median" });
    command.args(budget.map(|bytes| format!("--bytes-max={bytes}")));
    let output = command.output().context("start the process")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the process failed: {}", error.trim());
    serde_json::from_slice(&output.stdout).context("read its result")
}

fn add(report: &mut Report, Case { batch, micro_batch, measured }: Case) {
    let Measured { positions_per_second, peak_bytes, stated_bytes } = measured;
    let micro_batch = if micro_batch == 0 { "whole".to_owned() } else { micro_batch.to_string() };
    report
        .at(SECTION, &[("batch", &batch), ("micro-batch", &micro_batch)])
        .value(SPEED, Unit::PerSecond, positions_per_second)
        .value(PEAK, Unit::Bytes, peak_bytes.map(|bytes| bytes as f64))
        .value(STATED, Unit::Bytes, stated_bytes as f64);
}

/// The fastest sizes whose process had no more than `budget` bytes, as settings.
fn recommendation(cases: &[Case], budget: Option<u64>) -> String {
    let fits = |case: &&Case| budget.is_none_or(|budget| case.measured.bytes() <= budget);
    let speed = |case: &Case| case.measured.positions_per_second.unwrap_or(0.0);
    let measured = cases.iter().filter(|case| case.measured.positions_per_second.is_some());
    let within = budget.map_or_else(String::new, |budget| format!(" within {}", bytes(budget as f64)));
    match measured.filter(fits).max_by(|a, b| speed(a).total_cmp(&speed(b))) {
        None => format!("no sizes{within}: lower --batches, or set learner.recompute = \"blocks\""),
        Some(case) => format!(
            "the most positions/s{within}: learner.batch_size = {}, learner.micro_batch = {} ({:.0} positions/s, {})",
            case.batch,
            case.micro_batch,
            speed(case),
            bytes(case.measured.bytes() as f64),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::args;

    #[test]
    fn micro_batches_are_smaller_than_their_batch_and_whole_batches_are_always_measured() {
        let args: Args = args("--batches 64,256 --micro-batches 256,64,128");
        assert_eq!(sizes(&args).unwrap(), [[64, 0], [256, 64], [256, 128], [256, 0]]);
    }

    #[test]
    fn the_fastest_sizes_within_the_memory_are_recommended_as_settings() {
        let case = |batch, micro_batch, positions_per_second, gibibytes: u64| Case {
            batch,
            micro_batch,
            measured: Measured { positions_per_second, peak_bytes: Some(gibibytes << 30), stated_bytes: 1 },
        };
        let cases = [case(64, 0, Some(100.0), 1), case(256, 64, Some(120.0), 2), case(256, 0, Some(150.0), 9)];
        let within = recommendation(&cases, Some(4 << 30));
        assert!(within.contains("learner.batch_size = 256, learner.micro_batch = 64"), "{within}");
        assert!(recommendation(&cases, None).contains("learner.micro_batch = 0 (150 positions/s"));
        assert!(recommendation(&[case(64, 0, None, 9)], Some(1 << 30)).starts_with("no sizes within"));
    }

    #[test]
    fn the_network_of_a_run_is_that_of_its_file_and_its_preset() {
        let args: Args = args("--set run.game=hex-9 --set network.preset=b10c128");
        let config = args.run.config().unwrap();
        assert_eq!((config.run.game.as_str(), config.network.size()), ("hex-9", [128, 10]));
        assert!(budget(&Args { memory_gib: Some(0.0), ..args }).is_err());
    }
}
