use std::time::Duration;

use experience::{ActionProbability, Segment, Target, TrajectoryId};
use game::{Action, Outcome};
use games::connect_four::ConnectFour;
use weights::WeightsVersion;

use super::*;

/// A wait that is longer has failed.
const DEADLINE: Duration = Duration::from_secs(60);

/// A position of the trajectory with this number: the empty board, or one that nobody can reach since a column has only six
/// places.
fn sample(sequence: u64, is_legal: bool, version: u64) -> Sample {
    let policy = vec![ActionProbability { action: Action(3), probability: 1.0 }];
    let actions = vec![Action(3); if is_legal { 0 } else { 7 }];
    let segment = Segment {
        trajectory: TrajectoryId { actor: 1, epoch: 1, sequence },
        ply: actions.len(),
        plies: actions.len() + 1,
        actions,
        targets: vec![Target { policy, value: 0.0, reward: 0.0, weights_version: WeightsVersion(version) }],
        outcome: Outcome::Draw,
    };
    Sample { segment, probability: 0.5, table_items: 2 }
}

fn server(name: &str) -> Server {
    Server::at(&format!("http://{name}:7001"))
}

fn preparer() -> Preparer {
    // Whoever would send priorities is gone, which is no reason to prepare nothing.
    let weighing = Weighing { exponent: 1.0, priorities: Priorities::new().0 };
    prepare(ConnectFour::new(), TargetSettings { search_value_share: 0.0 }, weighing, 1).unwrap()
}

/// Hands in a batch of samples and the servers they came from.
fn hand_in(preparer: &Preparer, drawn: Vec<(Sample, Server)>) {
    let (samples, servers) = drawn.into_iter().unzip();
    preparer.drawn.blocking_send(Drawn { batch: UnionBatch { samples, servers }, trace: None }).unwrap();
}

#[test]
fn a_trajectory_that_breaks_the_rules_is_reported_to_its_server_and_the_rest_is_trained_on() {
    let mut preparer = preparer();
    hand_in(&preparer, vec![(sample(1, false, 3), server("a")), (sample(2, true, 5), server("b"))]);
    let prepared = preparer.prepared.recv_timeout(DEADLINE).unwrap();
    assert_eq!(prepared.batch.policy_weights.len(), 1);
    let (reported_to, rejected) = preparer.rejected.blocking_recv().unwrap();
    assert_eq!((reported_to, rejected.trajectory.sequence, rejected.ply), (server("a"), 1, 7));
    // Rows and items stay in step where a sample falls out before them.
    assert_eq!(prepared.items, [Item::of(&sample(2, true, 5), &server("b"))]);
}

#[test]
fn a_batch_of_which_nothing_is_left_is_passed_over() {
    let preparer = preparer();
    hand_in(&preparer, vec![(sample(1, false, 3), server("a"))]);
    hand_in(&preparer, vec![(sample(2, true, 4), server("a")), (sample(3, true, 7), server("a"))]);
    let prepared = preparer.prepared.recv_timeout(DEADLINE).unwrap();
    assert_eq!((prepared.batch.policy_weights.len(), prepared.mean_version), (2, 5.5));
}

#[test]
fn reports_that_nobody_takes_hold_no_batch_up() {
    let preparer = preparer();
    for sequence in 0..2 * REPORTS_MAX as u64 {
        hand_in(&preparer, vec![(sample(sequence, false, 1), server("a")), (sample(sequence, true, 1), server("a"))]);
        preparer.prepared.recv_timeout(DEADLINE).unwrap();
    }
}

#[test]
fn the_thread_ends_with_whoever_draws_or_whoever_trains() {
    let Preparer { drawn, prepared, thread, .. } = preparer();
    drop(drawn);
    thread.join().unwrap();
    assert!(prepared.recv_timeout(DEADLINE).is_err());

    let Preparer { drawn, prepared, thread, .. } = preparer();
    drop(prepared);
    let batch = UnionBatch { samples: vec![sample(1, true, 1)], servers: vec![server("a")] };
    drawn.blocking_send(Drawn { batch, trace: None }).unwrap();
    thread.join().unwrap();
}
