//! The directory of a run: paths, lock and progress.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{Read, Write};
use std::iter;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use run_file::RunFile;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use service::config::Sources;
use service::directory::{FileError, replace};
use service::identity::Identity;
use service::{ConfigError, SecuritySection};
use transport::security::use_credentials;

/// The directory `runs/NAME` of one run, or the directory `run.directory` of a [deployed](Self::deployed) fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunDirectory {
    name: String,
    path: PathBuf,
    /// The run file, which variables of the environment override in a deployed fleet.
    config: PathBuf,
    /// Admin ports of a deployed fleet as HOST:PORT; `None` for a run of `zerofleet train`.
    admins: Option<Vec<String>>,
}

/// Returns the archive URL of a replay server in a run with the setting `replay.archive`, with board and number as in
/// [`RunDirectory::of_replay_server`]. Archives are separate, since in a shared archive a server would read the logs of
/// other servers.
#[must_use]
pub fn archive_of_replay_server(archive: &str, board: Option<&str>, number: usize) -> String {
    let of_server = below(board, number);
    of_server.fold(archive.to_owned(), |url, folder| format!("{}/{folder}", url.trim_end_matches('/')))
}

/// Returns the directories, one in another, that a replay server has below the directory or the archive of the run.
fn below(board: Option<&str>, number: usize) -> impl Iterator<Item = String> {
    let board = board.map(|game| format!("replay-{game}"));
    board.into_iter().chain((number > 1).then(|| format!("replay-server-{number}")))
}

