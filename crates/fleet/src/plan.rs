//! Resolves the settings of one training session before any file is touched: configuration, processes, threads.

use std::ffi::OsString;
use std::iter;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::bail;
use proto::learners::LEARNERS_MAX;
use run_file::{RunFile, gpu_values};
use service::ConfigError;
use service::config::{Difference, Layers, NOTE, Sources};
use service::directory::replace;

use crate::algorithm::Algorithm;
use crate::boards::{self, PlannedBoard};
use crate::environment;
use crate::feasibility::{self, Programs};
use crate::placement::{Machine, Placement, place};
use crate::run_directory::{Inference, Learner, Progress, RunDirectory, load_run};

/// Default length of a run in minutes.
const MINUTES_DEFAULT: f64 = 15.0;
/// Start of a note in the run file on a value for a GPU.
const GPU_NOTE: &str = "value for a GPU: ";

/// Trains a network: starts all processes of a run and shows metrics.
///
/// On Ctrl-C, or when the time is over, all processes drain in order: they finish or store the work in progress.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Length of the run in minutes [default: 15, or the run's].
    ///
    /// The length includes the time of earlier sessions.
    #[arg(long)]
    pub minutes: Option<f64>,

    /// The game of the run.
    #[arg(long, value_parser = games::check_name)]
    #[arg(help = format!("Game: {} [default: connect_four, or the run's]", games::names()))]
    pub game: Option<String>,

    /// Further boards to learn in the same run [default: the run's].
    ///
    /// Each board has separate replay servers and actors; `network.heads` must be `pooled`. A new run takes the default
    /// from the run file.
    #[arg(long, value_name = "GAME", value_delimiter = ',', value_parser = games::check_name)]
    pub boards: Vec<String>,

    /// Training algorithm [default: the game's preset].
    ///
    /// A resumed run keeps the stored algorithm by default. Sets `search.algorithm` and `network.model`; with a learned
    /// model, also `network.heads`; with gumbel-muzero, also `search.gumbel_c_scale`.
    #[arg(long, value_enum)]
    pub algorithm: Option<Algorithm>,

    /// Number of self-play processes [default: by GPUs or CPU cores].
    ///
    /// The processes are divided over the boards of the run. The default is one process per evaluating GPU; without
    /// GPUs, one process per 8 cores.
    #[arg(long)]
    pub actors: Option<usize>,

    /// Number of replay servers per board [default: 1, or the run's].
    ///
    /// Each server has a separate log. Actors and learner use all servers, and `[replay]` applies to each server.
    #[arg(long, value_name = "N")]
    pub replay_servers: Option<usize>,

    /// Number of learners that train one network; two or more need libtorch.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub learners: usize,

    /// Learner of the run [default: zerofleet, or the run's].
    ///
    /// With `own`, the process `zerofleet weights serve` takes the place of the learner. It publishes weights that a
    /// program writes to the directory `incoming` of the run; `zerofleet replay batches` writes training batches for
    /// the program. Of `[learner]`, only the keys of targets, sampling and initial weights, and `versions_kept` apply.
    #[arg(long, value_enum)]
    pub learner: Option<Learner>,

    /// Where positions are evaluated [default: local, or the run's].
    ///
    /// Positions are evaluated in the actors (local) or on an inference server (remote).
    #[arg(long, value_enum)]
    pub inference: Option<Inference>,

    /// Name of the run; an existing run resumes [default: a new GAME-N].
    #[arg(long, value_name = "NAME")]
    pub run: Option<String>,

    /// Directory of all runs.
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub runs: PathBuf,

    /// Run file for a new run (TOML, one section per role).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Override one key of the run file; may be repeated.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    pub sets: Vec<String>,
}

/// The settings of one training session, resolved before any file is touched.
#[derive(Debug)]
pub struct Plan {
    /// Directory of the run.
    pub run: RunDirectory,
    /// Configuration that the processes use.
    pub config: RunFile,
    /// Configuration for the run directory, without values derived from this machine: every session derives such values
    /// again.
    pub(crate) written: RunFile,
    /// Notes on the values for a GPU in the run file.
    pub(crate) gpu_notes: Vec<String>,
    /// Number of self-play processes on all boards.
    pub actors: usize,
    /// Further boards. The board of `run.game` has the servers in `replay` and the remaining actors.
    pub boards: Vec<PlannedBoard>,
    /// Number of learners; several learners train one network together.
    pub learners: usize,
    /// Devices of the processes.
    pub placement: Placement,
    /// Address of each replay server in the previous session; `None` for a new server. Has at least one entry.
    pub replay: Vec<Option<SocketAddr>>,
    /// Progress of earlier sessions.
    pub progress: Progress,
    /// The run file given by `--config`, if it is ignored because it differs from the file of an existing run.
    pub unread: Option<PathBuf>,
}

