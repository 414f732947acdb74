//! `zerofleet train` of runs that learn nothing.

use std::fs;
use std::time::Duration;

use serde_json::Value;
use tests::Installation;

/// A run of half a minute, with start and drain on a busy machine.
const DEADLINE: Duration = Duration::from_secs(180);

/// The plan of a run may refuse limits that are too small for the game, so only this server gets one.
#[test]
fn a_run_whose_games_are_all_refused_ends_with_the_reason_on_the_screen_in_the_summary_and_in_its_status() {
    let installation = Installation::new(&["zerofleet", "replay-server", "learner", "actor", "arena"]).unwrap();
    installation.add_arguments("replay-server", "--set replay.actions_max=2").unwrap();
    let train = ["train", "--run", "first", "--game", "tic_tac_toe", "--minutes", "0.5"];
    let sets = [
        "network.channels=16",
        "network.blocks=1",
        "selfplay.games=4",
        "selfplay.full_simulations=2",
        "selfplay.full_simulations_max=2",
        "learner.simulated_step_us=200000",
        "arena.cpu_share=0.01",
    ];
    let arguments: Vec<&str> = train.into_iter().chain(sets.iter().flat_map(|set| ["--set", set])).collect();
    let output = installation.run("zerofleet", &arguments, DEADLINE).unwrap();

    assert!(!output.status.success(), "{}", output.text);
    let errors = output.errors();
    assert_eq!(errors.len(), 1, "{}", output.text);
    let fault = errors[0].strip_prefix("error: the run learns nothing: ").unwrap_or_else(|| panic!("{}", output.text));
    assert!(fault.starts_with("the replay server refuses every game (steps["), "{fault}");
    assert!(fault.ends_with("); raise replay.actions_max"), "{fault}");
    let line = output.text.lines().rfind(|line| line.contains("| replay 0 items"));
    assert!(line.is_some_and(|line| line.contains(" refused |")), "{}", output.text);
    let run = installation.directory().join("runs/first");
    let summary = fs::read_to_string(run.join("summary.md")).unwrap();
    assert!(summary.contains(&format!("| fault | {fault} |")), "{summary}");
    let summary: Value = serde_json::from_slice(&fs::read(run.join("summary.json")).unwrap()).unwrap();
    assert_eq!(summary["last"]["health"]["fault"], fault);
}
