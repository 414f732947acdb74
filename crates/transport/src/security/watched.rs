use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use metrics::gauge;
use rustls::pki_types::UnixTime;
use service::ConfigError;
use service::file_faults::remedy;
use tonic::Status;

use super::expiry;

/// Maximum file size in bytes. Certificate revocation lists can have megabytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Interval of reports on certificates in unchanged files.
const REPORT_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// A key of the run file, and the file that the key names.
pub(super) type Named = (&'static str, PathBuf);

/// An error in the contents of a file.
#[derive(Debug)]
pub(super) struct Fault {
    /// Index of the file.
    pub(super) file: usize,
    pub(super) reason: String,
}

/// Time limits for watched files.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// Interval at which a thread reads the files again. Zero, in tests: read on each use, without a thread.
    pub(super) interval: Duration,
    /// Maximum time during which the files may be unusable: see [`Usable::check`].
    pub(super) unusable_max: Duration,
}

type Contents = Vec<Vec<u8>>;
type Build<T> = fn(&[Vec<u8>]) -> Result<T, Fault>;

/// A value built from files, rebuilt when the files change.
///
/// A thread reads the files, so that no call waits for a volume that hangs. Contents are compared rather than
/// modification times: a mounted secret is replaced by a symbolic link, and two writes may have the same timestamp.
pub(super) struct Watched<T> {
    files: Arc<Files<T>>,
    interval: Duration,
    /// Stops the thread when dropped. The thread is not joined: a read from a hanging volume does not return.
    _ends: Sender<()>,
}

struct Files<T> {
    names: Vec<Named>,
    build: Build<T>,
    value: ArcSwap<T>,
    usable: Arc<Usable>,
    last: Mutex<LastRead>,
}

struct LastRead {
    /// The contents in use.
    contents: Contents,
    /// The reason why the current files cannot be used.
    error: Option<String>,
    /// Time of the last report on certificates.
    reported: Instant,
}

/// The last time when some files could be read and used.
#[derive(Debug)]
pub(super) struct Usable {
    key: &'static str,
    last: Mutex<Instant>,
    unusable_max: Duration,
}

impl Usable {
    fn set(&self, now: Instant) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = now;
        let key = self.key.trim_start_matches("security.");
        gauge!("zerofleet_security_files_usable_seconds", "key" => key).set(since_1970().as_secs_f64());
    }

    /// Checks that the files could be used within the last `unusable_max` before `now`. Later, credentials are
    /// refused, since an unreadable file may have withdrawn them.
    ///
    /// # Errors
    /// `UNAVAILABLE`, with the key.
    pub(super) fn check(&self, now: Instant) -> Result<(), Status> {
        let pause = now.saturating_duration_since(*self.last.lock().unwrap_or_else(PoisonError::into_inner));
        if pause <= self.unusable_max {
            return Ok(());
        }
        let (key, seconds) = (self.key, pause.as_secs());
        Err(Status::unavailable(format!("files of {key} unusable for {seconds} s")))
    }
}

impl<T: Send + Sync + 'static> Watched<T> {
    /// Reads the files, builds the value, and watches the files.
    ///
    /// # Errors
    /// Names the key of a file that cannot be read or that `build` rejects.
    pub(super) fn open(names: Vec<Named>, times: Times, build: Build<T>) -> Result<Self, ConfigError> {
        let invalid = |(key, reason)| ConfigError::invalid(key, reason);
        let contents = read(&names).map_err(invalid)?;
        let value = made(&names, build, &contents).map_err(invalid)?;
        let Times { interval, unusable_max } = times;
        // Scopes of certificates may come from the service names alone, without a file.
        let key = names.first().map_or("security.client_scopes", |(key, _)| key);
        let now = Instant::now();
        let usable = Arc::new(Usable { key, last: Mutex::new(now), unusable_max });
        usable.set(now);
        expiry::report(&names, &contents, UnixTime::since_unix_epoch(since_1970()));
        let last = Mutex::new(LastRead { contents, error: None, reported: now });
        let files = Arc::new(Files { names, build, value: ArcSwap::from_pointee(value), usable, last });
        let (ends, ended) = channel();
        if !interval.is_zero() {
            let files = Arc::clone(&files);
            let watch = move || {
                while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                    files.look(Instant::now());
                }
            };
            let thread = std::thread::Builder::new().name("security-files".to_owned()).spawn(watch);
            thread
                .map_err(|error| invalid((key, format!("cannot start the thread that watches the file: {error}"))))?;
        }
        Ok(Self { files, interval, _ends: ends })
    }

    /// Returns the value from the last usable files.
    pub(super) fn current(&self) -> Arc<T> {
        if self.interval.is_zero() {
            self.files.look(Instant::now());
        }
        self.files.value.load_full()
    }

    /// Returns the last time when the files could be used.
    pub(super) fn usable(&self) -> Arc<Usable> {
        Arc::clone(&self.files.usable)
    }
}

