//! Measures a real training run: the processes of `zerofleet train` in a temporary directory.
//!
//! It waits until the learner trains, then reads the metrics and the resource usage of every process at the start and
//! the end of a time window; callers interpret them. Start with [`measure`].

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use fleet::Role;
use fleet::child::Event;
use fleet::exposition::Exposition;
use fleet::plan::{self, Plan};
use fleet::{Fleet, Member, Rating};
use games::GameKind;
use run_file::RunFile;
use run_metrics::{CounterRates, DeviceUse, Meter, Processes};
use service::Drain;
use service::devices::CPU;

use super::usage::{self, ThreadUsage, Usage};
use crate::output::temporary_folder;

/// Interval between two checks of the processes and of Ctrl-C.
const WATCH_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum time to the first training step of a run.
const FIRST_STEP_DEADLINE: Duration = Duration::from_secs(600);
/// Maximum time to read the metrics of every process; a busy process may need several tries.
const READ_DEADLINE: Duration = Duration::from_secs(20);
/// Interval between two readings of the accelerators; the figures cover about as long.
const ACCELERATOR_INTERVAL: Duration = Duration::from_secs(1);
/// Name of the run in its directory.
const NAME: &str = "bench";

/// Options of the run, and the duration of the measurement.
#[derive(Debug, Clone, clap::Args)]
pub struct RunArgs {
    /// Game to train on.
    #[arg(long, default_value = "connect_four")]
    pub game: GameKind,
    /// Duration of the measurement, in seconds.
    #[arg(long, default_value_t = 60.0)]
    pub seconds: f64,
    /// Seconds between the first training step and the measurement.
    #[arg(long, default_value_t = 15.0)]
    pub warm_up_seconds: f64,
    /// Run file and settings.
    #[command(flatten)]
    pub settings: Run,
    /// Directory for the run [default: the temporary directory].
    #[arg(long, value_name = "DIR")]
    pub runs: Option<PathBuf>,
}

/// The run file and settings of a run.
#[derive(Debug, Clone, Default, clap::Args, serde::Serialize)]
pub struct Run {
    /// Run file to start from (TOML, one section per role).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Override one key of the run file; may be repeated.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    #[serde(rename = "set")]
    pub sets: Vec<String>,
}

/// Returns the durations of the measurement and the warm-up.
///
/// # Errors
/// A duration is invalid.
pub(super) fn times(seconds: f64, warm_up_seconds: f64) -> anyhow::Result<(Duration, Duration)> {
    let measured = Duration::try_from_secs_f64(seconds).context("parse --seconds")?;
    ensure!(!measured.is_zero(), "--seconds must be above 0");
    let warm_up = Duration::try_from_secs_f64(warm_up_seconds).context("parse --warm-up-seconds")?;
    Ok((warm_up, measured))
}

/// Results of a measured run.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) config: RunFile,
    pub(super) actors: usize,
    pub(super) window: Window,
    /// Accelerators of the run, averaged over the window.
    pub(super) accelerators: Vec<DeviceUse>,
}

/// Trains as `zerofleet train` does, with or without an arena, in a temporary directory, and reads the metrics of the
/// processes. Without a number of `actors`, it depends on the cores. `prepare` is called with the started processes.
///
/// # Errors
/// A configuration is invalid, a process dies or never trains, `prepare` fails, or Ctrl-C is pressed.
pub(super) fn measure(
    args: &RunArgs,
    actors: Option<usize>,
    rating: Rating,
    prepare: impl FnOnce(&Fleet) -> anyhow::Result<()>,
) -> anyhow::Result<Measured> {
    let (warm_up, measured) = times(args.seconds, args.warm_up_seconds)?;
    let folder = temporary_folder(args.runs.as_deref())?;
    let plan = Plan::new(
        &plan::Args {
            minutes: None,
            game: Some(args.game.to_string()),
            boards: Vec::new(),
            actors,
            learners: 1,
            learner: None,
            algorithm: None,
            replay_servers: None,
            inference: None,
            run: Some(NAME.to_owned()),
            runs: folder.path().to_owned(),
            config: args.settings.config.clone(),
            sets: args.settings.sets.clone(),
        },
        std::env::vars_os(),
    )?;
    let binaries = fleet::binaries(&plan, rating)?;
    plan.run.create()?;
    plan.write_config()?;
    // This runtime serves signals only.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let drain = Drain::new();
    runtime.block_on(async { drain.on_signals() }).context("listen to signals")?;
    // Declared after the directory and so dropped before it: on an early return, the processes are killed before the
    // directory is removed.
    let mut session = Session { fleet: Fleet::start(&plan, &binaries, rating, Instant::now())?, drain };
    let measured = prepare(&session.fleet).and_then(|()| session.measure(warm_up, measured));
    let drained = session.fleet.drain();
    let (window, accelerators) = measured?;
    drained?;
    Ok(Measured { config: plan.config, actors: plan.actors, window, accelerators })
}

