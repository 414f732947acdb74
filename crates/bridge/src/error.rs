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
    /// The environment is not supported, cannot be made or started, or fails.
    #[error("environment {environment} {reason}")]
    Failed {
        /// Name of the environment.
        environment: String,
        /// Failure and reason, as text that follows the name.
        reason: String,
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
