//! `zerofleet bench learner`: positions/s of training steps on a CPU, with the kernels of this project and with
//! libtorch, next to PyTorch, eager and compiled.
//!
//! All backends train the same network from the same weights on the same batch in memory, and the first steps must have
//! the same results. The backends of one case are measured in turns. Another part measures batch sizes for the network
//! of a run. Start with [`measure`]: [`backend`] names and makes the backends, `inputs` the weights and the batch,
//! `table` the report; [`sizes`] is the other part.

pub mod backend;
mod case;
mod inputs;
mod pytorch;
pub mod sizes;
mod steps;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use network_torch::Precision;

use crate::network::NetworkSize;
use crate::output::temporary_folder;
use crate::report::{Report, SoFar};
use crate::series::{Limits, Series, Speeds, measure_in_turns};
use crate::training_run::Run;
use crate::{Turns, ascending};
use backend::Backend;
use case::Case;
use inputs::Inputs;
use sizes::SizesArgs;
use steps::FirstSteps;
use table::Outcome;

/// A part of the benchmark `zerofleet bench learner`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Training steps with every backend, with batches in memory.
    Steps,
    /// Batch and micro-batch sizes for a run: finds the fastest that fits in memory.
    Batch,
}

/// Options of `zerofleet bench learner`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Parts of the benchmark to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "steps")]
    pub parts: Vec<Part>,
    /// Networks to measure, each BLOCKSxCHANNELS@HEIGHTxWIDTH.
    #[arg(long, value_delimiter = ',', default_value = "4x64@6x7,6x64@6x7,6x128@9x9")]
    pub networks: Vec<NetworkSize>,
    /// Batch sizes [default: 256,1024; part `batch`: 128,256,512,1024].
    #[arg(long, value_delimiter = ',')]
    pub batches: Vec<usize>,
    /// Precisions of convolutions and matrix products to measure.
    ///
    /// Weights and moments are always float32.
    #[arg(long, value_delimiter = ',', value_parser = precision, default_value = "f32,bf16")]
    pub precisions: Vec<Precision>,
    /// Numbers of threads per training step to measure.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    pub threads: Vec<usize>,
    /// Backends to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "kernels,libtorch,pytorch,pytorch-compile")]
    pub backends: Vec<Backend>,
    /// Duration, repeats and seed of every measurement.
    #[command(flatten)]
    pub turns: Turns,
    /// Directory of a Python virtual environment with PyTorch.
    ///
    /// If missing, the environment is created with python3: 2.2 GB to download, 3.5 GB on disk.
    #[arg(long, value_name = "DIR", default_value = ".tools/pytorch")]
    pub python: PathBuf,
    /// Options of the part `batch`: batch and micro-batch sizes.
    #[command(flatten)]
    pub sizes: SizesArgs,
    /// Run file and settings for the part `batch`, which determine the network.
    #[command(flatten)]
    pub run: Run,
    /// Directory for working files [default: the temporary directory].
    ///
    /// Working files are weights and batches.
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
}

/// Parses a training precision.
fn precision(text: &str) -> Result<Precision, String> {
    let found = [Precision::F32, Precision::Bf16].into_iter().find(|precision| precision.to_string() == text);
    found.ok_or_else(|| format!("`{text}` is not a precision of training: expected f32 or bf16"))
}

/// Runs the measurements and returns the report; calls `so_far` with the unfinished report after each case.
///
/// # Errors
/// An option is invalid, or a network cannot be built.
pub fn measure(args: &Args, so_far: SoFar<'_>) -> anyhow::Result<Report> {
    let time = args.turns.time()?;
    let mut report = table::empty_report(args);
    if args.parts.contains(&Part::Batch) {
        sizes::add(&mut report, args, so_far)?;
    }
    if args.parts.contains(&Part::Steps) {
        add_cases(&mut report, args, time, so_far)?;
    }
    Ok(report)
}

/// Adds steps from memory.
fn add_cases(report: &mut Report, args: &Args, time: Duration, so_far: SoFar<'_>) -> anyhow::Result<()> {
    let cases = cases(args)?;
    // libtorch in this process must keep memory as in a learner.
    network_torch::keep_memory();
    let folder = temporary_folder(args.folder.as_deref())?;
    for case in cases {
        let inputs = Inputs::new(case, args.turns.seed, folder.path()).with_context(|| format!("measure {case}"))?;
        table::add(report, &case, &outcomes(args, &inputs, time));
        so_far(report)?;
    }
    Ok(())
}

/// Returns the cases of the options, one network after the other.
fn cases(args: &Args) -> anyhow::Result<Vec<Case>> {
    ensure!(!args.networks.is_empty(), "--networks must not be empty");
    ensure!(!args.precisions.is_empty(), "--precisions must not be empty");
    ensure!(!args.backends.is_empty(), "--backends must not be empty");
    let batches = if args.batches.is_empty() { &[256, 1024] } else { &args.batches[..] };
    let (batches, thread_numbers) = (ascending("--batches", batches)?, ascending("--threads", &args.threads)?);
    let mut cases = Vec::new();
    for &network in &args.networks {
        for &batch in &batches {
            for &precision in &args.precisions {
                cases.extend(thread_numbers.iter().map(|&threads| Case { network, batch, precision, threads }));
            }
        }
    }
    Ok(cases)
}

