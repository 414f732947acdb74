//! Directories a process writes to, checked before the work starts and not after an hour of it.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

#[cfg(test)]
mod tests;

/// The file whose lock says that a process has its directory to itself.
const LOCK_FILE: &str = "lock";

/// A directory that cannot be written to.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// It does not exist and cannot be made.
    #[error("cannot create the directory {} (choose a place that you may write to)", path.display())]
    Create {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It exists but nothing can be written into it.
    #[error("the directory {} is not writable (change its permissions or choose another)", path.display())]
    NotWritable {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another process has it to itself.
    #[error("another process uses the directory {} (stop it, or choose another)", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// Nobody knows whether another process has it to itself.
    #[error("cannot lock the directory {}", path.display())]
    Lock {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// Makes `path` if it is missing and proves that a file can be written and removed there.
pub fn writable(path: &Path) -> Result<(), DirectoryError> {
    fs::create_dir_all(path).map_err(|source| DirectoryError::Create { path: path.to_owned(), source })?;
    // Two processes may check the same directory at the same time; each has a probe of its own.
    let probe = path.join(format!(".writable-{}", std::process::id()));
    fs::write(&probe, b"zerofleet")
        .and_then(|()| fs::remove_file(&probe))
        .map_err(|source| DirectoryError::NotWritable { path: path.to_owned(), source })
}

/// Takes the directory `path` for this process alone, until the file is dropped or the process ends, however that happens.
///
/// # Errors
/// [`DirectoryError::InUse`] while another process has it, [`DirectoryError::Lock`] if the system will not say.
pub fn lock(path: &Path) -> Result<File, DirectoryError> {
    let failed = |source| DirectoryError::Lock { path: path.to_owned(), source };
    let file = File::create(path.join(LOCK_FILE)).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(DirectoryError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}
