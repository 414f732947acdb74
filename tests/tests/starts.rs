//! Refused starts of `zerofleet train`, and runs without checkpoints.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use tests::{Installation, TrainingRun};
use version_store::VersionStore;

const DEADLINE: Duration = Duration::from_secs(120);
const STEPS: &str = "zerofleet_learner_steps_total";
const VERSION: &str = "zerofleet_learner_weights_version";
const PROGRAMS: [&str; 5] = ["zerofleet", "replay-server", "learner", "actor", "arena"];
/// Script in place of a learner. It is a file of the repository, because a file that a test has just written cannot be
/// executed while another test forks.
const REFUSING_LEARNER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/refusing_learner.sh");

/// Installs the refusing script, or the built learner, as the learner.
fn install_learner(installation: &Installation, learner: &Path) {
    let path = installation.directory().join("learner");
    // There is none at first.
    let _ = fs::remove_file(&path);
    symlink(learner, path).unwrap();
}

#[test]
fn a_run_that_could_never_train_is_refused_before_it_has_a_folder() {
    let installation = Installation::new(&PROGRAMS).unwrap();
    let command = ["train", "--run", "first", "--game", "hex-3", "--set", "replay.actions_max=8"];
    let output = installation.run("zerofleet", &command, DEADLINE).unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", output.text);
    assert!(output.text.contains("replay.actions_max: is 8, but hex-3 has 10 actions"), "{}", output.text);
    assert!(!installation.directory().join("runs").exists());
}

#[test]
fn a_process_that_refuses_to_start_leaves_the_name_of_the_run_free_and_an_earlier_run_its_settings() {
    let installation = Installation::new(&PROGRAMS).unwrap();
    let real = installation.directory().join("real-learner");
    fs::rename(installation.directory().join("learner"), &real).unwrap();
    let train = |options: &str| {
        let line = format!("train --run first --set selfplay.games=4 --set replay.min_items=1 {options}");
        installation.run("zerofleet", &line.split_whitespace().collect::<Vec<_>>(), DEADLINE).unwrap()
    };
    install_learner(&installation, Path::new(REFUSING_LEARNER));
    let output = train("--game hex-3");
    let expected = "learner refuses to start: error: learner.device: no such device";
    assert!(!output.status.success() && output.errors()[0].contains(expected), "{}", output.text);
    assert!(!installation.directory().join("runs").exists());

    install_learner(&installation, &real);
    let output = train("--game tic_tac_toe --minutes 0.05");
    assert!(output.status.success(), "{}", output.text);
    let config = installation.directory().join("runs/first/config.toml");
    let before = fs::read_to_string(&config).unwrap();
    install_learner(&installation, Path::new(REFUSING_LEARNER));
    let output = train("--minutes 5 --set learner.batch_size=33");
    assert!(!output.status.success() && output.errors()[0].contains(expected), "{}", output.text);
    assert_eq!(fs::read_to_string(&config).unwrap(), before);
}

#[test]
fn a_trained_run_without_its_checkpoints_is_refused_and_keeps_its_weights_when_it_begins_anew() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = TrainingRun::new(folder.path(), folder.path()).unwrap();
    let is_trained = |run: &TrainingRun, version: f64| {
        run.metric("learner", STEPS) > Some(0.0) && run.metric("learner", VERSION) > Some(version)
    };
    run.start().unwrap();
    run.until("a second version is trained", DEADLINE, |run| is_trained(run, 1.0)).unwrap();
    run.stop().unwrap();
    let published = VersionStore::of_learner(run.directory());
    let trained = *published.versions().unwrap().last().unwrap();
    let checkpoints = run.directory().join("checkpoints");
    fs::remove_dir_all(&checkpoints).unwrap();

    run.start().unwrap();
    let output = run.ended(DEADLINE).unwrap();
    assert!(!output.status.success(), "{}", output.text);
    let expected = format!("{} has no checkpoint", checkpoints.display());
    assert!(output.text.contains(&expected) && output.text.contains("--from 0"), "{}", output.text);
    assert_eq!(published.versions().unwrap().last(), Some(&trained));

    run.argue(&["--from", "0"]);
    run.start().unwrap();
    // More versions than a run keeps.
    let enough = trained.0 as f64 + 5.0;
    run.until("versions of the new network are published", DEADLINE, |run| is_trained(run, enough)).unwrap();
    run.stop().unwrap();
    assert!(published.read(trained).is_ok(), "{:?}", published.versions());
}

#[test]
fn a_terminal_that_is_closed_ends_a_run_as_ctrl_c_does_unless_nohup_started_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = TrainingRun::new(folder.path(), folder.path()).unwrap();
    let is_trained = |run: &TrainingRun| run.metric("learner", STEPS) > Some(0.0);
    run.start().unwrap();
    run.until("a step is taken", DEADLINE, is_trained).unwrap();
    run.hang_up();
    let output = run.ended(DEADLINE).unwrap();
    assert!(output.status.success() && output.text.contains("continue with: zerofleet train"), "{}", output.text);
    for name in ["summary.md", "summary.json", "picture.svg"] {
        assert!(run.directory().join(name).exists(), "{name}");
    }

    run.launch_with("nohup");
    run.start().unwrap();
    run.until("the run has resumed", DEADLINE, is_trained).unwrap();
    let steps = run.metric("learner", STEPS);
    run.hang_up();
    run.until("the run goes on", DEADLINE, |run| run.metric("learner", STEPS) > steps).unwrap();
    run.stop().unwrap();
}