impl Plan {
    /// Reads the configuration and the run directory, and places the processes on this machine.
    ///
    /// # Errors
    /// The configuration or an option is invalid, the run is finished, or the game or network of the run would change.
    pub fn new(args: &Args, env: impl Iterator<Item = (OsString, OsString)>) -> anyhow::Result<Self> {
        Self::on(args, env, Machine::here)
    }

    /// Like [`new`](Self::new), for a run that uses only the CPU: no accelerator is tried, and no value for a GPU
    /// applies.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn on_cpu(args: &Args, env: impl Iterator<Item = (OsString, OsString)>) -> anyhow::Result<Self> {
        Self::on(args, env, Machine::without_accelerators)
    }

    /// Like [`new`](Self::new), for the given machine.
    fn on(
        args: &Args,
        env: impl Iterator<Item = (OsString, OsString)>,
        machine: impl FnOnce() -> Machine,
    ) -> anyhow::Result<Self> {
        let run = args.run.as_deref().map(|name| RunDirectory::new(&args.runs, name)).transpose()?;
        let existing = run.as_ref().filter(|run| run.config().exists());
        let file = existing.map_or_else(|| args.config.clone(), |run| Some(run.config()));
        let layers = read_layers(args, file, env)?;
        let mut config = load(&layers)?;
        let unread = existing.map(|run| check_resumed(run, &config, args.config.as_deref())).transpose()?.flatten();
        let notes: Vec<String> =
            layers.notes.iter().filter_map(|note| note.strip_prefix(GPU_NOTE)).map(str::to_owned).collect();
        // A run keeps the values of the first session, since it must not change with the device.
        let kept_notes = existing.is_some().then(|| gpu_values::still_valid(&notes, &config));
        let run = match run {
            Some(run) => run,
            None => RunDirectory::fresh(&args.runs, &folder_name(&config.run.game))?,
        };
        let mut progress = run.progress()?.unwrap_or_default();
        let kept = Some(progress.minutes).filter(|minutes| *minutes > 0.0);
        progress.minutes = args.minutes.or(kept).unwrap_or(MINUTES_DEFAULT);
        if !(progress.minutes.is_finite() && progress.minutes > 0.0) {
            return Err(ConfigError::invalid("--minutes", "must be above 0").into());
        }
        if progress.elapsed_seconds >= progress.minutes * 60.0 {
            let name = run.name();
            bail!(
                "run {name} finished ({} min); extend it with --minutes, or start another run with --run",
                progress.minutes
            );
        }
        config.run.directory = run.path().to_owned();
        config.learner.schedule_minutes = progress.minutes;
        if args.actors == Some(0) {
            return Err(ConfigError::invalid("--actors", "must be at least 1").into());
        }
        let learners = args.learners;
        ConfigError::within("--learners", learners, 1..=LEARNERS_MAX)?;
        if learners > 1 && !config.learner.group.is_empty() {
            let reason = "conflicts with --learners; leave one of them out";
            return Err(ConfigError::invalid("learner.group", reason).into());
        }
        let replay = replay_servers(args.replay_servers, &run, &progress.replay)?;
        let of_board = |game: &String| {
            let before = progress.boards.get(game).map_or(&[][..], Vec::as_slice);
            replay_servers(Some(replay.len()), &run, before)
        };
        let of_boards = config.run.boards.iter().map(of_board).collect::<Result<Vec<_>, _>>()?;
        progress.inference = args.inference.unwrap_or(progress.inference);
        progress.learner = args.learner.unwrap_or(progress.learner);
        check_own_learner(progress.learner, learners, &config)?;
        check_boards(&config, args.actors)?;
        // This check comes before the trial of the devices, which takes some seconds.
        config.check()?;
        let mut machine = machine();
        // The placement reserves a core for the first learner only.
        machine.cores = machine.cores.saturating_sub(learners - 1).max(1);
        let mut placement =
            place(&machine, &config, learners, args.actors, progress.inference, progress.learner_threads)?;
        let when = if kept_notes.is_some() { ", from the first session" } else { "" };
        let gpu_notes = match kept_notes {
            Some(notes) => notes,
            None => {
                let memory_bytes = machine.memory_bytes / placement.actors.len().max(1) as u64;
                let (given, on_gpu) = (layers.given(&RunFile::default())?, machine.on_gpu(&config, &placement));
                gpu_values::apply(&mut config, &given, &on_gpu, memory_bytes)?
            }
        };
        let line = (!gpu_notes.is_empty()).then(|| format!("values for a GPU{when}: {}", gpu_notes.join(", ")));
        placement.lines.extend(line);
        let written = config.clone();
        (config.actor.threads, config.inference.threads) = (placement.actor_threads, placement.inference_threads);
        config.learner.threads = placement.learner_threads;
        if placement.accelerator_games > 0 {
            config.actor.accelerator_games = placement.accelerator_games;
        }
        config.check()?;
        let actors = placement.actors.len();
        let shares = boards::divide(actors, 1 + of_boards.len()).skip(1);
        let planned = |((game, replay), actors): ((&String, _), _)| PlannedBoard { game: game.clone(), actors, replay };
        let boards = config.run.boards.iter().zip(of_boards).zip(shares).map(planned).collect();
        Ok(Self { run, config, written, gpu_notes, actors, boards, learners, placement, replay, progress, unread })
    }

    /// Returns the number of replay servers of all boards.
    #[must_use]
    pub fn replay_servers(&self) -> usize {
        self.replay.len() + self.boards.iter().map(|board| board.replay.len()).sum::<usize>()
    }

    /// Replaces the run file in the run directory.
    ///
    /// # Errors
    /// The run file cannot be written.
    pub fn write_config(&self) -> anyhow::Result<()> {
        let notes: String = self.gpu_notes.iter().map(|note| format!("{NOTE}{GPU_NOTE}{note}\n")).collect();
        Ok(replace(&self.run.config(), (notes + &service::config::print(&self.written)?).as_bytes())?)
    }
}

