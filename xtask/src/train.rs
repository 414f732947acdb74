//! `cargo xtask train`: builds the programs of a training run, with libtorch if the run needs it, then runs
//! `zerofleet train`.
//!
//! If a GPU can compute, every program that trains or evaluates links libtorch. Otherwise all programs are built
//! without libtorch first. `zerofleet`, which reads run file, preset, environment and options, then answers whether the
//! learner of this run needs libtorch. Only in that case, libtorch is fetched and the learner is built again.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::libtorch::{self, Check, Choice, Halves};
use crate::workspace::{self, PROGRAMS, Program};

/// Option that makes `zerofleet train` print an [`Answer`].
const QUESTION: &str = "--needs-libtorch";
/// Program that only a run with `--inference remote` starts.
const INFERENCE_SERVER: &str = "inference-server";
/// Packages of the programs that evaluate positions; with the feature `torch` they use libtorch.
pub(crate) const EVALUATING: [&str; 3] = ["actor", "arena", "inference-server"];

/// The answer that `zerofleet train --needs-libtorch` prints.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    need: Need,
    reason: String,
    /// True if actors and other programs that evaluate are built with libtorch too.
    evaluating: bool,
}

/// How much the learner of a run needs libtorch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Need {
    /// The learner cannot train without libtorch.
    Required,
    /// The learner trains faster with libtorch.
    Faster,
    /// The learner trains as fast without libtorch.
    None,
}

/// Builds the programs of a run and replaces this process by `zerofleet train`.
///
/// # Errors
/// Fetching, building or starting fails.
pub fn run(root: &Path, options: &[OsString]) -> Result<()> {
    let halves = libtorch::ensure_for_gpu(root, Check::Stamp)?;
    let programs = programs(options);
    let program = workspace::target(root)?.join("release/zerofleet");
    if !program.exists() {
        println!("{}", announcement(&programs));
    }
    build(root, &programs, &features(&programs, halves))?;
    if halves.is_none()
        && let Some(answer) = ask(&program, options)
        && fetch(root, &answer)?
    {
        let again: Vec<_> = programs.iter().copied().filter(|program| is_linked(program, &answer)).collect();
        let linked: Vec<String> = again.iter().map(|(package, _)| format!("{package}/torch")).collect();
        build(root, &again, &linked.join(","))?;
    }

    let mut train = Command::new(&program);
    train.arg("train").args(options);
    find_libraries(&mut train, root);
    // Replaces this process, so that Ctrl-C goes directly to the process that drains.
    Err(train.exec()).with_context(|| format!("start {}", program.display()))
}

/// Returns true for a program that links libtorch because a run needs it.
fn is_linked((package, _): &Program, answer: &Answer) -> bool {
    *package == "learner" || answer.evaluating && EVALUATING.contains(package)
}

/// Builds programs in release mode with these features.
fn build(root: &Path, programs: &[Program], features: &str) -> Result<()> {
    // Excludes the export to Parquet, which no run needs.
    workspace::build(root, programs, &["--release", "--no-default-features", "--features", features])
}

/// Asks `zerofleet train` whether the run with these options needs libtorch. Returns `None` for options that are
/// refused or only print something; `zerofleet train` then does so itself afterwards.
fn ask(program: &Path, options: &[OsString]) -> Option<Answer> {
    let text = workspace::output(Command::new(program).args(["train", QUESTION]).args(options)).ok()?;
    serde_json::from_str(&text).ok()
}

