//! Polls the metrics of a process continuously, from inside the same namespace, so that network faults do not affect
//! the measurement.

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::namespace::Namespace;

/// Polling interval, which is also the resolution of recovery times.
const INTERVAL: Duration = Duration::from_millis(100);
/// Request timeout; a stalled process exceeds it.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Invariants of the metrics of a process; every sample is checked against them.
#[derive(Debug, Clone, Default)]
pub struct Promises {
    /// A metric that never decreases, not even over restarts: the weights version. A value of 0 means that there is no
    /// version yet.
    pub never_falls: Option<&'static str>,
    /// A metric that decreases only at a restart, and not below the floor.
    pub falls_to_floor: Option<&'static str>,
    /// A metric that counts the trajectories acknowledged since the last start, and the path of the file that holds the
    /// latest epoch of these trajectories.
    pub acknowledged: Option<(&'static str, PathBuf)>,
}

/// Metrics of a process at one time.
#[derive(Debug, Clone)]
struct Sample {
    began: Instant,
    ended: Instant,
    start_count: u32,
    values: HashMap<String, f64>,
}

#[derive(Debug, Default)]
struct State {
    start_count: u32,
    floor: f64,
    newest: Option<Sample>,
    highest: f64,
    latest: f64,
    /// Acknowledged trajectories, by number of the start.
    acknowledged: BTreeMap<u32, Acknowledged>,
    broken: Vec<String>,
}

/// A thread that polls a process, with the observed state.
#[derive(Debug)]
pub struct Watch {
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts to poll the process `name`, which serves metrics at port `admin` of the namespace's loopback.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(name: String, namespace: Arc<Namespace>, admin: u16, promises: Promises) -> anyhow::Result<Self> {
        let state = Arc::new(Mutex::new(State::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let looking = Looking { name, admin, promises, state: Arc::clone(&state), stop: Arc::clone(&stop) };
        let thread = std::thread::Builder::new().name("watch".into()).spawn(move || looking.run(&namespace));
        Ok(Self { state, stop, thread: Some(thread.context("start a watch")?) })
    }

    /// Records a new start of the process; `floor` is the lowest value to which `Promises::falls_to_floor` may decrease
    /// at this restart.
    pub fn begin_run(&self, floor: f64) {
        let mut state = locked(&self.state);
        state.start_count += 1;
        state.floor = floor;
        state.latest = 0.0;
    }

    /// Returns the latest value of a metric, with request time, response time and start number; `None` before the first
    /// response since the last start.
    #[must_use]
    pub(super) fn seen(&self, metric: &str) -> Option<Seen> {
        let state = locked(&self.state);
        let sample = state.newest.as_ref().filter(|sample| sample.start_count == state.start_count)?;
        let &Sample { began, ended, start_count, .. } = sample;
        Some(Seen { began, ended, start_count, value: sample.values.get(metric).copied().unwrap_or(0.0) })
    }

    /// Returns the number of starts so far.
    pub(super) fn start_count(&self) -> u32 {
        locked(&self.state).start_count
    }

    /// Returns the acknowledged trajectories of each start of the process.
    #[must_use]
    pub fn acknowledged(&self) -> Vec<Acknowledged> {
        locked(&self.state).acknowledged.values().cloned().collect()
    }

    /// Returns the violated invariants since the last call.
    #[must_use]
    pub fn broken(&self) -> Vec<String> {
        std::mem::take(&mut locked(&self.state).broken)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed already.
            let _ = thread.join();
        }
    }
}

/// Acknowledged trajectories of one start of an actor, which has an epoch for each replay server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledged {
    /// Epochs since the previous start.
    pub epochs: RangeInclusive<u64>,
    /// Total number of trajectories.
    pub count: u64,
}

/// A value of a metric, with the times of request and response.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) began: Instant,
    pub(super) ended: Instant,
    pub(super) start_count: u32,
    pub(super) value: f64,
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Looking {
    name: String,
    admin: u16,
    promises: Promises,
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
}

