//! Resolves the settings of one training session before any file is touched: configuration, processes, threads.

use std::ffi::OsString;
use std::iter;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::bail;
use proto::learners::LEARNERS_MAX;
use service::ConfigError;
use service::config::Sources;
use service::directory::replace;

use crate::algorithm::Algorithm;
use crate::config::{self, Fleet as Config};
use crate::environment;
use crate::placement::{Machine, Placement, place};
use crate::run_directory::{Inference, Progress, RunDirectory};

/// Default length of a run in minutes.
const MINUTES_DEFAULT: f64 = 15.0;

/// Trains a network: starts every process of a run, shows their metrics and drains them in order.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Length of the run in minutes, including earlier sessions [default: 15, or the run's].
    #[arg(long)]
    pub minutes: Option<f64>,

    /// The game of the run.
    #[arg(long, value_parser = games::check_name)]
    #[arg(help = format!("The game: {} [default: connect_four, or the run's]", games::names()))]
    pub game: Option<String>,

    /// The algorithm: it sets `search.algorithm`, `network.model` and, for gumbel-muzero, `search.gumbel_c_scale`
    /// [default: that of the game's preset, or the run's].
    #[arg(long, value_enum)]
    pub algorithm: Option<Algorithm>,

    /// Number of self-play processes [default: one per GPU that evaluates, else as fits the cores].
    #[arg(long)]
    pub actors: Option<usize>,

    /// Number of replay servers, each with a log of its own; actors and learner use all of them, and `[replay]` applies
    /// to each [default: 1, or the run's].
    #[arg(long, value_name = "N")]
    pub replay_servers: Option<usize>,

    /// Number of learners, which train one network together and need libtorch.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub learners: usize,

    /// Evaluate positions in the actors (local) or on an inference server (remote) [default: local, or the run's].
    #[arg(long, value_enum)]
    pub inference: Option<Inference>,

    /// Name of the run; an existing run resumes [default: the first free GAME-N].
    #[arg(long, value_name = "NAME")]
    pub run: Option<String>,

    /// Folder of all runs.
    #[arg(long, value_name = "FOLDER", default_value = "runs")]
    pub runs: PathBuf,

    /// Run file for a new run (TOML, one section per role).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Overrides one key of the run file; may be repeated.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    pub sets: Vec<String>,
}

/// The settings of one training session, resolved before any file is touched.
#[derive(Debug)]
pub struct Plan {
    /// The folder of the run.
    pub run: RunDirectory,
    /// The configuration that the processes use.
    pub config: Config,
    /// The configuration that is written to the run folder. It omits what is derived from this machine, so that every
    /// session derives it again.
    pub(crate) written: Config,
    /// Self-play processes.
    pub actors: usize,
    /// Learners, which train together if there are several.
    pub learners: usize,
    /// The devices of the processes.
    pub placement: Placement,
    /// The address of each replay server in the previous session; at least one server.
    pub replay: Vec<Option<SocketAddr>>,
    /// The progress of earlier sessions.
    pub progress: Progress,
    /// A run file that was given for an existing run and differs from the run's own; it is ignored.
    pub unread: Option<PathBuf>,
}

impl Plan {
    /// Reads the configuration and the run folder, and places the processes on this machine.
    ///
    /// # Errors
    /// An invalid configuration or option, a finished run, or another game or network than the run's.
    pub fn new(args: &Args, env: impl Iterator<Item = (OsString, OsString)>) -> anyhow::Result<Self> {
        Self::on(args, env, Machine::here)
    }

