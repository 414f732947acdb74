//! The folder of a run: where everything lies, who may write to it, and how far the run has come.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use serde::{Deserialize, Serialize};
use service::directory::replace;

/// `runs/NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunDirectory {
    name: String,
    path: PathBuf,
}

impl RunDirectory {
    /// The run `name` below `runs`. Touches nothing.
    pub fn new(runs: &Path, name: &str) -> anyhow::Result<Self> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
            bail!("--run {name}: a run's name is made of letters, digits, `-`, `_` and `.`");
        }
        let path = std::path::absolute(runs.join(name)).with_context(|| format!("find {}", runs.display()))?;
        Ok(Self { name: name.to_owned(), path })
    }

    /// The run `name` below `runs`, which has begun.
    ///
    /// # Errors
    /// There is no such run; the error names those there are.
    pub fn existing(runs: &Path, name: &str) -> anyhow::Result<Self> {
        let run = Self::new(runs, name)?;
        if run.config().is_file() {
            return Ok(run);
        }
        let there_are = match names(runs).as_slice() {
            [] => "there is none yet, zerofleet train makes one".to_owned(),
            names => format!("there are {}", names.join(", ")),
        };
        bail!("no run {name} in {}; {there_are}", runs.display())
    }

    /// The first of `game-1`, `game-2`, … that does not exist yet.
    pub fn fresh(runs: &Path, game: &str) -> anyhow::Result<Self> {
        for number in 1.. {
            let run = Self::new(runs, &format!("{game}-{number}"))?;
            if !run.path.exists() {
                return Ok(run);
            }
        }
        unreachable!("numbers do not end")
    }

    /// Makes the folders and proves that they can be written to.
    pub fn create(&self) -> anyhow::Result<()> {
        for folder in [self.path.clone(), self.logs(), self.checkpoints(), self.path.join("replay")] {
            service::directory::writable(&folder)?;
        }
        Ok(())
    }

    /// What the replay server of this number takes for the run's folder: its log lies below. They count from one, and the
    /// first has the run's own.
    pub fn of_replay_server(&self, number: usize) -> PathBuf {
        if number == 1 { self.path.clone() } else { self.path.join(format!("replay-server-{number}")) }
    }

    /// Makes this process the only supervisor of the run, until the lock is dropped or the process dies.
    pub fn lock(&self) -> anyhow::Result<RunLock> {
        let path = self.path.join("lock");
        let mut file = File::options().read(true).write(true).create(true).truncate(false).open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Only makes the message better; the lock is what counts.
                let _ = file.read_to_string(&mut holder);
                let holder = if holder.trim().is_empty() { "another process" } else { holder.trim() };
                bail!("run {} is being trained by {holder}; stop it, or choose another name with --run", self.name);
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("lock {}", path.display()));
            }
        }
        // The system lock goes with its holder, however that dies: what is written here is never stale evidence.
        file.set_len(0)?;
        write!(file, "process {}", std::process::id())?;
        Ok(RunLock { _file: file })
    }

    /// The run's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The folder itself, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The configuration as used.
    pub fn config(&self) -> PathBuf {
        self.path.join("config.toml")
    }

    /// One log per process.
    pub fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }

    /// What the learner resumes from.
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoints")
    }

    /// Where the processes of the run tell their numbers, while it is trained.
    pub fn fleet(&self) -> PathBuf {
        self.path.join("fleet.json")
    }

    /// The numbers of the run over time, one JSON object a line.
    pub fn metrics(&self) -> PathBuf {
        self.path.join("metrics.jsonl")
    }

    /// What the run came to, for machines.
    pub fn summary(&self) -> PathBuf {
        self.path.join("summary.json")
    }

    /// How far the run has come; nothing, if it has not begun.
    pub fn progress(&self) -> anyhow::Result<Option<Progress>> {
        let path = self.path.join("progress.json");
        if !path.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let understand = || format!("understand {}", path.display());
        let progress: Progress = serde_json::from_str(&text).with_context(understand)?;
        if progress.elapsed_seconds < 0.0 {
            return Err(anyhow!("elapsed_seconds is {}, below 0", progress.elapsed_seconds)).with_context(understand);
        }
        Ok(Some(progress))
    }

    /// Replaces what is kept of the progress, whole or not at all.
    pub fn keep_progress(&self, progress: &Progress) -> anyhow::Result<()> {
        Ok(replace(&self.path.join("progress.json"), &serde_json::to_vec_pretty(progress)?)?)
    }
}

/// The runs in a folder, by name; none, if the folder cannot be read.
fn names(runs: &Path) -> Vec<String> {
    let entries = fs::read_dir(runs).into_iter().flatten().flatten();
    let runs = entries.filter(|entry| entry.path().join("config.toml").is_file());
    let mut names: Vec<String> = runs.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Held by the one supervisor of a run.
#[derive(Debug)]
pub struct RunLock {
    _file: File,
}

/// Where self-play has positions evaluated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Inference {
    /// Each actor evaluates itself.
    #[default]
    Local,
    /// An inference server evaluates for all actors.
    Remote,
}

/// How far a run has come, over all its sessions.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// The length of the run.
    pub minutes: f64,
    /// How much of it has passed.
    pub elapsed_seconds: f64,
    /// Where self-play has positions evaluated.
    #[serde(default)]
    pub inference: Inference,
    /// Where each replay server listens, over sessions too: of several, actors owe what is not acknowledged to one of them.
    #[serde(default)]
    pub replay: Vec<SocketAddr>,
    /// Counters of processes that have ended, by series.
    pub totals: BTreeMap<String, f64>,
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
            format!("run first is being trained by process {holder}; stop it, or choose another name with --run")
        );
        drop(lock);
        run.lock().unwrap();
    }

    #[test]
    fn progress_survives() {
        let folder = tempfile::tempdir().unwrap();
        let run = run(folder.path());
        assert_eq!(run.progress().unwrap(), None);
        let totals = BTreeMap::from([("games".to_owned(), 3.0)]);
        let replay = vec!["127.0.0.1:7001".parse().unwrap()];
        let progress = Progress { minutes: 15.0, elapsed_seconds: 61.5, inference: Inference::Remote, replay, totals };
        run.keep_progress(&progress).unwrap();
        assert_eq!(run.progress().unwrap(), Some(progress));
    }

    #[test]
    fn progress_below_nothing_is_refused() {
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
