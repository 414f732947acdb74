//! Checkpoints: one directory per training step, either complete or absent, with every file verified by its digest.
//!
//! A checkpoint is written under a temporary name, flushed, then renamed, so that a crash at any moment leaves the
//! older ones unchanged. Reading takes the newest whole checkpoint and renames newer, damaged ones to `damaged-…`. A
//! checkpoint is damaged if its bytes could be read and are wrong, or if one of its files is missing; a file that the
//! system cannot read now may be whole, and fails the read.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use service::directory::{FileError, if_exists, sync, write_synced};
use service::spread::most_dispensable;
use weights::{Architecture, Digest};

/// The progress of a run, as a checkpoint keeps it beside the tensors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// Number of training steps taken.
    pub training_step: u64,
    /// Number of positions that they used.
    pub positions: u64,
    /// Seconds that the learner has run, over all its starts: the clock of the learning-rate schedule.
    pub elapsed_seconds: f64,
    /// The network the tensors belong to.
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

/// The directory that holds a run's checkpoints.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    directory: PathBuf,
    /// The number of newest checkpoints that are kept.
    kept: usize,
    /// The number of older ones that are kept.
    spread: usize,
}

/// A run's newest whole checkpoint.
#[derive(Debug, PartialEq)]
pub struct Found {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// Newer ones that are damaged, each with the reason and its new name.
    pub damaged: Vec<String>,
}

/// The reason why checkpoints could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An operation other than reading failed: `write`, `list`, `rename`, `remove`.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file of a checkpoint could not be read, which does not make it damaged.
    #[error(
        "cannot read {} (the checkpoint may be whole and was left as it is: mend the storage and start again, or move the \
         checkpoint away to continue from an older one)",
        path.display()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The checkpoint to continue from is damaged.
    #[error("the checkpoint {} is damaged ({reason}); continue from another one", path.display())]
    Damaged {
        /// The checkpoint.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// There are checkpoints and none of them is whole.
    #[error(
        "every checkpoint in {} is damaged ({}); restore one from a backup, or move the folder away to train from \
         nothing",
        directory.display(), damaged.join("; ")
    )]
    AllDamaged {
        /// The directory that holds them.
        directory: PathBuf,
        /// Each with its reason.
        damaged: Vec<String>,
    },
    /// There is no checkpoint of a training step.
    #[error("no checkpoint of training step {step} in {}; existing ones: {}", directory.display(), listed(steps))]
    NoSuchStep {
        /// The step.
        step: u64,
        /// The directory of the checkpoints.
        directory: PathBuf,
        /// The steps of the checkpoints that are there, ascending.
        steps: Vec<u64>,
    },
}

