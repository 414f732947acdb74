//! What a session of a run does, decided before anything is touched: configuration, processes, threads.

use std::ffi::OsString;
use std::iter;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::bail;
use games::GameKind;
use service::ConfigError;
use service::config::Sources;
use service::directory::replace;

use crate::config::{self, Fleet as Config};
use crate::processes::{self, Rating};
use crate::run_directory::{Inference, Progress, RunDirectory};

/// The default length of a run.
const MINUTES_DEFAULT: f64 = 15.0;
/// One more actor process for each so many cores; threads of one process share a cache.
const CORES_PER_ACTOR: usize = 8;

/// Trains: starts every process of a run, shows what they do, ends them in order.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// How long the run takes, counting what it has had already [default: 15, or as the run began].
    #[arg(long)]
    pub minutes: Option<f64>,

    /// The game.
    #[arg(long, help = format!("The game: {} [default: connect_four, or the run's]", games::names()))]
    pub game: Option<GameKind>,

    /// Self-play processes [default: what fits the cores].
    #[arg(long)]
    pub actors: Option<usize>,

    /// Replay servers, each with a log of its own, which actors and learner spread over; `[replay]` is about each of them
    /// [default: 1, or as the run began].
    #[arg(long, value_name = "N")]
    pub replay_servers: Option<usize>,

    /// Where self-play has positions evaluated: in the actors, or by an inference server [default: local, or as the run began].
    #[arg(long, value_enum)]
    pub inference: Option<Inference>,

    /// The run's name; an existing run goes on where it stopped [default: the first free GAME-N].
    #[arg(long, value_name = "NAME")]
    pub run: Option<String>,

    /// Where runs lie.
    #[arg(long, value_name = "FOLDER", default_value = "runs")]
    pub runs: PathBuf,

    /// A run file to begin from (TOML, one section per role).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Overrides one key of the run file; may be given many times.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    pub sets: Vec<String>,
}

/// What a session of a run does.
#[derive(Debug)]
pub struct Plan {
    /// Where it lives.
    pub run: RunDirectory,
    /// As the processes use it.
    pub config: Config,
    /// As the run goes on with it: threads that this machine decided are decided anew.
    written: Config,
    /// Self-play processes.
    pub actors: usize,
    /// For each replay server, where it listened in the session before.
    pub replay: Vec<Option<SocketAddr>>,
    /// What earlier sessions have reached.
    pub progress: Progress,
    /// A run file that was given for a run which goes on by its own, and says something else.
    pub unread: Option<PathBuf>,
}

impl Plan {
    /// Reads configuration and run directory.
    ///
    /// # Errors
    /// A configuration or an option that is refused, a run that has ended, another game or network than the run's.
    pub fn new(args: &Args, env: impl Iterator<Item = (OsString, OsString)>) -> anyhow::Result<Self> {
        let mut sets = args.sets.clone();
        sets.extend(args.game.iter().map(|game| format!("run.game={game}")));
        let run = args.run.as_deref().map(|name| RunDirectory::new(&args.runs, name)).transpose()?;
        let existing = run.as_ref().filter(|run| run.config().exists());
        let file = existing.map_or_else(|| args.config.clone(), |run| Some(run.config()));
        let mut config: Config = Sources { file, env, sets }.read(games::preset)?.load()?;
        let unread = existing.map(|run| goes_on(run, &config, args.config.as_deref())).transpose()?.flatten();
        let run = match run {
            Some(run) => run,
            None => RunDirectory::fresh(&args.runs, &config.run.game)?,
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
                "run {name} finished ({} min); extend it with --minutes, or choose another name with --run",
                progress.minutes
            );
        }
        config.run.directory = run.path().to_owned();
        config.learner.schedule_minutes = progress.minutes;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let actors = args.actors.unwrap_or_else(|| cores.div_ceil(CORES_PER_ACTOR));
        if actors == 0 {
            return Err(ConfigError::invalid("--actors", "must be at least 1").into());
        }
        let replay = replay_servers(args.replay_servers, &run, &progress.replay)?;
        progress.inference = args.inference.unwrap_or(progress.inference);
        let written = config.clone();
        share_cores(&mut config, progress.inference, cores, actors);
        config.check()?;
        Ok(Self { run, config, written, actors, replay, progress, unread })
    }

    /// The processes of the run.
    pub fn fleet(&self, rating: Rating) -> anyhow::Result<processes::Settings> {
        let inference = self.progress.inference;
        let beside = processes::Settings::beside_this_binary(&self.config, self.actors, inference, rating)?;
        Ok(processes::Settings { replay: self.replay.clone(), ..beside })
    }

    /// Replaces the run file in the run directory.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write_config(&self) -> anyhow::Result<()> {
        Ok(replace(&self.run.config(), service::config::print(&self.written)?.as_bytes())?)
    }
}