/// Returns the checked configuration of a new run with these options. Neither creates a directory nor places processes.
///
/// # Errors
/// The configuration or an option is invalid; the error names the key or option.
pub fn check_new(args: &Args, env: impl Iterator<Item = (OsString, OsString)>) -> anyhow::Result<RunFile> {
    let config = new_config(args, env)?;
    config.check()?;
    let programs = Programs::here().with(args.learner.unwrap_or_default());
    feasibility::check(&config, args.inference.unwrap_or_default(), &programs)?;
    Ok(config)
}

/// Checks the settings of a new run, but not this machine or the installed programs.
///
/// # Errors
/// The configuration or an option is invalid; the error names the key or option.
pub fn check_settings(args: &Args, env: impl Iterator<Item = (OsString, OsString)>) -> anyhow::Result<()> {
    let config = new_config(args, env)?;
    config.check_settings()?;
    feasibility::check(&config, args.inference.unwrap_or_default(), &Programs::of_every_kind())
}

fn new_config(args: &Args, env: impl Iterator<Item = (OsString, OsString)>) -> anyhow::Result<RunFile> {
    let mut config = load(&read_layers(args, args.config.clone(), env)?)?;
    config.learner.schedule_minutes = args.minutes.unwrap_or(MINUTES_DEFAULT);
    Ok(config)
}

/// Keys that every session sets, with the options that determine them.
const OPTIONS_OF_KEYS: [(&str, &str); 2] =
    [("learner.schedule_minutes", "--minutes"), ("run.directory", "--runs and --run")];

/// Rejects a `--set` of a key that an option determines, since the option would replace the value.
fn check_sets(sets: &[String]) -> Result<(), ConfigError> {
    for key in sets.iter().filter_map(|set| set.split_once('=')).map(|(key, _)| key.trim()) {
        if let Some((key, option)) = OPTIONS_OF_KEYS.iter().find(|(set, _)| *set == key) {
            return Err(ConfigError::invalid(*key, format!("is set by {option}; remove --set {key}")));
        }
    }
    Ok(())
}

/// Adds the valid range of the key to an error about a negative number.
fn with_range(error: ConfigError) -> ConfigError {
    let ConfigError::Negative { key, value, .. } = &error else { return error };
    let (section, name) = key.rsplit_once('.').unwrap_or_default();
    let keys = RunFile::keys().into_iter().filter(|(other, _)| *other == section).flat_map(|(_, keys)| keys);
    match keys.filter(|key| key.name == name).find_map(|key| key.range) {
        Some(range) => ConfigError::invalid(key, format!("is {value}, must be {range}")),
        None => error,
    }
}

