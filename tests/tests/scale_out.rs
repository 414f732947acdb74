//! Several replay servers, one of which joins a run later, is killed and restarts.

use std::collections::BTreeSet;
use std::time::Duration;

use proto::servers::{Server, preferred};
use tests::trajectories::list;
use tests::{Cluster, Installation, Process, Role, SMALL_TIC_TAC_TOE, wait_until};

const DEADLINE: Duration = Duration::from_secs(90);
const INSERTS: &str = "zerofleet_replay_inserts_total";
const SAMPLES: &str = "zerofleet_replay_samples_total";
const STEPS: &str = "zerofleet_learner_steps_total";

/// Returns the id of an actor that prefers the server `wanted` to `other`.
fn actor_of(wanted: &str, other: &str) -> u64 {
    let set = [Server::at(wanted), Server::at(other)];
    (0..).find(|&actor| preferred(&set, actor)[0] == set[0]).unwrap()
}

/// Waits until a metric has grown.
fn grows(what: &str, metric: impl Fn() -> Option<f64>) {
    let before = metric().unwrap_or(0.0);
    wait_until(what, DEADLINE, || Ok(metric().is_some_and(|now| now > before))).unwrap();
}

fn both_serve_and_training_goes_on(cluster: &Cluster, second: &Process) {
    grows("the second server stores", || second.metric(INSERTS));
    grows("the second server is drawn from", || second.metric(SAMPLES));
    grows("training goes on", || cluster.metric(Role::Learner, STEPS));
}

/// Every trajectory that the actor numbered exists: on one of the servers, or in the spool for its next start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_server_comes_and_is_killed_without_a_restart_of_the_others_and_nothing_is_lost_or_stored_twice() {
    let mut cluster = Cluster::new("tic_tac_toe", SMALL_TIC_TAC_TOE).unwrap();
    let (mut second, second_endpoint) = cluster.another_replay("replay-2").unwrap();
    let first_endpoint = cluster.replay_endpoint();
    let both = format!("{first_endpoint},{second_endpoint}");
    let actor = actor_of(&second_endpoint, &first_endpoint);
    cluster.process(Role::Learner).argue(&["--set", &format!("learner.replay={both}")]);
    let (replay, id) = (format!("actor.replay={both}"), format!("actor.id={actor}"));
    let away = "actor.replay_away_seconds_max=0.5";
    cluster.process(Role::Actor).argue(&["--set", &replay, "--set", &id, "--set", away]);
    cluster.start(&[Role::Replay, Role::Learner, Role::Actor]).unwrap();
    grows("training begins with the first server alone", || cluster.metric(Role::Learner, STEPS));

    second.start().unwrap();
    both_serve_and_training_goes_on(&cluster, &second);
    second.kill().unwrap();
    grows("the first server stores again", || cluster.metric(Role::Replay, INSERTS));
    grows("training goes on without the second", || cluster.metric(Role::Learner, STEPS));
    second.start().unwrap();
    both_serve_and_training_goes_on(&cluster, &second);

    cluster.process(Role::Actor).terminate();
    assert!(cluster.process(Role::Actor).ended(Duration::from_secs(10)).unwrap().status.success());
    let on_first: BTreeSet<_> = list(&first_endpoint).await.unwrap().into_iter().collect();
    let on_second: BTreeSet<_> = list(&second_endpoint).await.unwrap().into_iter().collect();
    assert!(!on_first.is_empty() && !on_second.is_empty());
    let twice: Vec<_> = on_first.intersection(&on_second).collect();
    assert!(twice.is_empty(), "stored twice: {twice:?}");

    let mut kept: BTreeSet<_> = on_first.union(&on_second).map(|id| (id.epoch, id.sequence)).collect();
    kept.extend(spooled(&cluster, actor));
    let epochs: BTreeSet<u64> = kept.iter().map(|(epoch, _)| *epoch).collect();
    assert!(epochs.len() >= 2, "each server has an epoch of its own: {epochs:?}");
    for epoch in epochs {
        let sequences: Vec<u64> = kept.iter().filter(|(of, _)| *of == epoch).map(|(_, sequence)| *sequence).collect();
        let expected: Vec<u64> = (0..).take(sequences.len()).collect();
        assert_eq!(sequences, expected, "something of epoch {epoch} is lost");
    }
}

/// Returns the epochs and sequence numbers of the trajectories that the actor has spooled for its next start.
fn spooled(cluster: &Cluster, actor: u64) -> Vec<(u64, u64)> {
    let path = cluster.directory().join("actors").join(actor.to_string()).join("unacknowledged.spool");
    tests::trajectories::spooled(&path).into_iter().map(|id| (id.epoch, id.sequence)).collect()
}

/// The supervisor starts both servers, each with its own log, and the second session starts with both logs.
#[test]
fn a_run_with_two_replay_servers_keeps_a_log_in_each_and_goes_on_with_both() {
    let programs = ["zerofleet", "replay-server", "learner", "actor", "arena"];
    let installation = Installation::new(&programs).unwrap();
    let ask = |arguments: &str| {
        let arguments: Vec<&str> = arguments.split_whitespace().collect();
        installation.run("zerofleet", &arguments, DEADLINE).unwrap()
    };
    let small = "--set network.channels=16 --set network.blocks=1 --set actor.threads=1 --set learner.device=cpu";
    let run = installation.directory().join("runs").join("two");
    for (session, number) in
        [("--minutes 0.1 --replay-servers 2", 2), ("--minutes 0.2", 2), ("--minutes 0.3 --replay-servers 3", 3)]
    {
        let trained = ask(&format!("train --game tic_tac_toe --run two --actors 1 {small} {session}"));
        assert!(trained.status.success(), "{}", trained.text);
        assert!(trained.text.contains(&format!("{number} replay server(s)")), "{}", trained.text);
        let fleet = std::fs::read_to_string(run.join("fleet.json")).unwrap();
        assert_eq!(fleet.matches("\"replay\"").count(), number, "{fleet}");
        for server in 1..=number {
            let stats = ask(&format!("replay stats --run two --replay-server {server}"));
            assert!(stats.status.success() && stats.text.contains("table main"), "{}", stats.text);
        }
    }
    assert!(run.join("replay-server-2").join("replay").is_dir());
    let fewer = ask("train --run two --replay-servers 1 --minutes 1");
    assert!(!fewer.status.success() && fewer.text.contains("has 3 replay servers"), "{}", fewer.text);
    let missing = ask("replay stats --run two --replay-server 4");
    assert!(missing.text.contains("run two has no replay server 4"), "{}", missing.text);
}
