//! The data that actors, replay servers and learners exchange: trajectories, segments and samples.
//!
//! A [`Trajectory`] with a [`TrajectoryId`] is one game as columns in one buffer of bytes, the same in memory, on the
//! wire and on disk. [`Trajectory::of`] builds it from [`Step`]s, each with a [`StepKind`] and [`ActionProbability`]s;
//! [`Trajectory::parse`] reads it within [`Limits`] or returns the [`Invalid`] error. It holds only data that the rules
//! of the game cannot recompute. A [`Segment`] is the part that the learner unrolls from one position, a [`Sample`] a
//! segment as drawn from a table. An [`Episode`] holds the facts of an episode other than the steps. A [`Filter`]
//! selects trajectories. [`Observations`] record an environment that rules cannot recompute. Self-play keeps policies
//! small by [`bound_policies`]. The crate does not depend on networks, messages or the rules of games; an action is an
//! index. Start with [`Trajectory`].

mod columns;
mod element;
mod episode;
mod filter;
mod id;
mod limits;
mod observation_layout;
mod observations;
mod policies;
mod sample;
mod step;
mod trajectory;

pub use element::Element;
pub use episode::Episode;
pub use filter::Filter;
pub use id::TrajectoryId;
pub use limits::{Invalid, Limits, invalid};
pub use observation_layout::ObservationLayout;
pub use observations::Observations;
pub use policies::{POLICIES_BYTES_MAX, POLICY_ENTRIES_MAX, bound_policies};
pub use sample::{Sample, Segment};
pub use step::{ActionProbability, Step, StepKind};
pub use trajectory::Trajectory;
pub use weights::WeightsVersion;
