//! The section `[environment]` of a run file: the Python environment for a run named `gym:…`.
//!
//! Some keys control how the environment is run; the remaining keys describe it, so that processes that do not run
//! the environment need no Python. [`describe`] sets the description, [`game()`] reads it, [`start`] runs the
//! environment and checks the description.

use std::path::{Path, PathBuf};
use std::time::Duration;

use game::{Environments as _, Game as _, ObservationRange, ObservationShape, Spec};
use games::recorded::{Described, PREFIX};
use games::{GameKind, Recorded};
use service::config::{RunSection, Section as _};
use service::{ConfigError, DrainPipe};

pub use crate::settings::Values;
use crate::{Bridge, Channels, Error, Settings, Trial};

/// Maximum number of frames in an observation, and in stored trajectories.
const STACK_MAX: usize = 64;
/// Maximum number of processes: more than any machine has cores.
const PROCESSES_MAX: usize = 1024;
/// Longest time limit, a day.
const SECONDS_MAX: f64 = 86_400.0;
/// Maximum size of a frame in stored trajectories, in bytes.
const FRAME_BYTES_MAX: usize = 1 << 20;
/// Maximum number of steps in an episode, as in a trajectory.
const STEPS_MAX: usize = 1 << 16;

service::section! {
    /// The section `[environment]`: a Python environment and the processes that run it.
    #[serde(deny_unknown_fields)]
    pub struct EnvironmentSection {
        /// Python interpreter with `numpy`, `gymnasium` and the packages of the environment.
        python: PathBuf = defaults().python;
        /// Directories of Python modules, searched before the directories of the interpreter.
        modules: Vec<PathBuf> = defaults().modules;
        /// Names of variables that the processes inherit in addition to the usual variables, which hold
        /// no credentials.
        pass_variables: Vec<String> = defaults().pass_variables, page "environments.md#variables";
        /// Keyword arguments of the environment, a JSON object.
        arguments: String = defaults().arguments;
        /// True to make the environment with `render_mode="rgb_array"`: the web console then shows pictures of games
        /// in progress, which are drawn only while a visitor watches.
        render: bool = defaults().render, page "environments.md#pictures";
        /// Axis of the channels in three-dimensional observations: `first`, `last`, or `auto`, the shorter of the two
        /// (the last if both are equal).
        channels: Channels = defaults().channels;
        /// Number of frames in an observation, the oldest first; 1 for no stacking.
        stack: usize = defaults().stack, in 1..=STACK_MAX;
        /// Number of steps after which an episode is truncated, at most the limit of the environment. 0: that limit,
        /// which `zerofleet train` writes here.
        steps_max: usize = 0, in 0..=STEPS_MAX;
        /// Number of Python processes per self-play thread, and in the arena; they share the environments.
        processes: usize = defaults().processes, in 1..=PROCESSES_MAX;
        /// Time limit of a process, in seconds, for a request to all of its environments; a late process is replaced.
        step_timeout_seconds: f64 = defaults().step_timeout.as_secs_f64(), in 1e-3..=SECONDS_MAX;
        /// Time limit of a process, in seconds, for starting and making the environments.
        start_timeout_seconds: f64 = defaults().start_timeout.as_secs_f64(), in 1e-3..=SECONDS_MAX;
        /// Number of actions; 0 if the environment is not described yet. This key and the following keys describe the
        /// environment, and are written by `zerofleet train`.
        actions: usize = 0;
        /// Planes C of a single frame `[C, H, W]`.
        planes: usize = 0;
        /// Height H of a frame.
        height: usize = 1;
        /// Width W of a frame.
        width: usize = 1;
        /// Type of the observation values: `f32`, any finite numbers, or `u8`, bytes that the network receives as
        /// numbers from 0 to 1.
        values: Values = Values::F32;
    }
}

/// Returns settings with the defaults of all keys.
fn defaults() -> Settings {
    Settings::new("", "")
}

impl EnvironmentSection {
    /// Returns true if the keys that describe the environment are set.
    #[must_use]
    pub fn is_described(&self) -> bool {
        self.actions > 0
    }