struct Session {
    fleet: Fleet,
    drain: Drain,
}

impl Session {
    fn measure(&mut self, warm_up: Duration, measured: Duration) -> anyhow::Result<(Window, Vec<DeviceUse>)> {
        self.wait_for_the_first_step()?;
        self.run_for(warm_up)?;
        let begin = self.read()?;
        let accelerators = self.watch_accelerators_for(measured)?;
        Ok((Window::between(begin, self.read()?), accelerators))
    }

    fn wait_for_the_first_step(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + FIRST_STEP_DEADLINE;
        let mut meter = Meter::default();
        while meter.read(Instant::now(), self.fleet.scrape()).steps.unwrap_or(0.0) == 0.0 {
            ensure!(Instant::now() < deadline, "no training step within {FIRST_STEP_DEADLINE:?}");
            self.look()?;
        }
        Ok(())
    }

    fn run_for(&mut self, time: Duration) -> anyhow::Result<()> {
        let start = Instant::now();
        while start.elapsed() < time {
            self.look()?;
        }
        Ok(())
    }

    /// Waits for `time` and returns the mean use of the accelerators, if the run uses any.
    fn watch_accelerators_for(&mut self, time: Duration) -> anyhow::Result<Vec<DeviceUse>> {
        let (start, mut meter, mut readings) = (Instant::now(), Meter::default(), Vec::new());
        loop {
            let devices = meter.read(Instant::now(), self.fleet.scrape()).devices;
            readings.extend(devices.into_iter().filter(|used| used.device != CPU));
            if readings.is_empty() || start.elapsed() + ACCELERATOR_INTERVAL >= time {
                self.run_for(time.saturating_sub(start.elapsed()))?;
                return Ok(DeviceUse::over(&readings));
            }
            self.run_for(ACCELERATOR_INTERVAL)?;
        }
    }

    /// Waits for one interval; the death of a process, or Ctrl-C, is an error that ends the measurement.
    fn look(&mut self) -> anyhow::Result<()> {
        if let Some((index, event)) = self.fleet.watch(Instant::now())?.into_iter().next() {
            let name = self.fleet.members()[index].child.name().to_owned();
            match event {
                Event::Died { how, last_log_line, .. } => bail!("{name} {how}; last log line: {last_log_line}"),
                Event::Refused { why } | Event::GivenUp { why } => bail!("{name} {why}"),
                Event::Restarted => bail!("{name} was restarted"),
            }
        }
        ensure!(!self.drain.started(), "stopped before the end of the measurement");
        std::thread::sleep(WATCH_INTERVAL);
        Ok(())
    }

    /// Reads the metrics of every process; also returns the time of the reading.
    fn read(&mut self) -> anyhow::Result<(Instant, Vec<Reading>)> {
        let deadline = Instant::now() + READ_DEADLINE;
        loop {
            let scrapes = self.fleet.scrape();
            let now = Instant::now();
            if scrapes.len() == self.fleet.members().len() {
                return Ok((now, readings(self.fleet.members(), scrapes)));
            }
            ensure!(now < deadline, "not all processes returned metrics within {READ_DEADLINE:?}");
            self.look()?;
        }
    }
}

fn readings(members: &[Member], scrapes: Vec<(usize, Role, Exposition)>) -> Vec<Reading> {
    let reading = |(index, role, exposition): (usize, Role, Exposition)| {
        let child = &members[index].child;
        Reading { name: child.name().to_owned(), role, exposition, usage: child.id().and_then(usage::of) }
    };
    scrapes.into_iter().map(reading).collect()
}

/// Metrics and resource usage of one process at one time.
#[derive(Debug, Clone)]
pub(crate) struct Reading {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) exposition: Exposition,
    /// Resource usage; `None` if the system does not report it.
    pub(crate) usage: Option<Usage>,
}

/// A process over the measured time, without a restart.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) rates: CounterRates,
    /// Resource usage at the start and the end; `None` if the system does not report it.
    pub(crate) usage: Option<[Usage; 2]>,
}

impl Process {
    /// Returns the CPU time of the process.
    pub(crate) fn cpu_seconds(&self) -> Option<f64> {
        let [begin, end] = self.usage.as_ref()?;
        Some((end.cpu_seconds - begin.cpu_seconds).max(0.0))
    }

    /// Returns the CPU time of the threads with names that start with `name`; a thread that is missing at the start
    /// counts from zero.
    pub(crate) fn cpu_seconds_of_threads(&self, name: &str) -> Option<f64> {
        let [begin, end] = self.usage.as_ref()?;
        let before = |thread: &ThreadUsage| {
            begin.threads.iter().find(|before| before.id == thread.id).map_or(0.0, |before| before.cpu_seconds)
        };
        let named = end.threads.iter().filter(|thread| thread.name.starts_with(name));
        named.map(|thread| (thread.cpu_seconds - before(thread)).max(0.0)).reduce(|a, b| a + b)
    }

