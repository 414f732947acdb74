//! An actor that stops responding is lost within the lease, and inserts again within seconds after it resumes.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use proto::replay::{Actor, ActorState, Inspector};
use tests::trajectories::list;
use tests::{Cluster, Role, SMALL_TIC_TAC_TOE, wait_until};

const DEADLINE: Duration = Duration::from_secs(90);
const INSERTS: &str = "zerofleet_replay_inserts_total";
const LOST: &str = "zerofleet_replay_actors_lost_total";
/// Time limit of a loss: three heartbeats of two seconds, half a heartbeat until the next sweep, and a margin for a
/// busy machine.
const LOST_WITHIN: Duration = Duration::from_secs(20);
/// Time limit of a recovery: ten times the specified 5 s, so that a machine at a tenth of the measured speed also
/// passes.
const BACK_WITHIN: Duration = Duration::from_secs(50);

/// Returns the only actor with a lease at the replay server.
async fn actor(inspector: &Inspector) -> Option<Actor> {
    inspector.actors().await.unwrap().actors.pop()
}

async fn wait_for(inspector: &Inspector, state: Option<ActorState>, within: Duration) {
    let begun = Instant::now();
    while actor(inspector).await.map(|actor| actor.state()) != state {
        assert!(begun.elapsed() < within, "not within {within:?}: {state:?}");
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}

fn more_inserts(cluster: &Cluster, within: Duration) {
    let before = cluster.metric(Role::Replay, INSERTS).unwrap();
    wait_until("more is inserted", within, || {
        Ok(cluster.metric(Role::Replay, INSERTS).is_some_and(|now| now > before))
    })
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_actor_that_is_stopped_is_lost_and_back_within_seconds_with_no_game_lost_or_doubled() {
    let mut cluster = Cluster::new("tic_tac_toe", SMALL_TIC_TAC_TOE).unwrap();
    cluster.start(&[Role::Replay, Role::Learner, Role::Actor]).unwrap();
    wait_until("the actor inserts", DEADLINE, || {
        Ok(cluster.metric(Role::Replay, INSERTS).is_some_and(|games| games > 0.0))
    })
    .unwrap();
    let inspector = Inspector::new(&cluster.replay_endpoint()).unwrap();
    wait_for(&inspector, Some(ActorState::Live), DEADLINE).await;

    for round in 1..=2 {
        cluster.process(Role::Actor).pause();
        wait_for(&inspector, Some(ActorState::Lost), LOST_WITHIN).await;
        wait_until(
            "the loss is counted",
            DEADLINE,
            || Ok(cluster.metric(Role::Replay, LOST) == Some(f64::from(round))),
        )
        .unwrap();
        cluster.process(Role::Actor).resume();
        more_inserts(&cluster, BACK_WITHIN);
        wait_for(&inspector, Some(ActorState::Live), BACK_WITHIN).await;
    }

    // While the replay server is stopped, the actor continues to play and to reconnect.
    let left = |cluster: &mut Cluster| cluster.process(Role::Actor).log_text().matches("insert stream broke").count();
    let before = left(&mut cluster);
    cluster.process(Role::Replay).pause();
    wait_until("the actor leaves a server that answers nothing", DEADLINE, || Ok(left(&mut cluster) > before)).unwrap();
    cluster.process(Role::Replay).resume();
    more_inserts(&cluster, BACK_WITHIN);
    assert_eq!(
        cluster.metric(Role::Replay, LOST),
        Some(2.0),
        "a server that was stopped itself counts no actor as lost"
    );

    cluster.process(Role::Actor).terminate();
    assert!(cluster.process(Role::Actor).ended(Duration::from_secs(10)).unwrap().status.success());
    wait_for(&inspector, None, DEADLINE).await;
    assert_eq!(cluster.metric(Role::Replay, LOST), Some(2.0), "a drained actor is no loss");

    let ids = list(&cluster.replay_endpoint()).await.unwrap();
    let stored: BTreeSet<u64> = ids.iter().map(|id| id.sequence).collect();
    assert_eq!(stored.len(), ids.len(), "something is stored twice");
    let spooled = cluster.directory().join("actors").join("0").join("unacknowledged.spool");
    let kept = tests::trajectories::spooled(&spooled).len() as u64;
    let missing = ids.iter().map(|id| id.sequence + 1).max().unwrap_or(0) - stored.len() as u64;
    assert!(missing <= kept, "{missing} numbers are missing, {kept} games wait for the next start");
}
