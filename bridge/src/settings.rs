use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Describes the environments of a [`Bridge`](crate::Bridge).
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The environment: an id of Gymnasium (`LunarLander-v3`), an id that a module registers
    /// (`my_package.my_module:MyEnv-v0`), or a function that returns an environment (`call:my_module:make`).
    pub environment: String,
    /// The keyword arguments of the environment, a JSON object.
    pub arguments: String,
    /// The axis of the channels in observations of three dimensions.
    pub channels: Channels,
    /// N, the number of environments of all processes.
    pub environments: usize,
    /// The number of Python processes. Each steps its share of the environments one after the other.
    pub processes: usize,
    /// The number of frames in an observation, the oldest first; 1 for no stacking. Processes send single frames.
    pub stack: usize,
    /// The number of steps after which an episode is truncated, at most; `None` leaves that to the environment, which
    /// then must have a limit.
    pub steps_max: Option<usize>,
    /// The time in which a process has to answer a request for all its environments; after it the process hangs.
    pub step_timeout: Duration,
    /// The time in which a process has to start and make its environments.
    pub start_timeout: Duration,
    /// The Python interpreter; it has `numpy`, `gymnasium` and what the environment needs.
    pub python: PathBuf,
    /// Folders of Python modules, searched before those of the interpreter.
    pub modules: Vec<PathBuf>,
    /// The names of further variables that the processes inherit, beside those of [`service::inherited`].
    pub pass_variables: Vec<String>,
    /// The folder into which the Python package of the bridge is written. Bridges may share it.
    pub folder: PathBuf,
}

/// The axis of the channels in observations of three dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channels {
    /// The shorter of the first and the last axis, the last if they are equal.
    Auto,
    /// The first: `[C, H, W]`.
    First,
    /// The last: `[H, W, C]`.
    Last,
}

impl Settings {
    /// The longest time of a call: a process that hangs is replaced, and further processes may start meanwhile.
    #[must_use]
    pub fn call_time_max(&self) -> Duration {
        2 * (self.step_timeout + self.start_timeout)
    }

    /// Returns the settings of one process with 64 environments, from the `python3` of the search path.
    #[must_use]
    pub fn new(environment: impl Into<String>, folder: impl Into<PathBuf>) -> Self {
        Self {
            environment: environment.into(),
            arguments: "{}".into(),
            channels: Channels::Auto,
            environments: 64,
            processes: 1,
            stack: 1,
            steps_max: None,
            // Longer than a pause of the machine, shorter than the patience of a person.
            step_timeout: Duration::from_secs(30),
            // The first start after a boot reads a hundred megabytes of packages.
            start_timeout: Duration::from_secs(120),
            python: "python3".into(),
            modules: Vec::new(),
            pass_variables: Vec::new(),
            folder: folder.into(),
        }
    }

    /// Returns the name in [`game::Spec`]: `gym:LunarLander-v3`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("gym:{}", self.environment)
    }
}

impl Channels {
    /// Returns the value of the option `--channels`.
    pub(crate) fn option(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::First => "first",
            Self::Last => "last",
        }
    }
}
