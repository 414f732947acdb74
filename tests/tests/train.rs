//! `zerofleet train` as a user runs it: started, stopped with Ctrl-C and started again.

use std::fs;
use std::time::Duration;

use tests::TrainingRun;
use version_store::VersionStore;
use version_store::checkpoint::Checkpoints;

const DEADLINE: Duration = Duration::from_secs(90);
const STEPS: &str = "zerofleet_learner_steps_total";
const VERSION: &str = "zerofleet_learner_weights_version";
const TRAJECTORIES: &str = "zerofleet_replay_trajectories";

/// Files in the directory of a run between two sessions.
struct RunState {
    step: u64,
    version: u64,
    seconds: f64,
}

impl RunState {
    fn by(run: &TrainingRun) -> Self {
        let folder = run.directory();
        let found = Checkpoints::new(folder.join("checkpoints"), usize::MAX).newest().unwrap().unwrap();
        let (weights, _) = VersionStore::of_learner(folder).newest().unwrap().unwrap();
        let progress = fs::read(folder.join("progress.json")).unwrap();
        let progress: serde_json::Value = serde_json::from_slice(&progress).unwrap();
        Self {
            step: found.checkpoint.progress.training_step,
            version: weights.version.0,
            seconds: progress["elapsed_seconds"].as_f64().unwrap(),
        }
    }
}

#[test]
fn ctrl_c_drains_a_run_and_started_again_it_goes_on_with_its_step_version_replay_and_time() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = TrainingRun::new(folder.path(), folder.path()).unwrap();
    run.start().unwrap();
    run.until("a second version is trained", DEADLINE, |run| {
        run.metric("learner", STEPS) > Some(0.0) && run.metric("learner", VERSION) > Some(1.0)
    })
    .unwrap();
    let held = run.metric("replay-server", TRAJECTORIES).unwrap();
    let output = run.stop().unwrap();
    assert!(output.text.contains("continue with: zerofleet train --run first"), "{}", output.text);
    assert!(!output.text.contains("was killed"), "{}", output.text);
    assert_eq!(run.answering(), [""; 0]);
    for name in ["summary.md", "summary.json", "picture.svg", "report.html", "metrics.jsonl"] {
        assert!(fs::metadata(run.directory().join(name)).unwrap().len() > 0, "{name}");
    }
    let before = RunState::by(&run);

    run.start().unwrap();
    let is_newer = |run: &TrainingRun| run.metric("learner", VERSION) > Some(before.version as f64);
    run.until("a newer version is trained", DEADLINE, is_newer).unwrap();
    assert!(run.metric("learner", STEPS) > Some(before.step as f64));
    assert!(run.metric("replay-server", TRAJECTORIES) >= Some(held), "held before: {held}");
    let log = fs::read_to_string(run.directory().join("logs/learner.log")).unwrap();
    assert!(log.contains(&format!("continuing at training step {},", before.step)), "{log}");
    run.stop().unwrap();
    let after = RunState::by(&run);
    assert!(after.step > before.step && after.version > before.version && after.seconds > before.seconds);
}