impl RunDirectory {
    /// Returns the run `name` in the directory `runs`, without reading or writing files.
    pub fn new(runs: &Path, name: &str) -> anyhow::Result<Self> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
            bail!("--run {name}: invalid run name; letters, digits, `-`, `_` and `.` are allowed");
        }
        let path = std::path::absolute(runs.join(name)).with_context(|| format!("resolve {}", runs.display()))?;
        Ok(Self { name: name.to_owned(), config: path.join("config.toml"), path, admins: None })
    }

    /// Returns the run of a fleet that an orchestrator runs with the run file `config`, overridden by variables of the
    /// environment, and with the admin ports `admins` as HOST:PORT. The fleet counts as trained, and the directory may
    /// lack every file.
    ///
    /// # Errors
    /// The run file cannot be read, or a key is invalid.
    pub fn deployed(config: PathBuf, admins: Vec<String>) -> Result<Self, ConfigError> {
        let mut run = Self { name: String::new(), path: PathBuf::new(), config, admins: Some(admins) };
        let RunFile { run: section, telemetry, .. } = load_run(&run)?;
        run.name = Identity::new("console", &section, &telemetry.run).run;
        run.path = section.directory;
        Ok(run)
    }

    /// Returns the admin ports of a deployed fleet as HOST:PORT; `None` for a run of `zerofleet train`.
    pub fn admins(&self) -> Option<&[String]> {
        self.admins.as_deref()
    }

    /// Returns the existing run `name` in the directory `runs`.
    ///
    /// # Errors
    /// The run does not exist; the error lists the existing runs.
    pub fn existing(runs: &Path, name: &str) -> anyhow::Result<Self> {
        let run = Self::new(runs, name)?;
        if run.config().is_file() {
            return Ok(run);
        }
        let existing = match names(runs).as_slice() {
            [] => "there are no runs yet; zerofleet train starts one".to_owned(),
            names => format!("existing runs: {}", names.join(", ")),
        };
        bail!("no run {name} in {}; {existing}", runs.display())
    }

    /// Returns the first run among `game-1`, `game-2`, … that does not exist yet.
    pub fn fresh(runs: &Path, game: &str) -> anyhow::Result<Self> {
        let mut runs = (1_u64..).map(|number| Self::new(runs, &format!("{game}-{number}")));
        runs.find(|run| !run.as_ref().is_ok_and(|run| run.path.exists())).expect("numbers do not end")
    }

    /// Creates the directories and checks that they are writable.
    pub fn create(&self) -> anyhow::Result<()> {
        for folder in [self.path.clone(), self.logs(), self.checkpoints(), self.path.join("replay")] {
            service::directory::writable(&folder)?;
        }
        Ok(())
    }

    /// Returns the run directory for the replay server `number` of a board, which contains the replay log. `None` is
    /// the board of `run.game`, and numbers start at one. The first server of `run.game` uses the directory of the run
    /// itself, and actors use the directory of the first server of the board.
    pub fn of_replay_server(&self, board: Option<&str>, number: usize) -> PathBuf {
        below(board, number).fold(self.path.clone(), |path, folder| path.join(folder))
    }

    /// Returns the run directory for the learner `number`. Numbers start at one, and the first learner uses the
    /// directory of the run itself.
    pub fn of_learner(&self, number: usize) -> PathBuf {
        if number == 1 { self.path.clone() } else { self.path.join(format!("learner-{number}")) }
    }

    /// Returns true while a supervisor holds the [lock](Self::lock), and for a deployed fleet.
    pub fn is_trained(&self) -> bool {
        let shared = |file: File| file.try_lock_shared();
        let is_held = |file: File| matches!(shared(file), Err(TryLockError::WouldBlock));
        self.admins.is_some() || File::open(self.path.join("lock")).is_ok_and(is_held)
    }

    /// Locks the run for this supervisor until the file is dropped or the process exits.
    pub fn lock(&self) -> anyhow::Result<File> {
        let path = self.path.join("lock");
        let failed = |source| FileError { action: "lock", path: path.clone(), source };
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = opened.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // The content is used only in the message; the file lock determines whether the run is in use.
                let _ = file.read_to_string(&mut holder);
                let holder = if holder.trim().is_empty() { "another process" } else { holder.trim() };
                bail!("run {} is being trained by {holder}; stop it, or start another run with --run", self.name);
            }
            Err(TryLockError::Error(error)) => return Err(failed(error).into()),
        }
        // The operating system releases the lock when the holder exits, so the content of the file does not show
        // whether the run is in use.
        file.set_len(0).and_then(|()| write!(file, "process {}", std::process::id())).map_err(failed)?;
        Ok(file)
    }

    /// Returns the name of the run.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the absolute path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file with the effective configuration.
    pub fn config(&self) -> PathBuf {
        self.config.clone()
    }

    /// Returns the directory with one log per process.
    pub fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }

    /// Returns the directory of checkpoints from which the first learner resumes.
    pub fn checkpoints(&self) -> PathBuf {
        self.checkpoints_of(1)
    }

    /// Returns the directory of checkpoints from which the learner `number` resumes, as in
    /// [`of_learner`](Self::of_learner).
    pub fn checkpoints_of(&self, number: usize) -> PathBuf {
        self.of_learner(number).join("checkpoints")
    }

    /// Returns the file that lists the processes and admin ports while the run trains.
    pub fn fleet(&self) -> PathBuf {
        self.path.join("fleet.json")
    }

    /// Returns the file with the metrics of the run over time, one JSON object per line.
    pub fn metrics(&self) -> PathBuf {
        self.path.join("metrics.jsonl")
    }

    /// Returns the file with the events of the run, one JSON object per line.
    pub fn events(&self) -> PathBuf {
        self.path.join("events.jsonl")
    }

    /// Returns the file with the summary of the run as JSON.
    pub fn summary(&self) -> PathBuf {
        self.path.join("summary.json")
    }

    /// Returns the file with the progress of the run.
    pub(crate) fn progress_file(&self) -> PathBuf {
        self.path.join("progress.json")
    }

    /// Reads the progress of the run; `None` if the run has not started.
    pub fn progress(&self) -> anyhow::Result<Option<Progress>> {
        let path = self.progress_file();
        if !path.exists() {
            return Ok(None);
        }
        let progress: Progress = read_json(&path)?;
        let elapsed_seconds = progress.elapsed_seconds;
        ensure!(elapsed_seconds >= 0.0, "parse {}: elapsed_seconds is {elapsed_seconds}, below 0", path.display());
        Ok(Some(progress))
    }

    /// Returns the replay servers of the latest session, those of the first board first; empty if the run has not
    /// started. A deployed fleet has those in `learner.replay`. Installs the credentials of the run for all gRPC
    /// channels of this process.
    ///
    /// # Errors
    /// A file of the run is invalid or cannot be read.
    pub fn reach_replay_servers(&self) -> anyhow::Result<Vec<ReplayServer>> {
        if self.admins.is_some() {
            let RunFile { learner, security, .. } = load_run(self)?;
            security.check_endpoint("learner.replay", &learner.replay)?;
            use_credentials(&security)?;
            let server = |(number, endpoint)| ReplayServer { board: None, number, endpoint };
            let endpoints = learner.replay.split(',').map(|endpoint| endpoint.trim().to_owned());
            return Ok((1..).zip(endpoints).map(server).collect());
        }
        let Some(progress) = self.progress()? else { return Ok(Vec::new()) };
        let SecurityOnly { security } = load_run(self)?;
        use_credentials(&security)?;
        let scheme = security.scheme();
        let boards = progress.boards.into_iter().map(|(board, servers)| (Some(board), servers));
        let mut reached = Vec::new();
        for (board, servers) in iter::once((None, progress.replay)).chain(boards) {
            reached.extend((1..).zip(servers).map(|(number, address)| {
                let endpoint = format!("{scheme}://{address}");
                ReplayServer { board: board.clone(), number, endpoint }
            }));
        }
        Ok(reached)
    }

    /// Replaces the progress file, atomically.
    pub fn keep_progress(&self, progress: &Progress) -> anyhow::Result<()> {
        Ok(replace(&self.progress_file(), &serde_json::to_vec_pretty(progress)?)?)
    }
}