    /// Plans as [`new`](Self::new) does, for another machine.
    fn on(
        args: &Args,
        env: impl Iterator<Item = (OsString, OsString)>,
        machine: impl FnOnce() -> Machine,
    ) -> anyhow::Result<Self> {
        let run = args.run.as_deref().map(|name| RunDirectory::new(&args.runs, name)).transpose()?;
        let existing = run.as_ref().filter(|run| run.config().exists());
        let file = existing.map_or_else(|| args.config.clone(), |run| Some(run.config()));
        let mut config = read_config(args, file, env)?;
        let unread = existing.map(|run| check_resumed(run, &config, args.config.as_deref())).transpose()?.flatten();
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
            let reason = "names learners elsewhere: leave it out or leave out --learners";
            return Err(ConfigError::invalid("learner.group", reason).into());
        }
        let replay = replay_servers(args.replay_servers, &run, &progress.replay)?;
        progress.inference = args.inference.unwrap_or(progress.inference);
        // Before the devices are tried, which takes some seconds.
        config.check()?;
        let written = config.clone();
        let mut machine = machine();
        // The placement leaves a core to one learner.
        machine.cores = machine.cores.saturating_sub(learners - 1).max(1);
        let placement = place(&machine, &config, args.actors, progress.inference)?;
        (config.actor.threads, config.inference.threads) = (placement.actor_threads, placement.inference_threads);
        if placement.accelerator_games > 0 {
            config.actor.accelerator_games = placement.accelerator_games;
        }
        config.check()?;
        let actors = placement.actors.len();
        Ok(Self { run, config, written, actors, learners, placement, replay, progress, unread })
    }

    /// Replaces the run file in the run directory.
    ///
    /// # Errors
    /// The run file cannot be written.
    pub fn write_config(&self) -> anyhow::Result<()> {
        Ok(replace(&self.run.config(), service::config::print(&self.written)?.as_bytes())?)
    }
}

/// Returns the configuration that a new run with these options has, before the run gets its folder and its place on a
/// machine.
///
/// # Errors
/// An invalid configuration or option, which is named.
pub fn check_new(args: &Args, env: impl Iterator<Item = (OsString, OsString)>) -> anyhow::Result<Config> {
    let mut config = read_config(args, args.config.clone(), env)?;
    config.learner.schedule_minutes = args.minutes.unwrap_or(MINUTES_DEFAULT);
    config.check()?;
    Ok(config)
}

/// Reads the configuration from `file`, the environment and the options.
fn read_config(
    args: &Args,
    file: Option<PathBuf>,
    env: impl Iterator<Item = (OsString, OsString)>,
) -> anyhow::Result<Config> {
    // Later assignments win: a key that is set explicitly is not changed by the algorithm.
    let mut sets: Vec<String> = args.algorithm.iter().flat_map(|algorithm| algorithm.sets()).collect();
    sets.extend(args.sets.iter().cloned());
    sets.extend(args.game.iter().map(|game| format!("run.game={game}")));
    let mut config: Config = Sources { file, env, sets }.read(games::preset)?.load()?;
    environment::describe(&mut config)?;
    Ok(config)
}

/// Returns the name of a game as a part of a folder's: `gym:ALE/Pong-v5` is `gym-ALE-Pong-v5`.
fn folder_name(game: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    game.chars().map(|c| if plain(c) { c } else { '-' }).collect()
}

/// Returns the previous address, if any, of each requested replay server.
///
/// # Errors
/// A count of zero, or below that of the run: the trajectories of the omitted servers would not be sampled.
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

/// Checks that game and network of an existing run do not change. Returns the run file `given` if it differs from the
/// run's own in other keys; those keys are ignored.
fn check_resumed(run: &RunDirectory, wanted: &Config, given: Option<&Path>) -> anyhow::Result<Option<PathBuf>> {
    let before = config::load_run(run)?;
    same_game_and_network(run, &before, wanted)?;
    let Some(file) = given else { return Ok(None) };
    let sources = Sources { file: Some(file.to_owned()), env: std::iter::empty(), sets: Vec::new() };
    let given = sources.layers()?.load_over(&before)?;
    same_game_and_network(run, &before, &given)?;
    let differs = service::config::print(&given)? != service::config::print(&before)?;
    Ok(differs.then(|| file.to_owned()))
}

fn same_game_and_network(run: &RunDirectory, before: &Config, after: &Config) -> anyhow::Result<()> {
    unchanged("run.game", &before.run.game, &after.run.game, run)?;
    let [before, after] = [before, after].map(|config| service::config::print(&config.network));
    unchanged("network", &before?, &after?, run)
}

fn unchanged(key: &str, before: &str, after: &str, run: &RunDirectory) -> anyhow::Result<()> {
    if before == after {
        return Ok(());
    }
    let what = |text: &str| text.trim().replace('\n', ", ");
    let reason = format!(
        "run {} was started with {}, not {}; keep it, or start another run with --run",
        run.name(),
        what(before),
        what(after)
    );
    Err(ConfigError::invalid(key, reason).into())
}

#[cfg(test)]
mod tests {
    use learner::config::ModelKind;
    use selfplay::config::AlgorithmName;

    use super::*;
    use crate::placement::Accelerators;

