//! Polls all known processes of a fleet, including lost processes, and keeps a history by address.
//!
//! The caller sends the requests. Text from processes is untrusted: [`sanitize`] cleans it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fleet::Role;
use fleet::exposition::{Answer, Exposition};

use crate::{CounterRates, Processes, RunMetrics};

/// Maximum number of processes polled in parallel.
const AT_ONCE_MAX: usize = 32;
/// Time after which a lost process that is no longer listed disappears from the table.
const LOST_SHOWN: Duration = Duration::from_secs(600);
/// Maximum number of lost processes shown after they are no longer listed; the most recent losses are kept.
const LOST_MAX: usize = 64;
/// Maximum length of process names and versions in characters; longer texts are truncated.
const NAME_LENGTH_MAX: usize = 40;
/// Maximum length of the reason why a process is not ready, in characters; longer texts are truncated.
const STATE_LENGTH_MAX: usize = 200;
/// Maximum length of the reasons for refusing games or weights, in characters; longer texts are truncated.
const REASON_LENGTH_MAX: usize = 300;
/// Maximum length of metric labels in characters; longer labels are truncated.
pub const LABEL_LENGTH_MAX: usize = 40;
/// Maximum length of engine names in characters; longer names are truncated.
const ENGINE_LENGTH_MAX: usize = 120;

/// The state of a process at the last poll.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum State {
    /// The process responds and is ready.
    Ready,
    /// The process responds but is not ready, for the reason in the response.
    NotReady(String),
    /// The process has never responded to a poll.
    #[default]
    Silent,
    /// The process responded earlier, but stopped responding at this time.
    Lost(Instant),
}

impl State {
    /// Returns the state in words.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::NotReady(_) => "not ready",
            Self::Silent => "no reply",
            Self::Lost(_) => "lost",
        }
    }
}

/// A process that is listed or has responded earlier, with the history of metrics.
#[derive(Debug, Default)]
pub struct Process {
    /// Name of the process in the run, or the host name.
    pub name: String,
    /// Role that the process reports.
    pub role: Option<Role>,
    /// Version of the program.
    pub version: Option<String>,
    /// State at the last poll.
    pub state: State,
    /// Start time that the process reports, in seconds since 1970.
    pub started: Option<f64>,
    /// Running time before the last observed restart, in seconds.
    pub earlier_seconds: f64,
    /// Recent metrics.
    pub rates: CounterRates,
}

impl Process {
    fn new(name: &str) -> Self {
        Self { name: sanitize(name, NAME_LENGTH_MAX), ..Self::default() }
    }

    /// Returns true if the process responded to the last poll.
    pub fn answers(&self) -> bool {
        matches!(self.state, State::Ready | State::NotReady(_))
    }

    /// Returns the time in seconds since a lost process stopped responding; `None` in other states.
    pub fn lost_seconds(&self, now: Instant) -> Option<f64> {
        match self.state {
            State::Lost(since) => Some(now.saturating_duration_since(since).as_secs_f64()),
            _ => None,
        }
    }

    /// Updates the state with the response to a poll at `now`, if any.
    fn update(&mut self, answer: Option<Answer>, now: Instant) {
        let Some(Answer { exposition, is_ready, reason }) = answer else {
            if self.answers() {
                self.state = State::Lost(now);
            }
            return;
        };
        if matches!(self.state, State::Lost(_)) {
            // A rate across a gap in the readings would not be recent.
            self.rates = CounterRates::default();
        }
        let reason = reason.lines().next().unwrap_or_default();
        self.state = if is_ready { State::Ready } else { State::NotReady(sanitize(reason, STATE_LENGTH_MAX)) };
        self.role = role_of(&exposition).or(self.role);
        let version = info(&exposition, "version").map(|version| sanitize(version, NAME_LENGTH_MAX));
        self.version = version.or(self.version.take());
        let started = exposition.get("zerofleet_process_start_seconds", &[]).filter(|seconds| *seconds > 0.0);
        if let (Some(before), Some(after)) = (self.started, started)
            && after > before
        {
            self.earlier_seconds += after - before;
            // After a restart, counters start at zero.
            self.rates = CounterRates::default();
        }
        self.started = started;
        self.rates.remember(now, exposition);
    }

    /// Returns the total running time in seconds, including the time before restarts. `lost_ago` is the time in seconds
    /// since the process was lost (0 if the process is running), and `unix_seconds` is the current time.
    pub fn seconds(&self, lost_ago: f64, unix_seconds: f64) -> f64 {
        let now = self.started.map_or(0.0, |started| (unix_seconds - started - lost_ago).max(0.0));
        self.earlier_seconds + now
    }
}

/// All processes found since this program started, by admin address.
#[derive(Debug, Default)]
pub struct Roster {
    processes: BTreeMap<SocketAddr, Process>,
    /// Lost processes that are no longer in the table, by role: the number and the total running time in seconds.
    gone: BTreeMap<Option<Role>, (usize, f64)>,
}

