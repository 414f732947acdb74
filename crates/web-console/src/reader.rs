//! Reads a run once a second, from the files of the run and the admin ports of the processes, and renders it for all
//! tabs. Start with [`Reader::follow`].

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use fleet::admin_hosts::{LOOKUP_INTERVAL, resolve};
use fleet::exposition::{agent, ask};
use fleet::{JsonLines, Role, RunDirectory, read_list};
use run_metrics::roster::{LABEL_LENGTH_MAX, Roster};
use run_metrics::words::unix_seconds;
use run_metrics::{History, RunEvent, RunMetrics};
use service::Drain;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::charts::Charts;
use crate::games::{Games, Visits};
use crate::overview::{self, Overview, Phase};
use crate::ratings::{Ratings, Stamp};
use crate::snapshot::{Feed, Snapshot};

/// Interval between two snapshots.
const PERIOD: Duration = Duration::from_secs(1);
/// Timeout of a request to an admin port; a process that takes longer is overloaded or has exited.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Interval between checks whether the run trains. A check locks the run for a moment, in which no session can start.
const LOCK_INTERVAL: Duration = Duration::from_secs(3);
/// Interval between readings of a deployed fleet in seconds, as in a session.
const RECORD_SECONDS: f64 = 5.0;
/// Maximum number of devices, and of labels per measurement, in a recorded reading: processes name them.
const RECORDED_MAX: usize = 64;
/// Maximum number of events to show.
const EVENTS_MAX: usize = 50;

/// Addresses of processes, with the host of each.
type Addresses = BTreeMap<SocketAddr, String>;

/// A run that is read again and again.
#[derive(Debug)]
pub(crate) struct Reader {
    run: RunDirectory,
    /// The processes of a deployed fleet by host; `None` if a session lists the processes.
    deployed: Option<watch::Receiver<Vec<Addresses>>>,
    agent: ureq::Agent,
    lines: JsonLines<RunMetrics>,
    history: Arc<History>,
    event_lines: JsonLines<RunEvent>,
    /// The latest events, oldest first.
    events: VecDeque<RunEvent>,
    roster: Roster,
    /// True if a session trained the run at the last check, with the time of the check.
    trained: Option<(bool, Instant)>,
    ratings: Arc<Ratings>,
    /// State of the ratings at the last look.
    rated: Stamp,
    /// The charts of history and ratings.
    charts: Arc<Charts>,
    games: Games,
    visits: Visits,
}

impl Reader {
    /// Returns the reader of a run, in a runtime of tokio.
    pub(crate) fn new(run: RunDirectory, ratings: Arc<Ratings>) -> Self {
        Self {
            deployed: run.admins().map(|admins| follow_hosts(admins, resolve)),
            agent: agent(TIMEOUT),
            lines: JsonLines::new(run.metrics()),
            history: Arc::default(),
            event_lines: JsonLines::new(run.events()),
            events: VecDeque::new(),
            roster: Roster::default(),
            trained: None,
            charts: Arc::new(Charts::new(Arc::default(), Arc::clone(&ratings))),
            ratings,
            rated: None,
            games: Games::new(Handle::current()),
            visits: Visits::default(),
            run,
        }
    }

