//! What actors, replay and learner say to each other: trajectories, segments, samples.
//!
//! Compact by rule: a trajectory holds what the rules cannot recompute. It knows no network, no wire and no game; an
//! action is an index and the learner replays the rules to make planes. Start with [`Trajectory`].

mod mass;
mod packed_trajectory;
mod sample;
mod surprise;
mod trajectory;

pub use mass::Mass;
pub use packed_trajectory::PackedTrajectory;
pub use sample::{Sample, Segment, Target};
pub use trajectory::{ActionProbability, Invalid, Limits, Step, StepKind, Trajectory, TrajectoryId};
pub use weights::WeightsVersion;
