//! `zerofleet train`: supervises a run. Starts and watches the processes, shows and records the metrics, and drains
//! the processes.

#![allow(clippy::print_stdout, reason = "a person reads the summary")]

use std::iter;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use fleet::child::Event;
use fleet::plan::{self, Plan};
use fleet::run_directory::{Learner, Progress, RunDirectory};
use fleet::{Fleet, Member, Rating, Role, SessionStart};
use run_file::arena::GateKind;
use run_file::learner::libtorch::Cpu;
use run_metrics::{Meter, RunEvent, RunMetrics};
use service::Drain;
use strength::ledger::{Ledger, Player};
use training::NetworkSize;
use version_store::VersionStore;
use web_console::Change;

use crate::console::{self, ConsoleProcess};
use crate::core_division::CoreDivision;
use crate::deterministic;
use crate::incoming;
use crate::initial_weights;
use crate::kept_versions;
use crate::libtorch::Answer;
use crate::record::Record;
use crate::report::{self, Origin};
use crate::resume;
use crate::screen::{Screen, beyond_support, clock, print_line};
use crate::stall::Watch;
use crate::trained_time::TrainedTime;
use crate::unix_seconds;
use crate::write_failures::WriteFailures;

/// Trains a network: starts all processes of a run and shows metrics.
///
/// On Ctrl-C, or when the time is over, all processes drain in order: they finish or store the work in progress.
#[derive(Debug, Clone, clap::Args)]
// The group of the run options has the same name.
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    run: plan::Args,

    /// Train deterministically in one process, up to this many versions.
    ///
    /// The order of events does not depend on the clock: the same run file and seed give bit-identical weights, even
    /// after interruptions. CPU only.
    #[arg(long, value_name = "VERSIONS", conflicts_with_all = ["minutes", "actors", "learners", "learner", "replay_servers", "inference"])]
    deterministic: Option<u64>,

    /// Episodes per version with --deterministic [default: 256].
    ///
    /// Must be a multiple of 64. A resumed run keeps the stored number by default.
    #[arg(long, value_name = "EPISODES", requires = "deterministic")]
    episodes_per_version: Option<u64>,

    /// Begin a new run with these weights: a bundled model, a model folder or a file.
    ///
    /// The network takes every tensor with the same name and shape (docs/networks.md). The run plays the game of the
    /// weights, unless an option, the run file or the environment names a game. A run that resumes ignores the weights;
    /// with --from 0 it begins with them.
    #[arg(long, value_name = "MODEL")]
    weights: Option<PathBuf>,

    /// Continue the run from the checkpoint of this training step.
    ///
    /// Later checkpoints are moved aside, not deleted. With 0, training restarts from scratch, and the weights trained
    /// so far are kept.
    #[arg(long, value_name = "STEP", requires = "run", conflicts_with = "deterministic")]
    from: Option<u64>,

    #[command(flatten)]
    console: console::Options,

    /// Print as JSON whether the learner needs libtorch, and exit.
    #[arg(long, hide = true)]
    needs_libtorch: bool,

    /// Drain the run when standard input closes, which shows that the parent process has exited.
    #[arg(long, hide = true, conflicts_with = "deterministic")]
    exit_with_parent: bool,
}

/// Interval at which to check the processes and look for Ctrl-C.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);
/// Interval at which the metrics are read.
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between writes of metrics and progress.
const RECORD_INTERVAL: Duration = Duration::from_secs(5);

/// Maximum time after a run for the remaining rated games of the last version.
const MEASURE_MAX: Duration = Duration::from_secs(30);

