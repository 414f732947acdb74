//! Actors search stored trajectories again while processes are killed (SIGKILL).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use experience::{StepKind, TrajectoryId, WeightsVersion};
use proto::replay::{Choice, Inspector, MAIN_TABLE, Revised, Reviser};
use tests::trajectories::list;
use tests::{Cluster, Role, SMALL_TIC_TAC_TOE, wait_until};

const DEADLINE: Duration = Duration::from_secs(60);
const REVISIONS: &str = "zerofleet_replay_revisions_total";
const POSITIONS: &str = "zerofleet_actor_reanalysed_positions_total";
/// Number of revisions to wait for after each start.
const MORE: f64 = 20.0;

/// Trajectories that a replay server holds: revision and columns by id.
type Held = BTreeMap<TrajectoryId, (u64, Vec<u8>)>;

async fn held(endpoint: &str) -> Held {
    let (inspector, mut held) = (Inspector::new(endpoint).unwrap(), Held::new());
    for id in list(endpoint).await.unwrap() {
        let located = inspector.get(id).await.unwrap().unwrap();
        assert!(
            held.insert(id, (located.revision, located.trajectory.columns().to_vec())).is_none(),
            "{id} is held twice"
        );
    }
    held
}

/// Revises a few trajectories without changing them; returns the ids with the revisions that the server has
/// acknowledged.
async fn revise_some(endpoint: &str) -> BTreeMap<TrajectoryId, u64> {
    let (reviser, mut acknowledged) = (Reviser::new(endpoint).unwrap(), BTreeMap::new());
    while acknowledged.len() < 5 {
        let choice = Choice { table: MAIN_TABLE.to_owned(), older_than: WeightsVersion(u64::MAX) };
        let Some(chosen) = reviser.choose(choice).await.unwrap() else { continue };
        let id = chosen.trajectory.id();
        // The actor may have revised it in between.
        if let Revised::Replaced(revision) = reviser.revise(chosen).await.unwrap() {
            acknowledged.insert(id, revision);
        }
    }
    acknowledged
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_of_actor_and_replay_server_lose_and_double_no_revision_and_no_trajectory() {
    let sections = format!("{SMALL_TIC_TAC_TOE}\n[reanalysis]\nshare = 0.5\n");
    let mut cluster = Cluster::new("tic_tac_toe", &sections).unwrap();
    let endpoint = cluster.replay_endpoint();
    cluster.start(&[Role::Replay, Role::Learner, Role::Actor]).unwrap();
    let revisions = |cluster: &Cluster| cluster.metric(Role::Replay, REVISIONS).unwrap_or(0.0);
    let rises = |cluster: &Cluster, from: f64| {
        wait_until("stored trajectories are searched again", DEADLINE, || Ok(revisions(cluster) >= from + MORE))
            .unwrap();
    };
    rises(&cluster, 0.0);
    for victim in [Role::Actor, Role::Replay] {
        let acknowledged = revise_some(&endpoint).await;
        let before = revisions(&cluster);
        cluster.process(victim).kill().unwrap();
        cluster.start(&[victim]).unwrap();
        let now = held(&endpoint).await;
        for (id, revision) in acknowledged {
            assert!(now[&id].0 >= revision, "revision {revision} of {id} is lost: {}", now[&id].0);
        }
        // The counts of the server restart with the process.
        rises(&cluster, if victim == Role::Actor { before } else { 0.0 });
    }
    assert!(cluster.metric(Role::Actor, POSITIONS).is_some_and(|positions| positions >= MORE));
    assert!(cluster.metric(Role::Learner, "zerofleet_learner_steps_total").is_some_and(|steps| steps > 0.0));

    cluster.process(Role::Actor).terminate();
    cluster.process(Role::Actor).ended(Duration::from_secs(10)).unwrap();
    let before = held(&endpoint).await;
    let stats = proto::replay::stats(&endpoint).await.unwrap();
    assert_eq!(stats.trajectories_inserted_total, before.len() as u64, "a revision counts as no insert");
    cluster.process(Role::Replay).kill().unwrap();
    cluster.start(&[Role::Replay]).unwrap();
    assert_eq!(held(&endpoint).await, before, "a restart restores the last revision of each trajectory");

    let inspector = Inspector::new(&endpoint).unwrap();
    let mut versions = BTreeSet::new();
    for (id, _) in before.iter().filter(|(_, (revision, _))| *revision > 0) {
        let trajectory = inspector.get(*id).await.unwrap().unwrap().trajectory;
        let searched = trajectory.steps().filter(|step| !matches!(step.kind, StepKind::Opening));
        versions.extend(searched.map(|step| step.weights_version));
    }
    assert!(versions.len() > 1, "each step names the weights that searched it: {versions:?}");
}
