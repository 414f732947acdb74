//! Keeps the processes of a fleet, present and lost, by their addresses.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fleet::Role;
use fleet::exposition::Exposition;

use super::poll::{Answer, Poller};
use super::rates::CounterRates;
use super::sanitize::sanitize;

/// Time for which a lost process is shown after it is no longer listed.
const LOST_SHOWN: Duration = Duration::from_secs(600);
/// Number of such processes shown, those lost last.
const LOST_MAX: usize = 64;
/// Length at which names and versions are cut.
const NAME_LENGTH_MAX: usize = 40;

/// The observed state of a process.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum State {
    Ready,
    /// Not ready, for this reason.
    NotReady(String),
    /// The process has never answered.
    Silent,
    /// The process has answered, but not since this time.
    Lost(Instant),
}

/// A process that is listed or has been seen.
#[derive(Debug)]
pub(super) struct Process {
    /// The host name, or the name in the run.
    pub(super) name: String,
    pub(super) role: Option<Role>,
    pub(super) version: Option<String>,
    pub(super) state: State,
    /// The reported start time in seconds since 1970.
    pub(super) started: Option<f64>,
    /// Seconds of observed running time before restarts.
    pub(super) earlier_seconds: f64,
    pub(super) rates: CounterRates,
}

impl Process {
    fn new(name: &str) -> Self {
        Self {
            name: sanitize(name, NAME_LENGTH_MAX),
            role: None,
            version: None,
            state: State::Silent,
            started: None,
            earlier_seconds: 0.0,
            rates: CounterRates::default(),
        }
    }

    pub(super) fn answers(&self) -> bool {
        matches!(self.state, State::Ready | State::NotReady(_))
    }

    fn take(&mut self, answer: Option<Answer>, now: Instant) {
        let Some(Answer { not_ready, exposition }) = answer else {
            if self.answers() {
                self.state = State::Lost(now);
            }
            return;
        };
        if matches!(self.state, State::Lost(_)) {
            self.rates.clear();
        }
        self.state = not_ready.map_or(State::Ready, State::NotReady);
        self.role = role_of(&exposition).or(self.role);
        self.version = label(&exposition, "zerofleet_process_info", "version").or(self.version.take());
        let started = exposition.get("zerofleet_process_start_seconds", &[]).filter(|seconds| *seconds > 0.0);
        if let (Some(before), Some(after)) = (self.started, started)
            && after > before
        {
            self.earlier_seconds += after - before;
        }
        self.started = started;
        self.rates.remember(now, exposition);
    }
}

/// All processes found since this program started.
#[derive(Debug, Default)]
pub(super) struct Roster {
    poller: Poller,
    processes: BTreeMap<SocketAddr, Process>,
    /// Lost processes that are no longer shown, by role: their number, and their running time in seconds.
    gone: BTreeMap<Option<Role>, (usize, f64)>,
}

impl Roster {
    /// Polls every process that is listed now or was before.
    pub(super) fn poll(&mut self, listed: &[(SocketAddr, String)], now: Instant) {
        for (address, name) in listed {
            self.processes.entry(*address).or_insert_with(|| Process::new(name));
        }
        let addresses: Vec<SocketAddr> = self.processes.keys().copied().collect();
        let answers = self.poller.poll_all(&addresses);
        let answered = Instant::now();
        for (process, answer) in self.processes.values_mut().zip(answers) {
            process.take(answer, answered);
        }
        let is_listed = |address: &SocketAddr| listed.iter().any(|(other, _)| other == address);
        self.forget(is_listed, now);
    }

    pub(super) fn processes(&self) -> impl Iterator<Item = (&SocketAddr, &Process)> {
        self.processes.iter()
    }

    /// Returns the lost processes that are no longer shown: role, number, and total running time in seconds.
    pub(super) fn gone(&self) -> impl Iterator<Item = (Option<Role>, usize, f64)> {
        self.gone.iter().map(|(role, (count, seconds))| (*role, *count, *seconds))
    }

    /// Removes unlisted processes that never answered, were lost long ago, or exceed the limit on lost processes.
    fn forget(&mut self, is_listed: impl Fn(&SocketAddr) -> bool, now: Instant) {
        self.processes.retain(|address, process| is_listed(address) || process.state != State::Silent);
        let mut lost: Vec<(Instant, SocketAddr)> = self
            .processes
            .iter()
            .filter(|(address, _)| !is_listed(address))
            .filter_map(|(address, process)| match process.state {
                State::Lost(since) => Some((since, *address)),
                _ => None,
            })
            .collect();
        lost.sort_unstable_by_key(|(since, _)| std::cmp::Reverse(*since));
        let shown =
            |index: usize, since: Instant| index < LOST_MAX && now.saturating_duration_since(since) < LOST_SHOWN;
        for (_, (since, address)) in lost.into_iter().enumerate().filter(|(index, (since, _))| !shown(*index, *since)) {
            if let Some(process) = self.processes.remove(&address) {
                let (count, seconds) = self.gone.entry(process.role).or_default();
                *count += 1;
                *seconds += process.seconds(now.saturating_duration_since(since).as_secs_f64(), unix_now());
            }
        }
    }
}

impl Process {
    /// Returns the running time in seconds, over restarts, until `lost_ago` seconds before now.
    pub(super) fn seconds(&self, lost_ago: f64, unix_seconds: f64) -> f64 {
        let now = self.started.map_or(0.0, |started| (unix_seconds - started - lost_ago).max(0.0));
        self.earlier_seconds + now
    }
}

fn unix_now() -> f64 {
    super::unix_seconds()
}

/// Returns the role that a process reports, or else the one that the names of its metrics imply.
fn role_of(exposition: &Exposition) -> Option<Role> {
    let reported = exposition.series.iter().find(|series| series.name == "zerofleet_process_info");
    let reported = reported.and_then(|series| series.label("role")).and_then(role_named);
    reported.or_else(|| {
        exposition
            .series
            .iter()
            .find_map(|series| role_named(series.name.strip_prefix("zerofleet_")?.split('_').next()?))
    })
}

fn role_named(name: &str) -> Option<Role> {
    match name {
        "actor" => Some(Role::Actor),
        "replay" | "replay-server" => Some(Role::Replay),
        "learner" => Some(Role::Learner),
        "arena" => Some(Role::Arena),
        "inference" | "inference-server" => Some(Role::Inference),
        _ => None,
    }
}

fn label(exposition: &Exposition, name: &str, label: &str) -> Option<String> {
    let series = exposition.series.iter().find(|series| series.name == name)?;
    series.label(label).map(|value| sanitize(value, NAME_LENGTH_MAX))
}
