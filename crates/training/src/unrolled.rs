use weights::Architecture;

use crate::{Error, Observations};

/// Positions with the K steps after each, as plain numbers.
///
/// States after a terminal state are absorbing: any actions lead from one to the next, rewards and values are 0, and
/// policies have no weight. States after truncation are unknown: values, and rewards of actions from such states,
/// have no weight.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UnrolledBatch {
    /// K: steps after each position; 0 for an AlphaZero network of returns.
    pub unroll_steps: usize,
    /// Observations of the positions, `[B, C, H, W]`.
    pub observations: Observations,
    /// Actions taken from the position on, `[B, K]`.
    pub actions: Vec<u16>,
    /// Search policies of the position and of the state after each action, `[B, K + 1, A]`; a row with a policy
    /// weight sums to one.
    pub policies: Vec<f32>,
    /// Weight of each policy, `[B, K + 1]`: 0 without a policy target.
    pub policy_weights: Vec<f32>,
    /// Values for the player to move, `[B, K + 1]`, before the transform.
    pub values: Vec<f32>,
    /// Weight of each value, and of the reward for the action from that state, `[B, K + 1]`: 0 without a value target.
    pub value_weights: Vec<f32>,
    /// Rewards of the actions for the acting player, `[B, K]`, before the transform.
    pub rewards: Vec<f32>,
    /// Observations of the states after each action, `[B, K, C, H, W]`, with any numbers after the end of the
    /// episode. Empty for a model without chance and without the consistency loss, as are both kinds of weights.
    pub next_observations: Observations,
    /// Weight of each next observation in the consistency loss, `[B, K]`: 0 from the end of the episode on.
    pub next_weights: Vec<f32>,
    /// Weight of the chance event after each action, `[B, K]`: 0 after the end of the episode.
    pub chance_weights: Vec<f32>,
    /// Weight of each position in all losses, `[B]`, as in [`TrainingBatch`](crate::TrainingBatch); empty under
    /// uniform sampling.
    pub importance: Vec<f32>,
}

impl UnrolledBatch {
    /// Returns B after checking the length of every field for B, K and `architecture`, and the range of every action.
    ///
    /// # Errors
    /// [`Error::Batch`] names the field, [`Error::Action`] the action.
    pub fn positions(&self, architecture: &Architecture) -> Result<usize, Error> {
        let steps = self.unroll_steps;
        if (steps > 0) != architecture.model.has_dynamics() {
            let expected = usize::from(architecture.model.has_dynamics());
            return Err(Error::Batch { field: "unroll_steps", expected, got: steps });
        }
        let states = self.policy_weights.len();
        let positions = states / (steps + 1);
        let observation = architecture.planes * architecture.height * architecture.width;
        let next = if self.has_next_observations() { positions * steps } else { 0 };
        let lengths = [
            ("policy_weights", states, positions.max(1) * (steps + 1)),
            ("observations", self.observations.len(), positions * observation),
            ("actions", self.actions.len(), positions * steps),
            ("policies", self.policies.len(), states * architecture.actions),
            ("values", self.values.len(), states),
            ("value_weights", self.value_weights.len(), states),
            ("rewards", self.rewards.len(), positions * steps),
            ("importance", self.importance.len(), if self.importance.is_empty() { 0 } else { positions }),
            ("next_observations", self.next_observations.len(), next * observation),
            ("next_weights", self.next_weights.len(), next),
            ("chance_weights", self.chance_weights.len(), next),
        ];
        if let Some((field, got, expected)) = lengths.into_iter().find(|(_, got, expected)| got != expected) {
            return Err(Error::Batch { field, expected, got });
        }
        match self.actions.iter().find(|&&action| usize::from(action) >= architecture.actions) {
            Some(&action) => Err(Error::Action { action, actions: architecture.actions }),
            None => Ok(positions),
        }
    }

    /// Returns whether the batch holds the observations of the states after each action.
    #[must_use]
    pub fn has_next_observations(&self) -> bool {
        !(self.next_observations.is_empty() && self.next_weights.is_empty() && self.chance_weights.is_empty())
    }
}