impl Looking {
    fn run(self, namespace: &Namespace) {
        if let Err(error) = namespace.enter() {
            locked(&self.state).broken.push(format!("{}: {error:#}", self.name));
            return;
        }
        let agent: ureq::Agent = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).build().into();
        let url = format!("http://127.0.0.1:{}/metrics", self.admin);
        while !self.stop.load(Ordering::Relaxed) {
            let start_count = locked(&self.state).start_count;
            let began = Instant::now();
            let text = agent.get(&url).call().and_then(|mut response| response.body_mut().read_to_string());
            // A process that does not respond has exited, is paused or has not started yet, which is not an error here.
            if let Ok(text) = text {
                self.see(Sample { began, ended: Instant::now(), start_count, values: values(&text) });
            }
            std::thread::sleep(INTERVAL);
        }
    }

    fn see(&self, sample: Sample) {
        let mut state = locked(&self.state);
        if sample.start_count != state.start_count {
            return;
        }
        let value = |name: &str| sample.values.get(name).copied().unwrap_or(0.0);
        if let Some(metric) = self.promises.never_falls {
            let (now, highest) = (value(metric), state.highest);
            if now > 0.0 && now < highest {
                state.broken.push(format!("{}: {metric} went from {highest} back to {now}", self.name));
            }
            state.highest = highest.max(now);
        }
        if let Some(metric) = self.promises.falls_to_floor {
            let (now, least) = (value(metric), state.latest.max(state.floor));
            if now > 0.0 && now < least {
                state.broken.push(format!("{}: {metric} went from {least} back to {now}", self.name));
            }
            state.latest = state.latest.max(now);
        }
        if let Some((metric, epoch)) = &self.promises.acknowledged {
            let epoch = std::fs::read_to_string(epoch).ok().and_then(|text| text.trim().parse().ok());
            if let Some(epoch) = epoch.filter(|_| value(metric) > 0.0) {
                let earlier = state.acknowledged.range(..sample.start_count).next_back();
                let first = earlier.map_or(0, |(_, earlier)| earlier.epochs.end() + 1);
                let acknowledged = Acknowledged { epochs: first..=epoch, count: value(metric) as u64 };
                state.acknowledged.insert(sample.start_count, acknowledged);
            }
        }
        state.newest = Some(sample);
    }
}

/// Returns every sample in Prometheus' text format, by name with labels.
fn values(text: &str) -> HashMap<String, f64> {
    let samples = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
    samples.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looking(promises: Promises) -> Looking {
        Looking { name: "it".into(), admin: 0, promises, state: Arc::default(), stop: Arc::default() }
    }

    fn look(at: &Looking, text: &str) {
        let (now, start_count) = (Instant::now(), locked(&at.state).start_count);
        at.see(Sample { began: now, ended: now, start_count, values: values(text) });
    }

    fn begin_run(of: &Looking, floor: f64) {
        Watch { state: Arc::clone(&of.state), stop: Arc::default(), thread: None }.begin_run(floor);
    }

    fn broken(at: &Looking) -> usize {
        locked(&at.state).broken.len()
    }

    #[test]
    fn a_decreasing_weights_version_is_reported_also_over_restarts_and_zero_is_no_decrease() {
        let it = looking(Promises { never_falls: Some("version"), ..Promises::default() });
        for text in ["version 3", "version 4", "other 1", "version 0"] {
            look(&it, text);
        }
        begin_run(&it, 0.0);
        look(&it, "version 4");
        assert_eq!(broken(&it), 0);
        look(&it, "version 3");
        assert_eq!(broken(&it), 1);
    }

    #[test]
    fn steps_may_fall_at_a_restart_and_no_further_than_the_floor() {
        let it = looking(Promises { falls_to_floor: Some("steps"), ..Promises::default() });
        look(&it, "steps 100");
        begin_run(&it, 80.0);
        look(&it, "steps 0");
        look(&it, "steps 85");
        assert_eq!(broken(&it), 0);
        look(&it, "steps 84");
        assert_eq!(broken(&it), 1);
        begin_run(&it, 85.0);
        look(&it, "steps 84");
        assert_eq!(broken(&it), 2);
    }

    #[test]
    fn a_sample_from_before_a_restart_is_ignored() {
        let it = looking(Promises { never_falls: Some("version"), ..Promises::default() });
        let now = Instant::now();
        let late = Sample { began: now, ended: now, start_count: 0, values: values("version 9") };
        begin_run(&it, 0.0);
        it.see(late);
        look(&it, "version 1");
        assert_eq!(broken(&it), 0);
    }

    #[test]
    fn samples_are_known_by_name_and_labels() {
        let text = "# HELP of it\nplain 1\nwith{by=\"server\",other=\"a b\"} 2.5\n";
        let expected = [("plain", 1.0), ("with{by=\"server\",other=\"a b\"}", 2.5)];
        assert_eq!(values(text), expected.map(|(name, value)| (name.to_owned(), value)).into());
    }
}
