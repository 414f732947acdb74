use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The error of environments that cannot start or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting is out of its range.
    #[error("{setting} must be {expected}")]
    Setting {
        /// The name of the setting.
        setting: &'static str,
        /// The accepted values.
        expected: &'static str,
    },
    /// The Python package of the bridge cannot be written.
    #[error("the Python package of the bridge cannot be written to {}", folder.display())]
    Package {
        /// The folder.
        folder: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The interpreter cannot be started.
    #[error("the Python interpreter {} cannot be started", python.display())]
    Python {
        /// The interpreter.
        python: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The environment is not supported or cannot be made.
    #[error("the environment {environment} cannot be run: {reason}")]
    Refused {
        /// The environment.
        environment: String,
        /// The reason, by the Python process.
        reason: String,
    },
    /// A process failed before it described its environments.
    #[error("no process of the environment {environment} starts: {reason}")]
    Start {
        /// The environment.
        environment: String,
        /// The way in which the process failed.
        reason: String,
    },
    /// The environment fails in an episode that is played to try it.
    #[error("the environment {environment} fails in {moment}: {reason}")]
    Trial {
        /// The environment.
        environment: String,
        /// The call that fails.
        moment: String,
        /// The way in which it fails.
        reason: String,
    },
    /// The environment has no limit of steps, and none was set.
    #[error("the environment {environment} has no limit of steps: set environment.steps_max")]
    Unlimited {
        /// The environment.
        environment: String,
    },
    /// A process describes other environments than the first process did.
    #[error("the processes of the environment {environment} disagree about it: {first} and {other}")]
    Changed {
        /// The environment.
        environment: String,
        /// The description by the first process.
        first: String,
        /// The description by this process.
        other: String,
    },
    /// The environment is not the one that the run file describes.
    #[error("the environment {environment} has {found}; the run file describes {described}")]
    Differs {
        /// The environment.
        environment: String,
        /// The description in the run file.
        described: String,
        /// The environment as it is.
        found: String,
    },
    /// A process fails again and again.
    #[error("a process of the environment {environment} failed {deaths} times with no episode finished: {reason}")]
    Deaths {
        /// The environment.
        environment: String,
        /// The number of failures in a row.
        deaths: u32,
        /// The last one.
        reason: String,
    },
    /// Every environment is out of use, since its episodes fail again and again.
    #[error("no episode of the environment {environment} can be played: {reason}")]
    Broken {
        /// The environment.
        environment: String,
        /// The last failure.
        reason: String,
    },
    /// The process drains, so that environments which start or are made again are not waited for.
    #[error("the environment {environment} is not waited for: the process drains")]
    Drained {
        /// The environment.
        environment: String,
    },
    /// The system refuses to wait for the processes.
    #[error("the processes of the environment {environment} cannot be polled")]
    Poll {
        /// The environment.
        environment: String,
        /// The reason.
        source: io::Error,
    },
}

/// The failure of one process, after which it is replaced.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// It ended by itself or was killed.
    #[error("it {how}; its last line: {last_line}")]
    Died { how: String, last_line: String },
    /// It did not answer in time.
    #[error("it gave no answer for {} s ({limit})", after.as_secs_f64())]
    Hung { after: Duration, limit: &'static str },
    /// It sent bytes that are not of the protocol.
    #[error("it sent an invalid message: {0}")]
    Violation(#[from] Violation),
    /// A replacement has other environments than the first process, or is refused.
    #[error("its replacement has other environments: {other}")]
    Changed { other: String },
    /// A pipe failed.
    #[error("its pipe failed: {0}")]
    Pipe(io::Error),
}

/// A message that is not of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    #[error("a frame of {bytes} bytes, of which {bytes_max} are allowed")]
    Length { bytes: usize, bytes_max: usize },
    #[error("more bytes than the answer to a request")]
    Surplus,
    #[error("a message of kind {0}")]
    Kind(u8),
    #[error("a message that ends within its {0}")]
    Cut(&'static str),
    #[error("{0} bytes behind the end of a message")]
    Trailing(usize),
    #[error("another program's greeting")]
    Magic,
    #[error("version {theirs} of the protocol instead of {ours}")]
    Version { ours: u16, theirs: u16 },
    #[error("{what} of {value}, where {expected} is expected")]
    Value { what: &'static str, value: u64, expected: &'static str },
    #[error("an answer for {answered} environments to a request for {requested}")]
    Count { requested: usize, answered: usize },
}
