//! Checkpoints: a directory per training step, complete or absent, every file proved by its digest.
//!
//! A checkpoint is written beside its final name, flushed, then renamed, so that a crash at any moment leaves the
//! older ones as they were. Reading takes the newest whole one and names every damaged one it passes over.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weights::{Architecture, Digest};

/// The progress of a run, as a checkpoint keeps it beside the tensors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// How many training steps have been taken.
    pub training_step: u64,
    /// How many positions they used.
    pub positions: u64,
    /// How many seconds the learner has run, over all its lives: what the learning-rate schedule goes by.
    pub elapsed_seconds: f64,
    /// The network the tensors belong to.
    pub architecture: Architecture,
}

/// What a checkpoint holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    /// Where the run stands.
    pub progress: Progress,
    /// The trainer's files by name: weights, averages, optimiser state.
    pub files: Vec<(String, Vec<u8>)>,
}

/// The directory that holds a run's checkpoints.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    directory: PathBuf,
    kept: usize,
}

/// What was found when a run continues.
#[derive(Debug, PartialEq)]
pub struct Found {
    /// The newest whole checkpoint.
    pub checkpoint: Checkpoint,
    /// Newer ones that could not be used, and why.
    pub damaged: Vec<String>,
}

/// Why checkpoints could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file system refused.
    #[error("{action} {}", path.display())]
    Io {
        /// What was tried: `write`, `read`.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// There are checkpoints and none of them is whole.
    #[error(
        "every checkpoint in {} is damaged ({}); restore one from a backup, or move the folder away to train from \
         nothing",
        directory.display(), damaged.join("; ")
    )]
    AllDamaged {
        /// Where they are.
        directory: PathBuf,
        /// Each with its reason.
        damaged: Vec<String>,
    },
}

/// The file that makes a checkpoint complete: it lists every other with its digest.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    progress: Progress,
    files: Vec<File>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    size_bytes: u64,
    digest: Digest,
}

const CONTENTS: &str = "checkpoint.json";
const PREFIX: &str = "step-";
/// How the name of a checkpoint ends while it is being written.
const INTERRUPTED: &str = ".partial";

impl Checkpoints {
    /// The checkpoints in `directory`, of which the newest `kept` stay (at least one).
    #[must_use]
    pub fn new(directory: PathBuf, kept: usize) -> Self {
        Self { directory, kept: kept.max(1) }
    }

    /// Writes a checkpoint and removes the oldest beyond those kept, with what a crash left half-written and what lies
    /// ahead: a run that stands at this step has passed over later checkpoints as damaged. Returns its path.
    ///
    /// # Errors
    /// [`Error::Io`]; the older checkpoints are then untouched.
    pub fn write(&self, checkpoint: &Checkpoint) -> Result<PathBuf, Error> {
        let name = format!("{PREFIX}{:09}", checkpoint.progress.training_step);
        let (temporary, path) = (self.directory.join(format!(".{name}{INTERRUPTED}")), self.directory.join(&name));
        let io = |source| Error::Io { action: "write", path: path.clone(), source };
        // First, because it makes room.
        self.remove_interrupted().map_err(io)?;
        write_directory(&temporary, checkpoint).map_err(io)?;
        // A checkpoint of the same step is the same state: the older copy makes room.
        if path.exists() {
            fs::remove_dir_all(&path).map_err(io)?;
        }
        fs::rename(&temporary, &path).map_err(io)?;
        sync_directory(&self.directory).map_err(io)?;
        self.remove_all_but_newest(&path).map_err(io)?;
        Ok(path)
    }