impl<T> Files<T> {
    /// Reads the files. If they cannot be read or used, keeps the value and logs the error once.
    fn look(&self, now: Instant) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = read(&self.names).and_then(|contents| {
            let is_new = contents != last.contents;
            let value = is_new.then(|| made(&self.names, self.build, &contents)).transpose()?;
            Ok(value.map(|value| (contents, value)))
        });
        let keys: Vec<_> = self.names.iter().map(|(key, _)| *key).collect();
        let mut is_report_due = now.saturating_duration_since(last.reported) >= REPORT_INTERVAL;
        match changed {
            Ok(changed) => {
                if let Some((contents, value)) = changed {
                    self.value.store(Arc::new(value));
                    last.contents = contents;
                    is_report_due = true;
                    tracing::info!(?keys, "reloaded changed files of [security]");
                }
                last.error = None;
                self.usable.set(now);
            }
            Err((key, reason)) => {
                let error = format!("{key}: {reason}");
                if last.error.as_ref() != Some(&error) {
                    tracing::error!(?keys, error, "cannot use changed files of [security]; keeping the previous files");
                    last.error = Some(error);
                }
            }
        }
        if is_report_due {
            expiry::report(&self.names, &last.contents, UnixTime::since_unix_epoch(since_1970()));
            last.reported = now;
        }
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn read(names: &[Named]) -> Result<Contents, (&'static str, String)> {
    let one = |(key, path): &Named| {
        let text = |error: io::Error| format!("cannot read {}: {error}{}", path.display(), remedy(path, &error, ""));
        read_file(path).map_err(|error| (*key, text(error)))
    };
    names.iter().map(one).collect()
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    // Opening a FIFO would wait for a writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 {
        0..=FILE_BYTES_MAX => Ok(bytes),
        _ => Err(io::Error::other(format!("larger than {FILE_BYTES_MAX} bytes"))),
    }
}

fn made<T>(names: &[Named], build: Build<T>, contents: &[Vec<u8>]) -> Result<T, (&'static str, String)> {
    build(contents).map_err(|fault| {
        let (key, path) = &names[fault.file];
        (*key, format!("{}: {}", path.display(), fault.reason))
    })
}

/// Omits the value, which is secret.
impl<T> fmt::Debug for Watched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("files", &self.files.names).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::TryLockError;
    use std::thread::{park, yield_now};

    use tempfile::TempDir;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const DEADLINE: Duration = Duration::from_secs(60);

    /// A watched file and the temporary directory. Building `hang` takes forever, like a read from a hanging volume.
    fn watched(interval: Duration) -> (TempDir, Arc<Watched<Vec<u8>>>) {
        let directory = tempfile::tempdir().unwrap();
        let names = vec![("security.tokens", directory.path().join("tokens"))];
        std::fs::write(&names[0].1, "old").unwrap();
        let build: Build<Vec<u8>> = |files| match &files[0][..] {
            b"hang" => loop {
                park();
            },
            contents => Ok(contents.to_vec()),
        };
        let watched = Watched::open(names, Times { interval, unusable_max: HOUR }, build).unwrap();
        (directory, Arc::new(watched))
    }

    fn replace(directory: &TempDir, contents: &str) {
        std::fs::write(directory.path().join("new"), contents).unwrap();
        std::fs::rename(directory.path().join("new"), directory.path().join("tokens")).unwrap();
    }

    fn replace_with_fifo(directory: &TempDir) {
        let fifo = directory.path().join("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        std::fs::rename(fifo, directory.path().join("tokens")).unwrap();
    }

    /// Returns the value, which must come at once even while the files cannot be read.
    fn current(watched: &Arc<Watched<Vec<u8>>>) -> Vec<u8> {
        let (sender, value) = channel();
        let watched = Arc::clone(watched);
        std::thread::spawn(move || sender.send(watched.current().to_vec()));
        value.recv_timeout(DEADLINE).expect("no call waits for files")
    }

    fn wait_until(condition: impl Fn() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < DEADLINE);
            yield_now();
        }
    }

    #[test]
    fn a_fifo_in_the_place_of_a_file_is_an_error_and_the_previous_contents_are_used() {
        let (directory, watched) = watched(Duration::from_millis(1));
        replace_with_fifo(&directory);
        let is_refused = |last: &LastRead| last.error.as_ref().is_some_and(|it| it.ends_with("not a regular file"));
        wait_until(|| watched.files.last.try_lock().is_ok_and(|last| is_refused(&last)));
        assert_eq!(current(&watched), b"old");
        replace(&directory, "new");
        wait_until(|| current(&watched) == b"new");
    }

    #[test]
    fn a_read_that_does_not_return_delays_no_use_of_the_value() {
        let (directory, watched) = watched(Duration::from_millis(1));
        replace(&directory, "hang");
        let is_locked = || matches!(watched.files.last.try_lock(), Err(TryLockError::WouldBlock));
        // A read that returns is over soon.
        wait_until(|| (0..10_000).all(|_| is_locked()));
        assert_eq!(current(&watched), b"old");
    }

    #[test]
    fn certificates_are_reported_on_after_a_change_and_once_a_day() {
        let (directory, watched) = watched(HOUR);
        let reported = || watched.files.last.lock().unwrap().reported;
        let start = reported();
        let reported_at = |hours| {
            watched.files.look(start + hours * HOUR);
            reported() - start
        };
        assert_eq!(reported_at(23), Duration::ZERO);
        replace(&directory, "new");
        assert_eq!(reported_at(23), 23 * HOUR);
        assert_eq!(reported_at(46), 23 * HOUR);
        assert_eq!(reported_at(47), 47 * HOUR);
    }

    #[test]
    fn files_that_cannot_be_used_for_longer_than_the_limit_are_refused_until_they_can() {
        let (directory, watched) = watched(HOUR);
        let (files, start) = (&watched.files, Instant::now());
        let look = |hours| {
            files.look(start + hours * HOUR);
            files.usable.check(start + hours * HOUR)
        };
        look(2).unwrap();
        replace_with_fifo(&directory);
        look(3).unwrap();
        replace(&directory, &" ".repeat(usize::try_from(FILE_BYTES_MAX).unwrap() + 1));
        let message = look(4).unwrap_err().message().to_owned();
        assert_eq!(message, "files of security.tokens unusable for 7200 s");
        std::fs::remove_file(directory.path().join("tokens")).unwrap();
        look(5).unwrap_err();
        replace(&directory, "old");
        look(6).unwrap();
    }
}