    /// Returns the settings of `environments` environments. Relative module directories are relative to this process.
    ///
    /// # Errors
    /// [`ConfigError`] names the first key out of range.
    pub fn settings(&self, run: &RunSection, environments: usize) -> Result<Settings, ConfigError> {
        self.check()?;
        let environment = run.game.strip_prefix(PREFIX).unwrap_or_default();
        Ok(Settings {
            arguments: self.arguments.clone(),
            render: self.render,
            channels: self.channels,
            environments,
            processes: self.processes.min(environments),
            stack: self.stack,
            steps_max: (self.steps_max > 0).then_some(self.steps_max),
            step_timeout: Duration::from_secs_f64(self.step_timeout_seconds),
            start_timeout: Duration::from_secs_f64(self.start_timeout_seconds),
            python: self.python.clone(),
            modules: self.modules.clone(),
            pass_variables: self.pass_variables.clone(),
            ..Settings::new(environment, run.directory.join("python"))
        })
    }

    fn check(&self) -> Result<(), ConfigError> {
        self.check_ranges("environment")?;
        if let Err(error) = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&self.arguments) {
            let reason = format!("not a JSON object: {error}; expected a form such as \"{{\\\"gravity\\\": -9.0}}\"");
            return Err(ConfigError::invalid("environment.arguments", reason));
        }
        if let Some(name) = self.pass_variables.iter().find(|name| !is_variable(name)) {
            let reason = format!("{name:?} is not a variable name; values are inherited from this process");
            return Err(ConfigError::invalid("environment.pass_variables", reason));
        }
        Ok(())
    }
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

/// Returns the game of a run: a game of the registry, or the environment that the section describes.
///
/// # Errors
/// [`ConfigError`] if no game has the name in the run, if the environment is not described, or for a key out of
/// range.
pub fn game(run: &RunSection, environment: &EnvironmentSection) -> Result<GameKind, ConfigError> {
    if !games::is_outside(&run.game) {
        return run.game.parse().map_err(|error: games::Error| ConfigError::invalid("run.game", error));
    }
    environment.check()?;
    let EnvironmentSection { actions, planes, height, width, values, stack, steps_max, .. } = *environment;
    if !environment.is_described() {
        let reason = format!(
            "is 0, so this run file does not describe the environment {}; `zerofleet env` prints the description, \
             `zerofleet train` adds it",
            run.game
        );
        return Err(ConfigError::invalid("environment.actions", reason));
    }
    if steps_max == 0 {
        return Err(ConfigError::invalid(
            "environment.steps_max",
            "is 0, but the described environment has no step limit",
        ));
    }
    let values_max = FRAME_BYTES_MAX / values.bytes();
    let fits = planes.checked_mul(height).and_then(|plane| plane.checked_mul(width)).is_some_and(|n| n <= values_max);
    let frame = ObservationShape { planes, height, width };
    let described = Described { name: run.game.clone(), actions, frame, stack, range: values.range(), steps_max };
    let found = fits.then(|| described.environment()).flatten();
    found.map(GameKind::Recorded).ok_or_else(|| {
        let reason = format!(
            "with {actions} actions, frames [{planes}, {height}, {width}] and a limit of {steps_max} steps is not \
             supported; a frame has 1 to {values_max} values"
        );
        ConfigError::invalid("environment", reason)
    })
}

/// Starts the environment for a short time, tries an episode, and returns the section with the description found.
/// Writes the Python package into `folder`.
///
/// # Errors
/// A key is out of range, or the environment cannot be run or fails in the first episode.
pub fn describe(
    run: &RunSection,
    environment: &EnvironmentSection,
    folder: &Path,
) -> Result<(EnvironmentSection, Trial), DescribeError> {
    let settings = Settings { folder: folder.to_owned(), ..environment.settings(run, 1)? };
    let mut bridge = Bridge::start(settings)?;
    let trial = bridge.try_episode()?;
    let Spec { actions, observation, observation_range, max_plies, .. } = *bridge.spec();
    let described = EnvironmentSection {
        actions,
        planes: observation.planes / environment.stack,
        height: observation.height,
        width: observation.width,
        values: match observation_range {
            ObservationRange::Unit => Values::U8,
            ObservationRange::Finite => Values::F32,
        },
        steps_max: max_plies.min(STEPS_MAX),
        ..environment.clone()
    };
    Ok((described, trial))
}