    /// The newest whole checkpoint; `None` if there is no checkpoint at all.
    ///
    /// # Errors
    /// [`Error::AllDamaged`] if there are some and none can be used: training from nothing would then be a silent
    /// loss.
    pub fn newest(&self) -> Result<Option<Found>, Error> {
        let mut damaged = Vec::new();
        for path in self.list()?.into_iter().rev() {
            match read_directory(&path) {
                Ok(checkpoint) => return Ok(Some(Found { checkpoint, damaged })),
                Err(reason) => damaged.push(format!("{}: {reason}", path.display())),
            }
        }
        if damaged.is_empty() {
            return Ok(None);
        }
        Err(Error::AllDamaged { directory: self.directory.clone(), damaged })
    }

    /// Every finished checkpoint, oldest first.
    fn list(&self) -> Result<Vec<PathBuf>, Error> {
        self.named(|name| name.starts_with(PREFIX))
    }

    /// What is in the directory under a name that `is_meant`, in order.
    fn named(&self, is_meant: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>, Error> {
        let io = |source| Error::Io { action: "read", path: self.directory.clone(), source };
        if !self.directory.exists() {
            return Ok(Vec::new());
        }
        let mut paths = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(io)? {
            let path = entry.map_err(io)?.path();
            if path.file_name().and_then(|name| name.to_str()).is_some_and(&is_meant) {
                paths.push(path);
            }
        }
        paths.sort();
        Ok(paths)
    }

    fn remove_interrupted(&self) -> std::io::Result<()> {
        let is_interrupted = |name: &str| {
            name.strip_prefix('.').is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(INTERRUPTED))
        };
        self.named(is_interrupted).map_err(std::io::Error::other)?.iter().try_for_each(fs::remove_dir_all)
    }

    /// Keeps as many as are kept, of which `newest` is the last.
    fn remove_all_but_newest(&self, newest: &Path) -> std::io::Result<()> {
        let paths = self.list().map_err(std::io::Error::other)?;
        let (before, ahead) = paths.split_at(paths.partition_point(|path| path.as_path() <= newest));
        let excess = before.len().saturating_sub(self.kept);
        before[..excess].iter().chain(ahead).try_for_each(fs::remove_dir_all)
    }
}

fn write_directory(directory: &Path, checkpoint: &Checkpoint) -> std::io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut files = Vec::new();
    for (name, bytes) in &checkpoint.files {
        write_synced(&directory.join(name), bytes)?;
        files.push(File { name: name.clone(), size_bytes: bytes.len() as u64, digest: Digest::of(bytes) });
    }
    let contents = Contents { progress: checkpoint.progress.clone(), files };
    let text = serde_json::to_string_pretty(&contents).map_err(std::io::Error::other)?;
    write_synced(&directory.join(CONTENTS), text.as_bytes())?;
    sync_directory(directory)
}

/// Reads a checkpoint, or says in words what is wrong with it.
fn read_directory(directory: &Path) -> Result<Checkpoint, String> {
    let read = |name: &str| fs::read(directory.join(name)).map_err(|error| format!("read {name}: {error}"));
    let contents: Contents =
        serde_json::from_slice(&read(CONTENTS)?).map_err(|error| format!("{CONTENTS}: {error}"))?;
    let mut files = Vec::new();
    for File { name, size_bytes, digest } in contents.files {
        let bytes = read(&name)?;
        if bytes.len() as u64 != size_bytes || Digest::of(&bytes) != digest {
            return Err(format!("{name} is not the file that was written (its digest differs)"));
        }
        files.push((name, bytes));
    }
    Ok(Checkpoint { progress: contents.progress, files })
}

