//! `zerofleet bench phases` on real processes.

use std::time::Duration;

use tests::Installation;

const DEADLINE: Duration = Duration::from_secs(180);
/// Arguments for runs small enough for two busy cores.
const SMALL: &str = "--game tic_tac_toe --seconds 2 --warm-up-seconds 0 --actors 1,2 --runs runs --out out \
                     --epochs 2 --price-per-hour 1 --set network.channels=16 --set network.blocks=1 \
                     --set actor.threads=1 --set replay.min_items=200 --set learner.device=cpu";

#[test]
fn runs_of_seconds_report_phases_bottleneck_cost_and_inserts_by_actors_and_are_removed() {
    let programs = ["zerofleet-bench", "replay-server", "learner", "actor", "arena"];
    let installation = Installation::new(&programs).unwrap();
    let arguments: Vec<&str> = ["phases"].into_iter().chain(SMALL.split_whitespace()).collect();
    let output = installation.run("zerofleet-bench", &arguments, DEADLINE).unwrap();
    assert!(output.status.success(), "{}", output.text);
    for expected in [
        "| self-play | evaluation |",
        "| self-play | observation |",
        "| training | backward |",
        "2 epochs of ",
        "\n## inserts by actors\n",
        "at 1 per hour",
        "none: the learner trains on the CPU",
    ] {
        assert!(output.text.contains(expected), "{expected}: {}", output.text);
    }
    let out = installation.directory().join("out");
    let json = std::fs::read_to_string(out.join("phases.json")).unwrap();
    for expected in ["share of the threads' time", "is the bottleneck", "positions trained on/s", "share of linear"] {
        assert!(json.contains(expected), "{expected}: {json}");
    }
    assert!(std::fs::read_to_string(out.join("phases.svg")).unwrap().contains("self-play"));
    let left = std::fs::read_dir(installation.directory().join("runs")).unwrap().count();
    assert_eq!(left, 0, "the runs are removed");
}
