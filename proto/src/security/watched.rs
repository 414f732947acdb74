use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use service::ConfigError;

/// A key of the run file and the file that it names.
pub(super) type Named = (&'static str, PathBuf);

/// What is wrong with the contents of one of the files.
#[derive(Debug)]
pub(super) struct Fault {
    /// Which, by its place.
    pub(super) file: usize,
    /// What.
    pub(super) reason: String,
}

type Contents = Vec<Vec<u8>>;
type Build<T> = fn(&[Vec<u8>]) -> Result<T, Fault>;

/// What is made of some files, made again when they change.
///
/// Files are compared whole, for their times say too little: a mounted secret changes by a link, and two writes may fall
/// into one tick. They are a few kilobytes, and they are looked at when somebody asks, so that there is no task to own.
pub(super) struct Watched<T> {
    files: Vec<Named>,
    build: Build<T>,
    interval: Duration,
    value: ArcSwap<T>,
    looked: Mutex<Looked>,
}

/// What was there the last time.
struct Looked {
    at: Instant,
    /// The contents, or why they could not be read.
    found: Result<Contents, String>,
}

impl<T> Watched<T> {
    /// Looks every `interval` at most.
    ///
    /// # Errors
    /// Names the key of a file that cannot be read or that `build` refuses.
    pub(super) fn open(files: Vec<Named>, interval: Duration, build: Build<T>) -> Result<Self, ConfigError> {
        let contents = read(&files).map_err(|(key, reason)| ConfigError::invalid(key, reason))?;
        let value = build(&contents).map_err(|fault| {
            let (key, path) = &files[fault.file];
            ConfigError::invalid(*key, format!("{}: {}", path.display(), fault.reason))
        })?;
        let looked = Looked { at: Instant::now(), found: Ok(contents) };
        Ok(Self { files, build, interval, value: ArcSwap::from_pointee(value), looked: Mutex::new(looked) })
    }

    /// What the files make. Files that cannot be read or used change nothing, and that is told once.
    pub(super) fn current(&self) -> Arc<T> {
        // Whoever comes while another one looks goes by what was.
        if let Ok(mut looked) = self.looked.try_lock()
            && looked.at.elapsed() >= self.interval
        {
            self.look(&mut looked);
        }
        self.value.load_full()
    }

    fn look(&self, looked: &mut Looked) {
        looked.at = Instant::now();
        let found = read(&self.files).map_err(|(key, reason)| format!("{key}: {reason}"));
        if found == looked.found {
            return;
        }
        let made = match &found {
            Ok(contents) => (self.build)(contents).map_err(|fault| {
                let (key, path) = &self.files[fault.file];
                format!("{key}: {}: {}", path.display(), fault.reason)
            }),
            Err(reason) => Err(reason.clone()),
        };
        looked.found = found;
        let keys: Vec<_> = self.files.iter().map(|(key, _)| *key).collect();
        match made {
            Ok(value) => {
                self.value.store(Arc::new(value));
                tracing::info!(?keys, "files of [security] have changed and are used from now on");
            }
            Err(error) => {
                tracing::error!(?keys, error, "files of [security] have changed and cannot be used; the old ones hold")
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

/// Without what was made of the files: it is secret.
impl<T> fmt::Debug for Watched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("files", &self.files).finish_non_exhaustive()
    }
}
