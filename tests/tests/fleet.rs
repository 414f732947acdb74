//! `zerofleet bench fleet` on real processes.

use std::time::Duration;

use tests::Installation;

const DEADLINE: Duration = Duration::from_secs(180);
/// Arguments for twelve actors simulated by one process.
const SMALL: &str = "--actors 12 --networks 1x8,1x16 --out out";

#[test]
fn weights_reach_many_actors_of_one_process() {
    let installation = Installation::new(&["zerofleet-bench"]).unwrap();
    let arguments: Vec<&str> = ["fleet"].into_iter().chain(SMALL.split_whitespace()).collect();
    let output = installation.run("zerofleet-bench", &arguments, DEADLINE).unwrap();
    assert!(output.status.success(), "{}", output.text);
    for expected in ["| publisher of weights | 12 |", "| 1x8 | 1 Gbit/s |", "| 1x16 | 25 Gbit/s |"] {
        assert!(output.text.contains(expected), "{expected}: {}", output.text);
    }
    let out = installation.directory().join("out");
    let json = std::fs::read_to_string(out.join("fleet.json")).unwrap();
    assert!(json.contains("\"memory of publisher before\""), "{json}");
}
