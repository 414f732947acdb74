//! Directories a process writes to, checked before the work starts and not after an hour of it.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_directory_is_made_and_left_empty() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs/first");
        writable(&path).unwrap();
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    }

    #[test]
    fn a_file_in_the_way_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs");
        fs::write(&path, "in the way").unwrap();
        let error = writable(&path.join("first")).unwrap_err();
        let expected = format!(
            "cannot create the directory {} (choose a place that you may write to)",
            path.join("first").display()
        );
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_directory_that_takes_no_files_is_named() {
        // A kernel file system refuses new files to everyone, root included, whom permissions would not stop.
        let path = Path::new("/proc/self");
        if !path.exists() {
            return;
        }
        let error = writable(path).unwrap_err();
        let expected = "the directory /proc/self is not writable (change its permissions or choose another)";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_directory_is_locked_by_one_until_they_are_gone() {
        let folder = tempfile::tempdir().unwrap();
        let first = lock(folder.path()).unwrap();
        let error = lock(folder.path()).unwrap_err().to_string();
        assert!(error.starts_with("another process uses the directory"), "{error}");
        drop(first);
        lock(folder.path()).unwrap();
    }
}
