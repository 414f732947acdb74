//! `cargo xtask device-check`: checks that zerofleet computes correctly and fast on the GPU of a machine without Rust,
//! network or registry, but with PyTorch.
//!
//! `--pack` builds every program on this machine and packs the programs with xtask into an archive; `run.sh` in the
//! archive runs the steps on the other machine. `--run` does the same on this machine, also without a GPU: steps that
//! need a GPU are skipped with a reason. Every step runs programs under a time limit and adds rows. A row has a value,
//! a bar that the value must meet, and a kind. A missed bar for correctness is a failure, a missed bar for speed a
//! warning. docs/device-check.md describes the steps. Start with [`run`].

mod baseline;
mod checks;
mod load;
mod pack;
mod row;
mod runs;
mod session;
mod steps;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use serde_json::json;

use crate::files;
use row::{Row, Verdict};
use session::Session;
use steps::{Plan, Step};

/// Options for packing or running the check of a machine with a GPU.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Options {
    /// Build release programs and pack an archive for a machine with a GPU.
    ///
    /// The archive also contains the program that runs the check.
    #[arg(long, conflicts_with = "run", required_unless_present = "run")]
    pub pack: bool,
    /// Run the check on this machine.
    #[arg(long)]
    pub run: bool,
    /// Run only these steps [default: all except long training runs].
    #[arg(long, value_delimiter = ',', value_name = "STEP,…")]
    pub steps: Vec<String>,
    /// Archive file to write: `.tar.gz`, `.tar.xz` or `.tar.zst`.
    #[arg(long, value_name = "FILE", default_value = "target/device-check.tar.gz", conflicts_with = "run")]
    pub output: PathBuf,
    /// Write `check.json` and `steps.log` to this directory.
    #[arg(long, value_name = "DIR", default_value = "out")]
    pub out: PathBuf,
    /// Run the programs from this unpacked archive [default: build the programs].
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Device to check; `auto` selects the first GPU that nvidia-smi lists.
    #[arg(long, value_enum, default_value_t)]
    pub device: Wanted,
    /// libtorch directory [default: Python's torch, else `.libtorch/lib`].
    #[arg(long, value_name = "DIR")]
    pub libtorch: Option<PathBuf>,
    /// Compare with the `check.json` of another build on the same machine, in the step `baseline`.
    #[arg(long, value_name = "FILE")]
    pub against: Option<PathBuf>,
    /// Total time limit in seconds [default: 480, or the sum of the named steps' limits].
    #[arg(long, value_name = "SECONDS")]
    pub budget_seconds: Option<u64>,
}

/// The device to check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Wanted {
    /// The first GPU that nvidia-smi lists, else the CPU.
    #[default]
    Auto,
    /// The CPU, with small networks and batches.
    Cpu,
    /// The first CUDA device.
    Cuda,
}

/// Packs or runs the check.
///
/// # Errors
/// A program cannot be built, there is no libtorch, a directory cannot be written, or a step failed.
pub fn run(root: &Path, options: &Options) -> Result<()> {
    let chosen = steps::chosen(&options.steps)?;
    if options.pack {
        let folder = pack::stage(root, &chosen)?;
        return pack::archive(&folder, &options.output);
    }
    let folder = options.folder.clone().map_or_else(|| pack::stage(root, &chosen), Ok)?;
    check(root, options, &folder, &chosen)
}

/// Runs the steps, continues after failures, and reports.
fn check(root: &Path, options: &Options, folder: &Path, chosen: &[&'static Step]) -> Result<()> {
    let manifest = pack::manifest(folder)?;
    files::create_folder(&options.out)?;
    let mut session = Session::new(root, options, folder)?;
    println!("device-check of {} on {}", manifest["commit"].as_str().unwrap_or("?"), session.describe());
    let mut plan = Plan::new(&options.steps, chosen, options.budget_seconds.map(Duration::from_secs));
    let begun = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut seconds = Vec::new();
    for step in chosen {
        let start = Instant::now();
        match plan.limit(step) {
            Some(limit) => session.run(step.name, limit, step.check),
            None => {
                session.rows.start(step.name);
                session.rows.skipped("all", "the time limit is reached");
            }
        }
        plan.spend(start.elapsed());
        seconds.push((step.name, start.elapsed().as_secs_f64()));
        println!("{:<14} {:<4} {:>6.1} s", step.name, session.verdict(step.name), start.elapsed().as_secs_f64());
    }
    let rows = session.rows.all();
    let table = row::table(rows, &seconds);
    println!("\n{}\n{table}", session.card());
    let verdicts: Vec<_> = seconds
        .iter()
        .map(|&(name, seconds)| json!({"step": name, "verdict": session.verdict(name).to_string(), "seconds": seconds}))
        .collect();
    let report = json!({
        "manifest": manifest,
        "begun_unix_seconds": begun,
        "machine": session.machine(),
        "steps": verdicts,
        "rows": rows,
    });
    let file = options.out.join("check.json");
    files::write(&file, serde_json::to_string_pretty(&report)? + "\n")?;
    summary(rows, &seconds, &file)
}

/// Prints the counts of verdicts.
///
/// # Errors
/// Some steps failed; the error names them.
fn summary(rows: &[Row], seconds: &[(&str, f64)], file: &Path) -> Result<()> {
    let count = |verdict| rows.iter().filter(|row| row.verdict() == verdict).count();
    println!(
        "{} passed, {} failed, {} warned, {} skipped in {:.0} s; all values in {}",
        count(Verdict::Pass),
        count(Verdict::Fail),
        count(Verdict::Warn),
        count(Verdict::Skip),
        seconds.iter().map(|(_, seconds)| seconds).sum::<f64>(),
        file.display()
    );
    let failed: Vec<&str> =
        seconds.iter().map(|(name, _)| *name).filter(|name| row::verdict_of(rows, name) == Verdict::Fail).collect();
    if !failed.is_empty() {
        bail!("failed steps: {}", failed.join(", "));
    }
    Ok(())
}
