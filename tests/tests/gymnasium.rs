//! Training with the real processes on an environment in Python.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tests::{Cluster, Python, Role, SEED, program, wait_until};

const START: Duration = Duration::from_secs(240);
/// Time that `zerofleet train` grants a fleet to drain.
const DRAIN: Duration = Duration::from_secs(10);
const LEARN: Duration = Duration::from_secs(120);

/// A random walk needs about 2 in most episodes, and 3 at the limit of steps; the shortest way takes 0.45.
const LEARNT: f64 = -0.7;

const SMALL: &str = r#"
[network]
channels = 32

[selfplay]
games = 16
full_simulations = 8

[replay]
min_items = 200
samples_per_insert = 8
error_items = 4000
fsync_ms = 2

[learner]
device = "cpu"
precision = "f32"
threads = 1
batch_size = 64
warm_up_steps = 20
unroll_steps = 3
td_steps = 5
schedule_minutes = 3
publish_interval_seconds = 1
checkpoint_interval_seconds = 2

[actor]
device = "cpu"
precision = "f32"
threads = 1

[arena]
device = "cpu"
precision = "f32"
simulations = 8
episodes = 16
version_interval_seconds = 1
cpu_share = 0.5
"#;

fn modules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("python")
}

/// Returns Python with numpy; `None` if there is no Python, which fails the test in CI.
fn python() -> Option<Python> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("numpy");
    let python = Python::with(&modules().join("numpy-requirements.txt"), &folder).unwrap();
    if python.is_none() {
        tests::skip_python("3.10");
    }
    python
}

/// Returns the section `[environment]` that `zerofleet env describe` prints with these options.
fn described(python: &Python, environment: &str, sets: &[&str]) -> String {
    let modules = format!("environment.modules={:?}", [&modules(), python.packages()]);
    let interpreter = format!("environment.python={:?}", python.program());
    let sets = [modules.as_str(), &interpreter].into_iter().chain(sets.iter().copied());
    let mut command = Command::new(program("zerofleet").unwrap());
    command.args(["env", "describe", "--gym", environment]).args(sets.flat_map(|set| ["--set", set]));
    let output = command.output().unwrap();
    let [text, errors] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(output.status.success(), "{text}{errors}");
    text
}

#[test]
#[allow(clippy::print_stderr, reason = "a failed test shows its seed")]
fn a_run_learns_an_environment_that_dies_hangs_and_sends_nan_now_and_then() {
    let Some(python) = python() else { return };
    eprintln!("seed {SEED}");
    let environment = "call:faulty_corridor:faulty";
    let sets = ["environment.step_timeout_seconds=1.0", "environment.processes=2"];
    let section = described(&python, environment, &sets);
    assert!(section.contains("2 actions, observations [9, 1, 1] of float32"), "{section}");
    let mut cluster = Cluster::new(&format!("gym:{environment}"), &format!("{SMALL}\n{section}")).unwrap();
    cluster.start(&Cluster::ROLES).unwrap();
    wait_until("an environment has failed in every way", START, || {
        let of = |cause| format!("zerofleet_actor_environment_failures_total{{cause=\"{cause}\"}}");
        let metric = |name: &str| cluster.metric(Role::Actor, name).unwrap_or(0.0);
        Ok(["died", "hung", "failed"].iter().all(|cause| metric(&of(cause)) > 0.0))
    })
    .unwrap();
    wait_until("a version walks to the right end", LEARN, || {
        Ok(cluster.metric(Role::Arena, "zerofleet_arena_return_mean").is_some_and(|mean| mean >= LEARNT))
    })
    .unwrap();
    let lost = cluster.metric(Role::Actor, "zerofleet_actor_lost_episodes_total").unwrap();
    assert!(lost > 0.0, "{lost} episodes are lost");
    assert_eq!(cluster.metric(Role::Replay, "zerofleet_replay_quarantined"), Some(0.0));
    for role in Cluster::ROLES {
        assert!(cluster.process(role).is_running(), "{role:?} has ended");
    }
}

#[test]
fn an_actor_whose_environment_hangs_drains_and_keeps_every_finished_episode() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let hung = folder.path().join("hung");
    let environment = "call:faulty_corridor:Hanging";
    let arguments = format!("environment.arguments='{{\"file\": {hung:?}}}'");
    // The trial takes a single episode of an environment.
    let section = described(&python, environment, &[&arguments, "environment.step_timeout_seconds=600.0"]);
    let mut cluster = Cluster::new(&format!("gym:{environment}"), &format!("{SMALL}\n{section}")).unwrap();
    cluster.start(&[Role::Learner, Role::Actor]).unwrap();
    wait_until("the environment hangs", START, || Ok(hung.exists())).unwrap();
    let finished = cluster.metric(Role::Actor, "zerofleet_actor_games_total").unwrap();
    assert!(finished >= 2.0, "{finished} episodes before the third of one environment");
    cluster.process(Role::Actor).terminate();
    let output = cluster.process(Role::Actor).ended(DRAIN).unwrap();
    assert!(output.status.success(), "{}", output.text);
    let spooled = tests::trajectories::spooled(&cluster.directory().join("actors/0/unacknowledged.spool"));
    assert!(spooled.len() as f64 >= finished, "{} of {finished} episodes are spooled", spooled.len());
}

#[test]
fn a_broken_environment_is_refused_before_the_run_has_a_folder() {
    let Some(python) = python() else { return };
    let runs = tempfile::tempdir().unwrap();
    let mut command = Command::new(program("zerofleet").unwrap());
    command.args(["train", "--game", "gym:call:faulty_corridor:Unseeded", "--runs"]).arg(runs.path().join("runs"));
    let modules = format!("environment.modules={:?}", [&modules(), python.packages()]);
    command.args(["--set", &modules, "--set", &format!("environment.python={:?}", python.program())]);
    let output = command.output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(errors.contains("failed in reset(seed=1)") && errors.contains("reset(self, *, seed=None"), "{errors}");
    assert!(!runs.path().join("runs").exists(), "nothing was created");
}

#[test]
fn code_that_converts_a_refused_space_is_printed_in_lines() {
    let Some(python) = python() else { return };
    let mut command = Command::new(program("zerofleet").unwrap());
    command.args(["env", "describe", "--gym", "call:faulty_corridor:Torques"]);
    let modules = format!("environment.modules={:?}", [&modules(), python.packages()]);
    command.args(["--set", &modules, "--set", &format!("environment.python={:?}", python.program())]);
    let errors = String::from_utf8(command.output().unwrap().stderr).unwrap();
    let code = "\n\nimport gymnasium\nimport numpy as np\nimport faulty_corridor\n\ndef make(**arguments):\n    env";
    assert!(errors.contains(code), "{errors}");
}

#[test]
fn a_run_file_without_the_description_is_refused_by_every_process_that_needs_it() {
    for role in ["actor", "learner", "arena", "inference-server"] {
        let mut command = Command::new(program(role).unwrap());
        command.args(["--set", "run.game=gym:LunarLander-v3"]);
        let output = command.output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success());
        assert!(errors.contains("does not describe the environment gym:LunarLander-v3"), "{role}: {errors}");
    }
}
