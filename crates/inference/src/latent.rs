use game::Action;

use crate::{Attributes, Batch, Error};

/// A place in the pool of latent states of one [`LatentModel`].
///
/// The driver of a search assigns the slots: that of a node of a tree is `tree · (simulations + 1) + node`, so that no
/// slot is ever freed and a new search overwrites the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot(pub u32);

/// One recurrent step: the state in one slot and an action give the state of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unroll {
    /// The slot of the state in which the action is taken.
    pub from: Slot,
    /// The action, legal or not; from an afterstate, the chance code.
    pub action: Action,
    /// The slot of the next state. No other step of the batch reads or writes it.
    pub to: Slot,
}

/// A learned model of an environment (Schrittwieser et al. 2020), which keeps its latent states in a pool on its
/// device: a call names slots, and only priors, values and rewards reach the caller.
///
/// The pool belongs to one thread's searches. New weights are a new model with an empty pool, so searches under way
/// are finished with the old one or begun again.
pub trait LatentModel: Send {
    /// Returns its attributes: the weights that answer, and the maximum batch.
    fn attributes(&self) -> Attributes;

    /// Makes room for slots below `slots`; the states in earlier slots are kept.
    ///
    /// # Errors
    /// [`Error::Backend`] if the device has too little memory.
    fn reserve(&mut self, slots: usize) -> Result<(), Error>;

    /// Computes the latent state of each observation of `batch`, writes it to the slot in `to` of the same index, and
    /// replaces `predictions`: priors over the legal actions (0 for others), values, and rewards of 0.
    ///
    /// # Errors
    /// See [`Error`]; `predictions` and the slots in `to` are then unspecified and must not be used.
    fn initial(&mut self, batch: &Batch, to: &[Slot], predictions: &mut LatentPredictions) -> Result<(), Error>;

    /// Takes every step of `steps`, and replaces `predictions`: priors over all actions, the values of the next states
    /// and the rewards of the actions.
    ///
    /// # Errors
    /// See [`Error`]; `predictions` and the slots that were to be written are then unspecified and must not be used.
    /// [`Error::Backend`] from an AlphaZero network of returns, which has no dynamics.
    ///
    /// # Panics
    /// If a slot was not [reserved](Self::reserve) or an action is out of range, which is a bug of the caller.
    fn recurrent(&mut self, steps: &[Unroll], predictions: &mut LatentPredictions) -> Result<(), Error>;

    /// Returns M, the number of chance codes; 0 for a model without chance.
    ///
    /// In a model with chance (Antonoglou et al. 2022) an action leads to an afterstate, which has a slot like a latent
    /// state, by [`act`](Self::act); [`recurrent`](Self::recurrent) leads from an afterstate by a code to a state.
    fn codes(&self) -> usize {
        0
    }

    /// Takes every action of `steps` to its afterstate, and replaces `predictions`: the probabilities of the codes
    /// instead of priors, the values of the afterstates to the players who took the actions, and rewards of 0.
    ///
    /// # Errors
    /// As in [`recurrent`](Self::recurrent); [`Error::Backend`] from a model without chance.
    ///
    /// # Panics
    /// As in [`recurrent`](Self::recurrent).
    fn act(&mut self, steps: &[Unroll], predictions: &mut LatentPredictions) -> Result<(), Error> {
        let _ = (steps, predictions);
        Err(Error::Backend("the model has no afterstates".to_owned()))
    }
}

/// The answers of a [`LatentModel`] to a batch, in its order.
///
/// Values are those of the player to move in the state, rewards those of the player who took the action. Every number
/// is finite.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LatentPredictions {
    /// A: the number of actions.
    actions: usize,
    /// `[B, A]`; each row sums to one.
    priors: Vec<f32>,
    /// `[B]`.
    values: Vec<f32>,
    /// `[B]`.
    rewards: Vec<f32>,
}

impl LatentPredictions {
    /// Removes all answers and sets the number of actions; keeps the allocated memory.
    pub fn clear(&mut self, actions: usize) {
        self.actions = actions;
        self.priors.clear();
        self.values.clear();
        self.rewards.clear();
    }

    /// Adds an answer. Returns true if all numbers are finite; otherwise no answer is added.
    ///
    /// `logits` are those of the policy, `[A]`; with `legal` only these actions have a prior above 0.
    #[must_use]
    pub fn push_logits(&mut self, logits: &[f32], legal: Option<&[Action]>, value: f32, reward: f32) -> bool {
        debug_assert_eq!(logits.len(), self.actions);
        if !value.is_finite() || !reward.is_finite() || logits.iter().any(|logit| !logit.is_finite()) {
            return false;
        }
        let start = self.priors.len();
        match legal {
            None => self.priors.extend_from_slice(logits),
            Some(legal) => {
                self.priors.resize(start + self.actions, f32::NEG_INFINITY);
                for action in legal {
                    self.priors[start + action.index()] = logits[action.index()];
                }
            }
        }
        crate::prediction::softmax(&mut self.priors[start..]);
        self.values.push(value);
        self.rewards.push(reward);
        true
    }

    /// B: the number of answers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns true if there are no answers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The priors of answer `i`, `[A]`, which sum to one.
    #[must_use]
    pub fn priors(&self, i: usize) -> &[f32] {
        &self.priors[i * self.actions..][..self.actions]
    }

    /// The value of answer `i`, for the player to move in its state.
    #[must_use]
    pub fn value(&self, i: usize) -> f32 {
        self.values[i]
    }

    /// The reward of answer `i`, of the player who took its action.
    #[must_use]
    pub fn reward(&self, i: usize) -> f32 {
        self.rewards[i]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn illegal_actions_have_no_prior_and_the_rest_sums_to_one() {
        let mut predictions = LatentPredictions::default();
        predictions.clear(3);
        assert!(predictions.push_logits(&[0.0, 50.0, 0.0], Some(&[Action(0), Action(2)]), 2.0, 0.0));
        assert!(predictions.push_logits(&[0.0; 3], None, -7.0, 1.5));
        assert_eq!(predictions.priors(0), [0.5, 0.0, 0.5]);
        assert!(predictions.priors(1).iter().all(|prior| (prior - 1.0 / 3.0).abs() < 1e-6));
        assert_eq!((predictions.value(1), predictions.reward(1), predictions.len()), (-7.0, 1.5, 2));
    }

    #[test]
    fn an_answer_that_is_not_finite_is_refused() {
        let mut predictions = LatentPredictions::default();
        predictions.clear(2);
        assert!(!predictions.push_logits(&[0.0, f32::NAN], Some(&[Action(0)]), 0.0, 0.0));
        assert!(!predictions.push_logits(&[0.0, 0.0], None, f32::INFINITY, 0.0));
        assert!(!predictions.push_logits(&[0.0, 0.0], None, 0.0, f32::NAN));
        assert!(predictions.is_empty());
    }
}
