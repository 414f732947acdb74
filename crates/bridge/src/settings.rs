use std::path::PathBuf;
use std::time::Duration;

use game::ObservationRange;
use serde::{Deserialize, Serialize};

use crate::Error;

/// The settings of a [`Bridge`](crate::Bridge): environments, processes and time limits.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The environment: a Gymnasium id (`LunarLander-v3`), an id registered by a module
    /// (`my_package.my_module:MyEnv-v0`), or a function that returns an environment (`call:my_module:make`).
    pub environment: String,
    /// Keyword arguments of the environment, a JSON object.
    pub arguments: String,
    /// True to add the argument `render_mode="rgb_array"`, unless `arguments` has a mode.
    pub render: bool,
    /// Axis of the channels in three-dimensional observations.
    pub channels: Channels,
    /// N, the number of environments in all processes.
    pub environments: usize,
    /// Number of Python processes. Each steps a share of the environments, one after another.
    pub processes: usize,
    /// Number of frames in an observation, the oldest first; 1 for no stacking. Processes send single frames.
    pub stack: usize,
    /// Maximum number of steps, after which an episode is truncated; `None` leaves the limit to the environment,
    /// which must then have one.
    pub steps_max: Option<usize>,
    /// Time limit of a process for a request to all of its environments; later, the process counts as hanging.
    pub step_timeout: Duration,
    /// Time limit of a process for starting and making the environments.
    pub start_timeout: Duration,
    /// Python interpreter with `numpy`, `gymnasium` and the packages of the environment.
    pub python: PathBuf,
    /// Directories of Python modules, searched before the directories of the interpreter.
    pub modules: Vec<PathBuf>,
    /// Names of variables that the processes inherit in addition to [`service::inherited`].
    pub pass_variables: Vec<String>,
    /// Directory for the Python package of the bridge. Bridges may share it.
    pub folder: PathBuf,
}

/// The axis of the channels in three-dimensional observations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channels {
    /// The shorter of the first and the last axis, the last if they are equal.
    Auto,
    /// The first axis: `[C, H, W]`.
    First,
    /// The last axis: `[H, W, C]`.
    Last,
}

/// The type of the values in an observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Values {
    /// Any finite float32 values.
    F32,
    /// Bytes, scaled to the range from 0 to 1 for the network.
    U8,
}

impl Values {
    /// Returns the size of a value in bytes.
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::U8 => 1,
        }
    }

    /// Returns the range of observed values: bytes are scaled to `[0, 1]`.
    pub(crate) const fn range(self) -> ObservationRange {
        match self {
            Self::F32 => ObservationRange::Finite,
            Self::U8 => ObservationRange::Unit,
        }
    }
}

impl Settings {
    /// Returns the maximum duration of a call: a hanging process is replaced, and further processes may start
    /// meanwhile.
    #[must_use]
    pub fn call_time_max(&self) -> Duration {
        2 * (self.step_timeout + self.start_timeout)
    }

    /// Returns the settings of one process with 64 environments, with the `python3` of the search path.
    #[must_use]
    pub fn new(environment: impl Into<String>, folder: impl Into<PathBuf>) -> Self {
        Self {
            environment: environment.into(),
            arguments: "{}".into(),
            render: false,
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

    /// Returns the error of the environment for a failure.
    pub(crate) fn failed(&self, reason: String) -> Error {
        Error::Failed { environment: self.environment.clone(), reason }
    }

    /// Returns the name in [`game::Spec`]: `gym:LunarLander-v3`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}{}", games::recorded::PREFIX, self.environment)
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
