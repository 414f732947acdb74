//! Directories that a process writes to: checked at the start, locked, and written so that a crash leaves no partial
//! file.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::file_faults::remedy;

/// Lock file that reserves the directory for one process.
const LOCK_FILE: &str = "lock";

/// A directory that cannot be written to.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// The directory does not exist and cannot be created.
    #[error(
        "cannot create the directory {}{}",
        path.display(),
        remedy(path, source, " (choose a place that you may write to)")
    )]
    Create {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The directory exists but is not writable.
    #[error("the directory {} is not writable{}", path.display(), remedy(path, source, " (choose another)"))]
    NotWritable {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another process has locked the directory.
    #[error("another process uses the directory {} (stop it, or choose another)", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The lock file cannot be opened or locked.
    #[error("cannot lock the directory {}{}", path.display(), remedy(&path.join(LOCK_FILE), source, ""))]
    Lock {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// A failed operation on a file or directory.
#[derive(Debug, thiserror::Error)]
#[error("{action} {}{}", path.display(), remedy(path, source, ""))]
pub struct FileError {
    /// The operation: `write`, `replace`, `sync`.
    pub action: &'static str,
    /// File or directory of the failed operation.
    pub path: PathBuf,
    /// The system's error.
    pub source: io::Error,
}

/// The space of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes available to a process without privileges.
    pub free_bytes: u64,
    /// Total size in bytes.
    pub bytes: u64,
}

/// Returns the space of the file system that contains `folder`.
///
/// # Errors
/// The directory does not exist, or the file system does not report the space.
pub fn room(folder: &Path) -> io::Result<Room> {
    let stat = rustix::fs::statvfs(folder)?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Ok(Room { free_bytes: bytes(stat.f_bavail), bytes: bytes(stat.f_blocks) })
}

/// Creates `path` if it is missing and checks that a file can be written and removed there.
pub fn writable(path: &Path) -> Result<(), DirectoryError> {
    fs::create_dir_all(path).map_err(|source| DirectoryError::Create { path: path.to_owned(), source })?;
    // Two processes may check the same directory concurrently, so that the file name needs the process id.
    let probe = path.join(format!(".writable-{}", std::process::id()));
    let written = fs::write(&probe, b"zerofleet");
    // A full disk leaves an empty file.
    let removed = fs::remove_file(&probe);
    written.and(removed).map_err(|source| DirectoryError::NotWritable { path: path.to_owned(), source })
}

/// Locks the directory `path` for this process until the file is dropped or the process exits in any way.
///
/// # Errors
/// [`DirectoryError::InUse`] while another process holds the lock, [`DirectoryError::Lock`] if locking itself fails.
pub fn lock(path: &Path) -> Result<File, DirectoryError> {
    let failed = |source| DirectoryError::Lock { path: path.to_owned(), source };
    let file = File::create(path.join(LOCK_FILE)).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(DirectoryError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// Replaces the file at `path` by `contents` atomically. After a crash at any moment the file holds either the old or
/// the complete new contents; on return the new contents are durable.
///
/// # Errors
/// [`FileError`]; the old file is then unchanged, unless only the last sync failed.
pub fn replace(path: &Path, contents: &[u8]) -> Result<(), FileError> {
    let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
    // Several processes may replace one file concurrently, so that the temporary name needs the process id.
    name.push(format!(".{}.new", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = write_synced(&temporary, contents).and_then(|()| {
        let failed = |source| FileError { action: "replace", path: path.to_owned(), source };
        fs::rename(&temporary, path).map_err(failed)
    });
    if let Err(error) = written {
        // On a full disk, a partial file would take space that other files need.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    path.parent().map_or(Ok(()), sync)
}

/// Writes a file in place and waits until the contents are durable. The name is durable after [`sync`] of the
/// directory.
///
/// # Errors
/// [`FileError`]; the file may then contain a part of `contents` only.
pub fn write_synced(path: &Path, contents: &[u8]) -> Result<(), FileError> {
    let written = File::create(path).and_then(|mut file| {
        file.write_all(contents)?;
        file.sync_all()
    });
    written.map_err(|source| FileError { action: "write", path: path.to_owned(), source })
}

/// Converts the error for a missing file or directory to `None`.
///
/// # Errors
/// Every other error of `result`.
pub fn if_exists<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// Waits until the file names in a directory are durable.
///
/// # Errors
/// [`FileError`] if the directory cannot be opened or synced.
pub fn sync(directory: &Path) -> Result<(), FileError> {
    // The parent of a bare file name is empty.
    let opened = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let synced = File::open(opened).and_then(|directory| directory.sync_all());
    synced.map_err(|source| FileError { action: "sync", path: opened.to_owned(), source })
}

/// A file of measurements that can be repeated: read and write failures are logged, not returned.
#[derive(Debug, Clone)]
pub struct RememberedFile {
    path: PathBuf,
}

impl RememberedFile {
    /// Creates a handle for the file at `path`, which need not exist.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Reads the file; `None` if it is missing or cannot be read.
    #[must_use]
    pub fn read(&self) -> Option<Vec<u8>> {
        if_exists(fs::read(&self.path)).unwrap_or_else(|error| {
            tracing::warn!(path = %self.path.display(), %error, "cannot read stored measurements; measuring again");
            None
        })
    }

    /// Replaces the file atomically.
    pub fn write(&self, contents: &[u8]) {
        if let Err(error) = replace(&self.path, contents) {
            let error = crate::chain(&error.into());
            tracing::warn!(error, "cannot store measurements; the next start measures again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_free_and_total_bytes_of_a_file_system_are_read_from_a_folder_that_exists() {
        let folder = tempfile::tempdir().unwrap();
        let Room { free_bytes, bytes } = room(folder.path()).unwrap();
        assert!(0 < bytes && free_bytes <= bytes, "{free_bytes} of {bytes} bytes are free");
        assert_eq!(room(&folder.path().join("missing")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_replaced_file_holds_the_new_contents_and_leaves_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("progress.json");
        for contents in ["first, and longer", "second"] {
            replace(&path, contents.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), contents);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_replaced_is_named_and_keeps_its_contents() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("progress.json");
        fs::write(&path, "first").unwrap();
        // A directory takes the place of the temporary file, so that the write fails.
        let temporary = format!("{}.{}.new", path.display(), std::process::id());
        fs::create_dir(&temporary).unwrap();
        let error = replace(&path, b"second").unwrap_err();
        assert_eq!(error.to_string(), format!("write {temporary}"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        let error = replace(&folder.path().join("missing/file"), b"x").unwrap_err();
        assert!(error.to_string().contains("missing/file."), "{error}");
    }

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
        // A kernel file system rejects new files from any user, including root, who ignores permissions.
        let path = Path::new("/proc/self");
        if !path.exists() {
            return;
        }
        let error = writable(path).unwrap_err().to_string();
        assert!(
            error.starts_with("the directory /proc/self is not writable (") && error.contains("choose an"),
            "{error}"
        );
    }

    #[test]
    fn a_directory_lock_is_exclusive_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let first = lock(folder.path()).unwrap();
        let error = lock(folder.path()).unwrap_err().to_string();
        assert!(error.starts_with("another process uses the directory"), "{error}");
        drop(first);
        lock(folder.path()).unwrap();
    }

    #[test]
    fn a_written_file_is_read_back_and_a_failed_write_is_not_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = RememberedFile::new(folder.path().join("speeds.json"));
        assert_eq!(file.read(), None);
        file.write(b"one");
        file.write(b"two");
        assert_eq!(file.read().unwrap(), b"two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left there");
        let nowhere = RememberedFile::new(folder.path().join("no such folder").join("speeds.json"));
        nowhere.write(b"three");
        assert_eq!(nowhere.read(), None);
    }
}
