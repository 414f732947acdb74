//! Measures a real training run: the processes of `zerofleet train` in a temporary directory.
//!
//! It waits until the learner trains, then reads the metrics and the resource usage of every process at the start and
//! the end of a time window; callers interpret them. Start with [`measure`].

mod temporary_folder;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use fleet::Role;
use fleet::child::Event;
use fleet::exposition::{Exposition, increase};
use fleet::plan::{self, Plan};
use fleet::{Fleet, Member, Rating};
use games::GameKind;
use run_file::RunFile;
use service::Drain;
use service::gpus::{Gpu, Gpus};

use super::accelerator;
use super::usage::{self, ThreadUsage, Usage};
pub(crate) use temporary_folder::TemporaryFolder;

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
    /// Number of self-play processes [default: depends on the cores].
    #[arg(long)]
    pub actors: Option<usize>,
    /// Run file to start from (TOML, one section per role).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Override one key of the run file; may be repeated.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    pub sets: Vec<String>,
    /// Directory for the run [default: the temporary directory].
    #[arg(long, value_name = "DIR")]
    pub runs: Option<PathBuf>,
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
    /// Accelerators, averaged over the window.
    pub(super) accelerators: Vec<Gpu>,
}

/// Trains as `zerofleet train` does, with or without an arena, in a temporary directory, and reads the metrics of the
/// processes. `prepare` is called with the started processes.
///
/// # Errors
/// A configuration is invalid, a process dies or never trains, `prepare` fails, or Ctrl-C is pressed.
pub(super) fn measure(
    args: &RunArgs,
    rating: Rating,
    prepare: impl FnOnce(&Fleet) -> anyhow::Result<()>,
) -> anyhow::Result<Measured> {
    let (warm_up, measured) = times(args.seconds, args.warm_up_seconds)?;
    let folder = TemporaryFolder::new(args.runs.as_deref())?;
    let plan = Plan::new(
        &plan::Args {
            minutes: None,
            game: Some(args.game.to_string()),
            boards: Vec::new(),
            actors: args.actors,
            learners: 1,
            algorithm: None,
            replay_servers: None,
            inference: None,
            run: Some(NAME.to_owned()),
            runs: folder.path().to_owned(),
            config: args.config.clone(),
            sets: args.sets.clone(),
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
    fn measure(&mut self, warm_up: Duration, measured: Duration) -> anyhow::Result<(Window, Vec<Gpu>)> {
        self.wait_for_the_first_step()?;
        self.run_for(warm_up)?;
        let (began, begin) = self.read()?;
        let accelerators = self.watch_accelerators_for(measured)?;
        let (ended, end) = self.read()?;
        Ok((Window { seconds: ended.duration_since(began).as_secs_f64(), begin, end }, accelerators))
    }

    fn wait_for_the_first_step(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + FIRST_STEP_DEADLINE;
        while !has_trained(&self.fleet.scrape()) {
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

    /// Waits for `time` and returns the mean load of the accelerators, if there are any.
    fn watch_accelerators_for(&mut self, time: Duration) -> anyhow::Result<Vec<Gpu>> {
        let start = Instant::now();
        // A machine without a driver has no readable accelerator.
        let gpus = Gpus::open().ok();
        let read = || gpus.as_ref().and_then(|gpus| gpus.read().ok()).unwrap_or_default();
        let mut readings = vec![read()];
        while !readings[0].is_empty() && start.elapsed() + ACCELERATOR_INTERVAL < time {
            self.run_for(ACCELERATOR_INTERVAL)?;
            readings.push(read());
        }
        self.run_for(time.saturating_sub(start.elapsed()))?;
        Ok(accelerator::mean(&readings))
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

fn has_trained(scrapes: &[(usize, Role, Exposition)]) -> bool {
    let steps = |exposition: &Exposition| exposition.get("zerofleet_learner_steps_total", &[]);
    scrapes.iter().any(|(_, role, scraped)| *role == Role::Learner && steps(scraped).is_some_and(|steps| steps > 0.0))
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

/// Readings of all processes in a run at the start and the end of the measured time, in the same order; no process
/// restarted in between.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    pub(crate) seconds: f64,
    pub(crate) begin: Vec<Reading>,
    pub(crate) end: Vec<Reading>,
}

impl Window {
    /// Returns the growth of a series over all processes of a role. A series that is missing at the start counts from
    /// zero.
    pub(crate) fn growth(&self, role: Role, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let grown = self.processes().filter(|(_, end)| end.role == role).filter_map(|(begin, end)| {
            let before = begin.exposition.get(name, labels).unwrap_or(0.0);
            Some(increase(before, end.exposition.get(name, labels)?))
        });
        sum(grown)
    }

    /// Returns the growth per second of the window.
    pub(crate) fn rate(&self, role: Role, name: &str) -> Option<f64> {
        self.growth(role, name, &[]).filter(|_| self.seconds > 0.0).map(|growth| growth / self.seconds)
    }

    /// Returns a metric of the first process of a role at the end.
    pub(crate) fn last(&self, role: Role, name: &str) -> Option<f64> {
        self.end.iter().find(|reading| reading.role == role)?.exposition.get(name, &[])
    }

    /// Returns a label of a series at the end; with several series, from the one with the greatest value.
    pub(crate) fn label(&self, role: Role, name: &str, label: &str) -> Option<&str> {
        let of_role = self.end.iter().filter(|reading| reading.role == role);
        let series = of_role.flat_map(|reading| &reading.exposition.series).filter(|series| series.name == name);
        series.max_by(|a, b| a.value.total_cmp(&b.value))?.label(label)
    }

    /// Returns the devices on which the processes of a role report tensors of this kind, most often one.
    pub(crate) fn device_of(&self, role: Role, what: &str) -> Option<String> {
        let of_role = self.end.iter().filter(|reading| reading.role == role);
        let placed = of_role.flat_map(|reading| &reading.exposition.series).filter(|series| {
            series.name == "zerofleet_device_tensors" && series.label("what") == Some(what) && series.value > 0.0
        });
        let devices: BTreeSet<&str> = placed.filter_map(|series| series.label("device")).collect();
        (!devices.is_empty()).then(|| devices.into_iter().collect::<Vec<_>>().join(", "))
    }

    /// Returns the CPU time of the threads of a role with names that start with `name`.
    pub(crate) fn cpu_seconds_of_threads(&self, role: Role, name: &str) -> Option<f64> {
        let of_role = self.processes().filter(|(_, end)| end.role == role);
        sum(of_role.filter_map(|(begin, end)| of_threads(begin.usage.as_ref()?, end.usage.as_ref()?, name)))
    }

    /// Returns the CPU time of all processes.
    pub(crate) fn cpu_seconds(&self) -> Option<f64> {
        sum(self.processes().filter_map(|(begin, end)| cpu_seconds(begin, end)))
    }

    /// Iterates over every process at the start and the end.
    pub(crate) fn processes(&self) -> impl Iterator<Item = (&Reading, &Reading)> {
        self.begin.iter().zip(&self.end)
    }
}

/// Returns the CPU time of a process.
pub(crate) fn cpu_seconds(begin: &Reading, end: &Reading) -> Option<f64> {
    Some((end.usage.as_ref()?.cpu_seconds - begin.usage.as_ref()?.cpu_seconds).max(0.0))
}

/// Returns the CPU time of the threads with names that start with `name`; a thread that is missing at the start counts
/// from zero.
pub(crate) fn of_threads(begin: &Usage, end: &Usage, name: &str) -> Option<f64> {
    let before = |thread: &ThreadUsage| {
        begin.threads.iter().find(|before| before.id == thread.id).map_or(0.0, |before| before.cpu_seconds)
    };
    let named = end.threads.iter().filter(|thread| thread.name.starts_with(name));
    sum(named.map(|thread| (thread.cpu_seconds - before(thread)).max(0.0)))
}

/// Returns the sum; `None` without values.
fn sum(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
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

    #[test]
    fn a_key_that_does_not_exist_is_refused_before_anything_runs() {
        let folder = tempfile::tempdir().unwrap();
        let args: RunArgs = args(&format!("--runs {} --set learner.speed=1", folder.path().display()));
        let error = measure(&args, Rating::On, |_| Ok(())).unwrap_err();
        assert!(format!("{error:#}").contains("learner.speed"), "{error:#}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
    }

    #[test]
    fn a_learner_trains_from_its_first_step_on() {
        let scraped =
            |steps: &str| [(0, Role::Learner, Exposition::parse(steps)), (1, Role::Actor, Exposition::default())];
        assert!(!has_trained(&scraped("")));
        assert!(!has_trained(&scraped("zerofleet_learner_steps_total 0")));
        assert!(has_trained(&scraped("zerofleet_learner_steps_total 1")));
    }

    #[test]
    fn growth_is_summed_over_the_processes_of_a_role() {
        let window = Window {
            seconds: 10.0,
            begin: vec![actor("zerofleet_actor_games_total 5"), actor(""), learner("zerofleet_actor_games_total 7")],
            end: vec![
                actor("zerofleet_actor_games_total 25"),
                actor("zerofleet_actor_games_total 30"),
                learner("zerofleet_actor_games_total 900"),
            ],
        };
        assert_eq!(window.growth(Role::Actor, "zerofleet_actor_games_total", &[]), Some(50.0));
        assert_eq!(window.rate(Role::Actor, "zerofleet_actor_games_total"), Some(5.0));
        assert_eq!(window.growth(Role::Actor, "zerofleet_actor_plies_total", &[]), None);
    }

    #[test]
    fn the_label_in_use_is_that_of_the_greatest_value() {
        let end = vec![actor("evaluator{evaluator=\"old\"} 3\nevaluator{evaluator=\"new (f32)\"} 7")];
        let window = Window { seconds: 1.0, begin: vec![actor("")], end };
        assert_eq!(window.label(Role::Actor, "evaluator", "evaluator"), Some("new (f32)"));
        assert_eq!(window.label(Role::Learner, "evaluator", "evaluator"), None);
    }

    #[test]
    fn the_device_of_tensors_is_the_one_that_they_are_on_now() {
        let tensors = |device: &str, value: u8| {
            format!("zerofleet_device_tensors{{what=\"weights\",device=\"{device}\"}} {value}\n")
        };
        let moved = actor(&(tensors("cpu", 0) + &tensors("cuda", 1)));
        let window = |end| Window { seconds: 1.0, begin: Vec::new(), end };
        assert_eq!(window(vec![moved.clone()]).device_of(Role::Actor, "weights").as_deref(), Some("cuda"));
        let both = window(vec![moved, actor(&tensors("cpu", 1))]);
        assert_eq!(both.device_of(Role::Actor, "weights").as_deref(), Some("cpu, cuda"));
        assert_eq!(both.device_of(Role::Actor, "parameters"), None);
        assert_eq!(both.device_of(Role::Learner, "weights"), None);
    }

    #[test]
    fn cpu_time_is_matched_by_thread_id_and_a_new_thread_starts_at_zero() {
        let begin = usage(&[(1, "selfplay-0", 2.0), (2, "tokio", 1.0)]);
        let end = usage(&[(1, "selfplay-0", 5.0), (2, "tokio", 9.0), (3, "selfplay-1", 4.0)]);
        assert_eq!(of_threads(&begin, &end, "selfplay-"), Some(7.0));
        assert_eq!(of_threads(&begin, &end, "train"), None);
    }

    #[test]
    fn cpu_time_is_unknown_without_process_usage() {
        let window = Window { seconds: 1.0, begin: vec![actor("")], end: vec![actor("")] };
        assert_eq!((window.cpu_seconds(), window.cpu_seconds_of_threads(Role::Actor, "selfplay-")), (None, None));
    }
}
