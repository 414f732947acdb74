mod boards;

use std::time::Duration;

use experience::{ActionProbability, Step, StepKind, Trajectory, TrajectoryId};
use game::{Action, Outcome};
use games::connect_four::ConnectFour;
use targets::Unroll;
use weights::WeightsVersion;

use super::*;
use crate::seed;

/// Maximum time for each wait of a test.
const DEADLINE: Duration = Duration::from_secs(60);

impl Batches {
    /// Returns a queue of batches that are already prepared.
    pub(crate) fn of(prepared: impl IntoIterator<Item = Prepared>) -> Self {
        let (sender, receiver) = crossbeam_channel::unbounded();
        prepared.into_iter().for_each(|prepared| sender.send(Some(prepared)).unwrap());
        Self::receiving(receiver)
    }

    /// Returns a queue of batches from a channel that the test fills.
    pub(crate) fn receiving(receiver: Receiver<Option<Prepared>>) -> Self {
        Self { threads: vec![receiver], next: 0 }
    }
}

/// Returns a position of the trajectory with this number: the empty board if legal, otherwise an illegal position,
/// after seven moves in a column with six places.
fn sample(sequence: u64, is_legal: bool, version: u64) -> Sample {
    let policy = vec![ActionProbability { action: Action(3), probability: 1.0 }];
    let weights_version = WeightsVersion(version);
    let step = |kind| Step { action: Action(3), reward: 0.0, kind, weights_version };
    let ply = if is_legal { 0 } else { 7 };
    let mut steps = vec![step(StepKind::Opening); ply];
    steps.push(step(StepKind::Full { policy, value: 0.0 }));
    let id = TrajectoryId { actor: 1, epoch: 1, sequence };
    let trajectory = Trajectory::of(id, "connect_four", &steps, Outcome::Draw).unwrap();
    let segment = trajectory.segment(ply, 0).unwrap();
    Sample { segment, probability: 0.5, table_items: 2 }
}

fn server(name: &str) -> Server {
    Server::at(&format!("http://{name}:7001"))
}

const POSITIONS: Targets = Targets::Positions { search_value_share: 0.0 };
const UNROLLED: Targets = Targets::Unrolled(Unroll {
    unroll_steps: 3,
    td_steps: 2,
    discount: 1.0,
    search_value_share: 0.0,
    next_observations: false,
});

fn batch_settings(targets: Targets) -> BatchSettings {
    let policy_temperature = PolicyTemperature(1.0);
    BatchSettings { targets, policy_temperature, importance_exponent: 1.0, model: Model::default() }
}

fn preparers(threads: usize) -> Preparers {
    preparers_of(POSITIONS, threads, 1)
}

fn preparers_of(targets: Targets, threads: usize, seed: u64) -> Preparers {
    // The receiver of priorities is dropped, which must not affect preparing.
    let settings = batch_settings(targets);
    prepare(&[ConnectFour::new()], settings, &Priorities::new().0, seed, threads).unwrap()
}

/// Submits a batch of samples with the source servers.
fn hand_in(preparers: &Preparers, drawn: Vec<(Sample, Server)>) {
    hand_to(preparers, 0, drawn);
}

fn hand_to(preparers: &Preparers, thread: usize, drawn: Vec<(Sample, Server)>) {
    let (samples, servers) = drawn.into_iter().unzip();
    preparers.drawn[thread]
        .blocking_send(Drawn { board: 0, batch: ShardedBatch { samples, servers }, trace: None })
        .unwrap();
}

#[test]
fn a_trajectory_that_breaks_the_rules_is_reported_to_its_server_and_the_rest_is_trained_on() {
    let mut preparers = preparers(1);
    hand_in(&preparers, vec![(sample(1, false, 3), server("a")), (sample(2, true, 5), server("b"))]);
    let prepared = preparers.batches.recv_timeout(DEADLINE).unwrap();
    assert_eq!(prepared.examples.positions(), 1);
    let (reported_to, rejected) = preparers.rejected.blocking_recv().unwrap();
    assert_eq!((reported_to, rejected.trajectory.sequence, rejected.ply), (server("a"), 1, 7));
    // Rows and items stay aligned after an earlier sample is rejected.
    assert_eq!(prepared.items, [Item::of(&sample(2, true, 5), &server("b"))]);
}

#[test]
fn unrolled_segments_drawn_by_priority_have_the_importance_of_their_draw_and_report_to_its_server() {
    let mut preparers = preparers_of(UNROLLED, 1, 1);
    let drawn = |sequence, is_legal, probability| Sample { probability, ..sample(sequence, is_legal, 1) };
    let samples = [drawn(1, true, 0.25), drawn(2, false, 0.5), drawn(3, true, 0.5)];
    hand_in(&preparers, samples.into_iter().zip([server("a"), server("b"), server("c")]).collect());
    let prepared = preparers.batches.recv_timeout(DEADLINE).unwrap();
    let Examples::Unrolled(batch) = &prepared.examples else { panic!("{:?}", prepared.examples) };
    assert_eq!((batch.importance.as_slice(), prepared.examples.positions()), (&[1.0, 0.5][..], 2));
    let items = [(1, "a"), (3, "c")].map(|(sequence, name)| Item::of(&sample(sequence, true, 1), &server(name)));
    assert_eq!(prepared.items, items);
}

