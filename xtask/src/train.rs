//! `cargo xtask train`: fetches libtorch, builds the programs of a training run, then runs `zerofleet train`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::libtorch::{self, Halves};
use crate::workspace;

/// The programs that training runs, each with its package; `zerofleet` finds the others in its own folder.
const PROGRAMS: [(&str, &str); 5] = [
    ("cli", "zerofleet"),
    ("replay-server", "replay-server"),
    ("learner", "learner"),
    ("actor", "actor"),
    ("arena", "arena"),
];
/// The program that a run with `--inference remote` needs as well.
const INFERENCE_SERVER: (&str, &str) = ("inference-server", "inference-server");
/// The packages of the programs that evaluate positions, with libtorch if they have the feature `torch`.
pub(crate) const EVALUATING: [&str; 3] = ["actor", "arena", "inference-server"];
/// The approximate duration of a first build, in minutes of one core.
const FIRST_BUILD_CORE_MINUTES: usize = 11;

/// Fetches libtorch, builds the programs of a run and replaces this process by `zerofleet train`.
///
/// # Errors
/// If fetching, building or starting fails.
pub fn run(root: &Path, options: &[OsString]) -> Result<()> {
    let halves = libtorch::ensure(root, libtorch::Check::Stamp, libtorch::Choice::Auto)?;
    let programs = programs(options);
    let program = workspace::metadata(root)?.target_directory.join("release").join("zerofleet");
    if !program.exists() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        println!("{}", announcement(&programs, cores));
    }
    let mut build = workspace::cargo(root);
    build.args(["build", "--release"]);
    for (package, binary) in &programs {
        build.args(["--package", package, "--bin", binary]);
    }
    // The export to Parquet, which no run needs, is left out.
    build.args(["--no-default-features", "--features", &features(&programs, halves)]);
    workspace::run(&mut build)?;

    let mut train = Command::new(&program);
    train.arg("train").args(options);
    find_libraries(&mut train, root);
    // Replaces this process, so that Ctrl-C goes directly to the process that drains.
    Err(train.exec()).with_context(|| format!("start {program}"))
}

/// The programs that a run with these options needs.
fn programs(options: &[OsString]) -> Vec<(&'static str, &'static str)> {
    let is_remote = options.iter().any(|option| option == "remote" || option == "--inference=remote");
    PROGRAMS.into_iter().chain(is_remote.then_some(INFERENCE_SERVER)).collect()
}

/// Returns a line that announces a first build: its programs and its approximate duration.
fn announcement(programs: &[(&str, &str)], cores: usize) -> String {
    let names: Vec<&str> = programs.iter().map(|(_, binary)| *binary).collect();
    // Some crates must wait for others, whatever the number of cores.
    let minutes = FIRST_BUILD_CORE_MINUTES.div_ceil(cores).max(2);
    format!(
        "first build: {} in release mode, with all their dependencies; about {minutes} minutes on {cores} core(s), later \
         builds take seconds",
        names.join(", ")
    )
}

/// Returns the features of the programs. Where an accelerator may work, an Apple GPU or the CUDA half of libtorch,
/// every program that evaluates can use it; everywhere else the CPU kernel is the faster evaluator, and only the
/// learner is linked with libtorch.
fn features(programs: &[(&str, &str)], halves: Halves) -> String {
    let mut features = "learner/torch".to_owned();
    if cfg!(target_os = "macos") || halves == Halves::CpuAndCuda {
        for (package, _) in programs.iter().filter(|(package, _)| EVALUATING.contains(package)) {
            features.push_str(&format!(",{package}/torch"));
        }
    }
    features
}

/// Adds the folder of a chosen libtorch to the library search path. Binaries find `.libtorch` by themselves, but no
/// other folder.
pub(crate) fn find_libraries(command: &mut Command, root: &Path) {
    if let Some(folder) = workspace::chosen_libtorch(root) {
        find_libraries_in(command, &folder);
    }
}

/// Makes a program find its libraries in `folder`, a libtorch.
pub(crate) fn find_libraries_in(command: &mut Command, folder: &Path) {
    let variable = if cfg!(target_os = "macos") { "DYLD_LIBRARY_PATH" } else { "LD_LIBRARY_PATH" };
    let mut path = folder.join("lib").into_os_string();
    if let Some(more) = std::env::var_os(variable).filter(|more| !more.is_empty()) {
        path.push(":");
        path.push(more);
    }
    command.env(variable, path);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(options: &[&str]) -> Vec<&'static str> {
        let options: Vec<OsString> = options.iter().map(OsString::from).collect();
        programs(&options).into_iter().map(|(_, binary)| binary).collect()
    }

    #[test]
    fn only_programs_that_the_run_starts_are_built() {
        assert_eq!(named(&["--minutes", "5"]), ["zerofleet", "replay-server", "learner", "actor", "arena"]);
        for options in [&["--inference", "remote"][..], &["--inference=remote"]] {
            assert!(named(options).contains(&"inference-server"), "{options:?}");
        }
    }

    #[test]
    fn every_program_that_evaluates_is_linked_with_libtorch_where_the_cuda_half_is_used() {
        let all = [PROGRAMS.as_slice(), &[INFERENCE_SERVER]].concat();
        let cuda = "learner/torch,actor/torch,arena/torch,inference-server/torch";
        assert_eq!(features(&all, Halves::CpuAndCuda), cuda);
        assert_eq!(features(&PROGRAMS, Halves::CpuAndCuda), "learner/torch,actor/torch,arena/torch");
        let none = if cfg!(target_os = "macos") { cuda } else { "learner/torch" };
        assert_eq!(features(&all, Halves::Cpu), none);
    }

    #[test]
    fn a_first_build_announces_its_programs_and_its_duration() {
        let text = announcement(&PROGRAMS, 2);
        assert!(text.starts_with("first build: zerofleet, replay-server, learner, actor, arena in release"), "{text}");
        assert!(text.contains("about 6 minutes on 2 core(s)"), "{text}");
        assert!(announcement(&PROGRAMS, 64).contains("about 2 minutes"));
    }
}
