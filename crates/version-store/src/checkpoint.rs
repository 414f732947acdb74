//! Checkpoints: one directory per training step, either complete or absent, with every file verified by digest.
//!
//! A checkpoint is written under a temporary name, flushed, then renamed, so that a crash at any moment leaves older
//! checkpoints unchanged. Reading takes the latest whole checkpoint and renames later, damaged checkpoints to
//! `damaged-…`. A checkpoint is damaged if readable bytes are wrong, or a file is missing. A file that the system
//! cannot read now may be whole, and makes reading fail.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use service::directory::{FileError, if_exists, sync, write_synced};
use weights::{Architecture, Digest};

use crate::spread::most_dispensable;

/// The progress of a run, stored in a checkpoint in addition to the tensors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// Number of training steps taken.
    pub training_step: u64,
    /// Number of positions in these steps.
    pub positions: u64,
    /// Running time of the learner in seconds, over all starts: the clock of the learning rate schedule.
    pub elapsed_seconds: f64,
    /// Architecture of the network with these tensors.
    pub architecture: Architecture,
}

/// A run's progress and the trainer's files.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    /// The progress of the run.
    pub progress: Progress,
    /// The trainer's files by name: weights, averages, optimiser state.
    pub files: Vec<(String, Vec<u8>)>,
}

/// The directory with a run's checkpoints.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    directory: PathBuf,
    /// Number of latest checkpoints to keep.
    kept: usize,
    /// Number of older checkpoints to keep.
    spread: usize,
}

/// The latest whole checkpoint of a run.
#[derive(Debug, PartialEq)]
pub struct Found {
    /// The latest whole checkpoint, with all files.
    pub checkpoint: Checkpoint,
    /// Later, damaged checkpoints, each with the reason and the new name.
    pub damaged: Vec<String>,
}

/// A reason why checkpoints could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An operation other than reading failed: `write`, `list`, `rename`, `remove`.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file of a checkpoint could not be read, which does not mean damage.
    #[error(
        "cannot read {} (the checkpoint may be intact and was left in place; repair the storage and restart, or move \
         the checkpoint away to continue from an older checkpoint)",
        path.display()
    )]
    Unreadable {
        /// Path of the unreadable file.
        path: PathBuf,
        /// The error from the system.
        source: io::Error,
    },
    /// The checkpoint to continue from is damaged.
    #[error("checkpoint {} is damaged ({reason}); continue from another checkpoint", path.display())]
    Damaged {
        /// Path of the damaged checkpoint.
        path: PathBuf,
        /// Description of the damage.
        reason: String,
    },
    /// There are checkpoints, but none is whole.
    #[error(
        "every checkpoint in {} is damaged ({}); restore a checkpoint from a backup, or move the directory away to \
         train from scratch",
        directory.display(), damaged.join("; ")
    )]
    AllDamaged {
        /// The directory of the checkpoints.
        directory: PathBuf,
        /// The damaged checkpoints, each with the reason.
        damaged: Vec<String>,
    },
    /// There is no checkpoint of the requested training step.
    #[error("no checkpoint of training step {step} in {}; existing steps: {}", directory.display(), listed(steps))]
    NoSuchStep {
        /// The requested training step.
        step: u64,
        /// The directory of the checkpoints.
        directory: PathBuf,
        /// Training steps of the existing checkpoints, ascending.
        steps: Vec<u64>,
    },
}

fn listed(steps: &[u64]) -> String {
    if steps.is_empty() {
        return "none".to_owned();
    }
    steps.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
}

/// The file that makes a checkpoint complete: a list of every other file with the digest.
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
/// Maximum size of a checkpoint's file list, in bytes: a thousand times the list of any trainer.
const CONTENTS_BYTES_MAX: u64 = 1 << 20;
const PREFIX: &str = "step-";
/// Suffix of a checkpoint's name during writing.
const INTERRUPTED: &str = ".partial";
/// Suffix of a checkpoint's name while another checkpoint of the same step takes its place.
const REPLACED: &str = ".replaced";
/// Prefix of a damaged checkpoint: `damaged-0001-step-000000010`, counted so that names stay distinct.
const DAMAGED: &str = "damaged-";
/// Prefix of a checkpoint that was set aside to continue from an earlier one: `undone-0001-step-000000010`.
const UNDONE: &str = "undone-";
/// Number of damaged checkpoints that each write keeps for inspection, not counting later damage.
const DAMAGED_MAX: usize = 4;

/// The latest whole checkpoint, before damaged checkpoints are renamed.
struct Whole {
    checkpoint: Checkpoint,
    /// Later, damaged checkpoints, with the reasons; the latest first.
    damaged: Vec<(PathBuf, String)>,
}

