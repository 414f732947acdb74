//! `zerofleet bench fleet` on real processes.

use std::time::Duration;

use tests::Installation;

const DEADLINE: Duration = Duration::from_secs(180);
/// Arguments for fleets small enough for two busy cores, and for twelve actors simulated by one process.
const SMALL: &str = "--game tic_tac_toe --scale 1,2 --delay-us 2000 --games 8 --simulations 4 --seconds 1 --warm-up-seconds 0 \
                     --actors 12 --rates 5 --load-seconds 1 --networks 1x8,1x16 --folder runs --out out \
                     --set replay.min_items=50 --set learner.batch_size=32";

#[test]
fn real_fleets_and_many_actors_from_one_process_are_measured_and_leave_nothing_behind() {
    let programs = ["zerofleet-bench", "replay-server", "learner", "actor"];
    let installation = Installation::new(&programs).unwrap();
    let arguments: Vec<&str> = ["fleet"].into_iter().chain(SMALL.split_whitespace()).collect();
    let output = installation.run("zerofleet-bench", &arguments, DEADLINE).unwrap();
    assert!(output.status.success(), "{}", output.text);
    for expected in [
        "\n| 1 | ",
        "\n| 2 | ",
        "| replay-server | 12 |",
        "| publisher of weights | 12 |",
        "| 5 | 60.0 |",
        "| 1x8 | 1 Gbit/s |",
        "| 1x16 | 25 Gbit/s |",
    ] {
        assert!(output.text.contains(expected), "{expected}: {}", output.text);
    }
    let out = installation.directory().join("out");
    let json = std::fs::read_to_string(out.join("fleet.json")).unwrap();
    assert!(json.contains("\"share of linear\""), "{json}");
    assert!(std::fs::read_to_string(out.join("fleet.svg")).unwrap().contains("inserts/s"));
    let left = std::fs::read_dir(installation.directory().join("runs")).unwrap().count();
    assert_eq!(left, 0, "the runs are removed");
}
