use weights::Architecture;

use crate::{Error, Observations};

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
    /// The weight of each position in all losses, `[B]`, as in [`TrainingBatch`](crate::TrainingBatch); empty under
    /// uniform sampling.
    pub importance: Vec<f32>,
}

impl UnrolledBatch {
    /// Returns B after checking that every field has the length for B, K and `architecture`, and every action.
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

    /// Returns whether it holds the observations of the states after each action.
    #[must_use]
    pub fn has_next_observations(&self) -> bool {
        !(self.next_observations.is_empty() && self.next_weights.is_empty() && self.chance_weights.is_empty())
    }
}