impl Checkpoints {
    /// Returns the checkpoints in `directory`, with the latest `kept` to keep (at least one).
    #[must_use]
    pub fn new(directory: PathBuf, kept: usize) -> Self {
        Self { directory, kept: kept.max(1), spread: 0 }
    }

    /// Keeps `spread` older checkpoints in addition, spread over the run on a logarithmic scale.
    #[must_use]
    pub fn with_spread(self, spread: usize) -> Self {
        Self { spread, ..self }
    }

    /// Writes a checkpoint, then removes checkpoints that are not kept. Also removes partial checkpoints left by a
    /// crash. Returns the path of the new checkpoint.
    ///
    /// # Errors
    /// [`Error::File`]; the older checkpoints are then untouched.
    pub fn write(&self, checkpoint: &Checkpoint) -> Result<PathBuf, Error> {
        let name = format!("{PREFIX}{:09}", checkpoint.progress.training_step);
        let [path, temporary, replaced] = [name.clone(), format!(".{name}{INTERRUPTED}"), format!(".{name}{REPLACED}")]
            .map(|name| self.directory.join(name));
        // Partial checkpoints are removed first, to free disk space.
        self.remove_interrupted()?;
        self.end_replacements()?;
        write_directory(&temporary, checkpoint)?;
        // A checkpoint of the same step is renamed, and restored if the process stops before the new checkpoint is in
        // place.
        if_exists(fs::rename(&path, &replaced)).map_err(|source| FileError {
            action: "rename",
            path: path.clone(),
            source,
        })?;
        fs::rename(&temporary, &path).map_err(|source| FileError { action: "rename", path: temporary, source })?;
        sync(&self.directory)?;
        self.end_replacements()?;
        self.remove_old(&path)?;
        Ok(path)
    }

    /// Returns the latest whole checkpoint and renames later, damaged checkpoints; `None` if there is no checkpoint
    /// at all.
    ///
    /// # Errors
    /// [`Error::Unreadable`] if the system cannot read a file, [`Error::AllDamaged`] if there are checkpoints but
    /// none is whole: training from scratch would then silently discard the run. No checkpoint is renamed in these
    /// cases.
    pub fn newest(&self) -> Result<Option<Found>, Error> {
        self.end_replacements()?;
        let Some(Whole { checkpoint, damaged }) = self.newest_whole()? else { return Ok(None) };
        let (paths, reasons): (Vec<PathBuf>, Vec<String>) = damaged.into_iter().unzip();
        let renamed = self.set_aside(DAMAGED, &paths)?;
        let kept = |(reason, name)| format!("{reason}; kept as {name}");
        Ok(Some(Found { checkpoint, damaged: reasons.into_iter().zip(renamed).map(kept).collect() }))
    }

    /// Returns the progress of the latest whole checkpoint, and changes nothing; `None` if there is no checkpoint at
    /// all.
    ///
    /// # Errors
    /// The errors of [`newest`](Self::newest).
    pub fn newest_progress(&self) -> Result<Option<Progress>, Error> {
        Ok(self.newest_whole()?.map(|whole| whole.checkpoint.progress))
    }

    fn newest_whole(&self) -> Result<Option<Whole>, Error> {
        let mut damaged = Vec::new();
        for path in self.list()?.into_iter().rev() {
            match read_directory(&path) {
                Ok(checkpoint) => return Ok(Some(Whole { checkpoint, damaged })),
                Err(Fault::Damaged(reason)) => {
                    let reason = format!("{}: {reason}", path.display());
                    damaged.push((path, reason));
                }
                Err(Fault::Unreadable { path, source }) => return Err(Error::Unreadable { path, source }),
            }
        }
        if damaged.is_empty() {
            return Ok(None);
        }
        let damaged = damaged.into_iter().map(|(_, reason)| reason).collect();
        Err(Error::AllDamaged { directory: self.directory.clone(), damaged })
    }

    /// Returns the training step in the name of the latest finished checkpoint, without reading the checkpoint; 0 if
    /// there is none.
    ///
    /// # Errors
    /// [`Error::File`] if the directory cannot be listed.
    pub fn newest_step(&self) -> Result<u64, Error> {
        Ok(self.list()?.iter().filter_map(|path| step_of(path)).max().unwrap_or(0))
    }

