//! Claims about pacing, on a clock of our own.

use std::time::{Duration, Instant};

use super::Pacing;

/// Works for each of `stretches` and sleeps as told; the share of time worked.
fn share_of(share: f64, stretches: impl Iterator<Item = u64>) -> f64 {
    let start = Instant::now();
    let mut now = start;
    let mut pacing = Pacing::new(share, now);
    for stretch in stretches {
        now += Duration::from_millis(stretch);
        now += pacing.pause(now);
        pacing.resume(now);
    }
    pacing.busy().as_secs_f64() / (now - start).as_secs_f64()
}

#[test]
fn the_share_is_kept_whatever_the_stretches() {
    for stretches in [vec![20; 500], vec![5_000, 1, 1, 1], vec![3]] {
        let share = share_of(0.1, stretches.into_iter());
        assert!((share - 0.1).abs() < 1e-6, "{share}");
    }
}

#[test]
fn a_sleep_that_was_cut_short_is_made_up_for() {
    let mut now = Instant::now();
    let mut pacing = Pacing::new(0.5, now);
    now += Duration::from_millis(100);
    assert_eq!(pacing.pause(now), Duration::from_millis(100));
    now += Duration::from_millis(30);
    pacing.resume(now);
    assert_eq!(pacing.pause(now), Duration::from_millis(70));
}

#[test]
fn a_full_share_never_sleeps() {
    let mut now = Instant::now();
    let mut pacing = Pacing::new(1.0, now);
    now += Duration::from_secs(5);
    assert_eq!(pacing.pause(now), Duration::ZERO);
}

#[test]
fn being_idle_earns_nothing() {
    let mut now = Instant::now();
    let mut pacing = Pacing::new(0.5, now);
    pacing.pause(now);
    now += Duration::from_secs(3600);
    pacing.resume(now);
    now += Duration::from_millis(10);
    assert_eq!(pacing.pause(now), Duration::from_millis(10));
}
