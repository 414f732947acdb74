use game::Action;
use weights::WeightsVersion;

/// One move of an episode.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The action played.
    pub action: Action,
    /// The reward of the player who played it; 0 in games scored by their outcome.
    pub reward: f32,
    /// The way in which the action was chosen, which decides the training targets.
    pub kind: StepKind,
    /// The weights version that searched this step.
    pub weights_version: WeightsVersion,
}

/// The way in which a step's action was chosen.
#[derive(Debug, Clone, PartialEq)]
pub enum StepKind {
    /// By a full search: its search policy and value are training targets.
    Full {
        /// The search policy, ascending by action, zero entries left out; sums to one.
        policy: Vec<ActionProbability>,
        /// The expected value of the search policy for the player to move, in `[-1, 1]` (times the reward scale in
        /// games with rewards).
        value: f32,
    },
    /// By a cheap search (playout cap randomisation): its value may be used, its policy may not.
    Fast {
        /// The expected value of the search policy for the player to move.
        value: f32,
    },
    /// At random, to vary openings: nothing is learnt from it.
    Opening,
}

/// One entry of a sparse search policy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ActionProbability {
    /// The action.
    pub action: Action,
    /// Its probability, above zero.
    pub probability: f32,
}

impl StepKind {
    /// The search's value, if there was a search.
    #[must_use]
    pub fn value(&self) -> Option<f32> {
        match self {
            Self::Full { value, .. } | Self::Fast { value } => Some(*value),
            Self::Opening => None,
        }
    }

    /// The search policy; empty where none is a training target.
    #[must_use]
    pub fn policy(&self) -> &[ActionProbability] {
        match self {
            Self::Full { policy, .. } => policy,
            Self::Fast { .. } | Self::Opening => &[],
        }
    }
}