    /// Sets every checkpoint after training step `step` aside, so that the run continues from the checkpoint of this
    /// step. Returns the new names, latest first.
    ///
    /// # Errors
    /// [`Error::NoSuchStep`] without a checkpoint of that step, [`Error::Damaged`] and [`Error::Unreadable`] if it is
    /// not whole; nothing changes in these cases. Also the errors of [`set_aside_after`](Self::set_aside_after).
    pub fn undo_after(&self, step: u64) -> Result<Vec<String>, Error> {
        self.end_replacements()?;
        let paths = self.list()?;
        let Some(path) = paths.iter().find(|path| step_of(path) == Some(step)) else {
            let steps = paths.iter().filter_map(|path| step_of(path)).collect();
            return Err(Error::NoSuchStep { step, directory: self.directory.clone(), steps });
        };
        match read_directory(path) {
            Ok(_) => self.set_aside_after(step),
            Err(Fault::Damaged(reason)) => Err(Error::Damaged { path: path.clone(), reason }),
            Err(Fault::Unreadable { path, source }) => Err(Error::Unreadable { path, source }),
        }
    }

    /// Sets every checkpoint after training step `step` aside, and returns the new names, latest first. They are
    /// never read or removed again.
    ///
    /// # Errors
    /// [`Error::File`] if the directory cannot be listed or changed.
    pub fn set_aside_after(&self, step: u64) -> Result<Vec<String>, Error> {
        let mut paths = self.list()?;
        paths.retain(|path| step_of(path).is_some_and(|of_path| of_path > step));
        // The latest goes first: a crash in between leaves a run that continues from a later checkpoint than wanted.
        paths.reverse();
        self.set_aside(UNDONE, &paths)
    }

    /// Returns every finished checkpoint, oldest first.
    fn list(&self) -> Result<Vec<PathBuf>, Error> {
        self.named(|name| name.starts_with(PREFIX))
    }

    /// Returns the directory entries with names that fulfil a condition, in order.
    fn named(&self, fulfils: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>, Error> {
        let failed = |source| FileError { action: "list", path: self.directory.clone(), source };
        let entries = if_exists(fs::read_dir(&self.directory)).map_err(failed)?;
        let mut paths = Vec::new();
        for entry in entries.into_iter().flatten() {
            let path = entry.map_err(failed)?.path();
            if path.file_name().and_then(|name| name.to_str()).is_some_and(&fulfils) {
                paths.push(path);
            }
        }
        paths.sort();
        Ok(paths)
    }

    /// Renames checkpoints, given latest first, to names with `prefix`, and returns the new names.
    fn set_aside(&self, prefix: &str, paths: &[PathBuf]) -> Result<Vec<String>, Error> {
        let number = |path: &PathBuf| path.file_name()?.to_str()?.strip_prefix(prefix)?.split('-').next()?.parse().ok();
        let before = self.named(|name| name.starts_with(prefix))?.iter().filter_map(number).max().unwrap_or(0_u32);
        let mut names = Vec::new();
        for (number, path) in (before.saturating_add(1)..).zip(paths) {
            let step = path.file_name().unwrap_or_default().to_string_lossy();
            let name = format!("{prefix}{number:04}-{step}");
            let failed = |source| FileError { action: "rename", path: path.clone(), source };
            fs::rename(path, self.directory.join(&name)).map_err(failed)?;
            names.push(name);
        }
        if !names.is_empty() {
            sync(&self.directory)?;
        }
        Ok(names)
    }

    /// Removes replaced checkpoints, and restores checkpoints with an interrupted replacement.
    fn end_replacements(&self) -> Result<(), Error> {
        let of = |name: &str| name.strip_prefix('.')?.strip_suffix(REPLACED).map(|name| self.directory.join(name));
        for replaced in self.named(|name| of(name).is_some())? {
            let name = replaced.file_name().and_then(OsStr::to_str).and_then(of);
            match name.filter(|path| !path.exists()) {
                Some(path) => {
                    let failed = |source| FileError { action: "rename", path: replaced.clone(), source };
                    fs::rename(&replaced, &path).map_err(failed)?;
                    sync(&self.directory)?;
                }
                None => remove(&[replaced])?,
            }
        }
        Ok(())
    }

    fn remove_interrupted(&self) -> Result<(), Error> {
        let is_interrupted = |name: &str| {
            name.strip_prefix('.').is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(INTERRUPTED))
        };
        remove(&self.named(is_interrupted)?)
    }

    /// Removes checkpoints up to `newest` that are not kept, and the oldest damaged checkpoints.
    fn remove_old(&self, newest: &Path) -> Result<(), Error> {
        let mut whole = self.list()?;
        whole.truncate(whole.partition_point(|path| path.as_path() <= newest));
        let mut steps: Vec<u64> = whole.iter().map(|path| step_of(path).unwrap_or(0)).collect();
        while whole.len() > self.kept + self.spread {
            let older = whole.len() - self.kept;
            let Some(index) = most_dispensable(&steps, 0..older) else { break };
            steps.remove(index);
            remove(&[whole.remove(index)])?;
        }
        let damaged = self.named(|name| name.starts_with(DAMAGED))?;
        remove(&damaged[..damaged.len().saturating_sub(DAMAGED_MAX)])
    }
}