    /// Returns the resident memory at the end, in bytes.
    pub(crate) fn memory_bytes(&self) -> Option<f64> {
        let [_, end] = self.usage.as_ref()?;
        Some(end.memory_bytes? as f64)
    }
}

/// All processes of a run over the measured time.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    pub(crate) seconds: f64,
    pub(crate) processes: Vec<Process>,
}

impl Window {
    /// Pairs the readings of each process, which are in the same order.
    fn between((began, begin): (Instant, Vec<Reading>), (ended, end): (Instant, Vec<Reading>)) -> Self {
        let process = |(begin, end): (Reading, Reading)| Process {
            name: end.name,
            role: end.role,
            rates: CounterRates::between((began, begin.exposition), (ended, end.exposition)),
            usage: begin.usage.zip(end.usage).map(<[Usage; 2]>::from),
        };
        let processes = begin.into_iter().zip(end).map(process).collect();
        Self { seconds: ended.duration_since(began).as_secs_f64(), processes }
    }

    /// Returns the metrics of all processes.
    pub(crate) fn metrics(&self) -> Processes<'_> {
        Processes(self.processes.iter().map(|process| (process.role, &process.rates)).collect())
    }

    /// Returns the increase of a counter, summed over the processes of a role.
    pub(crate) fn increase(&self, role: Role, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        self.metrics().rate(role, name, labels).map(|rate| rate * self.seconds)
    }

    /// Returns the sum of a value over the processes of a role.
    pub(crate) fn sum(&self, role: Role, value: impl Fn(&Process) -> Option<f64>) -> Option<f64> {
        self.processes.iter().filter(|process| process.role == role).filter_map(value).reduce(|a, b| a + b)
    }

    /// Returns the CPU time of all processes.
    pub(crate) fn cpu_seconds(&self) -> Option<f64> {
        self.processes.iter().filter_map(Process::cpu_seconds).reduce(|a, b| a + b)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::tests::args;

    /// Returns an actor with this exposition.
    pub(crate) fn actor(exposition: &str) -> Reading {
        Reading {
            name: "actor-0".to_owned(),
            role: Role::Actor,
            exposition: Exposition::parse(exposition),
            usage: None,
        }
    }

    /// Returns a learner with this exposition.
    pub(crate) fn learner(exposition: &str) -> Reading {
        Reading { name: "learner".to_owned(), role: Role::Learner, ..actor(exposition) }
    }

    /// Returns the usage of a process with these threads: id, name, CPU time.
    pub(crate) fn usage(threads: &[(u64, &str, f64)]) -> Usage {
        let thread =
            |&(id, name, cpu_seconds): &(u64, &str, f64)| ThreadUsage { id, name: name.to_owned(), cpu_seconds };
        Usage {
            cpu_seconds: threads.iter().map(|(.., cpu)| cpu).sum(),
            threads: threads.iter().map(thread).collect(),
            memory_bytes: Some(64 << 20),
        }
    }

    /// Returns the time of `seconds` between two readings of each process.
    pub(crate) fn window(seconds: f64, begin: Vec<Reading>, end: Vec<Reading>) -> Window {
        let began = Instant::now();
        Window::between((began, begin), (began + Duration::from_secs_f64(seconds), end))
    }

    #[test]
    fn a_key_that_does_not_exist_is_refused_before_anything_runs() {
        let folder = tempfile::tempdir().unwrap();
        let args: RunArgs = args(&format!("--runs {} --set learner.speed=1", folder.path().display()));
        let error = measure(&args, None, Rating::On, |_| Ok(())).unwrap_err();
        assert!(format!("{error:#}").contains("learner.speed"), "{error:#}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
    }

    #[test]
    fn cpu_time_is_matched_by_thread_id_and_a_new_thread_starts_at_zero() {
        let with = |threads| Reading { usage: Some(usage(threads)), ..actor("") };
        let begin = with(&[(1, "selfplay-0", 2.0), (2, "tokio", 1.0)]);
        let end = with(&[(1, "selfplay-0", 5.0), (2, "tokio", 9.0), (3, "selfplay-1", 4.0)]);
        let window = window(1.0, vec![begin], vec![end]);
        let of_threads = |name| window.sum(Role::Actor, |process| process.cpu_seconds_of_threads(name));
        assert_eq!((of_threads("selfplay-"), of_threads("train")), (Some(7.0), None));
    }

    #[test]
    fn cpu_time_is_unknown_without_process_usage() {
        let window = window(1.0, vec![actor("")], vec![actor("")]);
        let of_threads = window.processes[0].cpu_seconds_of_threads("selfplay-");
        assert_eq!((window.cpu_seconds(), of_threads), (None, None));
    }
}