    /// Starts a thread that renders a snapshot per second until `drain` starts, in a runtime of tokio. If the thread
    /// ends earlier, it starts `drain`: pages that never change would look like a run that stands still.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn follow(mut self, drain: Drain) -> io::Result<(Feed, JoinHandle<()>)> {
        let loading = Snapshot { fragments: overview::loading(), ..Snapshot::default() };
        let (sender, snapshots) = watch::channel(Arc::new(loading));
        let feed = Feed { snapshots, visits: self.visits.clone() };
        let started = drain.clone();
        let work = move || {
            let ends = Ends(drain);
            while !ends.0.started() {
                let begin = Instant::now();
                sender.send_replace(Arc::new(self.read(begin, unix_seconds(SystemTime::now()))));
                while !ends.0.started() && begin.elapsed() < PERIOD {
                    std::thread::park_timeout(PERIOD.saturating_sub(begin.elapsed()));
                }
            }
        };
        let thread = std::thread::Builder::new().name("run-reader".to_owned()).spawn(work)?;
        let parked = thread.thread().clone();
        tokio::spawn(async move {
            started.wait().await;
            parked.unpark();
        });
        Ok((feed, thread))
    }

    /// Reads news, and renders the fragments. Games are read for recent visits.
    fn read(&mut self, now: Instant, unix_seconds: f64) -> Snapshot {
        let problem = self.read_files().err().map(|error| format!("{error:#}"));
        let is_trained = self.is_trained(now);
        if is_trained {
            let listed = || read_list(&self.run.fleet()).unwrap_or_default().into_iter().map(|it| (it.admin, it.name));
            // Several actors have one host, and the name of the actor identifies a game.
            let named = |(address, host): (&SocketAddr, &String)| (*address, format!("{address} {host}"));
            let found = |found: &watch::Receiver<Vec<Addresses>>| found.borrow().iter().flatten().map(named).collect();
            let listed: Vec<_> = self.deployed.as_ref().map_or_else(|| listed().collect(), found);
            let client = &self.agent;
            self.roster.poll(&listed, now, unix_seconds, |address| ask(client, address));
            // The supervisor lists all processes, and an actor that it has removed is not lost.
            if self.deployed.is_none() {
                self.roster.keep_listed(&listed);
            }
            self.record(unix_seconds);
        } else {
            self.roster = Roster::default();
        }
        let rated = self.ratings.stamp().unwrap_or_default();
        if self.history.count() > self.charts.history.count() || rated != self.rated {
            self.charts = Arc::new(Charts::new(Arc::clone(&self.history), Arc::clone(&self.ratings)));
            self.rated = rated;
        }
        let actors = self.roster.processes().filter(|(_, each)| each.answers() && each.role == Some(Role::Actor));
        let actors = actors.map(|(address, each)| (*address, each.name.as_str()));
        self.games.listen(self.visits.is_recent(now).then_some(actors), now);
        let games = self.games.draw(now);
        let recorded = self.history.readings().last();
        let progress = self.run.progress();
        let problem = problem.or_else(|| progress.as_ref().err().map(|error| format!("{error:#}")));
        let total_seconds = progress.ok().flatten().map(|progress| 60.0 * progress.minutes);
        let of_session = || Phase::of(recorded, is_trained, total_seconds, unix_seconds);
        let fragments = overview::render(&Overview {
            run: self.run.name(),
            problem,
            phase: if self.deployed.is_some() { Phase::Deployed } else { of_session() },
            total_seconds: total_seconds.unwrap_or(0.0),
            metrics: current(recorded, is_trained.then(|| self.roster.metrics())),
            roster: &self.roster,
            charts: &self.charts.learning,
            events: &self.events,
            games: &games,
            now,
            unix_seconds,
        });
        Snapshot { fragments, selected: games.selected, charts: Some(Arc::clone(&self.charts)), is_trained }
    }

    /// Reads lines that were appended to the files of the run.
    fn read_files(&mut self) -> anyhow::Result<()> {
        // Tabs may still hold the last snapshot.
        self.lines.each(|reading| Arc::make_mut(&mut self.history).add(reading))?;
        self.event_lines.each(|event| keep_latest(&mut self.events, event))
    }

    /// Keeps a reading of a deployed fleet in memory, where no session writes any.
    fn record(&mut self, unix_seconds: f64) {
        let readings = self.history.readings();
        let is_recent = |last: &RunMetrics| (0.0..RECORD_SECONDS).contains(&(unix_seconds - last.unix_seconds));
        if self.deployed.is_none() || self.roster.fleet().0.is_empty() || readings.last().is_some_and(is_recent) {
            return;
        }
        let elapsed_seconds = readings.first().map_or(0.0, |first| (unix_seconds - first.unix_seconds).max(0.0));
        let mut reading = RunMetrics { elapsed_seconds, unix_seconds, ..self.roster.metrics() };
        for labelled in [&mut reading.accuracy, &mut reading.opponents] {
            let short = std::mem::take(labelled).into_iter().filter(|(label, _)| label.len() <= LABEL_LENGTH_MAX);
            *labelled = short.take(RECORDED_MAX).collect();
        }
        reading.devices.truncate(RECORDED_MAX);
        Arc::make_mut(&mut self.history).add(reading);
    }

    fn is_trained(&mut self, now: Instant) -> bool {
        // A session that has ended stops the processes, and plays rated games before it unlocks the run.
        let has_ended = || self.events.iter().rev().find_map(RunEvent::starts_session) == Some(false);
        if self.deployed.is_none() && has_ended() {
            self.trained = None;
            return false;
        }
        match self.trained {
            Some((is_trained, at)) if now.duration_since(at) < LOCK_INTERVAL => is_trained,
            _ => {
                let is_trained = self.run.is_trained();
                self.trained = Some((is_trained, now));
                is_trained
            }
        }
    }
}

