//! One network learns two boards of a game in one run of `zerofleet train`.

use std::fs;
use std::time::Duration;

use tests::TrainingRun;

const DEADLINE: Duration = Duration::from_secs(90);
const VERSION: &str = "zerofleet_learner_weights_version";
const TRAJECTORIES: &str = "zerofleet_replay_trajectories";

/// Returns the training steps of this session on each board.
fn steps(run: &TrainingRun) -> [Option<f64>; 2] {
    let of = |board: &str| run.metric("learner", &format!("zerofleet_learner_board_steps_total{{board=\"{board}\"}}"));
    [of("hex-3"), of("hex-4")]
}

fn trains_on_both(run: &mut TrainingRun, version: f64) {
    run.until("a newer version is trained on both boards", DEADLINE, |run| {
        steps(run).iter().all(|steps| *steps > Some(1.0)) && run.metric("learner", VERSION) > Some(version)
    })
    .unwrap();
    // Boards of equal weights take turns, and steps continue between two readings.
    let [before, second] = steps(run).map(Option::unwrap_or_default);
    let [after, _] = steps(run).map(Option::unwrap_or_default);
    assert!(before - 1.0 <= second && second <= after + 1.0, "{second} steps beside {before} to {after}");
}

#[test]
fn a_run_on_two_boards_takes_as_many_steps_on_each_and_goes_on_with_both() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["--game", "hex-3", "--boards", "hex-4", "--actors", "2"];
    let mut run = TrainingRun::of(folder.path(), folder.path(), &options).unwrap();
    run.set("network.heads=pooled");
    run.start().unwrap();
    trains_on_both(&mut run, 1.0);
    let held = run.metric("replay-server-hex-4", TRAJECTORIES).unwrap();
    let output = run.stop().unwrap();
    assert!(output.text.contains("hex-3 and hex-4") && !output.text.contains("was killed"), "{}", output.text);
    assert!(run.directory().join("replay-hex-4/replay").is_dir());

    run.start().unwrap();
    trains_on_both(&mut run, 2.0);
    assert!(run.metric("replay-server-hex-4", TRAJECTORIES) >= Some(held), "held before: {held}");
    let log = fs::read_to_string(run.directory().join("logs/learner.log")).unwrap();
    assert!(log.contains("continuing at training step"), "{log}");
    run.stop().unwrap();
}
