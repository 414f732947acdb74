//! Trajectories, segments and samples: what actors, replay servers and learners exchange.
//!
//! Compact by rule: a trajectory holds what the rules cannot recompute. It has one form everywhere, columns in one
//! buffer of bytes. The crate knows no network, no message and no game; an action is an index and the learner replays
//! the rules to make planes. Start with [`Trajectory`], which a [`TrajectoryBuilder`] makes of [`Step`]s and
//! [`Trajectory::parse`] reads.

mod columns;
mod mass;
mod sample;
mod trajectory;

pub use mass::Mass;
pub use sample::{Sample, Segment};
pub use trajectory::{ActionProbability, Invalid, Limits, Step, StepKind, Trajectory, TrajectoryBuilder, TrajectoryId};
pub use weights::WeightsVersion;