fn listed(steps: &[u64]) -> String {
    if steps.is_empty() {
        return "none".to_owned();
    }
    steps.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
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
/// The largest list of a checkpoint's files, in bytes: a thousand times that of any trainer.
const CONTENTS_BYTES_MAX: u64 = 1 << 20;
const PREFIX: &str = "step-";
/// The end of a checkpoint's name while it is being written.
const INTERRUPTED: &str = ".partial";
/// The end of a checkpoint's name while another one of its step takes its place.
const REPLACED: &str = ".replaced";
/// The start of the name of a damaged checkpoint: `damaged-0001-step-000000010`, counted so that names stay apart.
const DAMAGED: &str = "damaged-";
/// The start of the name of a checkpoint that was set aside in order to continue from an earlier one:
/// `undone-0001-step-000000010`.
const UNDONE: &str = "undone-";
/// The number of damaged checkpoints that each write keeps for inspection; those renamed since then come on top.
const DAMAGED_MAX: usize = 4;

/// The newest whole checkpoint.
struct Whole {
    checkpoint: Checkpoint,
    /// The newer ones, which are damaged, with the reasons; the newest first.
    damaged: Vec<(PathBuf, String)>,
}

impl Checkpoints {
    /// The checkpoints in `directory`, of which the newest `kept` stay (at least one).
    #[must_use]
    pub fn new(directory: PathBuf, kept: usize) -> Self {
        Self { directory, kept: kept.max(1), spread: 0 }
    }

    /// Keeps this many older checkpoints in addition, spread over the run on a logarithmic scale.
    #[must_use]
    pub fn with_spread(self, spread: usize) -> Self {
        Self { spread, ..self }
    }

    /// Writes a checkpoint, then removes those that are not kept. Partial checkpoints that a crash left are
    /// removed too. Returns the path of the new checkpoint.
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
        // A checkpoint of the same step steps aside, and comes back if the process ends before the new one is there.
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

    /// Returns the newest whole checkpoint and renames newer, damaged ones; `None` if there is no checkpoint at all.
    ///
    /// # Errors
    /// [`Error::Unreadable`] where the system cannot read a file, [`Error::AllDamaged`] if there are checkpoints and
    /// none can be used: training from scratch would then silently discard the run. No checkpoint is renamed in these
    /// cases.
    pub fn newest(&self) -> Result<Option<Found>, Error> {
        self.end_replacements()?;
        let Some(Whole { checkpoint, damaged }) = self.newest_whole()? else { return Ok(None) };
        let (paths, reasons): (Vec<PathBuf>, Vec<String>) = damaged.into_iter().unzip();
        let renamed = self.set_aside(DAMAGED, &paths)?;
        let kept = |(reason, name)| format!("{reason}; kept as {name}");
        Ok(Some(Found { checkpoint, damaged: reasons.into_iter().zip(renamed).map(kept).collect() }))
    }

    /// Returns the progress of the newest whole checkpoint, and changes nothing; `None` if there is no checkpoint at
    /// all.
    ///
    /// # Errors
    /// Those of [`newest`](Self::newest).
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

    /// Returns the training step in the name of the newest finished checkpoint, which is not read; 0 without one.
    ///
    /// # Errors
    /// [`Error::File`] if the directory cannot be listed.
    pub fn newest_step(&self) -> Result<u64, Error> {
        Ok(self.list()?.iter().filter_map(|path| step_of(path)).max().unwrap_or(0))
    }

    /// Sets every checkpoint after that of training step `step` aside, so that the run continues from that one, and
    /// returns their new names, newest first.
    ///
    /// # Errors
    /// [`Error::NoSuchStep`] without a checkpoint of that step, [`Error::Damaged`] and [`Error::Unreadable`] if it is
    /// not whole, in which cases nothing changes; those of [`set_aside_after`](Self::set_aside_after).
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

    /// Sets every checkpoint after training step `step` aside, and returns their new names, newest first. They are
    /// never read or removed again.
    ///
    /// # Errors
    /// [`Error::File`] if the directory cannot be listed or changed.
    pub fn set_aside_after(&self, step: u64) -> Result<Vec<String>, Error> {
        let mut paths = self.list()?;
        paths.retain(|path| step_of(path).is_some_and(|of_path| of_path > step));
        // The newest goes first: a crash in between leaves a run that continues from a later checkpoint than wanted.
        paths.reverse();
        self.set_aside(UNDONE, &paths)
    }

    /// Every finished checkpoint, oldest first.
    fn list(&self) -> Result<Vec<PathBuf>, Error> {
        self.named(|name| name.starts_with(PREFIX))
    }

    /// The entries of the directory whose names fulfil a condition, in order.
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

    /// Renames checkpoints, which come newest first, to names that begin with `prefix`, and returns these.
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

    /// Removes the checkpoints that another one has replaced, and brings those back whose replacement was interrupted.
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

    /// Removes the checkpoints up to `newest` that are not kept, and the oldest damaged ones.
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

/// The reason why a checkpoint was not read.
enum Fault {
    /// Its bytes are wrong, or a file is missing.
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
            return Err(Fault::Damaged(format!("{CONTENTS}: {name:?} is not the name of a file")));
        }
        let bytes = read_file(directory, &name, Some(size_bytes))?;
        if Digest::of(&bytes) != digest {
            return Err(not_as_written(&name));
        }
        files.push((name, bytes));
    }
    Ok(Checkpoint { progress: contents.progress, files })
}

/// Reads a file of a checkpoint, which has this size, or at most [`CONTENTS_BYTES_MAX`] if there is none. Of a larger
/// one no more is read.
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
    Fault::Damaged(format!("{name} is not the file that was written (its digest differs)"))
}

/// Returns true for errors of reading a file that prove the checkpoint damaged: it is missing, or its damaged name is
/// that of no file. Every other error (EIO, ESTALE, EACCES,
/// EMFILE) may be transient or end when the storage is repaired.
fn is_damage(kind: ErrorKind) -> bool {
    use ErrorKind::{InvalidFilename, InvalidInput, IsADirectory, NotADirectory, NotFound};
    matches!(kind, NotFound | NotADirectory | IsADirectory | InvalidInput | InvalidFilename)
}

#[cfg(test)]
mod tests;