/// For each of the replay servers that are asked for, where it listened before.
///
/// # Errors
/// None, or fewer than the run has: what the others hold would be left out.
fn replay_servers(
    asked: Option<usize>,
    run: &RunDirectory,
    before: &[SocketAddr],
) -> Result<Vec<Option<SocketAddr>>, ConfigError> {
    let least = before.len().max(1);
    let count = asked.unwrap_or(least);
    if count == 0 {
        return Err(ConfigError::invalid("--replay-servers", "must be at least 1"));
    }
    if count < least {
        let name = run.name();
        let reason = format!("run {name} has {least} replay servers, and {count} would leave out what the others hold");
        return Err(ConfigError::invalid("--replay-servers", reason));
    }
    Ok(before.iter().copied().map(Some).chain(iter::repeat(None)).take(count).collect())
}

/// Threads for what has none yet. An actor that waits for an inference server has twice as many: one searches while another
/// waits.
fn share_cores(config: &mut Config, inference: Inference, cores: usize, actors: usize) {
    if inference == Inference::Remote && config.inference.threads == 0 {
        config.inference.threads = threads_per_actor(cores, 1);
    }
    let is_remote = inference == Inference::Remote || !config.actor.inference.is_empty();
    if config.actor.threads == 0 {
        config.actor.threads = threads_per_actor(cores, actors) * if is_remote { 2 } else { 1 };
    }
}

/// A core is left to the learner, where there is one to leave.
fn threads_per_actor(cores: usize, actors: usize) -> usize {
    (cores.saturating_sub(1) / actors).max(1)
}

