//! Kills any process (SIGKILL) at any time.

use std::collections::BTreeSet;
use std::time::Duration;

use experience::TrajectoryId;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tests::trajectories::{answered, list, won, writer};
use tests::{Cluster, Role, SEED, SMALL_TIC_TAC_TOE, wait_until};

const DEADLINE: Duration = Duration::from_secs(60);
/// An id that no actor of the cluster has.
const WITNESS: u64 = 1_000;
const KILLS: usize = 10;
const VICTIMS_SEED: u64 = 2;
const STEPS: &str = "zerofleet_learner_steps_total";
const VERSION: &str = "zerofleet_learner_weights_version";
const TRAJECTORIES_PER_KILL: u64 = 20;

/// The witness continuously inserts trajectories with known ids, so that every acknowledgement is known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::print_stderr, reason = "a failed test shows its seeds")]
async fn ten_kills_lose_no_acknowledged_trajectory_and_count_none_twice() {
    let mut cluster = Cluster::new("tic_tac_toe", SMALL_TIC_TAC_TOE).unwrap();
    cluster.start(&Cluster::ROLES).unwrap();
    let endpoint = cluster.replay_endpoint();
    let witness = writer(&endpoint, WITNESS, 1);
    let mut rng = ChaCha8Rng::seed_from_u64(VICTIMS_SEED);
    // Every role is killed twice, and the remaining victims are random.
    let mut victims = [Cluster::ROLES, Cluster::ROLES].concat();
    victims.extend((victims.len()..KILLS).map(|_| Cluster::ROLES[rng.random_range(0..Cluster::ROLES.len())]));
    victims.shuffle(&mut rng);
    eprintln!("seed {SEED}, victims' seed {VICTIMS_SEED}: {victims:?}");
    let mut sequences = 0..;
    let mut acknowledged = BTreeSet::new();
    for victim in victims {
        let steps = cluster.metric(Role::Learner, STEPS).unwrap_or(0.0);
        let version = cluster.metric(Role::Learner, VERSION).unwrap_or(0.0);
        // A killed learner resumes from the latest checkpoint, which may lag by a few steps.
        let steps = if victim == Role::Learner { checkpointed(&cluster) } else { steps };
        let before = TRAJECTORIES_PER_KILL / 2;
        for sent in 0..TRAJECTORIES_PER_KILL {
            if sent == before {
                // The process is killed during inserts: some are acknowledged, some are on the wire, and some are not
                // sent yet.
                cluster.process(victim).kill().unwrap();
                cluster.start(&[victim]).unwrap();
            }
            let id = TrajectoryId { actor: WITNESS, epoch: 1, sequence: sequences.next().unwrap() };
            tokio::time::timeout(DEADLINE, witness.insert(won(id))).await.unwrap().unwrap();
            acknowledged.insert(id);
        }
        answered(&witness, DEADLINE).await.unwrap();
        wait_until(&format!("training goes on after the end of {victim:?}"), DEADLINE, || {
            let rises = |name, from| cluster.metric(Role::Learner, name).is_some_and(|now| now > from);
            let now = cluster.metric(Role::Learner, STEPS);
            assert!(now.is_none_or(|now| now == 0.0 || now >= steps), "fell from {steps} to {now:?}");
            Ok(rises(STEPS, steps) && rises(VERSION, version))
        })
        .unwrap();
    }

    let stats = witness.stats();
    assert_eq!(stats.refused, 0);
    assert_eq!(stats.inserted + stats.duplicates, acknowledged.len() as u64, "each was answered once");
    cluster.process(Role::Actor).terminate();
    cluster.process(Role::Actor).ended(Duration::from_secs(10)).unwrap();
    let held = list(&endpoint).await.unwrap();
    let distinct: BTreeSet<_> = held.iter().copied().collect();
    assert_eq!(distinct.len(), held.len(), "no id is held twice");
    let witnessed: BTreeSet<_> = distinct.iter().copied().filter(|id| id.actor == WITNESS).collect();
    assert_eq!(witnessed, acknowledged);
    let table = proto::replay::stats(&endpoint).await.unwrap();
    assert_eq!(table.trajectories, held.len() as u64);
    assert_eq!(table.trajectories_inserted_total, held.len() as u64, "nothing is counted twice");
}

/// Returns the training step of the latest finished checkpoint.
fn checkpointed(cluster: &Cluster) -> f64 {
    let entries = std::fs::read_dir(cluster.directory().join("checkpoints")).into_iter().flatten().flatten();
    let steps = entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("step-")?.parse::<u32>().ok());
    steps.max().map_or(0.0, f64::from)
}
