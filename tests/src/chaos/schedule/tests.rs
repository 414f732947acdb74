use std::collections::BTreeSet;

use super::*;

#[test]
fn a_seed_fixes_what_goes_wrong() {
    let rounds = |seed| Schedule::new(seed, Lengths::whole()).take(100).collect::<Vec<_>>();
    assert_eq!(rounds(7), rounds(7));
    assert_ne!(rounds(7), rounds(8));
}

#[test]
fn every_service_suffers_everything_alone_before_anything_comes_again() {
    let combinations = Service::all().len() * Kind::ALL.len();
    let alone: Vec<(Service, Kind)> = Schedule::new(7, Lengths::whole())
        .filter_map(|Round(faults)| <[Fault; 1]>::try_from(faults).ok())
        .map(|[fault]| (fault.service, fault.kind))
        .take(3 * combinations)
        .collect();
    for pass in alone.chunks(combinations) {
        assert_eq!(pass.iter().collect::<BTreeSet<_>>().len(), combinations);
    }
    assert_ne!(alone[..combinations], alone[combinations..][..combinations], "and then in another order");
}

#[test]
fn every_fifth_time_two_services_suffer_at_once() {
    for (index, Round(faults)) in Schedule::new(7, Lengths::whole()).take(100).enumerate() {
        assert_eq!(faults.len(), if index % 5 == 4 { 2 } else { 1 });
        assert!(faults.windows(2).all(|two| two[0].service != two[1].service && two[0].after <= two[1].after));
    }
}
