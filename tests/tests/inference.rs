//! Self-play with positions evaluated by an inference server.

use std::ffi::OsString;
use std::time::Duration;

use crate::random_weights::Published;
use game::Game as _;
use games::TicTacToe;
use proto::replay;
use tests::{Cluster, Process, Role, SMALL_TIC_TAC_TOE, program, wait_until};

const DEADLINE: Duration = Duration::from_secs(60);
/// Time limit for an actor to use a restarted server, or to evaluate by itself after the server has stopped.
const BACK: Duration = Duration::from_secs(5);
const BY_SERVER: &str = "zerofleet_actor_remote_positions_total{by=\"server\"}";
const BY_ACTOR: &str = "zerofleet_actor_remote_positions_total{by=\"actor\"}";
const STEPS: &str = "zerofleet_learner_steps_total";
const KILLS: usize = 3;

/// Returns a cluster that trains with an inference server, after the server has evaluated positions.
fn training(settings: &[&str]) -> (Cluster, Process) {
    let mut cluster = Cluster::new("tic_tac_toe", SMALL_TIC_TAC_TOE).unwrap();
    let (mut server, endpoint) = cluster.inference_server().unwrap();
    let endpoint = format!("actor.inference={endpoint}");
    for setting in [&[endpoint.as_str()], settings].concat() {
        cluster.process(Role::Actor).argue(&["--set", setting]);
    }
    cluster.start(&Cluster::ROLES).unwrap();
    server.start().unwrap();
    server.ready(DEADLINE).unwrap();
    rises(&cluster, BY_SERVER, DEADLINE);
    (cluster, server)
}

fn rises(cluster: &Cluster, metric: &str, deadline: Duration) {
    let role = if metric == STEPS { Role::Learner } else { Role::Actor };
    let from = cluster.metric(role, metric).unwrap_or(0.0);
    wait_until(&format!("{metric} rises above {from}"), deadline, || {
        Ok(cluster.metric(role, metric).is_some_and(|now| now > from))
    })
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_inference_server_loses_no_game_and_is_used_again_within_seconds() {
    let (mut cluster, mut server) = training(&[]);
    for _ in 0..KILLS {
        server.kill().unwrap();
        rises(&cluster, BY_ACTOR, BACK);
        rises(&cluster, STEPS, DEADLINE);
        server.start().unwrap();
        server.ready(DEADLINE).unwrap();
        rises(&cluster, BY_SERVER, BACK);
    }
    cluster.process(Role::Actor).terminate();
    cluster.process(Role::Actor).ended(Duration::from_secs(10)).unwrap();
    // Every game of the single epoch was stored, without a gap.
    let held = tests::trajectories::list(&cluster.replay_endpoint()).await.unwrap();
    let table = replay::stats(&cluster.replay_endpoint()).await.unwrap();
    assert_eq!(table.trajectories_inserted_total, held.len() as u64, "the window still holds everything");
    let mut sequences: Vec<u64> = held.iter().map(|id| id.sequence).collect();
    sequences.sort_unstable();
    assert!(sequences.iter().copied().eq(0..held.len() as u64), "no game is missing and none came twice");
    assert!(held.iter().all(|id| id.epoch == held[0].epoch), "the actor never ended");
}

#[test]
fn an_actor_without_inference_fallback_waits_for_its_server() {
    let (cluster, mut server) = training(&["actor.inference_fallback=false"]);
    server.kill().unwrap();
    server.start().unwrap();
    server.ready(DEADLINE).unwrap();
    rises(&cluster, BY_SERVER, BACK);
    assert_eq!(cluster.metric(Role::Actor, BY_ACTOR), None, "the actor has evaluated nothing");
    rises(&cluster, STEPS, DEADLINE);
}

/// Searches the binaries for the names of the libraries that a loader would load.
#[test]
fn the_default_actor_and_inference_server_have_no_libtorch_in_them() {
    for name in ["actor", "inference-server"] {
        let bytes = std::fs::read(program(name).unwrap()).unwrap();
        for library in ["libtorch_cpu.", "libtorch.so", "libtorch.dylib", "libc10."] {
            let found = bytes.windows(library.len()).any(|window| window == library.as_bytes());
            assert!(!found, "{name} names {library}");
        }
    }
}

/// The inference server of these tests is built without libtorch, which a user's server may have.
#[test]
fn eval_starts_an_inference_server_of_its_own_for_libtorch_and_reports_why_that_ended() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("first");
    std::fs::create_dir_all(run.join("weights")).unwrap();
    std::fs::write(run.join("config.toml"), "[run]\ngame = \"tic_tac_toe\"\n").unwrap();
    Published::random(TicTacToe::new().spec(), 12, 7).write(&run.join("weights"));
    let runs = folder.path().to_str().unwrap();
    let words = ["eval", "--runs", runs, "--run", "first", "--kernel", "libtorch"];
    let arguments: Vec<OsString> = words.iter().map(Into::into).collect();
    let mut eval = Process::without_admin("eval", "zerofleet", arguments, folder.path()).unwrap();
    eval.start().unwrap();
    let output = eval.ended(DEADLINE).unwrap();
    assert!(!output.status.success(), "{}", output.text);
    let reason = "the inference server ended with status 2: error: inference.kernel: `libtorch` needs libtorch";
    assert!(output.text.contains(reason), "{}", output.text);
}
