use weights::Architecture;

use crate::{Error, Observations};

/// A training batch of B positions with K unrolled steps each, as plain numbers.
///
/// States after a terminal state are absorbing: arbitrary actions lead from state to state, rewards and values are 0,
/// and policies have weight 0. States after truncation are unknown: values, and rewards of actions in these states,
/// have weight 0.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UnrolledBatch {
    /// K, the number of unrolled steps after each position; 0 for an AlphaZero network that predicts returns.
    pub unroll_steps: usize,
    /// Observations of the positions, `[B, C, H, W]`.
    pub observations: Observations,
    /// Actions from the position onwards, `[B, K]`.
    pub actions: Vec<u16>,
    /// Search policies in the position and in the state after each action, `[B, K + 1, A]`. Rows with a policy weight
    /// sum to 1.
    pub policies: Vec<f32>,
    /// Weight of each policy target, `[B, K + 1]`; 0 without a policy target.
    pub policy_weights: Vec<f32>,
    /// Value targets for the player to move, `[B, K + 1]`, before the invertible transform.
    pub values: Vec<f32>,
    /// Weight of each value target, and of the reward for the action in the same state, `[B, K + 1]`; 0 without a
    /// target.
    pub value_weights: Vec<f32>,
    /// Rewards of the actions for the acting player, `[B, K]`, before the invertible transform.
    pub rewards: Vec<f32>,
    /// Observations after each action, `[B, K, C, H, W]`; arbitrary after the end of the episode. For a model without
    /// chance and without the consistency loss, this field and the next two fields are empty.
    pub next_observations: Observations,
    /// Weight of each next observation in the consistency loss, `[B, K]`; 0 from the end of the episode onwards.
    pub next_weights: Vec<f32>,
    /// Weight of the chance event after each action, `[B, K]`; 0 after the end of the episode.
    pub chance_weights: Vec<f32>,
    /// Importance weight of each position in all losses, `[B]`, as in [`TrainingBatch`](crate::TrainingBatch). Empty
    /// for uniform sampling.
    pub importance: Vec<f32>,
}

impl UnrolledBatch {
    /// Returns B, after checking the length of every field for B, K and `architecture`, and the range of all actions.
    ///
    /// # Errors
    /// [`Error::Batch`] names the field with a wrong length; [`Error::Action`] contains the invalid action.
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

    /// Returns true if the batch contains the observations after each action.
    #[must_use]
    pub fn has_next_observations(&self) -> bool {
        !(self.next_observations.is_empty() && self.next_weights.is_empty() && self.chance_weights.is_empty())
    }
}