/// Trains until the time is over or a signal requests a stop.
pub(crate) fn run(mut args: Args) -> anyhow::Result<()> {
    let ignored = match &args.weights {
        Some(model) => initial_weights::select(model, args.from, std::env::vars_os(), &mut args.run)?,
        None => None,
    };
    let env = std::env::vars_os();
    let plan = if args.deterministic.is_some() { Plan::on_cpu(&args.run, env)? } else { Plan::new(&args.run, env)? };
    let is_own = plan.progress.learner == Learner::Own;
    if args.needs_libtorch {
        let learners = if is_own { 0 } else { plan.learners };
        let answer = Answer::new(&plan.config, plan.progress.inference, learners, Cpu::this())?;
        println!("{}", serde_json::to_string(&answer)?);
        return Ok(());
    }
    ignored.iter().for_each(|line| print_line(line));
    let remedy = if args.deterministic.is_some() { "start another run" } else { resume::TRAIN_FROM_NOTHING };
    // If the run is already in training, the error of the lock names the holder. A learner of the user has no
    // checkpoints here.
    let is_checked = args.from.is_none() && !plan.run.is_trained() && !is_own;
    let checkpoint = if is_checked { resume::checkpoint(&plan, remedy)? } else { None };
    let is_new = match args.from {
        Some(step) => step == resume::FROM_NOTHING,
        None if is_own => VersionStore::of_learner(plan.run.path()).versions()?.is_empty(),
        None => is_checked && checkpoint.is_none(),
    };
    let weights = if is_new { initial_weights::check(&plan)? } else { None };
    if let Some(versions) = args.deterministic {
        weights.iter().for_each(|line| print_line(line));
        return deterministic::train(&plan, versions, args.episodes_per_version);
    }
    deterministic::check_absent(&plan.run)?;
    let binaries = fleet::binaries(&plan, Rating::On)?;
    if args.from.is_some() {
        RunDirectory::existing(&args.run.runs, plan.run.name()).context("--from")?;
    }
    let schedule = checkpoint.map(|checkpoint| resume::schedule_line(&plan, &checkpoint)).transpose()?.flatten();
    let mut start = SessionStart::new(&plan)?;
    if let Some(step) = args.from {
        resume::go_back(&plan, step)?;
    }
    let (_runtime, drain) = crate::drain_on_signals()?;
    if args.exit_with_parent {
        drain.on_end_of(std::io::stdin())?;
    }
    supervise(&plan, &binaries, &drain, &args.console, [schedule, weights], &mut start)
}

fn supervise(
    plan: &Plan,
    binaries: &Path,
    drain: &Drain,
    console: &console::Options,
    [schedule, weights]: [Option<String>; 2],
    start: &mut SessionStart,
) -> anyhow::Result<()> {
    let total = Duration::from_secs_f64(plan.progress.minutes * 60.0);
    let screen = Screen::of_run(total);
    let (run, of_run) = (&plan.run, &plan.config.run);
    let boards: Vec<&str> = iter::once(&of_run.game).chain(&of_run.boards).map(String::as_str).collect();
    screen.print(&format!(
        "run {} in {}: {}, seed {}, {} replay server(s), {} actor(s) of {} thread(s)",
        run.name(),
        run.path().display(),
        boards.join(" and "),
        of_run.seed,
        plan.replay_servers(),
        plan.actors,
        plan.config.actor.threads,
    ));
    let network = plan.config.learner_settings()?.architecture();
    screen.print(&NetworkSize::of(&network)?.to_string());
    if !of_run.boards.is_empty() {
        let game = &of_run.game;
        screen.print(&format!(
            "losses, held-out games and strength below are for {game}; games, positions and replay are for all boards"
        ));
    }
    plan.placement.lines.iter().for_each(|line| screen.print(line));
    if plan.progress.learner == Learner::Own {
        let (incoming, name) = (run.path().join(incoming::FOLDER), run.name());
        screen.print(&format!(
            "learner of your own: weights from {}, batches from zerofleet replay batches --run {name}",
            incoming.display()
        ));
    }
    if let Some(file) = &plan.unread {
        let (file, own) = (file.display(), run.config());
        screen.print(&format!(
            "{file} is ignored: the run resumes with {}; change keys there or with --set",
            own.display()
        ));
    }
    schedule.iter().for_each(|line| screen.print(line));
    let fleet = Fleet::start(plan, binaries, Rating::On, Instant::now())?;
    let progress =
        Progress { replay: fleet.replay().to_vec(), boards: fleet.boards().clone(), ..plan.progress.clone() };
    let now = Instant::now();
    let meter = Meter::resume(plan.progress.totals.clone());
    // Training goes on without a console.
    let console = ConsoleProcess::start(run, console, now).unwrap_or_else(|error| {
        screen.print(&format!("no console: {error:#}"));
        None
    });
    console.iter().for_each(|console| screen.print(&format!("console: {}", console.url())));
    let mut session = Session {
        run,
        plan,
        start,
        moves_before: meter.moves(),
        record: Record::open(run, &plan.config)?,
        meter,
        fleet,
        console,
        screen,
        total,
        time: TrainedTime::resume(Duration::from_secs_f64(plan.progress.elapsed_seconds), now),
        last: RunMetrics::default(),
        write_failures: WriteFailures::default(),
        watch: Watch::default(),
        is_beyond_support: false,
        progress,
        division: CoreDivision::of(plan),
        is_gated: plan.config.arena.gate != GateKind::None,
    };
    let trained = session.train(drain, weights);
    if let Err(error) = &trained {
        session.record(&format!("training failed: {error:#}"));
    }
    session.record(RunEvent::ENDED);
    session.screen.close();
    session.screen.print(if drain.started() { "stopping: draining every process" } else { "draining every process" });
    // The processes drain even after a failed session or with a full disk.
    let kept = session.keep();
    for undrained in session.fleet.drain()? {
        session.screen.print(&undrained);
    }
    trained?;
    kept?;
    session.start.succeeded();
    if let Err(error) = session.measure_last(plan, drain) {
        session.screen.print(&format!("the last version has too few rated games: {error:#}"));
    }
    print_report(plan, &session)?;
    match session.last.health.fault {
        Some(fault) => bail!("the run learns nothing: {fault}"),
        None => Ok(()),
    }
}

