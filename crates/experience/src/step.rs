use game::Action;
use weights::WeightsVersion;

/// One move of an episode, with reward, search result and weights version.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The action played, an index below A.
    pub action: Action,
    /// The reward of the action to the player who took it; 0 in games scored by outcome.
    pub reward: f32,
    /// The choice of the action, which determines the training targets.
    pub kind: StepKind,
    /// The weights version that searched this step.
    pub weights_version: WeightsVersion,
}

/// The choice of a step's action: by a full search, by a fast search, or at random.
#[derive(Debug, Clone, PartialEq)]
pub enum StepKind {
    /// Chosen by a full search; the policy and the value are training targets.
    Full {
        /// The search policy, ascending by action, without zero entries; sums to one.
        policy: Vec<ActionProbability>,
        /// The expected value of the search policy for the player to move, in `[-1, 1]` (times the reward scale in
        /// games with rewards).
        value: f32,
    },
    /// Chosen by a fast search (playout cap randomisation); the value may be a training target, the policy is not.
    Fast {
        /// The expected value of the search policy for the player to move.
        value: f32,
    },
    /// Chosen at random, to vary openings; not used as a training target.
    Opening,
}

/// One entry of a sparse search policy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ActionProbability {
    /// The action, an index below A.
    pub action: Action,
    /// The probability of the action under the policy, above zero.
    pub probability: f32,
}

impl StepKind {
    /// Returns the search's value, if there was a search.
    #[must_use]
    pub fn value(&self) -> Option<f32> {
        match self {
            Self::Full { value, .. } | Self::Fast { value } => Some(*value),
            Self::Opening => None,
        }
    }

    /// Returns the search policy; empty if it is not a training target.
    #[must_use]
    pub fn policy(&self) -> &[ActionProbability] {
        match self {
            Self::Full { policy, .. } => policy,
            Self::Fast { .. } | Self::Opening => &[],
        }
    }
}
