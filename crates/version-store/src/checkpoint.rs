//! Checkpoints: one directory per training step, which is either complete or absent. Reading verifies the digest of
//! each file.
//!
//! A checkpoint is written under a temporary name, synced to disk and then renamed, so that a crash at any time leaves
//! older checkpoints intact. Reading returns the latest intact checkpoint, and renames later, damaged checkpoints to
//! `damaged-…`. A checkpoint is damaged if a file is missing or has wrong contents. A file that the system currently
//! cannot read may be intact, so reading fails with an error instead.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use service::directory::{FileError, if_exists, sync, write_synced};
use weights::{Architecture, Digest};

use crate::spread::most_dispensable;

/// The progress of a run, stored in a checkpoint next to the trainer's files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// Number of completed training steps.
    pub training_step: u64,
    /// Number of positions in all completed training steps.
    pub positions: u64,
    /// Passes over the replay window: the sum over all positions of 1 / items in the window at the time of the draw, as
    /// a mean over boards. 0 in checkpoints of builds that did not count them.
    #[serde(default)]
    pub window_passes: f64,
    /// Running time of the learner in seconds, accumulated across restarts; it measures a schedule in minutes.
    pub elapsed_seconds: f64,
    /// Architecture of the trained network.
    pub architecture: Architecture,
}

/// A run's progress, with the trainer's files.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    /// The progress of the run.
    pub progress: Progress,
    /// The trainer's files as pairs of name and contents: weights, averaged weights and optimiser state.
    pub files: Vec<(String, Vec<u8>)>,
}

/// The checkpoint directory of a run.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    directory: PathBuf,
    /// Number of latest checkpoints to keep.
    kept: usize,
    /// Number of older checkpoints to keep in addition, spread over the run.
    spread: usize,
}

/// The result of looking for the latest intact checkpoint.
#[derive(Debug, PartialEq)]
pub struct Found {
    /// The latest intact checkpoint, with all files.
    pub checkpoint: Checkpoint,
    /// Descriptions of later, damaged checkpoints: the reason and the new name.
    pub damaged: Vec<String>,
}