/// Reads the sources of the configuration: `file`, the environment and the options.
fn read_layers(
    args: &Args,
    file: Option<PathBuf>,
    env: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Layers, ConfigError> {
    check_sets(&args.sets)?;
    // Later assignments win: the algorithm does not change an explicit key.
    let mut sets: Vec<String> = args.algorithm.iter().flat_map(|algorithm| algorithm.sets()).collect();
    sets.extend(args.sets.iter().cloned());
    sets.extend(args.game.iter().map(|game| format!("run.game={game}")));
    if !args.boards.is_empty() {
        // A TOML list: names of games need no escapes.
        sets.push(format!("run.boards={:?}", args.boards));
    }
    Sources { file, env, sets }.read(games::preset).map_err(with_range)
}

/// Loads the configuration, and describes the Python environment if the game is one.
fn load(layers: &Layers) -> anyhow::Result<RunFile> {
    let mut config: RunFile = layers.load().map_err(with_range)?;
    environment::describe(&mut config)?;
    Ok(config)
}

/// Returns the name of a game as part of a directory name: `gym:ALE/Pong-v5` becomes `gym-ALE-Pong-v5`.
fn folder_name(game: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    game.chars().map(|c| if plain(c) { c } else { '-' }).collect()
}

/// Returns the previous address, if any, of each requested replay server.
///
/// # Errors
/// The count is zero or below the count of the run: trajectories of the omitted servers would not be sampled.
fn replay_servers(
    requested: Option<usize>,
    run: &RunDirectory,
    before: &[SocketAddr],
) -> Result<Vec<Option<SocketAddr>>, ConfigError> {
    let least = before.len().max(1);
    let count = requested.unwrap_or(least);
    if count == 0 {
        return Err(ConfigError::invalid("--replay-servers", "must be at least 1"));
    }
    if count < least {
        let name = run.name();
        let reason = format!("run {name} has {least} replay servers; {count} would leave out trajectories");
        return Err(ConfigError::invalid("--replay-servers", reason));
    }
    Ok(before.iter().copied().map(Some).chain(iter::repeat(None)).take(count).collect())
}

/// Checks that `actors` is enough for one actor per board.
fn check_boards(config: &RunFile, actors: Option<usize>) -> Result<(), ConfigError> {
    let count = 1 + config.run.boards.len();
    if let Some(actors) = actors.filter(|&actors| actors < count) {
        let reason = format!("is {actors}, but each of the {count} boards of the run needs an actor (run.boards)");
        return Err(ConfigError::invalid("--actors", reason));
    }
    Ok(())
}

/// Checks that a learner of the user trains alone and on a single board.
fn check_own_learner(learner: Learner, learners: usize, config: &RunFile) -> Result<(), ConfigError> {
    match learner {
        Learner::Own if learners > 1 => Err(ConfigError::invalid("--learners", "conflicts with --learner own")),
        Learner::Own if !config.learner.group.is_empty() => {
            Err(ConfigError::invalid("learner.group", "conflicts with --learner own; leave it empty"))
        }
        Learner::Own if !config.run.boards.is_empty() => {
            Err(ConfigError::invalid("run.boards", "--learner own draws batches of one board; leave it out"))
        }
        _ => Ok(()),
    }
}

/// Checks that game and network of an existing run do not change, and that the run keeps all boards. Returns the run
/// file `given` if other keys differ from the file of the run; the differences are ignored.
fn check_resumed(run: &RunDirectory, wanted: &RunFile, given: Option<&Path>) -> anyhow::Result<Option<PathBuf>> {
    let before = load_run(run)?;
    same_game_and_network(run, &before, wanted)?;
    keeps_boards(run, &before, wanted)?;
    let Some(file) = given else { return Ok(None) };
    let sources = Sources { file: Some(file.to_owned()), env: std::iter::empty(), sets: Vec::new() };
    let given = sources.layers()?.load_over(&before)?;
    same_game_and_network(run, &before, &given)?;
    let differs = service::config::print(&given)? != service::config::print(&before)?;
    Ok(differs.then(|| file.to_owned()))
}

fn same_game_and_network(run: &RunDirectory, before: &RunFile, after: &RunFile) -> anyhow::Result<()> {
    let name = run.name();
    let (game, given) = (&before.run.game, &after.run.game);
    if game != given {
        let reason =
            format!("run {name} was started with {game}, not {given}; keep the game, or start another run with --run");
        return Err(ConfigError::invalid("run.game", reason).into());
    }
    if after.learner.grow {
        // The learner checks that the network in the checkpoint can grow into the new network.
        return Ok(());
    }
    let changed = service::config::differences(&before.network, &after.network)?;
    let Some((first, others)) = changed.split_first() else { return Ok(()) };
    let mut reason = format!("{} in run {name}, {} given", first.before, first.after);
    for Difference { key, before, after } in others {
        reason.push_str(&format!("; network.{key}: {before}, {after} given"));
    }
    reason.push_str("; keep the network, or start another run with --run");
    Err(ConfigError::invalid(format!("network.{}", first.key), reason).into())
}

/// Checks that a run keeps all boards; new boards are allowed.
fn keeps_boards(run: &RunDirectory, before: &RunFile, after: &RunFile) -> Result<(), ConfigError> {
    match before.run.boards.iter().find(|board| !after.run.boards.contains(board)) {
        None => Ok(()),
        Some(board) => {
            let name = run.name();
            let reason = format!("run {name} also learns {board}; trajectories of this board would be left out");
            Err(ConfigError::invalid("run.boards", reason))
        }
    }
}

#[cfg(test)]
mod run_files;
#[cfg(test)]
pub(crate) mod tests;
