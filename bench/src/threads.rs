//! Threads that start together and work for a time.

use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::anyhow;

/// Duration of the warm-up as a share of the measured time. After it, buffers have grown and clock frequencies have
/// risen.
const WARM_UP: f64 = 0.25;

/// Measures the units/s over all threads, one thread for each of `states`; `round` does one round of work and returns
/// the number of units.
///
/// All threads start at the same moment, after the warm-up, and stop with the first round that finishes after `time`.
///
/// # Errors
/// A round fails; returns the first failure.
pub(super) fn rate<S: Send>(
    states: &mut [S],
    time: Duration,
    round: impl Fn(&mut S) -> anyhow::Result<usize> + Sync,
) -> anyhow::Result<f64> {
    let warm_up = |state: &mut S| rounds(time.mul_f64(WARM_UP), || round(&mut *state)).map(drop);
    let measure = |state: &mut S| rounds(time, || round(&mut *state));
    Ok(together(states, warm_up, measure)?.iter().sum())
}

/// Calls `measure` in a thread for each of `states`, all at the same moment, once every thread has finished `warm_up`.
///
/// # Errors
/// A call fails; returns the first failure.
pub(super) fn together<S: Send, T: Send>(
    states: &mut [S],
    warm_up: impl Fn(&mut S) -> anyhow::Result<()> + Sync,
    measure: impl Fn(&mut S) -> anyhow::Result<T> + Sync,
) -> anyhow::Result<Vec<T>> {
    let (barrier, warm_up, measure) = (&Barrier::new(states.len()), &warm_up, &measure);
    std::thread::scope(|scope| {
        let threads = states.iter_mut().map(|state| {
            scope.spawn(move || {
                // A failing thread still reaches the barrier, where all other threads wait.
                let warm = warm_up(&mut *state);
                barrier.wait();
                warm.and_then(|()| measure(state))
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?).collect()
    })
}

/// Locks a mutex, also after a panic in another thread; joining that thread ends the measurement.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Repeats `round`, which returns a number of units, for `time` but at least once, and returns the units/s.
///
/// # Errors
/// A round fails.
pub(super) fn rounds(time: Duration, mut round: impl FnMut() -> anyhow::Result<usize>) -> anyhow::Result<f64> {
    let (start, mut units) = (Instant::now(), 0);
    loop {
        units += round()?;
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
