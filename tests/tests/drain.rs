//! Ctrl-C: every process drains, and a second start continues where the first stopped.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use tests::trajectories::list;
use tests::{Cluster, Role, SMALL_TIC_TAC_TOE, wait_until};

const DEADLINE: Duration = Duration::from_secs(60);
const DRAIN: Duration = Duration::from_secs(10);
const STEPS: &str = "zerofleet_learner_steps_total";

/// Starts all processes and waits until they all work: a process that receives a signal before it has installed the
/// handlers stops without a drain.
fn train(cluster: &mut Cluster) {
    cluster.start(&Cluster::ROLES).unwrap();
    for role in Cluster::ROLES {
        cluster.process(role).ready(DEADLINE).unwrap();
    }
    wait_until("training has begun", DEADLINE, || {
        Ok(cluster.metric(Role::Learner, STEPS).is_some_and(|steps| steps >= 10.0))
    })
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_process_drains_within_ten_seconds_and_a_second_start_continues_training() {
    let mut cluster = Cluster::new("tic_tac_toe", SMALL_TIC_TAC_TOE).unwrap();
    train(&mut cluster);

    for role in [Role::Actor, Role::Arena] {
        cluster.process(role).terminate();
        let output = cluster.process(role).ended(DRAIN).unwrap();
        assert!(output.status.success(), "{role:?}: {}", output.text);
    }
    let held = list(&cluster.replay_endpoint()).await.unwrap();
    // The step cannot decrease from here on, because the learner writes a checkpoint at the end of the drain.
    let steps = cluster.metric(Role::Learner, STEPS).unwrap();
    for role in [Role::Learner, Role::Replay] {
        cluster.process(role).terminate();
        let output = cluster.process(role).ended(DRAIN).unwrap();
        assert!(output.status.success(), "{role:?}: {}", output.text);
    }

    cluster.start(&[Role::Replay, Role::Learner]).unwrap();
    assert_eq!(list(&cluster.replay_endpoint()).await.unwrap(), held);
    cluster.start(&[Role::Actor]).unwrap();
    wait_until("training goes on", DEADLINE, || {
        let now = cluster.metric(Role::Learner, STEPS);
        assert!(now.is_none_or(|now| now == 0.0 || now >= steps), "fell from {steps} to {now:?}");
        Ok(now.is_some_and(|now| now > steps))
    })
    .unwrap();
    wait_until("actors hand in again", DEADLINE, || {
        Ok(cluster.metric(Role::Replay, "zerofleet_replay_trajectories").is_some_and(|n| n > held.len() as f64))
    })
    .unwrap();
}

/// Ctrl-C in a terminal reaches every process at once: the actor drains although the servers no longer respond.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_terminated_at_once_drain_within_ten_seconds_and_lose_no_trajectory() {
    let mut cluster = Cluster::new("tic_tac_toe", SMALL_TIC_TAC_TOE).unwrap();
    train(&mut cluster);
    let before = list(&cluster.replay_endpoint()).await.unwrap();
    for role in Cluster::ROLES {
        cluster.process(role).terminate();
    }
    let deadline = Instant::now() + DRAIN;
    for role in Cluster::ROLES {
        let output = cluster.process(role).ended(deadline.saturating_duration_since(Instant::now())).unwrap();
        assert!(output.status.success(), "{role:?}: {}", output.text);
    }

    cluster.start(&[Role::Replay]).unwrap();
    let held: BTreeSet<_> = list(&cluster.replay_endpoint()).await.unwrap().into_iter().collect();
    assert!(before.iter().all(|id| held.contains(id)), "what was held is held");
    // Trajectories that the actor could not upload are spooled in the actor's directory, and the next start uploads
    // them. The learner must run, because the rate limiter admits further inserts only after samples.
    cluster.start(&[Role::Learner, Role::Actor]).unwrap();
    let spool = cluster.directory().join("actors/0/unacknowledged.spool");
    wait_until("the spool is handed in", DEADLINE, || Ok(!spool.exists())).unwrap();
    let played = list(&cluster.replay_endpoint()).await.unwrap();
    let first = played.iter().map(|id| id.epoch).min().unwrap();
    let sequences: BTreeSet<u64> = played.iter().filter(|id| id.epoch == first).map(|id| id.sequence).collect();
    let last = sequences.last().copied().unwrap();
    assert_eq!(sequences.len() as u64, last + 1, "the first epoch has no gap: {sequences:?}");
}

/// The disk of an actor is lost; the replay server has the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_actor_that_lost_its_epoch_has_every_game_stored_and_none_taken_for_a_duplicate() {
    let mut cluster = Cluster::new("tic_tac_toe", SMALL_TIC_TAC_TOE).unwrap();
    train(&mut cluster);
    cluster.process(Role::Actor).terminate();
    cluster.process(Role::Actor).ended(DRAIN).unwrap();
    let held: BTreeSet<_> = list(&cluster.replay_endpoint()).await.unwrap().into_iter().collect();
    std::fs::remove_dir_all(cluster.directory().join("actors")).unwrap();
    cluster.start(&[Role::Actor]).unwrap();
    wait_until("new games are stored", DEADLINE, || {
        Ok(cluster.metric(Role::Actor, "zerofleet_actor_inserted_total").is_some_and(|inserted| inserted >= 5.0))
    })
    .unwrap();
    let now = list(&cluster.replay_endpoint()).await.unwrap();
    let epochs: BTreeSet<u64> = now.iter().filter(|id| !held.contains(id)).map(|id| id.epoch).collect();
    assert_eq!(epochs.len(), 1, "{epochs:?}");
    assert!(held.iter().all(|id| !epochs.contains(&id.epoch)), "{epochs:?}");
    assert_eq!(cluster.metric(Role::Replay, "zerofleet_replay_duplicates_total").unwrap_or(0.0), 0.0);
    assert_eq!(cluster.metric(Role::Actor, "zerofleet_actor_id_collisions_total"), Some(0.0));
}

/// The process reads the configuration from a named pipe and blocks on it, so that it receives the signal before any
/// later stage of the start.
#[test]
fn a_process_terminated_while_it_reads_its_configuration_exits_successfully() {
    for role in Cluster::ROLES {
        let mut cluster = Cluster::new("tic_tac_toe", SMALL_TIC_TAC_TOE).unwrap();
        let path = cluster.directory().join("config.toml");
        let config = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        make_pipe(&path);
        cluster.process(role).start().unwrap();
        let mut pipe = writing_end_of(&path);
        cluster.process(role).terminate();
        pipe.write_all(&config).unwrap();
        drop(pipe);
        let output = cluster.process(role).ended(DEADLINE).unwrap();
        assert!(output.status.success(), "{role:?}: {}: {}", output.status, output.text);
    }
}

fn make_pipe(path: &Path) {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path is a zero-terminated string that outlives the call.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0, "{}", std::io::Error::last_os_error());
}

/// Returns the writing end of a pipe, once the reading end is open; before that, a non-blocking open fails.
fn writing_end_of(path: &Path) -> File {
    let mut pipe = None;
    wait_until("the configuration is being read", DEADLINE, || {
        pipe = File::options().write(true).custom_flags(libc::O_NONBLOCK).open(path).ok();
        Ok(pipe.is_some())
    })
    .unwrap();
    pipe.unwrap()
}