/// A running session.
struct Session<'a> {
    run: &'a RunDirectory,
    plan: &'a Plan,
    /// The start of the session, which is undone if the session fails before actors have played positions.
    start: &'a mut SessionStart,
    /// Total moves of all actors in earlier sessions.
    moves_before: f64,
    fleet: Fleet,
    console: Option<ConsoleProcess>,
    meter: Meter,
    record: Record,
    screen: Screen,
    total: Duration,
    time: TrainedTime,
    last: RunMetrics,
    write_failures: WriteFailures,
    watch: Watch,
    /// True after the warning about targets beyond the support.
    is_beyond_support: bool,
    progress: Progress,
    /// Pending division of the cores between learner and actors.
    division: Option<CoreDivision>,
    /// True if actors only get weights that the arena has accepted.
    is_gated: bool,
}

impl Session<'_> {
    /// Trains until the time is over or the drain starts. `weights` describes the given weights of a new run.
    fn train(&mut self, drain: &Drain, weights: Option<String>) -> anyhow::Result<()> {
        let begin = Instant::now();
        let (mut next_read, mut next_record) = (begin, begin);
        let trained = clock(self.time.get().as_secs_f64());
        self.record(&format!("{}, {trained} of training so far", RunEvent::STARTED));
        weights.iter().for_each(|line| self.announce(line));
        while !drain.started() && self.time.get() < self.total {
            let now = Instant::now();
            self.time.pass(now, self.fleet.works());
            for (index, event) in self.fleet.watch(now)? {
                self.handle(index, event)?;
            }
            let news = self.console.as_mut().and_then(|console| console.watch(now));
            news.iter().for_each(|news| self.announce(news));
            if let Some((change, visitor)) = self.console.as_mut().and_then(ConsoleProcess::request) {
                self.change(change, &visitor, drain, now);
            }
            if now >= next_read {
                next_read = now + READ_INTERVAL;
                self.read();
                self.screen.show_metrics(&self.last, self.total, now);
                self.divide_cores();
            }
            if now >= next_record {
                next_record = now + RECORD_INTERVAL;
                // A full disk must not stop the training: the next write may succeed.
                let kept = self.keep();
                let news = self.write_failures.kept(&kept);
                news.iter().for_each(|news| self.announce(news));
            }
            std::thread::sleep(WATCH_INTERVAL);
        }
        // Take the last reading while every process still responds.
        self.read();
        self.last.health.fault = self.watch.at_end(&self.last);
        Ok(())
    }

    /// Prints an event of the run, and records it for the console.
    fn announce(&self, text: &str) {
        self.screen.print(text);
        self.record(text);
    }

    fn record(&self, text: &str) {
        // The screen has shown the event, and a full disk must not stop the training.
        let _ = self.record.happened(&RunEvent { unix_seconds: unix_seconds(), text: text.to_owned() });
    }

    /// Makes a change that a visitor of the console has requested, and records it.
    fn change(&mut self, change: Change, visitor: &str, drain: &Drain, now: Instant) {
        let change = match change {
            Change::Actors(count) => match self.fleet.change_actors(self.plan, count, now) {
                Ok(before) => {
                    self.division.iter_mut().for_each(|division| division.actors = count);
                    format!("actors {before} → {count} until the session ends")
                }
                Err(error) => format!("a change to {count} actors failed: {error:#}"),
            },
            Change::Drain(name) => match self.fleet.drain_actor(&name) {
                Ok(()) => format!("{name} drains and starts again"),
                Err(error) => format!("a drain of {name} failed: {error:#}"),
            },
            // The console has changed the replay servers.
            Change::SamplesPerInsert(samples) => format!("samples per insert {samples}"),
            Change::Stop => {
                drain.start();
                "stop".to_owned()
            }
        };
        self.announce(&format!("{change}, by {visitor} in the console"));
    }

    /// Divides the cores between learner and actors in proportion to the measured costs, once both have been measured.
    fn divide_cores(&mut self) {
        let threads = self.division.as_ref().and_then(|division| division.threads(&self.last));
        let Some([learner, actor]) = threads else { return };
        self.division = None;
        self.progress.learner_threads = learner;
        self.announce(&format!("cores divided: learner {learner} thread(s), actors {actor} each"));
        if learner > 1 {
            self.fleet.restart_with_threads(learner, actor);
        }
    }

    /// Plays the remaining rated games of the last version on a whole core, and records the rating.
    fn measure_last(&mut self, plan: &Plan, drain: &Drain) -> anyhow::Result<()> {
        // An interrupted run plays these games after it resumes. A run without any rating has no arena that rates.
        if drain.started() || self.is_gated || self.last.elo.is_none() {
            return Ok(());
        }
        let version = kept_versions::kept(self.run, None)?.0.version;
        self.screen.print(&format!("playing the remaining rated games of {version}"));
        let weights = VersionStore::of_learner(self.run.path()).manifest_path(version);
        let begin = Instant::now();
        self.fleet.measure_last(&weights, || begin.elapsed() < MEASURE_MAX && !drain.started())?;
        let ratings = Ledger::load(&self.run.path().join("ratings.json"), &plan.config.run.game)?.ratings();
        let Some(rated) = ratings.iter().find(|rated| rated.player == Player::Version(version)) else { return Ok(()) };
        (self.last.elo, self.last.elo_low, self.last.elo_high) = (Some(rated.elo), Some(rated.low), Some(rated.high));
        let opponents = ratings.iter().filter(|rated| !matches!(rated.player, Player::Random | Player::Version(_)));
        self.last.opponents.extend(opponents.map(|rated| (rated.player.to_string(), rated.elo)));
        self.last.rated_games = Some(ratings.iter().map(|rated| rated.games as f64 / 2.0).sum());
        self.record.append(&self.last)
    }

    fn read(&mut self) {
        let scraped = self.fleet.scrape();
        for (index, _, exposition) in scraped.iter().filter(|(_, role, _)| *role == Role::Learner) {
            let log = self.log(*index);
            let news = self.write_failures.learner(exposition, &log);
            news.iter().for_each(|news| self.announce(news));
        }
        let now = Instant::now();
        self.last = RunMetrics {
            elapsed_seconds: self.time.get().as_secs_f64(),
            unix_seconds: unix_seconds(),
            ..self.meter.read(now, scraped)
        };
        let news = self.watch.read(&self.last, now);
        news.iter().for_each(|news| self.announce(news));
        self.last.health.fault = self.watch.fault().map(str::to_owned);
        if let Some(warning) = beyond_support(&self.last.health).filter(|_| !self.is_beyond_support) {
            self.is_beyond_support = true;
            self.announce(&warning);
        }
        // Actors have played with weights from the learner, so every process required for training has started.
        if self.meter.moves() > self.moves_before {
            self.start.succeeded();
        }
    }

    /// Writes metrics and progress to the run directory.
    fn keep(&mut self) -> anyhow::Result<()> {
        self.record.append(&self.last)?;
        self.progress.elapsed_seconds = self.time.get().as_secs_f64();
        self.progress.training_steps = self.last.steps.map_or(self.progress.training_steps, |steps| steps as u64);
        self.progress.totals = self.meter.totals().clone();
        self.run.keep_progress(&self.progress)
    }

    /// Returns the log file of a process.
    fn log(&self, index: usize) -> PathBuf {
        self.run.logs().join(format!("{}.log", self.fleet.members()[index].child.name()))
    }

    fn handle(&mut self, index: usize, event: Event) -> anyhow::Result<()> {
        let Member { role, child, .. } = &self.fleet.members()[index];
        let (name, is_replaceable) = (child.name(), self.fleet.has_similar_actor(index));
        let without = |happened: &str| without(*role, self.is_gated, is_replaceable, happened);
        match event {
            Event::Died { how, last_log_line, pause } => {
                let seconds = pause.as_secs_f64();
                self.announce(&format!("{name} {how}, restarting in {seconds} s; last log line: {last_log_line}"));
            }
            Event::Restarted => {
                self.announce(&format!("{name} was restarted"));
                self.meter.restarted(index);
            }
            Event::Refused { why } => {
                // The log is deleted with the directory of a new run, so the message contains the reason: the last log
                // line.
                self.announce(&without(&format!("{name} {why}"))?);
            }
            Event::GivenUp { why } => {
                // Keep the run directory, since the logs show the reason for the failures.
                self.start.succeeded();
                let log = self.log(index);
                self.announce(&without(&format!("{name} {why} (full log: {})", log.display()))?);
            }
        }
        Ok(())
    }
}