/// A reason why an environment cannot be described.
#[derive(Debug, thiserror::Error)]
pub enum DescribeError {
    /// A key is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The environment cannot be run.
    #[error(transparent)]
    Environment(#[from] Error),
}

/// Starts the environments of a run, which must match the description in the run file. Stops waiting for them once
/// `drain` fires: see [`Bridge::start_until`].
///
/// # Errors
/// The errors of [`Bridge::start_until`], and [`Error::Differs`].
pub fn start(settings: Settings, described: &Recorded, drain: Option<DrainPipe>) -> Result<Bridge, Error> {
    let environment = settings.environment.clone();
    let bridge = Bridge::start_until(settings, drain)?;
    if bridge.spec() != described.spec() {
        let text = |spec: &Spec| {
            let ObservationShape { planes, height, width } = spec.observation;
            let (actions, steps, range) = (spec.actions, spec.max_plies, spec.observation_range);
            format!("{actions} actions, {range:?} observations [{planes}, {height}, {width}] and {steps} steps")
        };
        let (described, found) = (text(described.spec()), text(bridge.spec()));
        return Err(Error::Differs { environment, described, found });
    }
    Ok(bridge)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> RunSection {
        RunSection { game: "gym:LunarLander-v3".to_owned(), ..RunSection::default() }
    }

    fn described() -> EnvironmentSection {
        EnvironmentSection { actions: 4, planes: 8, steps_max: 1000, ..EnvironmentSection::default() }
    }

    #[test]
    fn a_described_environment_is_a_game_of_its_name_and_shape() {
        let section = EnvironmentSection { stack: 3, ..described() };
        let GameKind::Recorded(found) = game(&run(), &section).unwrap() else { panic!("it is outside") };
        let spec = found.spec();
        assert_eq!((spec.name.as_str(), spec.actions, spec.max_plies), ("gym:LunarLander-v3", 4, 1000));
        assert_eq!(spec.observation, ObservationShape { planes: 24, height: 1, width: 1 });
        assert_eq!(spec.observation_range, ObservationRange::Finite);
        for render in [false, true] {
            let section = EnvironmentSection { render, ..described() };
            assert_eq!(section.settings(&run(), 1).unwrap().render, render);
        }
    }

    #[test]
    fn an_environment_that_is_not_described_is_refused_with_the_way_to_describe_it() {
        let error = game(&run(), &EnvironmentSection::default()).unwrap_err().to_string();
        assert!(error.starts_with("environment.actions: is 0") && error.contains("zerofleet train"), "{error}");
    }

    #[test]
    fn keys_out_of_range_are_named() {
        for (section, key) in [
            (EnvironmentSection { stack: 0, ..described() }, "environment.stack"),
            (EnvironmentSection { processes: 0, ..described() }, "environment.processes"),
            (EnvironmentSection { step_timeout_seconds: f64::NAN, ..described() }, "environment.step_timeout_seconds"),
            (EnvironmentSection { steps_max: 0, ..described() }, "environment.steps_max"),
            (EnvironmentSection { arguments: "[1]".into(), ..described() }, "environment.arguments: not a JSON"),
            (EnvironmentSection { arguments: "{gravity: 1}".into(), ..described() }, "environment.arguments: not a"),
            (EnvironmentSection { arguments: String::new(), ..described() }, "environment.arguments: not a JSON"),
            (EnvironmentSection { pass_variables: vec!["A=b".into()], ..described() }, "environment.pass_variables: "),
            (EnvironmentSection { planes: 0, ..described() }, "environment: "),
            (EnvironmentSection { planes: usize::MAX, ..described() }, "environment: "),
            (EnvironmentSection { actions: 70_000, ..described() }, "environment: "),
        ] {
            let error = game(&run(), &section).unwrap_err().to_string();
            assert!(error.starts_with(key), "{error}");
        }
    }

    #[test]
    fn games_of_the_registry_need_no_description() {
        let run = RunSection { game: "catch".to_owned(), ..RunSection::default() };
        assert_eq!(game(&run, &EnvironmentSection::default()).unwrap().to_string(), "catch");
        let run = RunSection { game: "cach".to_owned(), ..RunSection::default() };
        assert!(game(&run, &EnvironmentSection::default()).unwrap_err().to_string().starts_with("run.game: "));
    }
}
