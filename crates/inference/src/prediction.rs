use game::{Action, Outcome};

/// Probabilities of a win, a draw and a loss for the player to move; they sum to one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wdl {
    /// The probability of a win.
    pub win: f32,
    /// The probability of a draw.
    pub draw: f32,
    /// The probability of a loss.
    pub loss: f32,
}

impl Wdl {
    /// The value of an unknown position. Win and loss share evenly, because a third each would claim many draws.
    pub const EVEN: Self = Self { win: 0.5, draw: 0.0, loss: 0.5 };

    /// The scalar value, win − loss, in `[-1, 1]`.
    #[must_use]
    pub fn value(self) -> f32 {
        self.win - self.loss
    }
}

/// The answers to a batch, in its order: priors over each position's legal actions, and values.
#[derive(Debug, Clone, Default)]
pub struct Predictions {
    priors: Vec<f32>,
    /// Position `i` owns `priors[ends[i - 1]..ends[i]]`.
    ends: Vec<u32>,
    values: Vec<Wdl>,
}

impl Predictions {
    /// Creates an empty list of answers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes all answers and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.priors.clear();
        self.ends.clear();
        self.values.clear();
    }

    /// Adds an answer: priors `[legal actions]` that sum to one, and the value for the player to move.
    pub fn push(&mut self, priors: &[f32], value: Wdl) {
        self.priors.extend_from_slice(priors);
        self.close(value);
    }

    /// Adds the answers to the given positions of `other`.
    pub fn extend_from(&mut self, other: &Self, positions: impl IntoIterator<Item = usize>) {
        for i in positions {
            self.push(other.priors(i), other.value(i));
        }
    }

    /// Adds an answer computed from a network's logits: `[A]` of all actions, of which only the `legal` ones count, and
    /// those of a win, a draw and a loss. Returns true if all are finite; otherwise no answer is added.
    #[must_use]
    pub fn push_logits(&mut self, policy: &[f32], legal: &[Action], mut wdl: [f32; Outcome::RESULTS]) -> bool {
        // Only legal actions get a prior, but a NaN in any logit means that the network is broken.
        if policy.iter().chain(&wdl).any(|logit| !logit.is_finite()) {
            return false;
        }
        let start = self.priors.len();
        self.priors.extend(legal.iter().map(|action| policy[action.index()]));
        softmax(&mut self.priors[start..]);
        softmax(&mut wdl);
        let [win, draw, loss] = wdl;
        self.close(Wdl { win, draw, loss });
        true
    }

    /// Completes the answer whose priors were added last.
    fn close(&mut self, value: Wdl) {
        self.ends.push(u32::try_from(self.priors.len()).expect("a batch holds fewer than 2^32 legal actions"));
        self.values.push(value);
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

    /// The priors of position `i`, one per legal action, in their order.
    #[must_use]
    pub fn priors(&self, i: usize) -> &[f32] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] as usize };
        &self.priors[start..self.ends[i] as usize]
    }

    /// The value of position `i` for the player to move.
    #[must_use]
    pub fn value(&self, i: usize) -> Wdl {
        self.values[i]
    }
}

/// Converts finite logits to probabilities, in place.
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
