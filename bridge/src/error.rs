use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The error of environments that cannot start or continue.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting is out of range.
    #[error("{setting} must be {expected}")]
    Setting {
        /// Name of the setting.
        setting: &'static str,
        /// Description of the accepted values.
        expected: &'static str,
    },
    /// The Python package of the bridge cannot be written.
    #[error("the Python package of the bridge cannot be written to {}", folder.display())]
    Package {
        /// The directory for the package.
        folder: PathBuf,
        /// The error from the system.
        source: io::Error,
    },
    /// The interpreter cannot be started.
    #[error("the Python interpreter {} cannot be started", python.display())]
    Python {
        /// Path of the interpreter.
        python: PathBuf,
        /// The error from the system.
        source: io::Error,
    },
    /// The environment is not supported or cannot be made.
    #[error("the environment {environment} cannot be run: {reason}")]
    Refused {
        /// Name of the environment.
        environment: String,
        /// Reason given by the Python process.
        reason: String,
    },
    /// A process failed before it described the environments.
    #[error("no process of the environment {environment} starts: {reason}")]
    Start {
        /// Name of the environment.
        environment: String,
        /// Description of the failure.
        reason: String,
    },
    /// The environment fails in a trial episode.
    #[error("the environment {environment} fails in {moment}: {reason}")]
    Trial {
        /// Name of the environment.
        environment: String,
        /// The failing call, such as `reset(seed=1)`.
        moment: String,
        /// Description of the failure.
        reason: String,
    },
    /// The environment has no step limit, and none was set.
    #[error("the environment {environment} has no limit of steps: set environment.steps_max")]
    Unlimited {
        /// Name of the environment.
        environment: String,
    },
    /// A process describes other environments than the first process.
    #[error("the processes of the environment {environment} disagree about it: {first} and {other}")]
    Changed {
        /// Name of the environment.
        environment: String,
        /// Description from the first process.
        first: String,
        /// Description from this process.
        other: String,
    },
    /// The environment does not match the description in the run file.
    #[error("the environment {environment} has {found}; the run file describes {described}")]
    Differs {
        /// Name of the environment.
        environment: String,
        /// Description in the run file.
        described: String,
        /// Description of the actual environment.
        found: String,
    },
    /// A process fails repeatedly, without a finished episode in between.
    #[error("a process of the environment {environment} failed {deaths} times with no episode finished: {reason}")]
    Deaths {
        /// Name of the environment.
        environment: String,
        /// Number of consecutive failures.
        deaths: u32,
        /// Description of the last failure.
        reason: String,
    },
    /// Every environment is out of use after repeated failures of episodes.
    #[error("no episode of the environment {environment} can be played: {reason}")]
    Broken {
        /// Name of the environment.
        environment: String,
        /// Description of the last failure.
        reason: String,
    },
    /// The process drains, and does not wait for environments that are being started or made again.
    #[error("the environment {environment} is not waited for: the process drains")]
    Drained {
        /// Name of the environment.
        environment: String,
    },
    /// The system cannot wait for the processes.
    #[error("the processes of the environment {environment} cannot be polled")]
    Poll {
        /// Name of the environment.
        environment: String,
        /// The error from the system.
        source: io::Error,
    },
}

/// The failure of one process, which is then replaced.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The process exited or was killed.
    #[error("it {how}; its last line: {last_line}")]
    Died { how: String, last_line: String },
    /// The process did not answer in time.
    #[error("it gave no answer for {} s ({limit})", after.as_secs_f64())]
    Hung { after: Duration, limit: &'static str },
    /// The process sent bytes that violate the protocol.
    #[error("it sent an invalid message: {0}")]
    Violation(#[from] Violation),
    /// A replacement has other environments than the first process, or is refused.
    #[error("its replacement has other environments: {other}")]
    Changed { other: String },
    /// A pipe failed.
    #[error("its pipe failed: {0}")]
    Pipe(io::Error),
}

/// A message that violates the protocol.
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