/// Measures the backends of a case in turns.
fn outcomes(args: &Args, inputs: &Inputs, time: Duration) -> Vec<Outcome> {
    let limits = Limits { time, call_time_max: Duration::MAX };
    let mut reference: Option<(Backend, FirstSteps)> = None;
    let mut prepare = |&backend: &Backend| {
        let prepared = backend.prepare(inputs, &args.python).and_then(|prepared| {
            match &reference {
                Some((other, expected)) => {
                    let precision = inputs.case.precision;
                    let same = prepared.first_steps.check(expected, precision);
                    same.with_context(|| format!("compare the first steps with {other}"))?;
                }
                None => reference = Some((backend, prepared.first_steps.clone())),
            }
            Ok(prepared)
        });
        let details = prepared.as_ref().map(|prepared| prepared.details.clone()).unwrap_or_default();
        (details, Series::new(backend, 1, prepared.map(|prepared| prepared.work)))
    };
    let (details, all): (Vec<String>, Vec<Series<Backend>>) = args.backends.iter().map(&mut prepare).unzip();
    let outcome = |(speeds, details): (Speeds<Backend>, String)| {
        let speed = speeds.at(inputs.case.batch).filter(|_| speeds.not_measured.is_none());
        Outcome { backend: speeds.label, speed, note: speeds.not_measured.unwrap_or(details) }
    };
    let measured = measure_in_turns(all, &[inputs.case.batch], limits, args.turns);
    measured.into_iter().zip(details).map(outcome).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{args, parsed};

    const TINY: &str = "--networks 1x8@3x3,2x16@2x3 --batches 5,2 --threads 1 --seconds 0.001 --repeats 2";
    const TINIEST: &str = "--networks 1x8@3x3 --batches 2 --threads 1 --precisions f32 --seconds 0.001 --repeats 1";

    /// Returns the report, and the number of unfinished reports before it.
    fn measured(line: &str) -> (Report, usize) {
        let (folder, mut seen) = (tempfile::tempdir().unwrap(), 0);
        let args = args(&format!("{line} --folder {}", folder.path().display()));
        let report = measure(&args, &mut |_| {
            seen += 1;
            Ok(())
        });
        (report.unwrap(), seen)
    }

    /// Counts the positive values of one metric of the backend.
    fn of(report: &Report, backend: &str) -> usize {
        let rows = report.rows.iter().filter(|row| row.metric == table::SPEED && row.section == table::SECTION);
        rows.filter(|row| row.dimensions.get("backend") == Some(backend) && row.value > Some(0.0)).count()
    }

    #[test]
    fn every_case_is_measured_by_every_backend_and_what_one_cannot_do_has_a_row_and_a_reason() {
        let (report, seen) = measured(&format!("{TINY} --backends kernels,libtorch"));
        // Two networks, two batches, two precisions.
        assert_eq!((seen, report.findings.len(), of(&report, "libtorch")), (8, 8, 8), "{report:?}");
        assert!(of(&report, "kernels") >= 4, "{report:?}");
        assert_eq!(report.rows.iter().filter(|row| row.metric == table::SPEED).count(), 16, "{report:?}");
        let unsupported = 8 - of(&report, "kernels");
        let reasons = report.findings.iter().filter(|finding| finding.contains("- kernels: not measured: "));
        assert_eq!(reasons.count(), unsupported, "{report:?}");
    }

    #[test]
    fn without_an_environment_pytorch_is_reported_as_not_measured_with_the_reason() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (report, _) = measured(&format!("{TINIEST} --python {}", file.path().display()));
        assert_eq!((of(&report, "libtorch"), of(&report, "pytorch")), (1, 0), "{report:?}");
        let finding = &report.findings[0];
        assert_eq!(finding.matches(": not measured: create a virtual environment").count(), 2, "{finding}");
    }

    #[test]
    fn options_that_make_no_sense_are_named() {
        let error = |line: &str| format!("{:#}", crate::tests::run("learner", line, &mut Vec::new()).unwrap_err());
        assert!(error("--batches 0").contains("--batches"));
        assert!(error("--threads 0").contains("--threads"));
        assert!(error("--repeats 0").contains("--repeats"));
        assert!(error("--seconds=-1").contains("--seconds"));
        let folder = tempfile::tempdir().unwrap();
        assert!(error(&format!("--networks 1x0@3x3 --folder {}", folder.path().display())).contains("1x0@3x3"));
        for line in [["--networks", "6x64"], ["--precisions", "int8"], ["--backends", "jax"]] {
            assert!(parsed::<Args>(line).is_err());
        }
    }
}