    /// A machine without accelerator.
    fn machine() -> Machine {
        Machine { cores: 16, memory_bytes: 1 << 36, accelerators: Accelerators::None("no driver".to_owned()) }
    }

    /// A temporary folder of runs.
    struct Runs {
        folder: tempfile::TempDir,
    }

    impl Runs {
        fn new() -> Self {
            Self { folder: tempfile::tempdir().unwrap() }
        }

        /// Writes a run file with this text.
        fn file(&self, text: &str) -> PathBuf {
            let path = self.folder.path().join("given.toml");
            std::fs::write(&path, text).unwrap();
            path
        }

        /// Returns the plan for the run `first`.
        fn plan(&self, game: Option<&str>, config: Option<PathBuf>) -> anyhow::Result<Plan> {
            let game = game.map(str::to_owned);
            Plan::on(&Args { game, config, ..self.args() }, std::iter::empty(), machine)
        }

        fn args(&self) -> Args {
            Args {
                minutes: None,
                game: None,
                algorithm: None,
                actors: Some(1),
                replay_servers: None,
                learners: 1,
                inference: None,
                run: Some("first".to_owned()),
                runs: self.folder.path().to_owned(),
                config: None,
                sets: Vec::new(),
            }
        }

        /// Returns the threads of an actor when the run `first` resumes with this many actors, and the value in its run
        /// file.
        fn threads(&self, actors: usize, sets: &[&str]) -> (usize, usize) {
            let sets = sets.iter().map(|&set| set.to_owned()).collect();
            let args = Args { actors: Some(actors), sets, ..self.args() };
            let plan = Plan::on(&args, std::iter::empty(), machine).unwrap();
            plan.run.create().unwrap();
            plan.write_config().unwrap();
            (plan.config.actor.threads, config::load_run::<Config>(&plan.run).unwrap().actor.threads)
        }

        /// Starts the run `first`.
        fn begin(&self, game: Option<&str>, config: Option<PathBuf>) {
            let plan = self.plan(game, config).unwrap();
            plan.run.create().unwrap();
            plan.write_config().unwrap();
        }
    }

    #[test]
    fn a_run_file_that_an_existing_run_ignores_is_reported() {
        let runs = Runs::new();
        runs.begin(Some("tic_tac_toe"), None);
        let file = runs.file("[learner]\nlearning_rate = 0.1");
        let plan = runs.plan(None, Some(file.clone())).unwrap();
        assert_eq!(plan.unread, Some(file));
        assert_eq!(plan.config.learner.learning_rate, 0.003);
    }

    #[test]
    fn the_run_file_that_a_run_was_started_with_is_not_reported() {
        let runs = Runs::new();
        let file = runs.file("[learner]\nlearning_rate = 0.1");
        runs.begin(Some("tic_tac_toe"), Some(file.clone()));
        let plan = runs.plan(None, Some(file)).unwrap();
        assert_eq!(plan.unread, None);
        assert_eq!(plan.config.learner.learning_rate, 0.1);
    }

