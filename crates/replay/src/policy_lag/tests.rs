use super::*;

fn lags(mut lag: PolicyLag, arrivals: &[(u64, u64)]) -> Vec<u64> {
    arrivals.iter().map(|&(second, version)| lag.of(WeightsVersion(version), Duration::from_secs(second))).collect()
}

#[test]
fn the_lag_is_that_behind_the_newest_that_came() {
    let arrivals = [(0, 5), (1, 3), (2, 9), (2, 9), (3, 5)];
    assert_eq!(lags(PolicyLag::default(), &arrivals), [0, 2, 0, 0, 4]);
    assert_eq!(lags(PolicyLag::new(Some(WeightsVersion(10))), &[(0, 4)]), [6]);
}

#[test]
fn a_version_that_comes_no_more_is_forgotten_so_that_a_learner_may_go_on_from_an_older_one() {
    let kept = NEWEST_KEPT.as_secs();
    let arrivals = [(0, 100), (1, 7), (kept - 1, 7), (2 * kept - 1, 7), (2 * kept, 8), (3 * kept, 8)];
    assert_eq!(lags(PolicyLag::default(), &arrivals), [0, 93, 93, 93, 92, 0]);
    assert_eq!(lags(PolicyLag::default(), &[(0, 100), (2 * kept, 8)]), [0, 0], "after a long pause");
}