/// Returns the message about a process of this role that is no longer restarted. An actor is replaceable if another one
/// plays on the same board.
///
/// # Errors
/// Training cannot continue without the process.
fn without(role: Role, is_gated: bool, is_replaceable: bool, what_happened: &str) -> anyhow::Result<String> {
    match role {
        Role::Arena if is_gated => bail!("{what_happened}; with arena.gate the actors get weights only from the arena"),
        // The arena only measures, and no process waits for it.
        Role::Arena => Ok(format!("{what_happened}; training continues unmeasured")),
        // Actors then evaluate positions without the server.
        Role::Inference => Ok(format!("{what_happened}; training continues without it")),
        Role::Actor if is_replaceable => Ok(format!("{what_happened}; the other actors continue")),
        Role::Actor | Role::Replay | Role::Learner => bail!("{what_happened}"),
    }
}

/// Writes summary and picture to the run directory, and prints both.
fn print_report(plan: &Plan, session: &Session<'_>) -> anyhow::Result<()> {
    let restarts = session.fleet.members().iter().map(|m| (m.child.name().to_owned(), m.child.restarts()));
    print_line(&format!("\n{}", report::write(&plan.run, restarts.collect(), Origin::here(std::env::args_os()))?));
    if session.time.get() < session.total {
        print_line(&format!("continue with: {}", resume::command(plan)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn a_deterministic_training_does_not_watch_the_parent() {
        let words = ["zerofleet", "train", "--deterministic", "1", "--exit-with-parent"];
        let error = crate::Cli::try_parse_from(words).unwrap_err().to_string();
        assert!(error.contains("--exit-with-parent") && error.contains("cannot be used with"), "{error}");
        assert!(crate::Cli::try_parse_from(&words[..4]).is_ok());
    }

    #[test]
    fn an_arena_or_inference_server_that_is_given_up_does_not_end_the_training() {
        let goes_on = |role| without(role, false, true, "it is gone").unwrap();
        assert_eq!(goes_on(Role::Arena), "it is gone; training continues unmeasured");
        assert_eq!(goes_on(Role::Inference), "it is gone; training continues without it");
        assert_eq!(goes_on(Role::Actor), "it is gone; the other actors continue");
        let error = without(Role::Arena, true, false, "it is gone").unwrap_err().to_string();
        assert_eq!(error, "it is gone; with arena.gate the actors get weights only from the arena");
        for role in [Role::Actor, Role::Replay, Role::Learner] {
            assert_eq!(without(role, false, false, "it is gone").unwrap_err().to_string(), "it is gone");
        }
    }
}