/// Writes a file and waits until it is on the disk.
pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Waits until the names in a directory are on the disk.
pub(crate) fn sync_directory(directory: &Path) -> std::io::Result<()> {
    fs::File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint(training_step: u64) -> Checkpoint {
        let architecture = Architecture {
            game: "any".into(),
            planes: 2,
            height: 3,
            width: 3,
            actions: 9,
            channels: 8,
            blocks: 1,
            squeeze_excitation: 0,
            global_pooling: 0,
        };
        Checkpoint {
            progress: Progress { training_step, positions: training_step * 64, elapsed_seconds: 1.5, architecture },
            files: vec![
                ("weights.safetensors".into(), vec![training_step as u8; 100]),
                ("moments".into(), vec![7; 10]),
            ],
        }
    }

    struct Run {
        directory: tempfile::TempDir,
        checkpoints: Checkpoints,
    }

    fn run_with(steps: &[u64]) -> Run {
        let directory = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::new(directory.path().join("checkpoints"), 2);
        for &step in steps {
            checkpoints.write(&checkpoint(step)).unwrap();
        }
        Run { directory, checkpoints }
    }

    fn flip_a_byte(run: &Run, step: u64) {
        let path = run.directory.path().join(format!("checkpoints/step-{step:09}/weights.safetensors"));
        let mut bytes = fs::read(&path).unwrap();
        bytes[50] ^= 1;
        fs::write(&path, bytes).unwrap();
    }

    #[test]
    fn a_new_run_has_no_checkpoint() {
        assert_eq!(run_with(&[]).checkpoints.newest().unwrap(), None);
    }

    #[test]
    fn the_newest_checkpoint_comes_back_as_written() {
        let found = run_with(&[1, 2, 10]).checkpoints.newest().unwrap().unwrap();
        assert_eq!(found, Found { checkpoint: checkpoint(10), damaged: vec![] });
    }

    #[test]
    fn only_the_newest_are_kept() {
        let run = run_with(&[1, 2, 3]);
        assert_eq!(run.checkpoints.list().unwrap().len(), 2);
    }

    #[test]
    fn a_flipped_byte_is_named_and_the_one_before_is_used() {
        let run = run_with(&[1, 2]);
        flip_a_byte(&run, 2);
        let found = run.checkpoints.newest().unwrap().unwrap();
        assert_eq!(found.checkpoint, checkpoint(1));
        assert!(found.damaged[0].contains("step-000000002: weights.safetensors"), "{:?}", found.damaged);
    }

    #[test]
    fn a_run_whose_checkpoints_are_all_damaged_does_not_start_from_nothing() {
        let run = run_with(&[1]);
        flip_a_byte(&run, 1);
        let error = run.checkpoints.newest().unwrap_err().to_string();
        assert!(error.contains("every checkpoint") && error.contains("move the folder away"), "{error}");
    }

    /// What a crash leaves of the checkpoint of `step` when it comes in the middle of writing.
    fn interrupt_at(run: &Run, step: u64) -> PathBuf {
        let partial = run.directory.path().join(format!("checkpoints/.step-{step:09}.partial"));
        fs::create_dir(&partial).unwrap();
        fs::write(partial.join("weights.safetensors"), b"half").unwrap();
        partial
    }

    #[test]
    fn a_crash_while_writing_leaves_the_older_ones_as_they_were() {
        let run = run_with(&[1]);
        interrupt_at(&run, 2);
        assert_eq!(run.checkpoints.newest().unwrap().unwrap().checkpoint, checkpoint(1));
        run.checkpoints.write(&checkpoint(2)).unwrap();
        assert_eq!(run.checkpoints.newest().unwrap().unwrap().checkpoint, checkpoint(2));
    }

    #[test]
    fn what_a_crash_left_half_written_goes_with_the_next_checkpoint_of_whatever_step() {
        let run = run_with(&[1]);
        let partial = interrupt_at(&run, 2);
        run.checkpoints.write(&checkpoint(3)).unwrap();
        assert!(!partial.exists());
        assert_eq!(run.checkpoints.list().unwrap().len(), 2);
    }

    #[test]
    fn a_checkpoint_written_after_a_fallback_is_kept_instead_of_the_damaged_one() {
        let run = run_with(&[1, 10]);
        flip_a_byte(&run, 10);
        let one_kept = Checkpoints { kept: 1, ..run.checkpoints };
        one_kept.write(&checkpoint(2)).unwrap();
        assert_eq!(one_kept.newest().unwrap(), Some(Found { checkpoint: checkpoint(2), damaged: vec![] }));
    }
}