/// Checks that the run was begun for the game and the network that it is asked to go on with. Returns the run file `given`
/// if it differs from the run's own in what may change: those keys are not read.
fn goes_on(run: &RunDirectory, asked: &Config, given: Option<&Path>) -> anyhow::Result<Option<PathBuf>> {
    let before = config::load_run(run)?;
    same_game_and_network(run, &before, asked)?;
    let Some(file) = given else { return Ok(None) };
    let sources = Sources { file: Some(file.to_owned()), env: std::iter::empty(), sets: Vec::new() };
    let given = sources.load_over(&before)?;
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
        "run {} was begun with {}, not {}; keep it, or choose another name with --run",
        run.name(),
        what(before),
        what(after)
    );
    Err(ConfigError::invalid(key, reason).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs in a folder of their own.
    struct Runs {
        folder: tempfile::TempDir,
    }

    impl Runs {
        fn new() -> Self {
            Self { folder: tempfile::tempdir().unwrap() }
        }

        /// A run file that says this.
        fn file(&self, text: &str) -> PathBuf {
            let path = self.folder.path().join("given.toml");
            std::fs::write(&path, text).unwrap();
            path
        }

        /// What is planned for the run `first`.
        fn plan(&self, game: Option<&str>, config: Option<PathBuf>) -> anyhow::Result<Plan> {
            let game = game.map(|name| name.parse().unwrap());
            Plan::new(&Args { game, config, ..self.args() }, std::iter::empty())
        }

        fn args(&self) -> Args {
            Args {
                minutes: None,
                game: None,
                actors: Some(1),
                replay_servers: None,
                inference: None,
                run: Some("first".to_owned()),
                runs: self.folder.path().to_owned(),
                config: None,
                sets: Vec::new(),
            }
        }

        /// The threads of an actor when the run `first` goes on with so many of them, and what its run file then says.
        fn threads(&self, actors: usize, sets: &[&str]) -> (usize, usize) {
            let sets = sets.iter().map(|&set| set.to_owned()).collect();
            let plan = Plan::new(&Args { actors: Some(actors), sets, ..self.args() }, std::iter::empty()).unwrap();
            plan.run.create().unwrap();
            plan.write_config().unwrap();
            (plan.config.actor.threads, config::load_run::<Config>(&plan.run).unwrap().actor.threads)
        }

        /// Begins the run `first`.
        fn begin(&self, game: Option<&str>, config: Option<PathBuf>) {
            let plan = self.plan(game, config).unwrap();
            plan.run.create().unwrap();
            plan.write_config().unwrap();
        }
    }

    #[test]
    fn a_run_file_that_an_existing_run_does_not_read_is_told() {
        let runs = Runs::new();
        runs.begin(Some("tic_tac_toe"), None);
        let file = runs.file("[learner]\nlearning_rate = 0.1");
        let plan = runs.plan(None, Some(file.clone())).unwrap();
        assert_eq!(plan.unread, Some(file));
        assert_eq!(plan.config.learner.learning_rate, 0.003);
    }

    #[test]
    fn the_run_file_that_a_run_was_begun_with_says_nothing_else() {
        let runs = Runs::new();
        let file = runs.file("[learner]\nlearning_rate = 0.1");
        runs.begin(Some("tic_tac_toe"), Some(file.clone()));
        let plan = runs.plan(None, Some(file)).unwrap();
        assert_eq!(plan.unread, None);
        assert_eq!(plan.config.learner.learning_rate, 0.1);
    }

    #[test]
    fn a_run_goes_on_with_the_game_and_the_network_it_was_begun_with() {
        let runs = Runs::new();
        runs.begin(Some("tic_tac_toe"), None);
        let error = runs.plan(Some("connect_four"), None).unwrap_err().to_string();
        assert!(error.starts_with("run.game: run first was begun with tic_tac_toe, not connect_four"), "{error}");
        let error = runs.plan(None, Some(runs.file("[network]\nblocks = 9"))).unwrap_err().to_string();
        assert!(error.starts_with("network: run first was begun with channels = 32"), "{error}");
    }

    #[test]
    fn a_run_keeps_its_replay_servers_and_where_they_listen_and_refuses_to_leave_one_out() {
        let runs = Runs::new();
        runs.begin(Some("tic_tac_toe"), None);
        let run = RunDirectory::new(runs.folder.path(), "first").unwrap();
        let addresses: Vec<SocketAddr> = vec!["127.0.0.1:7001".parse().unwrap(), "127.0.0.1:7002".parse().unwrap()];
        assert_eq!(runs.plan(None, None).unwrap().replay, [None]);
        let replay = |asked| replay_servers(asked, &run, &addresses);
        let kept: Vec<_> = addresses.iter().copied().map(Some).collect();
        assert_eq!(replay(None).unwrap(), kept);
        assert_eq!(replay(Some(3)).unwrap(), [&kept[..], &[None]].concat());
        let error = replay(Some(1)).unwrap_err().to_string();
        assert!(
            error.contains("run first has 2 replay servers, and 1 would leave out what the others hold"),
            "{error}"
        );
        assert!(replay(Some(0)).unwrap_err().to_string().contains("at least 1"));

        let progress = Progress { replay: addresses.clone(), ..Progress::default() };
        run.keep_progress(&progress).unwrap();
        assert_eq!(runs.plan(None, None).unwrap().replay, kept);
    }

    #[test]
    fn threads_that_the_machine_decided_are_decided_anew_and_those_that_were_set_stay() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let runs = Runs::new();
        for actors in [1, 2, cores, 1] {
            assert_eq!(runs.threads(actors, &[]), (threads_per_actor(cores, actors), 0));
        }
        assert_eq!(runs.threads(2, &["actor.threads=5"]), (5, 5));
        assert_eq!(runs.threads(1, &[]), (5, 5));
        assert_eq!(runs.threads(1, &["actor.threads=0"]), (threads_per_actor(cores, 1), 0));
    }

    #[test]
    fn actors_share_all_cores_but_one_and_search_on_two_threads_a_core_while_they_wait_for_a_server() {
        let threads = |cores, actors, inference| {
            let mut config = Config::default();
            share_cores(&mut config, inference, cores, actors);
            (config.actor.threads, config.inference.threads)
        };
        assert_eq!(threads(16, 1, Inference::Local), (15, 0));
        assert_eq!(threads(16, 4, Inference::Local), (3, 0));
        assert_eq!(threads(1, 4, Inference::Local), (1, 0));
        assert_eq!(threads(16, 4, Inference::Remote), (6, 15));
    }
}
