//! Runs survive an accelerator that fails in the middle. The CPU stands in for the accelerator of one process, by the
//! features `doubles` of `network-torch` and `actor`.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tests::{TrainingRun, program};

const DEADLINE: Duration = Duration::from_secs(90);
const STEPS: &str = "zerofleet_learner_steps_total";
const MICRO_BATCHES: &str = "zerofleet_learner_micro_batches";
const GAMES: &str = "zerofleet_actor_games_total";
const TOO_LARGE: &str = "zerofleet_actor_device_too_large_total";
/// 1 in a process that was started again without the device.
const LOST: &str = "zerofleet_device_lost";
const RESTARTED: &str = "was restarted";
/// Settings with which the learner trains, or the actor evaluates, on the device.
const OF_LEARNER: [&str; 3] =
    ["learner.device=auto", "learner.kernel=libtorch", "learner.checkpoint_interval_seconds=0.1"];
const OF_ACTOR: [&str; 3] = ["actor.device=auto", "actor.accelerator_games=64", "actor.cache_positions=0"];

/// Starts a run with a device that has this fault.
fn started(folder: &Path, fault: &str, settings: &[&str]) -> TrainingRun {
    let mut run = TrainingRun::new(folder, folder).unwrap();
    run.set_variable("ZEROFLEET_STAND_IN_FAULT", fault);
    settings.iter().for_each(|setting| run.set(setting));
    run.start().unwrap();
    run
}

/// What a run reports: the log of a process, `zerofleet top`, the summary and the screen.
struct Reports {
    log: String,
    top: String,
    summary: String,
    screen: String,
}

impl Reports {
    /// Reads `zerofleet top` of a run, stops the run, and reads everything else.
    fn of(mut run: TrainingRun, process: &str) -> Self {
        let mut command = Command::new(program("zerofleet").unwrap());
        command.args(["top", "--once", "--json", "--run", "first", "--runs"]).arg(run.directory().parent().unwrap());
        let top = command.output().unwrap();
        assert!(top.status.success(), "{top:?}");
        let screen = run.stop().unwrap().text;
        let read = |file: &str| fs::read_to_string(run.directory().join(file)).unwrap();
        let (log, summary) = (read(&format!("logs/{process}.log")), read("summary.md"));
        Self { log, top: String::from_utf8(top.stdout).unwrap(), summary, screen }
    }

    /// Asserts that the process was restarted once, on the CPU, after a fault of the device.
    fn assert_restarted_on_the_cpu(&self, role: &str, process: &str) {
        for (report, text) in [
            (&self.log, "the device is lost".to_owned()),
            (&self.log, "CUDA error: an illegal memory access was encountered".to_owned()),
            (&self.top, format!("\"lost_devices\":[\"{role}\"]")),
            (&self.summary, format!("{role} on the CPU after a fault of the accelerator")),
            (&self.summary, format!("| restarts of {process} | 1 |")),
            (&self.screen, format!("{process} {RESTARTED}")),
        ] {
            assert!(report.contains(&text), "`{text}` is missing: {report}");
        }
        let lost = self.screen.matches("lost the accelerator and continues on the CPU").count();
        assert_eq!(lost, 1, "{}", self.screen);
    }

    /// Asserts that the first process of the learner trained to the end, and without graphs for this reason.
    fn assert_eager(&self, reason: &str) {
        for (report, text) in [
            (&self.log, format!("training without CUDA graphs: {reason}")),
            (&self.top, format!("\"without_graphs\":[\"learner: {reason}")),
            (&self.summary, format!("| no graphs | learner: {reason}")),
        ] {
            assert!(report.contains(&text), "`{text}` is missing: {report}");
        }
        assert!(!self.screen.contains(RESTARTED), "{}", self.screen);
    }
}

#[test]
fn a_learner_whose_device_fails_asynchronously_is_restarted_once_and_trains_on_the_cpu() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = started(folder.path(), "lost:60", &OF_LEARNER);
    run.until("the restarted learner trains", DEADLINE, |run| {
        run.metric("learner", LOST) == Some(1.0) && run.metric("learner", STEPS) > Some(70.0)
    })
    .unwrap();
    let reports = Reports::of(run, "learner");
    reports.assert_restarted_on_the_cpu("learner", "learner");
    for text in ["submitting training steps as CUDA graphs", "continuing at training step"] {
        assert!(reports.log.contains(text), "`{text}` is missing: {}", reports.log);
    }
}

#[test]
fn a_learner_whose_device_runs_out_of_memory_trains_on_in_micro_batches_without_graphs() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = started(folder.path(), "memory:60:24", &OF_LEARNER);
    run.until("it trains in micro-batches", DEADLINE, |run| {
        run.metric("learner", MICRO_BATCHES) > Some(1.0) && run.metric("learner", STEPS) > Some(70.0)
    })
    .unwrap();
    let reports = Reports::of(run, "learner");
    for text in ["submitting training steps as CUDA graphs", "not enough device memory for a batch of 64"] {
        assert!(reports.log.contains(text), "`{text}` is missing: {}", reports.log);
    }
    reports.assert_eager("libtorch: no memory for ");
}

#[test]
fn a_learner_whose_device_refuses_captures_trains_without_graphs() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = started(folder.path(), "capture", &OF_LEARNER);
    let reason = "libtorch: CUDA error: operation not permitted when stream is capturing";
    let refusal = format!("zerofleet_device_graphs{{what=\"training\",reason=\"{reason}\"}}");
    run.until("it trains after the refusal", DEADLINE, |run| {
        run.metric("learner", &refusal) == Some(1.0) && run.metric("learner", STEPS) > Some(20.0)
    })
    .unwrap();
    let reports = Reports::of(run, "learner");
    assert!(!reports.log.contains("submitting training steps as CUDA graphs"), "{}", reports.log);
    reports.assert_eager(reason);
}

#[test]
fn an_actor_whose_device_fails_asynchronously_is_restarted_once_and_plays_on_the_cpu() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = started(folder.path(), "lost:3", &OF_ACTOR);
    run.until("the restarted actor plays", DEADLINE, |run| {
        run.metric("actor-0", LOST) == Some(1.0) && run.metric("actor-0", GAMES) > Some(0.0)
    })
    .unwrap();
    Reports::of(run, "actor-0").assert_restarted_on_the_cpu("actor", "actor-0");
}

#[test]
fn an_actor_whose_device_runs_out_of_memory_plays_on_in_smaller_batches() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = started(folder.path(), "memory:2:16", &OF_ACTOR);
    let mut games = None;
    run.until("it plays in smaller batches", DEADLINE, |run| {
        let played = run.metric("actor-0", GAMES).filter(|_| run.metric("actor-0", TOO_LARGE) > Some(0.0));
        games = games.or(played);
        played > games
    })
    .unwrap();
    let reports = Reports::of(run, "actor-0");
    assert!(reports.log.contains("not enough memory on stand-in for batches of"), "{}", reports.log);
    assert!(!reports.screen.contains(RESTARTED), "{}", reports.screen);
}
