use experience::Segment;
use game::Outcome;

use super::*;

fn sample(probability: f64, table_items: u64) -> Sample {
    let trajectory = TrajectoryId { actor: 1, epoch: 1, sequence: 0 };
    let segment =
        Segment { trajectory, ply: 0, actions: Vec::new(), targets: Vec::new(), outcome: Outcome::Draw, plies: 1 };
    Sample { segment, probability, table_items }
}

#[test]
fn what_is_drawn_twice_as_often_counts_half() {
    let samples = [sample(0.01, 50), sample(0.02, 50), sample(0.04, 50)];
    assert_eq!(importance(&samples, 1.0), [1.0, 0.5, 0.25]);
    let half = importance(&samples, 0.5);
    assert!((half[2] - 0.5).abs() < 1e-6, "{half:?}");
    assert_eq!(importance(&samples, 0.0), [1.0, 1.0, 1.0]);
}

#[test]
fn uniform_draws_all_count_alike() {
    assert_eq!(importance(&[sample(0.1, 10), sample(0.1, 10)], 1.0), [1.0, 1.0]);
    assert_eq!(importance(&[], 1.0), [0.0; 0]);
}

#[test]
fn a_probability_that_cannot_be_spoils_no_batch() {
    let weights = importance(&[sample(0.0, 10), sample(0.1, 10)], 1.0);
    assert!(weights.iter().all(|weight| *weight > 0.0 && *weight <= 1.0), "{weights:?}");
}

#[test]
fn every_server_hears_of_its_own_items() {
    let item = |server: &str, sequence| Item {
        server: Server::at(server),
        trajectory: TrajectoryId { actor: 1, epoch: 1, sequence },
        ply: 3,
    };
    let items = vec![item("http://a:1", 0), item("http://b:1", 1), item("http://a:1", 2)];
    let told = by_server(items, &[0.5, 0.25, 0.0]);
    let of = |server: &str| -> Vec<(u64, f64)> {
        told[&Server::at(server)].iter().map(|update| (update.trajectory.sequence, update.priority)).collect()
    };
    assert_eq!(of("http://a:1"), [(0, 0.5), (2, PRIORITY_MIN)]);
    assert_eq!(of("http://b:1"), [(1, 0.25)]);
}

#[tokio::test]
async fn what_nobody_takes_is_dropped_and_training_goes_on() {
    let (priorities, _sending) = Priorities::new();
    let item =
        Item { server: Server::at("http://a:1"), trajectory: TrajectoryId { actor: 1, epoch: 1, sequence: 0 }, ply: 0 };
    for _ in 0..3 * WAITING_MAX {
        priorities.tell(std::slice::from_ref(&item), &[0.5]);
    }
    assert!(priorities.are_wanted());
}
