use crate::{Observations, TrainingBatch};

/// What a training step learns from: positions for AlphaZero, or positions with the steps that follow for MuZero.
#[derive(Debug, Clone, PartialEq)]
pub enum Examples {
    /// For a network of priors and values.
    Positions(TrainingBatch),
    /// For a network with learned dynamics.
    Unrolled(UnrolledBatch),
}

impl From<TrainingBatch> for Examples {
    fn from(batch: TrainingBatch) -> Self {
        Self::Positions(batch)
    }
}

impl From<UnrolledBatch> for Examples {
    fn from(batch: UnrolledBatch) -> Self {
        Self::Unrolled(batch)
    }
}

impl Examples {
    /// B: the number of positions.
    #[must_use]
    pub fn positions(&self) -> usize {
        match self {
            Self::Positions(batch) => batch.policy_weights.len(),
            Self::Unrolled(batch) => batch.policy_weights.len() / (batch.unroll_steps + 1),
        }
    }
}

/// Positions and the K steps that follow each, as plain numbers.
///
/// States behind a terminal end are absorbing: any actions lead from one to the next, rewards and values are 0,
/// policies have no weight. Of states behind a limit of time nothing is known: neither their values nor the rewards of
/// actions taken in them have a weight.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UnrolledBatch {
    /// K: the number of steps after each position; 0 for an AlphaZero network of returns.
    pub unroll_steps: usize,
    /// Observations of the positions, `[B, C, H, W]`.
    pub observations: Observations,
    /// The actions taken from the position on, `[B, K]`.
    pub actions: Vec<u16>,
    /// Search policies of the position and of the states after each action, `[B, K + 1, A]`; each row that has a
    /// policy weight sums to one.
    pub policies: Vec<f32>,
    /// The weight of each policy, `[B, K + 1]`: 0 where there is no policy target.
    pub policy_weights: Vec<f32>,
    /// Values for the player to move, `[B, K + 1]`, before the transform.
    pub values: Vec<f32>,
    /// The weight of each value, and of the reward of the action that is taken in its state, `[B, K + 1]`: 0 where
    /// there is no value target.
    pub value_weights: Vec<f32>,
    /// The rewards of the actions, of the player who took each, `[B, K]`, before the transform.
    pub rewards: Vec<f32>,
    /// Observations of the states after each action, `[B, K, C, H, W]`, any behind the end of the episode; empty for a
    /// model without chance that is trained without the consistency loss, as are their weights.
    pub next_observations: Observations,
    /// The weight of each of them in the consistency loss, `[B, K]`: 0 at the end of the episode and behind it.
    pub next_weights: Vec<f32>,
    /// The weight of the chance that follows each action, `[B, K]`: 0 behind the end of the episode.
    pub chance_weights: Vec<f32>,
    /// The weight of each position in all losses, `[B]`, as in [`TrainingBatch::importance`]; empty under uniform
    /// sampling.
    pub importance: Vec<f32>,
}
