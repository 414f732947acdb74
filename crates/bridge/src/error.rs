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
    #[error("cannot write the Python package of the bridge to {}", folder.display())]
    Package {
        /// The directory for the package.
        folder: PathBuf,
        /// The error from the system.
        source: io::Error,
    },
    /// The interpreter cannot be started.
    #[error("cannot start the Python interpreter {}", python.display())]
    Python {
        /// Path of the interpreter.
        python: PathBuf,
        /// The error from the system.
        source: io::Error,
    },
    /// The environment is not supported or cannot be made.
    #[error("cannot run environment {environment}: {reason}")]
    Refused {
        /// Name of the environment.
        environment: String,
        /// Reason given by the Python process.
        reason: String,
    },
    /// A process failed before it described the environments.
    #[error("cannot start a process of environment {environment}: {reason}")]
    Start {
        /// Name of the environment.
        environment: String,
        /// Description of the failure.
        reason: String,
    },
    /// The environment fails in a trial episode.
    #[error("environment {environment} failed in {moment}: {reason}")]
    Trial {
        /// Name of the environment.
        environment: String,
        /// The failing call, such as `reset(seed=1)`.
        moment: String,
        /// Description of the failure.
        reason: String,
    },
    /// The environment has no step limit, and none was set.
    #[error("environment {environment} has no step limit; set environment.steps_max")]
    Unlimited {
        /// Name of the environment.
        environment: String,
    },
    /// A process describes other environments than the first process.
    #[error("processes of environment {environment} differ: {first} and {other}")]
    Changed {
        /// Name of the environment.
        environment: String,
        /// Description from the first process.
        first: String,
        /// Description from this process.
        other: String,
    },
    /// The environment does not match the description in the run file.
    #[error("environment {environment} has {found}; the run file describes {described}")]
    Differs {
        /// Name of the environment.
        environment: String,
        /// Description in the run file.
        described: String,
        /// Description of the actual environment.
        found: String,
    },
    /// A process fails repeatedly, without a finished episode in between.
    #[error("a process of environment {environment} failed {deaths} times without a finished episode: {reason}")]
    Deaths {
        /// Name of the environment.
        environment: String,
        /// Number of consecutive failures.
        deaths: u32,
        /// Description of the last failure.
        reason: String,
    },
    /// Every environment is out of use after repeated failures of episodes.
    #[error("cannot play episodes of environment {environment}: {reason}")]
    Broken {
        /// Name of the environment.
        environment: String,
        /// Description of the last failure.
        reason: String,
    },
    /// The process drains, and does not wait for environments that are being started or made again.
    #[error("stopped waiting for environment {environment}: the process is draining")]
    Drained {
        /// Name of the environment.
        environment: String,
    },
    /// The system cannot wait for the processes.
    #[error("cannot poll the processes of environment {environment}")]
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
    #[error("the process {how}; last line: {last_line}")]
    Died { how: String, last_line: String },
    /// The process did not respond in time.
    #[error("no response for {} s ({limit})", after.as_secs_f64())]
    Hung { after: Duration, limit: &'static str },
    /// The process sent bytes that violate the protocol.
    #[error("invalid message: {0}")]
    Violation(#[from] Violation),
    /// A replacement has other environments than the first process, or is refused.
    #[error("the new process has different environments: {other}")]
    Changed { other: String },
    /// A pipe failed.
    #[error("pipe failed: {0}")]
    Pipe(io::Error),
}

/// A message that violates the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    #[error("the frame has {bytes} bytes, the limit is {bytes_max}")]
    Length { bytes: usize, bytes_max: usize },
    #[error("bytes follow the response to a request")]
    Surplus,
    #[error("unknown message kind {0}")]
    Kind(u8),
    #[error("truncated in the {0}")]
    Cut(&'static str),
    #[error("{0} bytes follow the end of the message")]
    Trailing(usize),
    #[error("the greeting is from another program")]
    Magic,
    #[error("protocol version {theirs}, expected {ours}")]
    Version { ours: u16, theirs: u16 },
    #[error("{what} is {value}, expected {expected}")]
    Value { what: &'static str, value: u64, expected: &'static str },
    #[error("the response covers {answered} environments, the request {requested}")]
    Count { requested: usize, answered: usize },
}
