use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

#[test]
fn every_state_is_worked_on_before_and_after_the_barrier() {
    let rounds = AtomicUsize::new(0);
    let mut states = [0_usize; 3];
    let rate = rate(&mut states, Duration::ZERO, |state| {
        *state += 1;
        rounds.fetch_add(1, Ordering::Relaxed);
        Ok(10)
    });
    assert!(rate.unwrap() > 0.0);
    assert_eq!((states, rounds.into_inner()), ([2; 3], 6));
}

#[test]
fn a_failure_in_one_thread_ends_the_others_too() {
    let mut states = [false, true];
    let error = rate(&mut states, Duration::ZERO, |fails| match fails {
        true => Err(anyhow!("out of order")),
        false => Ok(1),
    });
    assert_eq!(error.unwrap_err().to_string(), "out of order");
}
