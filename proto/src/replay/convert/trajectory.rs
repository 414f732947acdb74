use experience::{Limits, Trajectory, TrajectoryId};

use crate::convert::{Invalid, at_most, required};
use crate::limits::{ANY_TRAJECTORY, TRAJECTORY_BYTES_MAX};
use crate::replay::v1;

impl From<TrajectoryId> for v1::TrajectoryId {
    fn from(TrajectoryId { actor, epoch, sequence }: TrajectoryId) -> Self {
        Self { actor, epoch, sequence }
    }
}

impl From<v1::TrajectoryId> for TrajectoryId {
    fn from(v1::TrajectoryId { actor, epoch, sequence }: v1::TrajectoryId) -> Self {
        Self { actor, epoch, sequence }
    }
}

/// The message shares the buffer of the trajectory.
impl From<Trajectory> for v1::Trajectory {
    fn from(trajectory: Trajectory) -> Self {
        Self { id: Some(trajectory.id().into()), columns: trajectory.columns().clone() }
    }
}

impl TryFrom<v1::Trajectory> for Trajectory {
    type Error = Invalid;

    fn try_from(message: v1::Trajectory) -> Result<Self, Invalid> {
        within(message, ANY_TRAJECTORY)
    }
}

/// Converts a trajectory within the limits of a game.
pub(crate) fn within(v1::Trajectory { id, columns }: v1::Trajectory, limits: Limits) -> Result<Trajectory, Invalid> {
    let id = required("id", id)?.into();
    Trajectory::parse(id, within_limit(&columns)?, limits)
}

/// Returns `columns` if every sample cut from these columns fits a message.
pub(crate) fn within_limit(columns: &[u8]) -> Result<&[u8], Invalid> {
    at_most("columns", columns.len(), "bytes", TRAJECTORY_BYTES_MAX)?;
    Ok(columns)
}
