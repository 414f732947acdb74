use crate::multiplier::Multiplier;

/// Head outputs for the states of a pass.
#[derive(Debug)]
pub(crate) struct Answers {
    /// n: scalars have 2n + 1 atoms.
    bound: usize,
    padded_actions: usize,
    /// `[rows, padded actions]`.
    policy: Vec<f32>,
    /// Logits of one scalar, `[rows, padded atoms]`.
    scalar: Vec<f32>,
    /// Mean atoms of the values, `[rows]`.
    values: Vec<f32>,
    /// Mean atoms of the rewards, `[rows]`.
    rewards: Vec<f32>,
}

impl Answers {
    pub(crate) fn new(bound: usize, rows: usize, padded_actions: usize, padded_atoms: usize) -> Self {
        Self {
            bound,
            padded_actions,
            policy: vec![0.0; rows * padded_actions],
            scalar: vec![0.0; rows * padded_atoms],
            values: vec![0.0; rows],
            rewards: vec![0.0; rows],
        }
    }

    /// Returns the policy logits, for writing.
    pub(crate) fn policy_mut(&mut self) -> &mut [f32] {
        &mut self.policy
    }

    /// Returns the logits of a scalar, for writing before values or rewards are [set](Self::set_values).
    pub(crate) fn scalar_mut(&mut self) -> &mut [f32] {
        &mut self.scalar
    }

    /// Sets the values of the first `rows` rows from the scalar logits.
    pub(crate) fn set_values(&mut self, multiplier: &Multiplier, rows: usize, padded: usize) {
        multiplier.means_of_atoms(&self.scalar, padded, self.bound, &mut self.values[..rows]);
    }

    /// Sets the rewards of the first `rows` rows from the scalar logits.
    pub(crate) fn set_rewards(&mut self, multiplier: &Multiplier, rows: usize, padded: usize) {
        multiplier.means_of_atoms(&self.scalar, padded, self.bound, &mut self.rewards[..rows]);
    }

    /// Returns the policy logits of a row, padded.
    pub(crate) fn policy(&self, row: usize) -> &[f32] {
        &self.policy[row * self.padded_actions..][..self.padded_actions]
    }

    /// Returns the mean atom of a row's value.
    pub(crate) fn value(&self, row: usize) -> f32 {
        self.values[row]
    }

    /// Returns the mean atom of a row's reward.
    pub(crate) fn reward(&self, row: usize) -> f32 {
        self.rewards[row]
    }
}
