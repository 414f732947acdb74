use game::{Dynamics, ObservationShape, Players, Recording, Scoring, Spec};

use crate::settings::Values;
use crate::{Error, Settings};

/// Maximum number of values in an observation, including stacking: 4 frames of 1,024 × 1,024 RGB pixels fit.
pub(crate) const OBSERVATION_VALUES_MAX: usize = 1 << 24;

/// A process's description of the environments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Description {
    /// Number of environments in the process.
    pub(crate) count: usize,
    pub(crate) actions: usize,
    /// Maximum number of steps; `None` if episodes have no limit.
    pub(crate) steps_max: Option<usize>,
    pub(crate) values: Values,
    /// Shape of one frame, `[C, H, W]`.
    pub(crate) frame: ObservationShape,
    /// True if the environments draw pictures.
    pub(crate) draws: bool,
}

impl Description {
    /// Returns the size of one frame on the wire, in bytes.
    pub(crate) fn frame_bytes(&self) -> usize {
        self.frame.len() * self.values.bytes()
    }

    /// Returns the constants of the environment under `settings`.
    ///
    /// # Errors
    /// [`Error::Failed`] without a step limit, or if a stacked observation is too large.
    pub(crate) fn spec(&self, settings: &Settings) -> Result<Spec, Error> {
        let limits = [self.steps_max, settings.steps_max];
        let Some(max_plies) = limits.into_iter().flatten().min() else {
            return Err(settings.failed("has no step limit; set environment.steps_max".to_owned()));
        };
        let planes = self.frame.planes * settings.stack;
        let observation = ObservationShape { planes, ..self.frame };
        if observation.len() > OBSERVATION_VALUES_MAX {
            let reason = format!("has more than {OBSERVATION_VALUES_MAX} values in a stacked observation");
            return Err(settings.failed(reason));
        }
        Ok(Spec {
            name: settings.name(),
            players: Players::One,
            actions: self.actions,
            observation,
            observation_range: self.values.range(),
            scoring: Scoring::Rewards,
            dynamics: Dynamics::Stochastic,
            recording: Some(Recording { stack: settings.stack }),
            max_plies,
        })
    }
}

impl std::fmt::Display for Description {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { count, actions, steps_max: _, values, frame, draws } = self;
        let ObservationShape { planes, height, width } = frame;
        write!(f, "{count} with {actions} actions and observations [{planes}, {height}, {width}] of {values:?}")?;
        f.write_str(if *draws { ", with pictures" } else { "" })
    }
}
