use game::Action;

use crate::{Attributes, Batch, Error};

/// Index of a latent state among the states of one [`LatentModel`].
///
/// The driver of a search assigns the slots: a tree node has the slot `tree · (simulations + 1) + node`, so that no
/// slot is ever freed and a new search overwrites the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot(pub u32);

/// One recurrent step: a state and an action lead to the next state, in another slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unroll {
    /// Slot of the state in which the action is taken.
    pub from: Slot,
    /// Action, legal or not; from an afterstate, the chance code.
    pub action: Action,
    /// Slot of the next state. No other step of the batch reads or writes this slot.
    pub to: Slot,
}

/// A learned model of an environment (Schrittwieser et al. 2020) with a pool of latent states on the device: a call
/// names slots, and only priors, values and rewards reach the caller.
///
/// The slots belong to the searches of one thread, also where models of several threads share a pool.
/// New weights are a new model without states, so searches under way are finished with the old model or restarted.
pub trait LatentModel: Send {
    /// Returns the attributes: evaluating weights, and maximum batch.
    fn attributes(&self) -> Attributes;

    /// Makes room for slots below `slots`; the states in earlier slots are kept.
    ///
    /// # Errors
    /// [`Error::Backend`] if the device has too little memory.
    fn reserve(&mut self, slots: usize) -> Result<(), Error>;

    /// Announces the calls of a round: [`initial`](Self::initial) with `batch` and `to`, [`act`](Self::act) with
    /// `acts` and [`recurrent`](Self::recurrent) with `steps`, none of which reads a state that another one writes.
    ///
    /// The caller makes every call that is not empty next, in this order and with these arguments; a failed call
    /// withdraws the rest. A model that works asynchronously has all of them under way together. By default, nothing
    /// happens before the calls.
    fn start(&mut self, batch: &Batch, to: &[Slot], acts: &[Unroll], steps: &[Unroll]) {
        let _ = (batch, to, acts, steps);
    }

    /// Computes the latent state of each observation in `batch`, writes it to the slot in `to` with the same index,
    /// and replaces `predictions`: priors over the legal actions (0 for all others), values, and rewards of 0.
    ///
    /// # Errors
    /// See [`Error`]; `predictions` and the slots in `to` are then unspecified and must not be used.
    fn initial(&mut self, batch: &Batch, to: &[Slot], predictions: &mut LatentPredictions) -> Result<(), Error>;

    /// Takes every step of `steps` and replaces `predictions`: priors over all actions, values of the next states,
    /// and rewards of the actions.
    ///
    /// # Errors
    /// See [`Error`]; `predictions` and the slots to be written are then unspecified and must not be used.
    /// [`Error::Backend`] for an AlphaZero network of returns, which has no dynamics.
    ///
    /// # Panics
    /// If a slot was not [reserved](Self::reserve) or an action is out of range, a bug of the caller.
    fn recurrent(&mut self, steps: &[Unroll], predictions: &mut LatentPredictions) -> Result<(), Error>;

    /// Returns M, the number of chance codes; 0 for a model without chance.
    ///
    /// In a model with chance (Antonoglou et al. 2022), [`act`](Self::act) takes an action to an afterstate, which
    /// has a slot like a latent state; [`recurrent`](Self::recurrent) takes a code from an afterstate to a state.
    fn codes(&self) -> usize {
        0
    }

    /// Takes every action of `steps` to an afterstate and replaces `predictions`: code probabilities instead of
    /// priors, afterstate values to the players who took the actions, and rewards of 0.
    ///
    /// # Errors
    /// Same as [`recurrent`](Self::recurrent), and [`Error::Backend`] for a model without chance.
    ///
    /// # Panics
    /// Same as [`recurrent`](Self::recurrent).
    fn act(&mut self, steps: &[Unroll], predictions: &mut LatentPredictions) -> Result<(), Error> {
        let _ = (steps, predictions);
        Err(Error::Backend("the model has no afterstates".to_owned()))
    }
}

/// The results of a [`LatentModel`] for a batch, in batch order.
///
/// Values are for the player to move in the state, rewards for the player who took the action. Every number is finite.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LatentPredictions {
    /// A, the number of actions.
    actions: usize,
    /// `[B, A]`; each row sums to one.
    priors: Vec<f32>,
    /// `[B]`.
    values: Vec<f32>,
    /// `[B]`.
    rewards: Vec<f32>,
}

impl LatentPredictions {
    /// Removes all results and sets the number of actions; keeps the allocated memory.
    pub fn clear(&mut self, actions: usize) {
        self.actions = actions;
        self.priors.clear();
        self.values.clear();
        self.rewards.clear();
    }

    /// Appends a result. Returns true if all numbers are finite; otherwise appends nothing.
    ///
    /// `logits` are policy logits, `[A]`; with `legal`, only these actions have a prior above 0.
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

    /// Returns B, the number of results.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns true if there are no results.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the priors of result `i`, `[A]`, which sum to one.
    #[must_use]
    pub fn priors(&self, i: usize) -> &[f32] {
        &self.priors[i * self.actions..][..self.actions]
    }

    /// Returns the value of result `i`, for the player to move in the state.
    #[must_use]
    pub fn value(&self, i: usize) -> f32 {
        self.values[i]
    }

    /// Returns the reward of result `i`, for the player who took the action.
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