/// Looks up `hosts`, each HOST:PORT, again and again until the receiver is dropped. Returns the addresses of each. A
/// slow name server delays no reading and no other host; until it responds, the addresses of the last response stay.
fn follow_hosts(
    hosts: &[String],
    look_up: impl Fn(&[String]) -> Addresses + Clone + Send + 'static,
) -> watch::Receiver<Vec<Addresses>> {
    let (sender, found) = watch::channel(vec![Addresses::new(); hosts.len()]);
    for (index, host) in hosts.iter().cloned().enumerate() {
        let (sender, look_up) = (sender.clone(), look_up.clone());
        tokio::spawn(async move {
            while !sender.is_closed() {
                let (look_up, hosts) = (look_up.clone(), [host.clone()]);
                let addresses = spawn_blocking(move || look_up(&hosts)).await.unwrap_or_default();
                sender.send_modify(|found| found[index] = addresses);
                sleep(LOOKUP_INTERVAL).await;
            }
        });
    }
    found
}

/// Adds an event, and drops the oldest of too many.
pub(crate) fn keep_latest(events: &mut VecDeque<RunEvent>, event: RunEvent) {
    events.push_back(event);
    if events.len() > EVENTS_MAX {
        events.pop_front();
    }
}

/// Starts the drain at the end of the thread, also after a panic.
struct Ends(Drain);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.start();
    }
}

/// Returns the recorded metrics, in which the values of running processes replace those of the last reading. A process
/// that does not respond has no rate.
fn current(recorded: Option<&RunMetrics>, live: Option<RunMetrics>) -> RunMetrics {
    let recorded = recorded.cloned().unwrap_or_default();
    let Some(live) = live else { return recorded };
    RunMetrics {
        games_per_second: live.games_per_second,
        positions_per_second: live.positions_per_second,
        evaluations_per_second: live.evaluations_per_second,
        steps_per_second: live.steps_per_second,
        inserts_per_second: live.inserts_per_second,
        samples_per_second: live.samples_per_second,
        unacknowledged: live.unacknowledged,
        steps: live.steps.or(recorded.steps),
        weights_version: live.weights_version.or(recorded.weights_version),
        weights_lag: live.weights_lag,
        devices: if live.devices.is_empty() { recorded.devices } else { live.devices },
        engines: if live.engines.is_empty() { recorded.engines } else { live.engines },
        ..recorded
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_slow_name_server_delays_only_the_processes_of_one_host() {
        let (release, released) = std::sync::mpsc::channel::<()>();
        let released = Arc::new(parking_lot::Mutex::new(released));
        let look_up = move |hosts: &[String]| {
            // The end of the channel releases the look-up.
            let _ = (hosts[0] == "slow:2").then(|| released.lock().recv());
            resolve(&[hosts[0].replace("slow", "127.0.0.1")])
        };
        let mut found = follow_hosts(&["slow:2", "127.0.0.1:1"].map(str::to_owned), look_up);
        let ports =
            |found: &Vec<Addresses>| found.iter().flatten().map(|(address, _)| address.port()).collect::<Vec<_>>();
        let deadline = Duration::from_secs(60);
        timeout(deadline, found.wait_for(|found| ports(found) == [1])).await.unwrap().unwrap();
        drop(release);
        timeout(deadline, found.wait_for(|found| ports(found) == [2, 1])).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn charts_are_drawn_again_only_after_a_change_of_metrics_or_ratings() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDirectory::new(folder.path(), "first").unwrap();
        run.create().unwrap();
        let mut reader = Reader::new(run.clone(), Arc::new(Ratings::new(run.clone())));
        let mut charts = || reader.read(Instant::now(), 1e9).charts.unwrap();
        let mut last = charts();
        for (file, text) in [(run.metrics(), "{\"elapsed_seconds\":60.0}\n"), (run.path().join("ratings.json"), "{}")] {
            assert!(Arc::ptr_eq(&last, &charts()), "before a change of {}", file.display());
            std::fs::write(&file, text).unwrap();
            let changed = charts();
            assert!(!Arc::ptr_eq(&last, &changed), "after a change of {}", file.display());
            last = changed;
        }
        assert!(Arc::ptr_eq(&last, &charts()));
    }

    #[test]
    fn live_rates_replace_recorded_ones_and_a_lost_process_has_none() {
        let recorded =
            RunMetrics { steps: Some(5.0), elo: Some(9.0), games_per_second: Some(2.0), ..RunMetrics::default() };
        assert_eq!(current(Some(&recorded), None), recorded, "a run that has ended");
        let live = RunMetrics { games_per_second: Some(3.0), ..RunMetrics::default() };
        let seen = current(Some(&recorded), Some(live));
        assert_eq!((seen.steps, seen.elo, seen.games_per_second), (Some(5.0), Some(9.0), Some(3.0)));
        assert_eq!(current(Some(&recorded), Some(RunMetrics::default())).games_per_second, None);
    }
}
