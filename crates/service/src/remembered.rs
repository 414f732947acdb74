//! A file of findings that could be made again.

use std::fs;
use std::io;
use std::path::PathBuf;

use crate::directory::replace;

/// Reads and replaces a file whose loss costs time and nothing else: failures are logged, not returned.
#[derive(Debug, Clone)]
pub struct RememberedFile {
    path: PathBuf,
}

impl RememberedFile {
    /// The file at `path`, which need not exist.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Reads the file; `None` where it is missing or cannot be read.
    #[must_use]
    pub fn read(&self) -> Option<Vec<u8>> {
        match fs::read(&self.path) {
            Ok(contents) => Some(contents),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "the file cannot be read; its findings are made again");
                None
            }
        }
    }

    /// Replaces the file whole.
    pub fn write(&self, contents: &[u8]) {
        if let Err(error) = replace(&self.path, contents) {
            let error = crate::chain(&error.into());
            tracing::warn!(error, "a file of findings cannot be written; the next start makes them again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_a_failure_is_not_an_error() {
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
