//! Clock and files of a session, passed as arguments: [`Host`].

use std::io;
use std::time::Duration;

/// The clock and files that a session may use.
#[derive(Clone, Copy)]
pub struct Host<'a> {
    /// Returns the time since a fixed moment; never runs backwards.
    pub clock: &'a dyn Fn() -> Duration,
    /// Reads a file of at most this many bytes, for `loadsgf`; a longer file is an error.
    pub read_file: &'a dyn Fn(&str, u64) -> io::Result<Vec<u8>>,
}

impl Host<'_> {
    /// Returns a function that is true once `time` has passed since `started`; never without a time.
    pub(crate) fn deadline(&self, started: Duration, time: Option<Duration>) -> impl FnMut() -> bool + '_ {
        move || time.is_some_and(|time| (self.clock)().saturating_sub(started) >= time)
    }
}

impl std::fmt::Debug for Host<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").finish_non_exhaustive()
    }
}
