//! A run resumes where it stopped: a fleet starts with the state that the previous, drained fleet left on disk.

use std::time::{Duration, Instant};

use experience::TrajectoryId;
use proto::weights::{Subscriber, SubscriberSettings};
use safetensors::SafeTensors;
use strength::ledger::{Ledger, Rated};
use tests::trajectories::{GAME, list};
use tests::{Cluster, Role, SMALL_TIC_TAC_TOE, wait_until};
use version_store::VersionStore;
use version_store::checkpoint::{Checkpoint, Checkpoints};
use weights::Manifest;

const DEADLINE: Duration = Duration::from_secs(60);
const DRAIN: Duration = Duration::from_secs(10);
const STEPS: &str = "zerofleet_learner_steps_total";
const LEARNING_RATE: &str = "zerofleet_learner_learning_rate";
const VERSION: &str = "zerofleet_learner_weights_version";
const TRAJECTORIES: &str = "zerofleet_replay_trajectories";
const RATED_GAMES: &str = "zerofleet_arena_games_total";
/// Warm-up steps of [`SMALL_TIC_TAC_TOE`], after which the learning rate only decreases.
const WARM_UP_STEPS: f64 = 20.0;
/// Games of the match between the two fixed opponents; all further games involve weights versions.
const ANCHOR_GAMES: f64 = 4.0;
/// AdamW's decay rate β₂ of the second moment.
const SECOND_MOMENT_KEPT: f64 = 0.999;

/// State left by a drained fleet.
struct RunState {
    checkpoint: Checkpoint,
    /// Last learning rate logged by the learner.
    learning_rate: f64,
    weights: Manifest,
    trajectories: Vec<TrajectoryId>,
    ratings: Vec<Rated>,
    rated_games: f64,
}

impl RunState {
    fn step(&self) -> f64 {
        self.checkpoint.progress.training_step as f64
    }

    fn version(&self) -> f64 {
        self.weights.version.0 as f64
    }

    /// Returns the second moment of the optimiser for every parameter.
    fn second_moment(&self) -> Vec<f64> {
        let (_, bytes) = self.checkpoint.files.iter().find(|(name, _)| name == "optimiser.safetensors").unwrap();
        let file = SafeTensors::deserialize(bytes).unwrap();
        let mut tensors = file.tensors();
        tensors.retain(|(name, _)| name.starts_with("second_moment."));
        tensors.sort_by(|(a, _), (b, _)| a.cmp(b));
        let floats = tensors.iter().flat_map(|(_, tensor)| tensor.data().as_chunks::<4>().0);
        floats.map(|&float| f64::from(f32::from_le_bytes(float))).collect()
    }
}

/// Returns a cluster with an arena that rates every version in a single short match.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new(GAME, SMALL_TIC_TAC_TOE).unwrap();
    let sets = [
        "arena.games_per_version=4",
        "arena.openings_per_match=2",
        "arena.playouts=[10]",
        "arena.simulations=8",
        "arena.cpu_share=1.0",
    ];
    for set in sets {
        cluster.process(Role::Arena).argue(&["--set", set]);
    }
    cluster
}

/// Waits until each metric exceeds the given value.
fn beyond(cluster: &Cluster, goals: &[(Role, &str, f64)]) {
    for &(role, metric, before) in goals {
        wait_until(&format!("{metric} is above {before}"), DEADLINE, || {
            Ok(cluster.metric(role, metric).is_some_and(|now| now > before))
        })
        .unwrap();
    }
}

/// Drains all processes in the order of the supervisor and reads the files of the run.
async fn drain(cluster: &mut Cluster) -> RunState {
    end(cluster, &[Role::Actor, Role::Arena]);
    let trajectories = list(&cluster.replay_endpoint()).await.unwrap();
    end(cluster, &[Role::Learner, Role::Replay]);
    let folder = cluster.directory().to_owned();
    let found = Checkpoints::new(folder.join("checkpoints"), usize::MAX).newest().unwrap().unwrap();
    assert!(found.damaged.is_empty(), "{:?}", found.damaged);
    let (weights, _) = VersionStore::of_learner(&folder).newest().unwrap().unwrap();
    let ledger = Ledger::load(&folder.join("ratings.json"), GAME).unwrap();
    RunState {
        checkpoint: found.checkpoint,
        learning_rate: last_learning_rate(cluster),
        weights,
        trajectories,
        ratings: ledger.ratings(),
        rated_games: ledger.games() as f64,
    }
}

fn end(cluster: &mut Cluster, roles: &[Role]) {
    for &role in roles {
        cluster.process(role).terminate();
        let output = cluster.process(role).ended(DRAIN).unwrap();
        assert!(output.status.success(), "{role:?}: {}", output.text);
    }
}

