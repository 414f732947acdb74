use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use service::ConfigError;

/// A key of the run file and the file that it names.
pub(super) type Named = (&'static str, PathBuf);

/// An error in the contents of one of the files.
#[derive(Debug)]
pub(super) struct Fault {
    /// The index of the file.
    pub(super) file: usize,
    pub(super) reason: String,
}

type Contents = Vec<Vec<u8>>;
type Build<T> = fn(&[Vec<u8>]) -> Result<T, Fault>;

/// A value built from files, and built again when they change.
///
/// Contents are compared rather than modification times: a mounted secret is replaced by a symbolic link, and two
/// writes may have the same timestamp. The files are a few kilobytes and are read on demand, so that no background task
/// is needed.
pub(super) struct Watched<T> {
    files: Vec<Named>,
    build: Build<T>,
    interval: Duration,
    value: ArcSwap<T>,
    last_read: Mutex<LastRead>,
}

/// The result of the last read.
struct LastRead {
    at: Instant,
    /// The contents, or the error of reading them.
    found: Result<Contents, String>,
}

impl<T> Watched<T> {
    /// Reads the files and builds the value; later reads are at least `interval` apart.
    ///
    /// # Errors
    /// Names the key of a file that cannot be read or that `build` rejects.
    pub(super) fn open(files: Vec<Named>, interval: Duration, build: Build<T>) -> Result<Self, ConfigError> {
        let contents = read(&files).map_err(|(key, reason)| ConfigError::invalid(key, reason))?;
        let value = build(&contents).map_err(|fault| {
            let (key, path) = &files[fault.file];
            ConfigError::invalid(*key, format!("{}: {}", path.display(), fault.reason))
        })?;
        let last_read = LastRead { at: Instant::now(), found: Ok(contents) };
        Ok(Self { files, build, interval, value: ArcSwap::from_pointee(value), last_read: Mutex::new(last_read) })
    }

    /// The value of the files as they are now. If the files cannot be read or used, the value stays as it was and the
    /// error is logged once.
    pub(super) fn current(&self) -> Arc<T> {
        // Calls during another call's read use the previous value.
        if let Ok(mut last_read) = self.last_read.try_lock()
            && last_read.at.elapsed() >= self.interval
        {
            self.read_again(&mut last_read);
        }
        self.value.load_full()
    }

    fn read_again(&self, last: &mut LastRead) {
        last.at = Instant::now();
        let found = read(&self.files).map_err(|(key, reason)| format!("{key}: {reason}"));
        if found == last.found {
            return;
        }
        let made = match &found {
            Ok(contents) => (self.build)(contents).map_err(|fault| {
                let (key, path) = &self.files[fault.file];
                format!("{key}: {}: {}", path.display(), fault.reason)
            }),
            Err(reason) => Err(reason.clone()),
        };
        last.found = found;
        let keys: Vec<_> = self.files.iter().map(|(key, _)| *key).collect();
        match made {
            Ok(value) => {
                self.value.store(Arc::new(value));
                tracing::info!(?keys, "reloaded changed files of [security]");
            }
            Err(error) => {
                tracing::error!(?keys, error, "changed files of [security] cannot be used; keeping the previous ones")
            }
        }
    }
}

fn read(files: &[Named]) -> Result<Contents, (&'static str, String)> {
    let one = |(key, path): &Named| {
        std::fs::read(path).map_err(|error| (*key, format!("cannot read {}: {error}", path.display())))
    };
    files.iter().map(one).collect()
}

/// Leaves the value out: it is secret.
impl<T> fmt::Debug for Watched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("files", &self.files).finish_non_exhaustive()
    }
}
