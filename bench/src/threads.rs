//! Threads that begin together and work for a time.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::anyhow;

/// Share of the measured time that is spent before it, so that buffers have grown and clocks have risen.
const WARM_UP: f64 = 0.25;

/// Units/s over all threads, one thread for each of `states`: `round` works and returns how many units it made.
///
/// All begin at the same moment, once warm, and end with the first round that ends after `time`.
///
/// # Errors
/// The first failure of a round.
pub(super) fn rate<S: Send>(
    states: &mut [S],
    time: Duration,
    round: impl Fn(&mut S) -> anyhow::Result<usize> + Sync,
) -> anyhow::Result<f64> {
    let (barrier, round) = (&Barrier::new(states.len()), &round);
    std::thread::scope(|scope| {
        let run = |state| scope.spawn(move || rate_of_one(state, time, round, barrier));
        let threads: Vec<_> = states.iter_mut().map(run).collect();
        let rates = threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?);
        rates.sum()
    })
}

fn rate_of_one<S>(
    state: &mut S,
    time: Duration,
    round: &impl Fn(&mut S) -> anyhow::Result<usize>,
    barrier: &Barrier,
) -> anyhow::Result<f64> {
    // A thread that fails still reaches the barrier.
    let warm = rounds(state, time.mul_f64(WARM_UP), round);
    barrier.wait();
    warm?;
    rounds(state, time, round)
}

/// Units/s of at least one round.
fn rounds<S>(state: &mut S, time: Duration, round: impl Fn(&mut S) -> anyhow::Result<usize>) -> anyhow::Result<f64> {
    let (start, mut units) = (Instant::now(), 0);
    loop {
        units += round(state)?;
        let elapsed = start.elapsed();
        if elapsed >= time {
            return Ok(units as f64 / elapsed.as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
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
}