/// Reads a value from a JSON file.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("parse {}", path.display()))
}

/// Returns the names of the runs in a directory, sorted; empty if the directory cannot be read.
fn names(runs: &Path) -> Vec<String> {
    let entries = fs::read_dir(runs).into_iter().flatten().flatten();
    let runs = entries.filter(|entry| entry.path().join("config.toml").is_file());
    let mut names: Vec<String> = runs.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// The place where self-play positions are evaluated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Inference {
    /// Each actor evaluates locally.
    #[default]
    Local,
    /// An inference server evaluates for all actors.
    Remote,
}

/// The program that trains the network of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Learner {
    /// The process `learner`.
    #[default]
    Zerofleet,
    /// A program of the user, for which `zerofleet weights serve` publishes the weights.
    Own,
}

impl Learner {
    /// Returns the program in the role of the learner, and the first arguments.
    pub(crate) fn command(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Zerofleet => ("learner", &[]),
            Self::Own => ("zerofleet", &["weights", "serve"]),
        }
    }
}

/// The progress of a run over all sessions.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Length of the run in minutes.
    pub minutes: f64,
    /// Training time so far in seconds.
    pub elapsed_seconds: f64,
    /// Place where self-play positions are evaluated.
    #[serde(default)]
    pub inference: Inference,
    /// Program that trains the network.
    #[serde(default)]
    pub learner: Learner,
    /// Address of each replay server, kept over sessions: an actor's unacknowledged trajectories belong to one
    /// particular server.
    #[serde(default)]
    pub replay: Vec<SocketAddr>,
    /// Addresses of the replay servers for each further board, by name.
    #[serde(default)]
    pub boards: BTreeMap<String, Vec<SocketAddr>>,
    /// Training steps of the learner at the last reading.
    #[serde(default)]
    pub training_steps: u64,
    /// Learner threads by the latest division of the cores; 0 before any division.
    #[serde(default)]
    pub learner_threads: usize,
    /// Counters of stopped processes, by series; added to the counters of running processes.
    pub totals: BTreeMap<String, f64>,
}

/// A replay server of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayServer {
    /// Name of the board; `None` is the board of `run.game`.
    pub board: Option<String>,
    /// Number of the server among the servers of the board; starts at one.
    pub number: usize,
    /// Endpoint for clients.
    pub endpoint: String,
}

/// The section `[security]` of a run file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SecurityOnly {
    /// Certificates and tokens.
    pub security: SecuritySection,
}

/// Loads the configuration of an existing run: the whole run file, or the part for one process. Variables of the
/// environment override the run file of a deployed fleet, as in the processes.
pub fn load_run<C>(run: &RunDirectory) -> Result<C, ConfigError>
where
    C: Serialize + DeserializeOwned + Default,
{
    load_run_with(run, Vec::new())
}