/// Fetches libtorch for a run that needs it, and prints the reason; returns true if the learner must be built with it.
///
/// # Errors
/// A run needs libtorch, and it cannot be fetched.
fn fetch(root: &Path, Answer { need, reason, .. }: &Answer) -> Result<bool> {
    println!("libtorch {}: {}: {reason}", libtorch::VERSION, in_words(*need));
    if *need == Need::None {
        return Ok(false);
    }
    match libtorch::ensure(root, Check::Stamp, Choice::Cpu) {
        Ok(_) => Ok(true),
        Err(error) if *need == Need::Faster => {
            println!("libtorch {}: continuing without it: {error:#}", libtorch::VERSION);
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

fn in_words(need: Need) -> &'static str {
    match need {
        Need::Required => "needed for this run",
        Need::Faster => "used because it is faster",
        Need::None => "not needed",
    }
}

/// Returns the programs that a run with these options needs.
fn programs(options: &[OsString]) -> Vec<Program> {
    let is_remote = options.iter().any(|option| option == "remote" || option == "--inference=remote");
    PROGRAMS.into_iter().filter(|(package, _)| is_remote || *package != INFERENCE_SERVER).collect()
}

/// Returns a line that announces a first build with the names of the programs. The line states no duration, because
/// machines with the same number of cores differ by more than a factor of two.
fn announcement(programs: &[Program]) -> String {
    let names: Vec<&str> = programs.iter().map(|(_, binary)| *binary).collect();
    format!(
        "first build: {} in release mode, with all dependencies; this takes minutes, later builds take seconds",
        names.join(", ")
    )
}

/// Returns the features of the programs for these halves of libtorch. If a GPU may work, every program that evaluates
/// can use it. Otherwise the CPU kernel evaluates faster, and only the learner links libtorch, if present.
fn features(programs: &[Program], halves: Option<Halves>) -> String {
    let uses = |package: &str| {
        halves.is_some_and(|halves| package == "learner" || halves.use_a_gpu() && EVALUATING.contains(&package))
    };
    let linked = programs.iter().filter(|(package, _)| uses(package)).map(|(package, _)| format!("{package}/torch"));
    linked.collect::<Vec<_>>().join(",")
}

/// Adds the directory of a chosen libtorch to the library search path. Binaries find `.libtorch` by themselves, but no
/// other directory.
pub(crate) fn find_libraries(command: &mut Command, root: &Path) {
    if let Some(folder) = workspace::chosen_libtorch(root) {
        find_libraries_in(command, &folder);
    }
}

/// Adds the libraries of the libtorch in `folder` to a program's library search path.
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

    fn of(options: &[&str]) -> Vec<Program> {
        programs(&options.iter().map(OsString::from).collect::<Vec<_>>())
    }

    fn named(options: &[&str]) -> Vec<&'static str> {
        of(options).into_iter().map(|(_, binary)| binary).collect()
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
        let cuda = "learner/torch,actor/torch,arena/torch,inference-server/torch";
        assert_eq!(features(&PROGRAMS, Some(Halves::CpuAndCuda)), cuda);
        assert_eq!(features(&of(&[]), Some(Halves::CpuAndCuda)), "learner/torch,actor/torch,arena/torch");
        let cpu = if cfg!(target_os = "macos") { cuda } else { "learner/torch" };
        assert_eq!(features(&PROGRAMS, Some(Halves::Cpu)), cpu);
        assert_eq!(features(&[("learner", "learner")], Some(Halves::Cpu)), "learner/torch");
    }

    #[test]
    fn without_libtorch_no_program_is_linked_with_it() {
        assert_eq!(features(&PROGRAMS, None), "");
    }

    #[test]
    fn options_that_zerofleet_refuses_leave_the_answer_open() {
        assert_eq!(ask(Path::new("/nowhere/zerofleet"), &[]), None);
        assert_eq!(ask(Path::new("false"), &[]), None);
        // Prints the arguments, which are no answer.
        assert_eq!(ask(Path::new("echo"), &["--help".into()]), None);
    }

    #[test]
    fn a_run_that_needs_no_libtorch_has_none_fetched() {
        let folder = tempfile::tempdir().unwrap();
        let answer: Answer =
            serde_json::from_str(r#"{"need":"none","reason":"kernels train","evaluating":false}"#).unwrap();
        assert!(!fetch(folder.path(), &answer).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn libtorch_is_linked_with_the_programs_that_the_answer_names() {
        let linked = |evaluating| {
            let answer = Answer { need: Need::Required, reason: String::new(), evaluating };
            of(&[]).into_iter().filter(|program| is_linked(program, &answer)).map(|(package, _)| package).collect()
        };
        let (learner, all): (Vec<_>, Vec<_>) = (linked(false), linked(true));
        assert_eq!(learner, ["learner"]);
        assert_eq!(all, ["learner", "actor", "arena"]);
    }

    #[test]
    fn a_first_build_announces_its_programs() {
        let text = announcement(&of(&[]));
        assert!(text.starts_with("first build: zerofleet, replay-server, learner, actor, arena in release"), "{text}");
    }
}