/// Returns the training step in the name of a finished checkpoint.
fn step_of(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_prefix(PREFIX)?.parse().ok()
}

fn remove(paths: &[PathBuf]) -> Result<(), Error> {
    let removed = |path: &PathBuf| {
        fs::remove_dir_all(path).map_err(|source| FileError { action: "remove", path: path.clone(), source }.into())
    };
    paths.iter().try_for_each(removed)
}

fn write_directory(directory: &Path, checkpoint: &Checkpoint) -> Result<(), FileError> {
    let failed = |source| FileError { action: "create", path: directory.to_owned(), source };
    fs::create_dir_all(directory).map_err(failed)?;
    let mut files = Vec::new();
    for (name, bytes) in &checkpoint.files {
        write_synced(&directory.join(name), bytes)?;
        files.push(File { name: name.clone(), size_bytes: bytes.len() as u64, digest: Digest::of(bytes) });
    }
    let contents = Contents { progress: checkpoint.progress.clone(), files };
    let text = serde_json::to_string_pretty(&contents).map_err(io::Error::other).map_err(failed)?;
    write_synced(&directory.join(CONTENTS), text.as_bytes())?;
    sync(directory)
}

/// A reason why a checkpoint was not read.
enum Fault {
    /// Bytes are wrong, or a file is missing.
    Damaged(String),
    /// The system could not read a file.
    Unreadable { path: PathBuf, source: io::Error },
}

fn read_directory(directory: &Path) -> Result<Checkpoint, Fault> {
    let text = read_file(directory, CONTENTS, None)?;
    let contents: Contents =
        serde_json::from_slice(&text).map_err(|error| Fault::Damaged(format!("{CONTENTS}: {error}")))?;
    let mut files = Vec::new();
    for File { name, size_bytes, digest } in contents.files {
        // A damaged name could lead to any file of the machine.
        if Path::new(&name).file_name() != Some(OsStr::new(&name)) {
            return Err(Fault::Damaged(format!("{CONTENTS}: {name:?} is not a file name")));
        }
        let bytes = read_file(directory, &name, Some(size_bytes))?;
        if Digest::of(&bytes) != digest {
            return Err(not_as_written(&name));
        }
        files.push((name, bytes));
    }
    Ok(Checkpoint { progress: contents.progress, files })
}

/// Reads a checkpoint file with exactly `size_bytes`, or at most [`CONTENTS_BYTES_MAX`] if `None`. Reads at most one
/// byte beyond the limit.
fn read_file(directory: &Path, name: &str, size_bytes: Option<u64>) -> Result<Vec<u8>, Fault> {
    let path = directory.join(name);
    let fault = |source: io::Error| match source.kind() {
        kind if is_damage(kind) => Fault::Damaged(format!("{name}: {source}")),
        _ => Fault::Unreadable { path: path.clone(), source },
    };
    // A pipe has no end, and opening it waits for a writer.
    if !fs::metadata(&path).map_err(fault)?.is_file() {
        return Err(Fault::Damaged(format!("{name} is not a file")));
    }
    let mut bytes = Vec::new();
    let bytes_max = size_bytes.unwrap_or(CONTENTS_BYTES_MAX);
    let mut file = fs::File::open(&path).map_err(fault)?.take(bytes_max.saturating_add(1));
    file.read_to_end(&mut bytes).map_err(fault)?;
    let has_size = size_bytes.map_or(bytes.len() as u64 <= bytes_max, |size_bytes| bytes.len() as u64 == size_bytes);
    if has_size { Ok(bytes) } else { Err(not_as_written(name)) }
}

fn not_as_written(name: &str) -> Fault {
    Fault::Damaged(format!("{name} does not match the recorded digest"))
}

/// Returns true for read errors that prove the checkpoint damaged: the file is missing, or a damaged name cannot be
/// the name of a file. Every other error (EIO, ESTALE, EACCES, EMFILE) may be transient or end after a repair of the
/// storage.
fn is_damage(kind: ErrorKind) -> bool {
    use ErrorKind::{InvalidFilename, InvalidInput, IsADirectory, NotADirectory, NotFound};
    matches!(kind, NotFound | NotADirectory | IsADirectory | InvalidInput | InvalidFilename)
}

#[cfg(test)]
mod tests;