#[test]
fn a_batch_without_valid_samples_is_skipped() {
    let mut preparers = preparers(1);
    hand_in(&preparers, vec![(sample(1, false, 3), server("a"))]);
    hand_in(&preparers, vec![(sample(2, true, 4), server("a")), (sample(3, true, 7), server("a"))]);
    let prepared = preparers.batches.recv_timeout(DEADLINE).unwrap();
    assert_eq!((prepared.examples.positions(), prepared.mean_version), (2, 5.5));
}

#[test]
fn a_batch_passes_over_the_share_of_the_window_that_its_valid_samples_make_up() {
    let mut preparers = preparers(1);
    let drawn =
        |sequence, is_legal, table_items| (Sample { table_items, ..sample(sequence, is_legal, 1) }, server("a"));
    hand_in(&preparers, vec![drawn(1, true, 4), drawn(2, false, 2), drawn(3, true, 8)]);
    assert_eq!(preparers.batches.recv_timeout(DEADLINE).unwrap().window_passes, 0.375);
}

#[test]
fn unread_rejection_reports_do_not_block_batches() {
    let mut preparers = preparers(1);
    for sequence in 0..2 * REPORTS_MAX as u64 {
        hand_in(&preparers, vec![(sample(sequence, false, 1), server("a")), (sample(sequence, true, 1), server("a"))]);
        preparers.batches.recv_timeout(DEADLINE).unwrap();
    }
}

#[test]
fn preparing_threads_end_when_their_input_or_output_channels_close() {
    let join = |threads: Vec<JoinHandle<()>>| threads.into_iter().for_each(|thread| thread.join().unwrap());
    let Preparers { drawn, mut batches, threads, .. } = preparers(2);
    drop(drawn);
    join(threads);
    assert_eq!(batches.recv_timeout(DEADLINE).unwrap_err(), RecvTimeoutError::Disconnected);

    let Preparers { drawn, batches, threads, .. } = preparers(2);
    drop(batches);
    for drawn in drawn {
        let batch = ShardedBatch { samples: vec![sample(1, true, 1)], servers: vec![server("a")] };
        drawn.blocking_send(Drawn { board: 0, batch, trace: None }).unwrap();
    }
    join(threads);
}

/// Returns the prepared batches of ten sampled batches, of which the fourth has no valid sample. Each has 16 positions
/// under one of two symmetries, so that two random streams do not agree by chance.
fn ten_batches(targets: Targets, threads: usize, seed: u64) -> Vec<(Examples, f64)> {
    let Preparers { drawn, mut batches, threads: handles, rejected, .. } = preparers_of(targets, threads, seed);
    let feeder = std::thread::spawn(move || {
        for (number, drawn) in (0..10).zip(drawn.iter().cycle()) {
            let of_game = |_| off_centre(number, number != 3);
            let samples: Vec<Sample> = (0..16).map(of_game).collect();
            let servers = vec![server("a"); samples.len()];
            drawn.blocking_send(Drawn { board: 0, batch: ShardedBatch { samples, servers }, trace: None }).unwrap();
        }
    });
    let mut all = Vec::new();
    while let Ok(Prepared { examples, mean_version, .. }) = batches.recv_timeout(DEADLINE) {
        all.push((examples, mean_version));
    }
    feeder.join().unwrap();
    handles.into_iter().for_each(|thread| thread.join().unwrap());
    drop(rejected);
    all
}

/// Returns an asymmetric position, searched with weights version `number`.
fn off_centre(number: u64, is_legal: bool) -> Sample {
    let weights_version = WeightsVersion(number);
    let step = |kind| Step { action: Action(0), reward: 0.0, kind, weights_version };
    let ply = if is_legal { 1 } else { 7 };
    let mut steps = vec![step(StepKind::Opening); ply];
    let policy = vec![ActionProbability { action: Action(1), probability: 1.0 }];
    steps.push(step(StepKind::Full { policy, value: 0.0 }));
    let id = TrajectoryId { actor: 1, epoch: 1, sequence: number };
    let trajectory = Trajectory::of(id, "connect_four", &steps, Outcome::Draw).unwrap();
    Sample { segment: trajectory.segment(ply, 0).unwrap(), probability: 0.5, table_items: 2 }
}

#[test]
fn any_number_of_preparing_threads_gives_the_same_batches_in_the_order_of_their_draws() {
    for targets in [POSITIONS, UNROLLED] {
        let expected = ten_batches(targets, 1, 1);
        let versions: Vec<f64> = expected.iter().map(|(_, version)| *version).collect();
        assert_eq!(versions, [0.0, 1.0, 2.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
        assert_ne!(expected[0].0, expected[1].0, "two draws of the same samples have the same symmetries");
        for threads in [2, 3, 4] {
            assert_eq!(ten_batches(targets, threads, 1), expected, "{threads} threads, {targets:?}");
        }
    }
}
#[test]
fn a_learner_that_resumes_draws_other_symmetries_and_servers_and_a_fresh_one_those_of_the_seed() {
    let batches = |step| ten_batches(POSITIONS, 1, seed::at_step(1, step));
    let fresh = batches(0);
    assert_eq!(fresh, ten_batches(POSITIONS, 1, 1));
    let resumed = batches(500);
    assert_ne!(resumed, fresh);
    assert_eq!(batches(500), resumed, "a step has one seed");
    assert_ne!(batches(501), resumed);

    let settings = run_file::learner::Config::default().settings().unwrap();
    let of_servers = |step| draws(&settings, seed::at_step(1, step), "connect_four".to_owned(), 0).seed;
    assert_eq!(of_servers(0), 1 ^ SHARD_SEED);
    assert_ne!(of_servers(500), of_servers(0));
}
