use std::ops::RangeInclusive;

use game::Outcome;

use crate::Trajectory;

/// Conditions on a trajectory, which must all hold. The default accepts every trajectory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// The outcome; `None` for any.
    pub outcome: Option<Outcome>,
    /// The actor; `None` for any.
    pub actor: Option<u64>,
    /// The weights versions that may have searched the last step.
    pub weights_versions: RangeInclusive<u64>,
    /// The accepted numbers of plies.
    pub plies: RangeInclusive<u32>,
}

impl Default for Filter {
    fn default() -> Self {
        Self { outcome: None, actor: None, weights_versions: 0..=u64::MAX, plies: 0..=u32::MAX }
    }
}

impl Filter {
    /// Returns true if all conditions hold.
    #[must_use]
    pub fn accepts(&self, trajectory: &Trajectory) -> bool {
        let Self { outcome, actor, weights_versions, plies } = self;
        actor.is_none_or(|actor| trajectory.id().actor == actor)
            && outcome.is_none_or(|outcome| trajectory.outcome() == outcome)
            && u32::try_from(trajectory.plies()).is_ok_and(|length| plies.contains(&length))
            && weights_versions.contains(&trajectory.last_weights_version().0)
    }
}
