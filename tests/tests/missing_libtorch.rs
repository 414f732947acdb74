//! A missing or damaged libtorch causes one error that names it and the remedy.
//!
//! The message comes from the Linux loader; other systems do not run a program that was modified after the build.
#![cfg(target_os = "linux")]

use std::time::Duration;

use tests::{Installation, Output};

const DEADLINE: Duration = Duration::from_secs(60);
const REMEDY: &str = "libtorch is missing or damaged; run cargo xtask libtorch";
/// A command of a program that links libtorch.
const BENCH: &[&str] = &["bench", "selfplay"];

/// Checks for exactly one error line, which contains all of `words`.
fn check_refused(output: &Output, words: &[&str]) {
    assert!(!output.status.success(), "{}", output.text);
    let errors = output.errors();
    assert_eq!(errors.len(), 1, "one error: {}", output.text);
    for word in words {
        assert!(errors[0].contains(word), "`{}` does not contain `{word}`", errors[0]);
    }
}

#[test]
fn a_command_that_needs_libtorch_reports_that_it_is_missing_and_how_to_fetch_it() {
    let installation = Installation::new(&["zerofleet", "zerofleet-bench"]).unwrap();
    installation.lose_libtorch("zerofleet-bench").unwrap();
    let output = installation.run("zerofleet", BENCH, DEADLINE).unwrap();
    check_refused(&output, &[REMEDY, Installation::LOST]);
    assert_eq!(output.text.lines().count(), 1, "nothing beside it: {}", output.text);
}

#[test]
fn a_damaged_libtorch_is_reported_like_a_missing_one() {
    let installation = Installation::new(&["zerofleet", "zerofleet-bench"]).unwrap();
    installation.lose_libtorch("zerofleet-bench").unwrap();
    std::fs::write(installation.directory().join(Installation::LOST), b"not a library").unwrap();
    let output = installation.run("zerofleet", BENCH, DEADLINE).unwrap();
    check_refused(&output, &[REMEDY, "file too short"]);
}

#[test]
fn training_ends_at_once_and_reports_that_libtorch_is_missing_and_how_to_fetch_it() {
    let installation = Installation::new(&["zerofleet", "replay-server", "learner", "actor", "arena"]).unwrap();
    // The learner is the only process that always requires libtorch.
    installation.lose_libtorch("learner").unwrap();
    let output = installation.run("zerofleet", &["train", "--run", "first"], DEADLINE).unwrap();
    check_refused(&output, &["cannot start", REMEDY, Installation::LOST]);
    assert!(!installation.directory().join("runs").exists(), "a refused start leaves the name of the run free");
}

#[test]
fn a_program_that_was_not_built_is_named_with_the_command_that_builds_it() {
    let installation = Installation::new(&["zerofleet"]).unwrap();
    let output = installation.run("zerofleet", BENCH, DEADLINE).unwrap();
    check_refused(&output, &["zerofleet-bench is missing", "cargo build --release --package bench"]);
}

#[test]
fn play_and_eval_need_no_libtorch_and_get_as_far_as_looking_for_the_run() {
    let installation = Installation::new(&["zerofleet"]).unwrap();
    for command in ["play", "eval"] {
        let output = installation.run("zerofleet", &[command, "--run", "first"], DEADLINE).unwrap();
        check_refused(&output, &["no run first in runs"]);
    }
}
