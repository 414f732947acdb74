//! Several replay servers, one of which joins a run later, is killed and restarts.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use tests::trajectories::list;
use tests::{Cluster, Output, Process, Role, SMALL_TIC_TAC_TOE, TrainingRun, wait_until};
use transport::servers::{Server, preferred};

/// Longer than anything takes on a slow machine: the tests wait for counts.
const DEADLINE: Duration = Duration::from_secs(300);
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

/// Every trajectory that the actor numbered exists: on one of the servers, or in the spool for the next start.
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

/// Returns the epochs and sequence numbers of the trajectories that the actor has spooled for the next start.
fn spooled(cluster: &Cluster, actor: u64) -> Vec<(u64, u64)> {
    let path = cluster.directory().join("actors").join(actor.to_string()).join("unacknowledged.spool");
    tests::trajectories::spooled(&path).into_iter().map(|id| (id.epoch, id.sequence)).collect()
}

/// Runs `zerofleet` until it exits; the output belongs to this call alone.
fn ask(folder: &Path, arguments: &str) -> Output {
    let _ = std::fs::remove_file(folder.join("question.log"));
    let arguments = arguments.split_whitespace().map(Into::into).chain(["--runs".into(), folder.into()]).collect();
    let mut process = Process::without_admin("question", "zerofleet", arguments, folder).unwrap();
    process.start().unwrap();
    process.ended(DEADLINE).unwrap()
}

/// The supervisor starts both servers, each with a separate log, and the next sessions start with all logs.
#[test]
fn a_run_with_two_replay_servers_keeps_a_log_in_each_and_goes_on_with_both() {
    let folder = tempfile::tempdir().unwrap();
    for (options, count) in [(&["--replay-servers", "2"][..], 2), (&[], 2), (&["--replay-servers", "3"], 3)] {
        let options = [&["--game", "tic_tac_toe", "--actors", "1"][..], options].concat();
        let mut run = TrainingRun::of(folder.path(), folder.path(), &options).unwrap();
        run.start().unwrap();
        let names: Vec<String> = (1..=count)
            .map(|number| if number == 1 { "replay-server".to_owned() } else { format!("replay-server-{number}") })
            .collect();
        let mut begun = None;
        run.until("all servers run and training goes on", DEADLINE, |run| {
            let stored: Option<Vec<f64>> = names.iter().map(|name| run.metric(name, INSERTS)).collect();
            let steps = run.metric("learner", STEPS);
            begun = begun.or(steps);
            stored.is_some_and(|stored| stored.iter().sum::<f64>() > 0.0) && steps > begun
        })
        .unwrap();
        let output = run.stop().unwrap();
        assert!(output.text.contains(&format!("{count} replay server(s)")), "{}", output.text);
        let fleet = std::fs::read_to_string(run.directory().join("fleet.json")).unwrap();
        assert_eq!(fleet.matches("\"replay\"").count(), count, "{fleet}");
        for server in 1..=count {
            let stats = ask(folder.path(), &format!("replay stats --run first --replay-server {server}"));
            assert!(stats.status.success() && stats.text.contains("table main"), "{}", stats.text);
        }
    }
    assert!(folder.path().join("first/replay-server-2/replay").is_dir());
    let fewer = ask(folder.path(), "train --run first --replay-servers 1 --minutes 1");
    assert!(!fewer.status.success() && fewer.text.contains("has 3 replay servers"), "{}", fewer.text);
    let missing = ask(folder.path(), "replay stats --run first --replay-server 4");
    assert!(missing.text.contains("run first has no replay server 4"), "{}", missing.text);
}