impl Roster {
    /// Polls every process that is listed now or was listed earlier, with requests that `ask` sends from several
    /// threads. `unix_seconds` is the time `now`.
    pub fn poll(
        &mut self,
        listed: &[(SocketAddr, String)],
        now: Instant,
        unix_seconds: f64,
        ask: impl Fn(SocketAddr) -> Option<Answer> + Sync,
    ) {
        for (address, name) in listed {
            self.processes.entry(*address).or_insert_with(|| Process::new(name));
        }
        let ask = &ask;
        let mut processes: Vec<_> = self.processes.iter_mut().collect();
        let each = processes.len().div_ceil(AT_ONCE_MAX).max(1);
        std::thread::scope(|scope| {
            for chunk in processes.chunks_mut(each) {
                scope.spawn(|| chunk.iter_mut().for_each(|(address, process)| process.update(ask(**address), now)));
            }
        });
        let is_listed = |address: &SocketAddr| listed.iter().any(|(other, _)| other == address);
        self.prune(is_listed, now, unix_seconds);
    }

    /// Removes processes that are not in a complete list.
    pub fn keep_listed(&mut self, listed: &[(SocketAddr, String)]) {
        self.processes.retain(|address, _| listed.iter().any(|(other, _)| other == address));
    }

    /// Returns all processes, by admin address.
    pub fn processes(&self) -> impl Iterator<Item = (&SocketAddr, &Process)> {
        self.processes.iter()
    }

    /// Returns the recent metrics of the processes that respond, by role.
    pub fn fleet(&self) -> Processes<'_> {
        let answering = self.processes.values().filter(|process| process.answers());
        Processes(answering.filter_map(|process| Some((process.role?, &process.rates))).collect())
    }

    /// Returns the metrics of the fleet, in which every text is clean.
    pub fn metrics(&self) -> RunMetrics {
        let mut metrics = RunMetrics::of(&self.fleet());
        metrics.engines.values_mut().for_each(|engine| *engine = sanitize(engine, ENGINE_LENGTH_MAX));
        for text in [&mut metrics.health.defect, &mut metrics.health.weights_refusal].into_iter().flatten() {
            *text = sanitize(text, REASON_LENGTH_MAX);
        }
        for used in &mut metrics.devices {
            used.device = sanitize(&used.device, LABEL_LENGTH_MAX);
            for label in [&mut used.name, &mut used.gpu, &mut used.uuid].into_iter().flatten() {
                *label = sanitize(label, LABEL_LENGTH_MAX);
            }
        }
        metrics
    }

    /// Returns, for the lost processes no longer in the table, each role with the number and the total running time in
    /// seconds.
    pub fn gone(&self) -> impl Iterator<Item = (Option<Role>, usize, f64)> {
        self.gone.iter().map(|(role, (count, seconds))| (*role, *count, *seconds))
    }

    /// Removes unlisted processes that never responded, were lost more than [`LOST_SHOWN`] ago, or exceed [`LOST_MAX`].
    fn prune(&mut self, is_listed: impl Fn(&SocketAddr) -> bool, now: Instant, unix_seconds: f64) {
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
                *seconds += process.seconds(now.saturating_duration_since(since).as_secs_f64(), unix_seconds);
            }
        }
    }
}

/// Returns the role that a process reports, or else the role in the names of the metrics; `None` without either.
fn role_of(exposition: &Exposition) -> Option<Role> {
    let named = |name: &str| Role::ALL.into_iter().find(|role| [role.name(), role.program()].contains(&name));
    info(exposition, "role").and_then(named).or_else(|| {
        let mut names = exposition.series.iter().filter_map(|series| series.name.strip_prefix("zerofleet_"));
        names.find_map(|name| named(name.split('_').next()?))
    })
}

/// Returns a label of the series `zerofleet_process_info`, such as the version.
fn info<'a>(exposition: &'a Exposition, label: &str) -> Option<&'a str> {
    exposition.series.iter().find(|series| series.name == "zerofleet_process_info")?.label(label)
}

/// Converts text from another process to printable ASCII of at most `length_max` characters. Control characters,
/// escape sequences, bidirectional marks and wide characters could control a terminal or break table columns.
pub fn sanitize(text: &str, length_max: usize) -> String {
    let shown = |c: char| if c == ' ' || c.is_ascii_graphic() { c } else { '?' };
    // Reads one more character than the limit, to detect truncation.
    let mut sanitized: String = text.trim().chars().take(length_max.saturating_add(1)).map(shown).collect();
    if sanitized.len() > length_max {
        sanitized.truncate(length_max.saturating_sub(1));
        sanitized.push('~');
    }
    sanitized
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_bidirectional_characters_are_replaced() {
        assert_eq!(sanitize("a\x1b[2Jb\r\nc\x07\u{202e}d\u{200b}漢", 40), "a?[2Jb??c??d??");
        assert_eq!(sanitize("\u{9b}31mred\x7f", 40), "?31mred?");
        assert_eq!(sanitize("  waiting for the first weights \n", 40), "waiting for the first weights");
    }

    #[test]
    fn long_text_is_cut_with_a_mark() {
        assert_eq!(sanitize("1234567890", 10), "1234567890");
        assert_eq!(sanitize("12345678901", 10), "123456789~");
        assert_eq!(sanitize(&"x".repeat(1 << 20), 3), "xx~");
    }
}
