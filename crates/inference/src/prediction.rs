use game::{Action, Outcome};

/// Probabilities of a win, a draw and a loss for the player to move; they sum to one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wdl {
    /// Probability of a win.
    pub win: f32,
    /// Probability of a draw.
    pub draw: f32,
    /// Probability of a loss.
    pub loss: f32,
}

impl Wdl {
    /// The value of an unknown position. Win and loss share evenly, since a third each would imply many draws.
    pub const EVEN: Self = Self { win: 0.5, draw: 0.0, loss: 0.5 };

    /// Returns the scalar value, win − loss, in `[-1, 1]`.
    #[must_use]
    pub fn value(self) -> f32 {
        self.win - self.loss
    }
}

/// The results for a batch, in batch order: priors over the legal actions of each position, and values.
///
/// A value is win − loss of a [`Wdl`], or a return in games scored by rewards. All results in a batch are of one kind.
#[derive(Debug, Clone, Default)]
pub struct Predictions {
    priors: Vec<f32>,
    /// Position `i` owns `priors[ends[i - 1]..ends[i]]`.
    ends: Vec<u32>,
    /// `[B]`.
    values: Vec<f32>,
    /// `[B]`; empty if values are returns.
    wdl: Vec<Wdl>,
}

impl Predictions {
    /// Creates an empty list of results.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes all results and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.priors.clear();
        self.ends.clear();
        self.values.clear();
        self.wdl.clear();
    }

    /// Appends a result: priors `[legal actions]` that sum to one, and the value for the player to move.
    pub fn push(&mut self, priors: &[f32], value: Wdl) {
        self.priors.extend_from_slice(priors);
        self.close(value.value());
        self.wdl.push(value);
    }

    /// Appends a result for games scored by rewards: priors `[legal actions]` that sum to one, and the expected
    /// return for the player to move.
    pub fn push_return(&mut self, priors: impl IntoIterator<Item = f32>, value: f32) {
        self.priors.extend(priors);
        self.close(value);
    }

    /// Appends the results of `other` at the given positions.
    pub fn extend_from(&mut self, other: &Self, positions: impl IntoIterator<Item = usize>) {
        for i in positions {
            self.priors.extend_from_slice(other.priors(i));
            self.close(other.values[i]);
            self.wdl.extend(other.wdl.get(i));
        }
    }

    /// Appends a result from the logits of a network: policy logits `[A]`, of which only `legal` actions count, and
    /// logits of win, draw and loss. Returns true if all are finite; otherwise appends nothing.
    #[must_use]
    pub fn push_logits(&mut self, policy: &[f32], legal: &[Action], mut wdl: [f32; Outcome::RESULTS]) -> bool {
        // Only legal actions get a prior, but NaN in any logit means that the network is broken.
        if policy.iter().chain(&wdl).any(|logit| !logit.is_finite()) {
            return false;
        }
        let start = self.priors.len();
        self.priors.extend(legal.iter().map(|action| policy[action.index()]));
        softmax(&mut self.priors[start..]);
        softmax(&mut wdl);
        let [win, draw, loss] = wdl;
        let wdl = Wdl { win, draw, loss };
        self.close(wdl.value());
        self.wdl.push(wdl);
        true
    }

    /// Completes the result with the priors added last.
    fn close(&mut self, value: f32) {
        self.ends.push(u32::try_from(self.priors.len()).expect("a batch holds fewer than 2^32 legal actions"));
        self.values.push(value);
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

    /// Returns the priors of position `i`, one per legal action, in the order of the legal actions.
    #[must_use]
    pub fn priors(&self, i: usize) -> &[f32] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] as usize };
        &self.priors[start..self.ends[i] as usize]
    }

    /// Returns the value of position `i` for the player to move: in `[-1, 1]`, or any finite return.
    #[must_use]
    pub fn value(&self, i: usize) -> f32 {
        self.values[i]
    }

    /// Returns win, draw and loss probabilities per position, `[B]`; empty if values are returns.
    #[must_use]
    pub fn wdl(&self) -> &[Wdl] {
        &self.wdl
    }
}

/// Converts finite logits to probabilities in place.
pub(crate) fn softmax(logits: &mut [f32]) {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for logit in logits.iter_mut() {
        *logit = (*logit - max).exp();
        sum += *logit;
    }
    for logit in logits.iter_mut() {
        *logit /= sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_are_values_of_any_size_without_probabilities_of_results() {
        let mut predictions = Predictions::new();
        predictions.push_return([0.25, 0.75], -16.5);
        predictions.push_return([1.0], 3.0);
        assert_eq!((predictions.priors(0), predictions.value(0)), (&[0.25, 0.75][..], -16.5));
        assert_eq!((predictions.priors(1), predictions.value(1), predictions.wdl()), (&[1.0][..], 3.0, &[][..]));
        let mut last = Predictions::new();
        last.extend_from(&predictions, [1]);
        assert_eq!((last.len(), last.value(0), last.wdl()), (1, 3.0, &[][..]));
    }

    #[test]
    fn the_value_of_probabilities_is_win_less_loss() {
        let wdl = Wdl { win: 0.5, draw: 0.25, loss: 0.25 };
        let mut predictions = Predictions::new();
        predictions.push(&[1.0], wdl);
        assert_eq!((predictions.value(0), predictions.wdl()), (0.25, &[wdl][..]));
    }
}