fn last_learning_rate(cluster: &mut Cluster) -> f64 {
    let log = cluster.process(Role::Learner).log_text();
    let (_, after) = log.rsplit_once("stopped at training step").unwrap();
    let (_, rate) = after.split_once("learning rate ").unwrap();
    rate.split_whitespace().next().unwrap().parse().unwrap()
}

/// Returns the manifest of the latest weights that the learner serves; the subscriber has verified the digest.
async fn served(cluster: &Cluster) -> Manifest {
    let endpoint = cluster.learner_endpoint();
    let settings = SubscriberSettings { endpoint, name: "test".to_owned(), size_limit_bytes: 1 << 30 };
    let mut subscriber = Subscriber::start(settings);
    let published = tokio::time::timeout(DEADLINE, subscriber.changed()).await.unwrap();
    subscriber.close().await;
    published.manifest.clone()
}

/// Each process is started before the servers that it needs, so that it makes no progress and the resumed state can be
/// inspected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_goes_on_where_it_stopped() {
    let mut cluster = cluster();
    cluster.start(&Cluster::ROLES).unwrap();
    beyond(&cluster, &[(Role::Learner, STEPS, WARM_UP_STEPS), (Role::Arena, RATED_GAMES, ANCHOR_GAMES)]);
    let before = drain(&mut cluster).await;
    assert_eq!(before.weights.training_step, before.checkpoint.progress.training_step);

    cluster.start(&[Role::Arena]).unwrap();
    wait_until("the arena has all its games", DEADLINE, || {
        Ok(cluster.metric(Role::Arena, RATED_GAMES) == Some(before.rated_games))
    })
    .unwrap();

    cluster.start(&[Role::Learner]).unwrap();
    wait_until("the learner has its weights", DEADLINE, || {
        Ok(cluster.metric(Role::Learner, VERSION) == Some(before.version()))
    })
    .unwrap();
    let resumed = Instant::now();
    assert_eq!(cluster.metric(Role::Learner, STEPS), Some(before.step()));
    assert_eq!(cluster.metric(Role::Learner, LEARNING_RATE), Some(before.learning_rate));
    assert_eq!(served(&cluster).await, before.weights);

    cluster.start(&[Role::Replay]).unwrap();
    assert_eq!(list(&cluster.replay_endpoint()).await.unwrap(), before.trajectories);
    let held = before.trajectories.len() as f64;
    assert_eq!(cluster.metric(Role::Replay, TRAJECTORIES), Some(held));

    cluster.start(&[Role::Actor]).unwrap();
    let everything = [
        (Role::Learner, STEPS, before.step()),
        (Role::Learner, VERSION, before.version()),
        (Role::Arena, RATED_GAMES, before.rated_games),
        (Role::Replay, TRAJECTORIES, held),
    ];
    beyond(&cluster, &everything);
    let trained = resumed.elapsed();
    // The learner takes a further step, so that the last checkpoint is later than the time measured above.
    let step = cluster.metric(Role::Learner, STEPS).unwrap();
    beyond(&cluster, &[(Role::Learner, STEPS, step)]);
    let after = drain(&mut cluster).await;

    assert!(after.learning_rate <= before.learning_rate, "{} after {}", after.learning_rate, before.learning_rate);
    let seconds = [&before, &after].map(|left| left.checkpoint.progress.elapsed_seconds);
    assert!(seconds[1] >= seconds[0] + trained.as_secs_f64(), "the clock of the schedule goes on: {seconds:?}");
    assert!(before.trajectories.iter().all(|id| after.trajectories.contains(id)), "what was held is held");
    for Rated { player, games, .. } in &before.ratings {
        let now = after.ratings.iter().find(|rated| rated.player == *player).map(|rated| rated.games);
        assert!(now.is_some_and(|now| now >= *games), "{player} had {games} rated games, now {now:?}");
    }
    check_optimiser(&before, &after);
}

/// Checks that the optimiser state was resumed. Squares of gradients are not negative, so over k steps a second moment
/// decreases at most by the factor β₂ᵏ. A second moment that restarted at zero would be below that bound wherever
/// gradients have become smaller.
fn check_optimiser(before: &RunState, after: &RunState) {
    let steps = after.step() - before.step();
    let kept = SECOND_MOMENT_KEPT.powf(steps);
    // The tolerance covers the rounding of float32 in every step.
    let least = |moment: f64| moment * kept * (1.0 - 1e-3) - f64::from(f32::MIN_POSITIVE);
    let pairs: Vec<_> = before.second_moment().into_iter().zip(after.second_moment()).collect();
    assert!(pairs.len() > 1_000, "{} parameters", pairs.len());
    let lost = pairs.iter().filter(|(old, new)| *new < least(*old)).count();
    assert_eq!(lost, 0, "of {} second moments, after {steps} steps", pairs.len());
}
