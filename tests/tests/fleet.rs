//! `zerofleet bench fleet` on real processes.

use std::time::Duration;

use tests::Installation;

const DEADLINE: Duration = Duration::from_secs(180);
/// Arguments for twelve actors simulated by one process.
const SMALL: &str = "--actors 12 --rates 5 --load-seconds 1 --networks 1x8,1x16 --folder runs --out out";

#[test]
fn many_actors_from_one_process_are_measured_and_leave_nothing_behind() {
    let programs = ["zerofleet-bench", "replay-server"];
    let installation = Installation::new(&programs).unwrap();
    let arguments: Vec<&str> = ["fleet"].into_iter().chain(SMALL.split_whitespace()).collect();
    let output = installation.run("zerofleet-bench", &arguments, DEADLINE).unwrap();
    assert!(output.status.success(), "{}", output.text);
    for expected in [
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
    assert!(json.contains("\"acknowledged/s\""), "{json}");
    let left = std::fs::read_dir(installation.directory().join("runs")).unwrap().count();
    assert_eq!(left, 0, "the runs are removed");
}
