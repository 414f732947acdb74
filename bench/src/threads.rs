//! Threads that start together and work for a time.

use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use service::cpus::Cpu;

/// Duration of the warm-up as a share of the measured time. After it, buffers have grown and clock frequencies have
/// risen.
const WARM_UP: f64 = 0.25;

/// Measures the units/s over all threads, one thread for each of `states`; `round` does one round of work and returns
/// the number of units. Threads are pinned to `cpus` in turn unless that is empty.
///
/// All threads start at the same moment, after the warm-up, and stop with the first round that finishes after `time`.
///
/// # Errors
/// A round fails, or a thread cannot be pinned; returns the first failure.
pub(super) fn rate<S: Send>(
    cpus: &[Cpu],
    states: &mut [S],
    time: Duration,
    round: impl Fn(&mut S) -> anyhow::Result<usize> + Sync,
) -> anyhow::Result<f64> {
    let warm_up = |state: &mut S| rounds(state, time.mul_f64(WARM_UP), &round).map(drop);
    Ok(together(cpus, states, warm_up, |state| rounds(state, time, &round))?.iter().sum())
}

/// Calls `measure` in a thread for each of `states`, all at the same moment, once every thread has finished `warm_up`.
///
/// # Errors
/// A call fails, or a thread cannot be pinned; returns the first failure.
pub(super) fn together<S: Send, T: Send>(
    cpus: &[Cpu],
    states: &mut [S],
    warm_up: impl Fn(&mut S) -> anyhow::Result<()> + Sync,
    measure: impl Fn(&mut S) -> anyhow::Result<T> + Sync,
) -> anyhow::Result<Vec<T>> {
    let (barrier, warm_up, measure) = (&Barrier::new(states.len()), &warm_up, &measure);
    std::thread::scope(|scope| {
        let threads = states.iter_mut().enumerate().map(|(index, state)| {
            let cpu = cpus.get(index % cpus.len().max(1));
            scope.spawn(move || {
                let pinned = cpu.map_or(Ok(()), |cpu| cpu.pin()).context("pin a thread");
                // A failing thread still reaches the barrier, where all other threads wait.
                let warm = pinned.and_then(|()| warm_up(&mut *state));
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

/// Measures the units/s of at least one round.
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
        let rate = rate(&[], &mut states, Duration::ZERO, |state| {
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
        let error = rate(&[], &mut states, Duration::ZERO, |fails| match fails {
            true => Err(anyhow!("out of order")),
            false => Ok(1),
        });
        assert_eq!(error.unwrap_err().to_string(), "out of order");
    }
}