    #[test]
    fn a_new_run_is_checked_without_a_folder_or_a_machine() {
        let runs = Runs::new();
        let check = |sets: &[&str]| {
            let sets = sets.iter().map(|&set| set.to_owned()).collect();
            let args = Args { game: Some("tic_tac_toe".to_owned()), minutes: Some(3.0), sets, ..runs.args() };
            check_new(&args, std::iter::empty())
        };
        let config = check(&["learner.batch_size=32"]).unwrap();
        assert_eq!((config.learner.batch_size, config.learner.schedule_minutes), (32, 3.0));
        let error = check(&["learner.learning_rate=-1"]).unwrap_err().to_string();
        assert!(error.starts_with("learner.learning_rate"), "{error}");
        assert_eq!(std::fs::read_dir(runs.folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_run_resumes_with_the_game_and_the_network_it_was_started_with() {
        let runs = Runs::new();
        runs.begin(Some("tic_tac_toe"), None);
        let error = runs.plan(Some("connect_four"), None).unwrap_err().to_string();
        assert!(error.starts_with("run.game: run first was started with tic_tac_toe, not connect_four"), "{error}");
        let error = runs.plan(None, Some(runs.file("[network]\nblocks = 9"))).unwrap_err().to_string();
        assert!(error.starts_with("network: run first was started with channels = 32"), "{error}");
    }

    #[test]
    fn an_algorithm_sets_the_search_and_the_model_and_a_run_keeps_its_model() {
        let runs = Runs::new();
        let algorithm = |run: &str, algorithm| {
            let (run, game) = (Some(run.to_owned()), Some("tic_tac_toe".to_owned()));
            let args = Args { algorithm: Some(algorithm), run, game, ..runs.args() };
            Plan::on(&args, std::iter::empty(), machine)
        };
        for (number, (name, search, model)) in [
            (Algorithm::Alphazero, AlgorithmName::Puct, ModelKind::Alphazero),
            (Algorithm::GumbelAlphazero, AlgorithmName::Gumbel, ModelKind::Alphazero),
            (Algorithm::Muzero, AlgorithmName::Puct, ModelKind::Muzero),
            (Algorithm::GumbelMuzero, AlgorithmName::Gumbel, ModelKind::Muzero),
            (Algorithm::StochasticMuzero, AlgorithmName::Puct, ModelKind::StochasticMuzero),
        ]
        .into_iter()
        .enumerate()
        {
            let plan = algorithm(&format!("run-{number}"), name).unwrap();
            assert_eq!((plan.config.search.algorithm, plan.config.network.model), (search, model), "{name}");
        }
        let plan = algorithm("kept", Algorithm::GumbelMuzero).unwrap();
        plan.run.create().unwrap();
        plan.write_config().unwrap();
        let error = algorithm("kept", Algorithm::GumbelAlphazero).unwrap_err().to_string();
        assert!(error.contains("model = \"muzero\"") && error.contains("not channels"), "{error}");
    }

    #[test]
    fn a_run_keeps_its_replay_servers_and_their_addresses_and_rejects_a_lower_count() {
        let runs = Runs::new();
        runs.begin(Some("tic_tac_toe"), None);
        let run = RunDirectory::new(runs.folder.path(), "first").unwrap();
        let addresses: Vec<SocketAddr> = vec!["127.0.0.1:7001".parse().unwrap(), "127.0.0.1:7002".parse().unwrap()];
        assert_eq!(runs.plan(None, None).unwrap().replay, [None]);
        let replay = |wanted| replay_servers(wanted, &run, &addresses);
        let kept: Vec<_> = addresses.iter().copied().map(Some).collect();
        assert_eq!(replay(None).unwrap(), kept);
        assert_eq!(replay(Some(3)).unwrap(), [&kept[..], &[None]].concat());
        let error = replay(Some(1)).unwrap_err().to_string();
        assert!(error.contains("run first has 2 replay servers; 1 would leave out trajectories"), "{error}");
        assert!(replay(Some(0)).unwrap_err().to_string().contains("at least 1"));

        let progress = Progress { replay: addresses.clone(), ..Progress::default() };
        run.keep_progress(&progress).unwrap();
        assert_eq!(runs.plan(None, None).unwrap().replay, kept);
    }

    #[test]
    fn several_learners_leave_fewer_cores_to_actors_and_a_wrong_number_or_another_group_is_refused() {
        let runs = Runs::new();
        let of = |learners, sets: &[&str]| {
            let sets = sets.iter().map(|&set| set.to_owned()).collect();
            Plan::on(&Args { learners, sets, ..runs.args() }, std::iter::empty(), machine)
        };
        let threads = |learners| of(learners, &[]).unwrap().config.actor.threads;
        assert_eq!([threads(1), threads(4), threads(64)], [15, 12, 1]);
        let group = "learner.group=http://a:1,http://b:1";
        assert_eq!(of(1, &[group]).unwrap().learners, 1);
        for (refused, key) in
            [(of(0, &[]), "--learners"), (of(65, &[]), "--learners"), (of(2, &[group]), "learner.group")]
        {
            let error = refused.unwrap_err().to_string();
            assert!(error.starts_with(key), "{error}");
        }
    }

    #[test]
    fn threads_derived_from_the_cores_are_derived_again_and_configured_ones_stay() {
        let runs = Runs::new();
        for (actors, threads) in [(1, 15), (2, 7), (16, 1), (1, 15)] {
            assert_eq!(runs.threads(actors, &[]), (threads, 0));
        }
        assert_eq!(runs.threads(2, &["actor.threads=5"]), (5, 5));
        assert_eq!(runs.threads(1, &[]), (5, 5));
        assert_eq!(runs.threads(1, &["actor.threads=0"]), (15, 0));
    }
}
