use super::*;

fn ids(actor: u64, epoch: u64, sequences: &[u64]) -> Vec<TrajectoryId> {
    sequences.iter().map(|&sequence| TrajectoryId { actor, epoch, sequence }).collect()
}

#[test]
fn what_is_whole_has_no_faults_in_whatever_order_it_comes() {
    let ledger = Ledger::new([ids(1, 1, &[2, 0, 1]), ids(1, 2, &[0]), ids(2, 1, &[1, 0])].concat());
    assert_eq!(ledger.len(), 6);
    assert!(ledger.faults().is_empty(), "{:?}", ledger.faults());
}

#[test]
fn a_gap_and_a_double_are_found_where_they_are() {
    let faults = Ledger::new([ids(1, 1, &[0, 1, 3]), ids(2, 5, &[0, 1, 1])].concat()).faults();
    assert_eq!(faults.len(), 2);
    assert!(faults[0].contains("actor 1, epoch 1: 1 missing: [2]"), "{}", faults[0]);
    assert!(faults[1].contains("actor 2, epoch 5: 1 doubled: [1]"), "{}", faults[1]);
}

#[test]
fn a_tail_that_was_acknowledged_and_is_not_held_is_lost() {
    let ledger = Ledger::new([ids(1, 1, &[0, 1, 2]), ids(WITNESS, EPOCH, &[0, 1])].concat());
    assert!(ledger.lost(1, &BTreeMap::from([(1, 3)])).is_empty());
    assert_eq!(ledger.lost(1, &BTreeMap::from([(1, 4), (2, 1)])).len(), 2);
    assert!(ledger.lost_to_witness(2).is_empty());
    assert_eq!(ledger.lost_to_witness(3).len(), 1);
}
