//! The progress of the threads of a process, for `/healthz` and for metrics.
//!
//! A thread at work beats at each step. A thread that waits for another thread or process is alive for any time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use metrics::gauge;

/// The health of a process: of each thread with a [`Heartbeat`]. Cheap to clone; healthy without heartbeats.
#[derive(Debug, Clone, Default)]
pub struct Health {
    threads: Arc<Mutex<Vec<Thread>>>,
}

#[derive(Debug)]
struct Thread {
    name: &'static str,
    stalled_after: Duration,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Time of the last beat.
    Beating(Instant),
    /// The thread waits for other threads or processes.
    Waiting,
    Ended,
    Panicked,
}

/// The heartbeat of one thread; the drop marks the thread as finished.
#[derive(Debug)]
pub struct Heartbeat {
    state: Arc<Mutex<State>>,
}

impl Health {
    /// Adds a thread that beats from now on; a pause longer than `stalled_after` is a stall. Threads of one kind
    /// share a name.
    pub fn heartbeat(&self, name: &'static str, stalled_after: Duration) -> Heartbeat {
        let state = Arc::new(Mutex::new(State::Beating(Instant::now())));
        let thread = Thread { name, stalled_after, state: Arc::clone(&state) };
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Heartbeat { state }
    }

    /// Publishes the pause of each thread at `now`; infinity after a panic.
    pub(crate) fn publish(&self, now: Instant) {
        let mut threads = BTreeMap::new();
        for thread in &*self.threads.lock().unwrap_or_else(PoisonError::into_inner) {
            let (pause, most) = threads.entry(thread.name).or_insert((0.0_f64, thread.stalled_after));
            *pause = pause.max(thread.pause_seconds(now));
            *most = thread.stalled_after;
        }
        for (name, (pause, most)) in threads {
            gauge!("zerofleet_thread_pause_seconds", "thread" => name).set(pause);
            gauge!("zerofleet_thread_pause_seconds_max", "thread" => name).set(most.as_secs_f64());
        }
    }

    /// Returns the threads that cannot work at `now`, with reasons; `None` if there are none.
    pub fn problem(&self, now: Instant) -> Option<String> {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let problems: Vec<String> = threads.iter().filter_map(|thread| thread.problem(now)).collect();
        (!problems.is_empty()).then(|| problems.join("; "))
    }
}

impl Thread {
    fn pause_seconds(&self, now: Instant) -> f64 {
        match *self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Ended | State::Waiting => 0.0,
            State::Panicked => f64::INFINITY,
            State::Beating(last) => now.saturating_duration_since(last).as_secs_f64(),
        }
    }

    fn problem(&self, now: Instant) -> Option<String> {
        let name = self.name;
        match *self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Ended | State::Waiting => None,
            State::Panicked => Some(format!("the thread {name} panicked")),
            State::Beating(last) => {
                let pause = now.saturating_duration_since(last);
                (pause > self.stalled_after).then(|| format!("the thread {name} has stalled for {} s", pause.as_secs()))
            }
        }
    }
}

thread_local! {
    /// The state of the current thread, if it has a heartbeat.
    static OF_THREAD: RefCell<Option<Arc<Mutex<State>>>> = const { RefCell::new(None) };
}

/// Records that the current thread makes progress, if it has a heartbeat.
pub fn beat() {
    set_of_thread(State::Beating(Instant::now()));
}

/// Waits for other threads or processes, for any time, without a stall of the current thread.
pub fn waiting<T>(wait: impl FnOnce() -> T) -> T {
    set_of_thread(State::Waiting);
    let result = wait();
    beat();
    result
}

fn set_of_thread(now: State) {
    OF_THREAD.with_borrow(|state| {
        let Some(state) = state else { return };
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::Beating(_) | State::Waiting) {
            *state = now;
        }
    });
}

impl Heartbeat {
    /// Records that the thread makes progress.
    pub fn beat(&self) {
        self.set(State::Beating(Instant::now()));
    }

    /// Makes this the heartbeat of the current thread, for [`beat`] and [`waiting`].
    #[must_use]
    pub fn of_thread(self) -> Self {
        OF_THREAD.set(Some(Arc::clone(&self.state)));
        self
    }

    fn set(&self, state: State) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.set(if std::thread::panicking() { State::Panicked } else { State::Ended });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    #[test]
    fn a_thread_that_stops_beating_is_named_with_the_length_of_its_pause() {
        let health = Health::default();
        let (log, _other) = (health.heartbeat("log", LIMIT), health.heartbeat("tables", 3 * LIMIT));
        assert_eq!(health.problem(Instant::now() + LIMIT / 2), None);
        let stalled = health.problem(Instant::now() + 2 * LIMIT).unwrap();
        assert!(stalled.starts_with("the thread log has stalled for 6"), "{stalled}");
        log.beat();
        assert_eq!(health.problem(Instant::now()), None);
    }

    #[test]
    fn a_panic_is_a_problem_and_an_end_is_none() {
        let health = Health::default();
        drop(health.heartbeat("tables", LIMIT));
        assert_eq!(health.problem(Instant::now() + 2 * LIMIT), None);
        let log = health.heartbeat("log", LIMIT);
        let panics = std::thread::spawn(move || {
            log.beat();
            panic!("a bug");
        });
        panics.join().unwrap_err();
        assert_eq!(health.problem(Instant::now()).as_deref(), Some("the thread log panicked"));
    }

    #[test]
    fn a_thread_that_waits_is_alive_until_it_works_again() {
        let health = Health::default();
        let later = || health.problem(Instant::now() + 2 * LIMIT);
        let heartbeat = health.heartbeat("train", LIMIT).of_thread();
        assert_eq!(waiting(later), None);
        assert!(later().unwrap().starts_with("the thread train has stalled for "));
        let alive = std::thread::scope(|scope| scope.spawn(|| waiting(later)).join().unwrap());
        assert!(alive.is_some(), "a wait of another thread");
        drop(heartbeat);
        beat();
        assert_eq!(later(), None, "it has ended");
    }

    #[test]
    fn pauses_are_published_for_alerts() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let health = Health::default();
        let _tables = health.heartbeat("tables", LIMIT);
        // Among threads of one name, the longest pause counts.
        drop(health.heartbeat("tables", LIMIT));
        drop(health.heartbeat("log", LIMIT));
        metrics::with_local_recorder(&recorder, || health.publish(Instant::now() + LIMIT));
        let text = recorder.handle().render();
        assert!(text.contains("zerofleet_thread_pause_seconds{thread=\"tables\"} 3"), "{text}");
        assert!(text.contains("zerofleet_thread_pause_seconds{thread=\"log\"} 0"), "{text}");
        assert!(text.contains("zerofleet_thread_pause_seconds_max{thread=\"tables\"} 30"), "{text}");
    }
}
