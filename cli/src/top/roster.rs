//! Who is there, and who was: processes by their addresses.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fleet::Role;
use fleet::exposition::Exposition;

use super::ask::{Answer, Asker};
use super::rates::CounterRates;
use super::sanitize::sanitize;

/// How long a process that nobody lists any more is shown as lost.
const LOST_SHOWN: Duration = Duration::from_secs(600);
/// Of more such processes those that were lost last are shown.
const LOST_MAX: usize = 64;
/// Names and versions that are longer are cut.
const NAME_LENGTH_MAX: usize = 40;

/// How a process is, as far as can be told.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum State {
    Ready,
    /// And why.
    NotReady(String),
    /// It never answered.
    Silent,
    /// It answered, this long ago for the last time.
    Lost(Instant),
}

/// A process that is, was or should be there.
#[derive(Debug)]
pub(super) struct Process {
    /// What it goes by where it was found: a host name, or its name in the run.
    pub(super) name: String,
    pub(super) role: Option<Role>,
    pub(super) version: Option<String>,
    pub(super) state: State,
    /// When it started, in seconds since 1970, as it says.
    pub(super) started: Option<f64>,
    /// How long it ran before it was started again, while it was watched.
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
            self.rates.begin_anew();
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

/// Everybody that was found since this program began.
#[derive(Debug, Default)]
pub(super) struct Roster {
    asker: Asker,
    processes: BTreeMap<SocketAddr, Process>,
    /// Processes that were lost and are no longer shown: how many, and the time that they ran.
    gone: BTreeMap<Option<Role>, (usize, f64)>,
}

impl Roster {
    /// Asks everybody who is listed, or was.
    pub(super) fn look(&mut self, listed: &[(SocketAddr, String)], now: Instant) {
        for (address, name) in listed {
            self.processes.entry(*address).or_insert_with(|| Process::new(name));
        }
        let addresses: Vec<SocketAddr> = self.processes.keys().copied().collect();
        let answers = self.asker.ask_all(&addresses);
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

    /// Processes that are no longer shown: roles, how many, and the seconds that they ran together.
    pub(super) fn gone(&self) -> impl Iterator<Item = (Option<Role>, usize, f64)> {
        self.gone.iter().map(|(role, (count, seconds))| (*role, *count, *seconds))
    }

    /// Lets go of those that were lost long ago, or are too many, and of those that never answered; who is listed
    /// stays.
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
    /// How long it has run, this and earlier times: to now, or, if it was lost, to so many seconds ago.
    pub(super) fn seconds(&self, lost_ago: f64, unix_seconds: f64) -> f64 {
        let now = self.started.map_or(0.0, |started| (unix_seconds - started - lost_ago).max(0.0));
        self.earlier_seconds + now
    }
}

fn unix_now() -> f64 {
    super::unix_seconds()
}

/// What it says it is, or what its numbers are about.
fn role_of(told: &Exposition) -> Option<Role> {
    let said = told.series.iter().find(|series| series.name == "zerofleet_process_info");
    let said = said.and_then(|series| series.label("role")).and_then(role_named);
    said.or_else(|| {
        told.series.iter().find_map(|series| role_named(series.name.strip_prefix("zerofleet_")?.split('_').next()?))
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

fn label(told: &Exposition, name: &str, label: &str) -> Option<String> {
    let series = told.series.iter().find(|series| series.name == name)?;
    series.label(label).map(|value| sanitize(value, NAME_LENGTH_MAX))
}