/// Loads the configuration of an existing run as [`load_run`] does, with the settings `sets`, each `KEY=VALUE`.
pub fn load_run_with<C>(run: &RunDirectory, sets: Vec<String>) -> Result<C, ConfigError>
where
    C: Serialize + DeserializeOwned + Default,
{
    let env = run.admins.iter().flat_map(|_| std::env::vars_os());
    Sources { file: Some(run.config()), env, sets }.read(games::preset)?.load()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(folder: &Path) -> RunDirectory {
        let run = RunDirectory::new(folder, "first").unwrap();
        run.create().unwrap();
        run
    }

    #[test]
    fn two_supervisors_never_share_a_run() {
        let folder = tempfile::tempdir().unwrap();
        let run = run(folder.path());
        let lock = run.lock().unwrap();
        let error = run.lock().unwrap_err().to_string();
        let holder = std::process::id();
        assert_eq!(
            error,
            format!("run first is being trained by process {holder}; stop it, or start another run with --run")
        );
        drop(lock);
        run.lock().unwrap();
    }

    #[test]
    fn stored_progress_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let run = run(folder.path());
        assert_eq!(run.progress().unwrap(), None);
        let totals = BTreeMap::from([("games".to_owned(), 3.0)]);
        let replay = vec!["127.0.0.1:7001".parse().unwrap()];
        let boards = BTreeMap::from([("go-7".to_owned(), vec!["127.0.0.1:7004".parse().unwrap()])]);
        let (inference, learner) = (Inference::Remote, Learner::Own);
        let (minutes, elapsed_seconds, training_steps, learner_threads) = (15.0, 61.5, 7, 3);
        let progress = Progress {
            minutes,
            elapsed_seconds,
            inference,
            learner,
            replay,
            boards,
            training_steps,
            learner_threads,
            totals,
        };
        run.keep_progress(&progress).unwrap();
        assert_eq!(run.progress().unwrap(), Some(progress));
    }

    #[test]
    fn the_replay_servers_of_all_boards_are_reached_by_number() {
        let folder = tempfile::tempdir().unwrap();
        let run = run(folder.path());
        assert_eq!(run.reach_replay_servers().unwrap(), []);
        let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let boards = BTreeMap::from([("go-7".to_owned(), vec![at(3)])]);
        run.keep_progress(&Progress { replay: vec![at(1), at(2)], boards, ..Progress::default() }).unwrap();
        fs::write(run.config(), "[run]\ngame = \"go-9\"\n").unwrap();
        let server = |board: Option<&str>, number, port| ReplayServer {
            board: board.map(str::to_owned),
            number,
            endpoint: format!("http://127.0.0.1:{port}"),
        };
        let expected = [server(None, 1, 1), server(None, 2, 2), server(Some("go-7"), 1, 3)];
        assert_eq!(run.reach_replay_servers().unwrap(), expected);
    }

    #[test]
    fn a_deployed_fleet_is_described_by_its_run_file() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("zerofleet.toml");
        let replay = "[learner]\nreplay = \"http://127.0.0.1:1, http://127.0.0.1:2\"\n";
        let text = |telemetry: &str| format!("[run]\ndirectory = \"/data/first\"\n{replay}{telemetry}");
        fs::write(&config, text("")).unwrap();
        let deployed = || RunDirectory::deployed(config.clone(), vec!["actor:9100".to_owned()]).unwrap();
        let run = deployed();
        assert_eq!((run.name(), run.path(), run.config()), ("first", Path::new("/data/first"), config.clone()));
        assert_eq!(run.admins(), Some(&["actor:9100".to_owned()][..]));
        assert!(run.is_trained() && run.progress().unwrap().is_none());
        let server =
            |number: usize| ReplayServer { board: None, number, endpoint: format!("http://127.0.0.1:{number}") };
        assert_eq!(run.reach_replay_servers().unwrap(), [server(1), server(2)]);
        fs::write(&config, text("[telemetry]\nrun = \"hex\"\n[security]\ntoken_file = \"token\"\n")).unwrap();
        assert_eq!(deployed().name(), "hex");
        fs::write(&config, text("[security]\ntoken_file = \"token\"\n").replace("127.0.0.1:1", "replay:1")).unwrap();
        let error = run.reach_replay_servers().unwrap_err().to_string();
        assert!(error.starts_with("learner.replay: would send the token"), "{error}");
    }

    #[test]
    fn negative_progress_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let run = run(folder.path());
        run.keep_progress(&Progress { elapsed_seconds: -1.0, ..Progress::default() }).unwrap();
        let error = format!("{:#}", run.progress().unwrap_err());
        assert!(error.contains("progress.json: elapsed_seconds is -1, below 0"), "{error}");
    }

    #[test]
    fn names_cannot_leave_the_folder() {
        for name in ["", "..", "a/b", ".hidden"] {
            assert!(RunDirectory::new(Path::new("runs"), name).is_err(), "{name}");
        }
    }
}
