//! A run goes on after a process has lost the accelerator.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use tests::Installation;

const DEADLINE: Duration = Duration::from_secs(180);
const PROGRAMS: [&str; 5] = ["zerofleet", "replay-server", "learner", "actor", "arena"];
/// Script in place of a learner with an accelerator. It is a file of the repository, because a file that a test has
/// just written cannot be executed while another test forks.
const LOSING_LEARNER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/losing_learner.sh");

#[test]
fn a_learner_whose_device_fails_continues_from_the_checkpoint_on_the_cpu_and_screen_and_summary_report_it() {
    let installation = Installation::new(&PROGRAMS).unwrap();
    let learner = installation.directory().join("learner");
    fs::rename(&learner, installation.directory().join("real-learner")).unwrap();
    symlink(LOSING_LEARNER, &learner).unwrap();
    let line = "train --run first --game tic_tac_toe --minutes 0.5 --set selfplay.games=4 --set replay.min_items=1 \
                --set learner.checkpoint_interval_seconds=1";
    let output = installation.run("zerofleet", &line.split_whitespace().collect::<Vec<_>>(), DEADLINE).unwrap();
    assert!(output.status.success(), "{}", output.text);
    for text in [
        "learner lost the accelerator and continues on the CPU, restarting in 0.5 s",
        "last log line: error: the device is lost",
        "learner was restarted",
        "learner on the CPU after a fault of the accelerator",
        "restarts of learner",
    ] {
        assert!(output.text.contains(text), "`{text}` is missing: {}", output.text);
    }
    let log = fs::read_to_string(installation.directory().join("runs/first/logs/learner.log")).unwrap();
    assert!(log.contains("continuing at training step"), "{log}");
    let lost = output.text.matches("lost the accelerator").count();
    assert_eq!(lost, 1, "it is lost once: {}", output.text);
}
