use std::collections::BTreeSet;

use super::*;

#[test]
fn a_seed_fixes_what_goes_wrong() {
    let rounds = |seed| Schedule::new(seed, Lengths::whole()).take(100).collect::<Vec<_>>();
    assert_eq!(rounds(7), rounds(7));
    assert_ne!(rounds(7), rounds(8));
}

#[test]
fn every_service_suffers_everything_alone_before_two_suffer_at_once() {
    let combinations = Service::all().len() * Kind::ALL.len();
    let mut schedule = Schedule::new(7, Lengths::whole());
    let alone: Vec<Round> = schedule.by_ref().take(combinations).collect();
    assert!(alone.iter().all(|Round(faults)| faults.len() == 1));
    let suffered: BTreeSet<_> = alone.iter().map(|Round(faults)| (faults[0].service, faults[0].kind)).collect();
    assert_eq!(suffered.len(), combinations);
    for Round(faults) in schedule.take(100) {
        assert_eq!(faults.len(), 2);
        assert_ne!(faults[0].service, faults[1].service);
        assert!(faults[0].after <= faults[1].after);
    }
}
