//! Every process reports the health of its working threads.

use std::time::Duration;

use tests::{Cluster, Role, SMALL_TIC_TAC_TOE, wait_until};

const DEADLINE: Duration = Duration::from_secs(90);

/// Threads that each process of a cluster watches.
const THREADS: [(Role, &[&str]); 4] = [
    (Role::Replay, &["replay-log", "replay-table"]),
    (Role::Learner, &["train", "write"]),
    (Role::Actor, &["selfplay", "reanalysis"]),
    (Role::Arena, &["measure"]),
];

#[test]
fn every_process_watches_the_threads_that_do_its_work_and_is_healthy_while_it_waits() {
    let mut cluster = Cluster::new("tic_tac_toe", SMALL_TIC_TAC_TOE).unwrap();
    cluster.process(Role::Actor).argue(&["--set", "actor.threads=2", "--set", "reanalysis.share=0.5"]);
    let (mut server, _) = cluster.inference_server().unwrap();
    cluster.start(&Cluster::ROLES).unwrap();
    server.start().unwrap();
    server.ready(DEADLINE).unwrap();
    let limit = |thread: &str| format!("zerofleet_thread_pause_seconds_max{{thread=\"{thread}\"}}");
    for (role, threads) in THREADS {
        for thread in threads {
            wait_until(&format!("{role:?} watches {thread}"), DEADLINE, || {
                Ok(cluster.metric(role, &limit(thread)).is_some_and(|limit| limit >= 30.0))
            })
            .unwrap();
        }
        cluster.process(role).healthy().unwrap();
    }
    assert!(server.metric(&limit("evaluate")).is_some());
    server.healthy().unwrap();
}
