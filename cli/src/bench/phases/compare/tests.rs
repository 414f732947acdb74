use super::super::tests::report;
use super::*;

#[test]
fn shares_are_compared_with_the_same_phase_of_the_same_threads() {
    let (mut now, mut earlier) = (report(), report());
    earlier.cpu = "Another CPU".to_owned();
    earlier.threads.reverse();
    for threads in &mut earlier.threads {
        threads.phases.retain(|time| time.phase != Phase::Forward);
        threads.phases.iter_mut().for_each(|time| time.wall_share += 0.25);
    }
    earlier.rates.positions_per_second = now.rates.positions_per_second.map(|rate| rate / 2.0);
    earlier.rates.training_positions_per_second = Some(0.0);
    compare(&mut now, Path::new("before.json"), &earlier);
    for time in now.threads.iter().flat_map(|threads| &threads.phases) {
        let change = time.wall_share_change.map(|change| (change * 1e6).round() / 1e6);
        assert_eq!(change, (time.phase != Phase::Forward).then_some(-0.25), "{time:?}");
    }
    let compared = now.compared.unwrap();
    assert_eq!((compared.file.as_str(), compared.cpu.as_str()), ("before.json", "Another CPU"));
    assert_eq!((compared.positions_ratio, compared.training_positions_ratio), (Some(2.0), None));
}