/// The reason why checkpoints could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file operation other than reading failed: `write`, `list`, `rename` or `remove`.
    #[error(transparent)]
    File(#[from] FileError),
    /// A checkpoint file could not be read. The checkpoint may still be intact.
    #[error(
        "cannot read {} (the checkpoint may be intact and was left in place; repair the storage and restart, or move \
         the checkpoint away to continue from an older checkpoint)",
        path.display()
    )]
    Unreadable {
        /// Path of the unreadable file.
        path: PathBuf,
        /// The error reported by the system.
        source: io::Error,
    },
    /// The requested checkpoint is damaged.
    #[error("checkpoint {} is damaged ({reason}); continue from another checkpoint", path.display())]
    Damaged {
        /// Path of the damaged checkpoint.
        path: PathBuf,
        /// Description of the damage.
        reason: String,
    },
    /// All existing checkpoints are damaged.
    #[error(
        "every checkpoint in {} is damaged ({}); restore a checkpoint from a backup, or move the directory away to \
         train from scratch",
        directory.display(), damaged.join("; ")
    )]
    AllDamaged {
        /// The checkpoint directory.
        directory: PathBuf,
        /// Descriptions of the damaged checkpoints, each with the reason.
        damaged: Vec<String>,
    },
    /// There is no checkpoint for the requested training step.
    #[error("no checkpoint of training step {step} in {}; existing steps: {}", directory.display(), listed(steps))]
    NoSuchStep {
        /// The requested training step.
        step: u64,
        /// The checkpoint directory.
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

/// The file list of a checkpoint, with the digest of every other file. Without this file, a checkpoint is incomplete.
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
/// Maximum size of a checkpoint's file list, in bytes: a thousand times the size for any existing trainer.
const CONTENTS_BYTES_MAX: u64 = 1 << 20;
const PREFIX: &str = "step-";
/// Suffix of the directory name while a checkpoint is being written.
const INTERRUPTED: &str = ".partial";
/// Suffix of the directory name while a new checkpoint of the same step replaces an older checkpoint.
const REPLACED: &str = ".replaced";
/// Name prefix of a damaged checkpoint: `damaged-0001-step-000000010`. The counter keeps names distinct.
const DAMAGED: &str = "damaged-";
/// Name prefix of a checkpoint set aside by a return to an earlier checkpoint: `undone-0001-step-000000010`.
const UNDONE: &str = "undone-";
/// Maximum number of damaged checkpoints that a write keeps for inspection; damaged checkpoints detected later add to
/// it.
const DAMAGED_MAX: usize = 4;

/// The latest intact checkpoint, before damaged checkpoints are renamed.
struct Whole {
    checkpoint: Checkpoint,
    /// Later, damaged checkpoints with the reasons, latest first.
    damaged: Vec<(PathBuf, String)>,
}

impl Checkpoints {
    /// Creates a handle to the checkpoints in `directory`. Writing keeps the latest `kept` checkpoints, at least one.
    #[must_use]
    pub fn new(directory: PathBuf, kept: usize) -> Self {
        Self { directory, kept: kept.max(1), spread: 0 }
    }

    /// Keeps `spread` older checkpoints in addition, spread over the run on a logarithmic scale.
    #[must_use]
    pub fn with_spread(self, spread: usize) -> Self {
        Self { spread, ..self }
    }

    /// Writes a checkpoint, then removes checkpoints that are no longer kept, and partial checkpoints left by a crash.
    /// Returns the path of the new checkpoint.
    ///
    /// # Errors
    /// [`Error::File`]; older checkpoints are unchanged in this case.
    pub fn write(&self, checkpoint: &Checkpoint) -> Result<PathBuf, Error> {
        let name = format!("{PREFIX}{:09}", checkpoint.progress.training_step);
        let [path, temporary, replaced] = [name.clone(), format!(".{name}{INTERRUPTED}"), format!(".{name}{REPLACED}")]
            .map(|name| self.directory.join(name));
        // Partial checkpoints are removed first to free disk space.
        self.remove_interrupted()?;
        self.end_replacements()?;
        write_directory(&temporary, checkpoint)?;
        // An existing checkpoint of the same step is renamed first. If the process stops before the new checkpoint is
        // in place, the existing checkpoint is restored.
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

    /// Returns the latest intact checkpoint, and renames later, damaged checkpoints. Returns `None` if no checkpoint
    /// exists.
    ///
    /// # Errors
    /// [`Error::Unreadable`] if the system cannot read a file. [`Error::AllDamaged`] if checkpoints exist but none is
    /// intact: starting from scratch would then silently discard the run. In both cases, no checkpoint is renamed.
    pub fn newest(&self) -> Result<Option<Found>, Error> {
        self.end_replacements()?;
        let Some(Whole { checkpoint, damaged }) = self.newest_whole()? else { return Ok(None) };
        let (paths, reasons): (Vec<PathBuf>, Vec<String>) = damaged.into_iter().unzip();
        let renamed = self.set_aside(DAMAGED, &paths)?;
        let kept = |(reason, name)| format!("{reason}; kept as {name}");
        Ok(Some(Found { checkpoint, damaged: reasons.into_iter().zip(renamed).map(kept).collect() }))
    }

    /// Returns the progress stored in the latest intact checkpoint, without changing anything. Returns `None` if no
    /// checkpoint exists.
    ///
    /// # Errors
    /// The same as [`newest`](Self::newest).
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

    /// Returns the training step of the latest complete checkpoint according to the directory name, without reading the
    /// checkpoint. Returns 0 if there is none.
    ///
    /// # Errors
    /// [`Error::File`] if the directory cannot be listed.
    pub fn newest_step(&self) -> Result<u64, Error> {
        Ok(self.list()?.iter().filter_map(|path| step_of(path)).max().unwrap_or(0))
    }

    /// Sets aside all checkpoints after training step `step`, so that the run continues from the checkpoint of this
    /// step. Returns the new names, latest first.
    ///
    /// # Errors
    /// [`Error::NoSuchStep`] if there is no checkpoint for this step; [`Error::Damaged`] or [`Error::Unreadable`] if
    /// the checkpoint is not intact. Nothing changes in these cases. Also the errors of
    /// [`set_aside_after`](Self::set_aside_after).
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

    /// Renames all checkpoints after training step `step`, so that they are never read or removed again. Returns the
    /// new names, latest first.
    ///
    /// # Errors
    /// [`Error::File`] if the directory cannot be listed or changed.
    pub fn set_aside_after(&self, step: u64) -> Result<Vec<String>, Error> {
        let mut paths = self.list()?;
        paths.retain(|path| step_of(path).is_some_and(|of_path| of_path > step));
        // The latest checkpoint is renamed first. After a crash in between, the run continues from a checkpoint that is
        // later than requested, but not earlier.
        paths.reverse();
        self.set_aside(UNDONE, &paths)
    }

    /// Returns the paths of all complete checkpoints, oldest first.
    fn list(&self) -> Result<Vec<PathBuf>, Error> {
        self.named(|name| name.starts_with(PREFIX))
    }

    /// Returns the paths of all directory entries with a matching name, in order.
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

    /// Renames checkpoints, given latest first, to numbered names with `prefix`. Returns the new names.
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

    /// Completes interrupted replacements: removes the old checkpoint if the new checkpoint is in place, otherwise
    /// restores it.
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

    /// Removes checkpoints before `newest` that are not kept, and the oldest damaged checkpoints.
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

/// Returns the training step in a directory name; `None` if the name is not the name of a complete checkpoint.
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

/// The reason why a checkpoint could not be read.
enum Fault {
    /// A file is missing or has wrong contents.
    Damaged(String),
    /// The system could not read a file, which may be intact.
    Unreadable { path: PathBuf, source: io::Error },
}

fn read_directory(directory: &Path) -> Result<Checkpoint, Fault> {
    let text = read_file(directory, CONTENTS, None)?;
    let contents: Contents =
        serde_json::from_slice(&text).map_err(|error| Fault::Damaged(format!("{CONTENTS}: {error}")))?;
    let mut files = Vec::new();
    for File { name, size_bytes, digest } in contents.files {
        // A damaged file list could name any file of the machine.
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

/// Reads a checkpoint file of exactly `size_bytes`, or of at most [`CONTENTS_BYTES_MAX`] bytes if `None`. Reads at most
/// one byte beyond the limit.
fn read_file(directory: &Path, name: &str, size_bytes: Option<u64>) -> Result<Vec<u8>, Fault> {
    let path = directory.join(name);
    let fault = |source: io::Error| match source.kind() {
        kind if is_damage(kind) => Fault::Damaged(format!("{name}: {source}")),
        _ => Fault::Unreadable { path: path.clone(), source },
    };
    // Opening a pipe would wait for a writer, and reading a pipe may never end.
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

/// Returns true for read errors that prove damage: the file is missing, or the listed name is invalid. All other errors
/// (EIO, ESTALE, EACCES, EMFILE) may be temporary, or disappear after a repair of the storage.
fn is_damage(kind: ErrorKind) -> bool {
    use ErrorKind::{InvalidFilename, InvalidInput, IsADirectory, NotADirectory, NotFound};
    matches!(kind, NotFound | NotADirectory | IsADirectory | InvalidInput | InvalidFilename)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
