//! `cargo xtask ci`: runs every check of CI, cheapest first, and prints the duration of each step.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::skip::may_skip;
use crate::suite::{Summary, TestOptions};
use crate::{browser, deny, kubernetes, layers, libtorch, stress, suite, tidy, workspace};

/// First seeds of the two runs of the simulator, which take ninety seconds in total and run each seed twice. One run
/// has the same seeds at every commit, for comparison between commits; the other has new seeds at each commit.
const FIRST_SEEDS: [&str; 2] = ["0", "commit"];

/// The name, duration and outcome of a finished step.
type Step = (&'static str, Duration, Result<()>);

/// Runs every step, even after a failure, so that all failures are reported.
///
/// # Errors
/// At least one step failed.
pub fn run(root: &Path) -> Result<()> {
    let start = Instant::now();
    let mut tests = Summary::default();
    let mut not_checked = Vec::new();
    let mut steps: Vec<Step> = Vec::new();
    let mut step = |name, work: &mut dyn FnMut() -> Result<()>| {
        println!("\n── {name}");
        let start = Instant::now();
        let outcome = work();
        let took = start.elapsed();
        if let Err(error) = &outcome {
            println!("{name} FAILED: {error:#}");
        }
        println!("── {name}: {:.1} s", took.as_secs_f64());
        steps.push((name, took, outcome));
    };
    let cargo = |line: &str| workspace::run(workspace::cargo(root).args(line.split(' ')));

    step("fmt", &mut || cargo("fmt --all --check"));
    step("layers", &mut || layers::run(root));
    step("tidy", &mut || tidy::run(root));
    step("deny", &mut || deny::run(root).map(|reasons| not_checked = reasons));
    step("kubernetes", &mut || kubernetes::run(root));
    step("browser", &mut || browser::run().map(|reason| not_checked.extend(reason)));
    step("libtorch", &mut || {
        libtorch::ensure(root, libtorch::Check::Stamp, libtorch::Choice::Cpu)?;
        libtorch::check_graphs(root).map(|reasons| not_checked.extend(reasons))
    });
    // Checks the build with accelerators, so that it keeps compiling; the tests compile the build without them.
    let torch = "learner/torch,actor/torch,arena/torch,inference-server/torch,cli/torch";
    step("clippy", &mut || {
        cargo(&format!("clippy --workspace --all-targets --features {torch} -- -D warnings"))?;
        // The same features as in `cargo xtask train`. The test `tracing_off` adds no code to check; it selects the
        // features of development dependencies. Without them, all dependencies would be checked again with fewer
        // features.
        let programs = "--bin zerofleet --bin learner --test tracing_off";
        cargo(&format!(
            "clippy --workspace --exclude bench --exclude tests {programs} --no-default-features -- -D warnings"
        ))
    });
    step("aarch64", &mut || aarch64(root).map(|reason| not_checked.extend(reason)));
    step("docs", &mut || {
        let mut docs = workspace::cargo(root);
        docs.args(["doc", "--workspace", "--no-deps", "--lib"]);
        // Programs with another name than the library of the package; equal names would overwrite each other's pages.
        docs.args(["--bin", "zerofleet", "--bin", "zerofleet-bench", "--bin", "simulate"]);
        // The example selects the same features as above, for the same reason.
        docs.args(["--example", "versions"]);
        workspace::run(docs.env("RUSTDOCFLAGS", "-D warnings"))
    });
    step("sanitise", &mut || stress::sanitise(root));
    step("build", &mut || suite::build(root, &suite::ALL_TARGETS));
    step("tests, simulate", &mut || {
        let options = TestOptions::default();
        suite::run(root, &options, &FIRST_SEEDS).map(|summary| tests = summary)
    });

    println!("\n{:<24} {:>9}", "step", "seconds");
    for (name, took, outcome) in &steps {
        let mark = if outcome.is_ok() { "" } else { "  FAILED" };
        println!("{name:<24} {:>9.1}{mark}", took.as_secs_f64());
    }
    println!("{:<24} {:>9.1}", "all", start.elapsed().as_secs_f64());
    let failed: Vec<&str> = steps.iter().filter(|(.., outcome)| outcome.is_err()).map(|(name, ..)| *name).collect();
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    for reason in &not_checked {
        println!("NOT CHECKED: {reason}");
    }
    // Repeated at the end of the output, where it is easy to find.
    println!("\n{tests}");
    Ok(())
}

/// Checks that the kernels compile for NEON, and returns the reason if the standard library for that is not installed.
///
/// # Errors
/// They do not compile.
fn aarch64(root: &Path) -> Result<Option<String>> {
    const TARGET: &str = "aarch64-unknown-linux-gnu";
    // Without rustup or a network, the check below gives the reason.
    let _ = workspace::run(Command::new("rustup").current_dir(root).args(["target", "add", TARGET]));
    let sysroot = workspace::output(Command::new("rustc").current_dir(root).args(["--print", "sysroot"]))?;
    if !Path::new(sysroot.trim()).join("lib/rustlib").join(TARGET).exists() {
        let reason = format!("kernels for aarch64: `rustup target add {TARGET}` installs the standard library");
        ensure!(may_skip("aarch64"), "cannot check the {reason}");
        println!("NOT CHECKED: {reason}");
        return Ok(Some(reason));
    }
    // Digests in Rust alone, so that no C compiler for the target is needed.
    let packages = ["--package", "weights", "--package", "network-cpu", "--package", "training-cpu"];
    let mut check = workspace::cargo(root);
    check.args(["check", "--lib", "--target", TARGET, "--features", "blake3/pure"]).args(packages);
    workspace::run(&mut check).map(|()| None)
}
