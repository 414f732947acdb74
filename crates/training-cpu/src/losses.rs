mod categorical;
mod unrolled;

use std::ops::Range;

use training::{Losses, TrainingBatch};

pub(crate) use self::unrolled::{ChanceRows, LossWeights, UnrolledTargets};

/// Logit of an illegal action: its prior is exactly zero, and zero times its logarithm is zero and not NaN.
const ILLEGAL: f32 = -1e9;
/// Win, draw and loss.
pub(crate) const RESULTS: usize = 3;

/// The targets of a whole batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Targets<'a> {
    pub(crate) batch: &'a TrainingBatch,
    /// `max(1, Σᵢ wᵢ)`.
    policy_weight: f64,
    value_loss_weight: f64,
}

/// Losses of some rows: those of all rows add up to those of the batch.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Sums {
    pub(crate) policy: f64,
    pub(crate) value: f64,
    pub(crate) reward: f64,
    pub(crate) consistency: f64,
    pub(crate) chance: f64,
    pub(crate) policy_entropy: f64,
    pub(crate) value_accuracy: f64,
}

/// The rows of a part: their logits, which their gradients replace, and where their value errors go.
#[derive(Debug)]
pub(crate) struct Rows<'a> {
    pub(crate) range: Range<usize>,
    /// `[rows, A]`.
    pub(crate) policy: &'a mut [f32],
    /// `[rows, 3]`.
    pub(crate) value: &'a mut [f32],
    /// `[rows]`: the distance of win − loss from its target.
    pub(crate) value_errors: &'a mut [f32],
}

impl<'a> Targets<'a> {
    /// The targets of `batch`.
    pub(crate) fn new(batch: &'a TrainingBatch, value_loss_weight: f64) -> Self {
        let policy_weight: f64 = batch.policy_weights.iter().map(|&weight| f64::from(weight)).sum();
        Self { batch, policy_weight: policy_weight.max(1.0), value_loss_weight }
    }

    /// Returns the losses of some rows and replaces logits by the gradients of the total loss.
    ///
    /// `policy = Σᵢ rᵢ wᵢ Σₐ −πᵢₐ ln pᵢₐ / max(1, Σᵢ wᵢ)` with p the softmax over legal actions and r the importance, 1
    /// without; `value = mean over i of rᵢ Σₖ −zᵢₖ ln vᵢₖ` with v the softmax over win, draw and loss.
    pub(crate) fn losses(&self, rows: Rows<'_>) -> Sums {
        let TrainingBatch { policies, legal, wdl, policy_weights, importance, .. } = self.batch;
        let positions = policy_weights.len() as f64;
        let actions = policies.len() / policy_weights.len();
        let mut sums = Sums::default();
        let logits = rows.policy.chunks_exact_mut(actions).zip(rows.value.chunks_exact_mut(RESULTS));
        for ((row, (policy, value)), error) in rows.range.zip(logits).zip(rows.value_errors) {
            let importance = importance.get(row).map_or(1.0, |&importance| f64::from(importance));
            let of_row = row * actions..(row + 1) * actions;
            let (policies, legal) = (&policies[of_row.clone()], &legal[of_row]);
            for (logit, _) in policy.iter_mut().zip(legal).filter(|(_, legal)| **legal == 0) {
                *logit = ILLEGAL;
            }
            let factor = importance * f64::from(policy_weights[row]) / self.policy_weight;
            let Row { cross, entropy } = cross_entropy(policy, policies, factor);
            for (gradient, _) in policy.iter_mut().zip(legal).filter(|(_, legal)| **legal == 0) {
                *gradient = 0.0;
            }
            sums.policy += factor * cross;
            sums.policy_entropy += entropy / positions;

            let wdl = &wdl[row * RESULTS..(row + 1) * RESULTS];
            let is_right = greatest(value) == greatest(wdl);
            sums.value_accuracy += f64::from(u8::from(is_right)) / positions;
            let factor = importance / positions;
            *error = value_error(value, wdl);
            let Row { cross, .. } = cross_entropy(value, wdl, factor * self.value_loss_weight);
            sums.value += factor * cross;
        }
        sums
    }
}

impl std::ops::AddAssign for Sums {
    fn add_assign(&mut self, other: Self) {
        self.policy += other.policy;
        self.value += other.value;
        self.reward += other.reward;
        self.consistency += other.consistency;
        self.chance += other.chance;
        self.policy_entropy += other.policy_entropy;
        self.value_accuracy += other.value_accuracy;
    }
}

impl Sums {
    /// The losses of a batch, without those of the gradient and the weights.
    pub(crate) fn losses(self, weights: LossWeights) -> Losses {
        let Self { policy, value, reward, consistency, chance, policy_entropy, value_accuracy } = self;
        Losses {
            total: policy + weights.value * value + reward + weights.consistency * consistency + chance,
            policy,
            value,
            reward,
            consistency,
            chance,
            l2: 0.0,
            gradient_norm: 0.0,
            policy_entropy,
            value_accuracy,
        }
    }
}

/// The losses of one row.
struct Row {
    cross: f64,
    entropy: f64,
}

/// Returns the cross-entropy of the softmax of `logits` against `targets` and the entropy of the softmax, and replaces
/// logits by the gradient of `factor` times the cross-entropy.
fn cross_entropy(logits: &mut [f32], targets: &[f32], factor: f64) -> Row {
    let normaliser = log_sum(logits);
    let target_sum: f64 = targets.iter().map(|&target| f64::from(target)).sum();
    let mut row = Row { cross: 0.0, entropy: 0.0 };
    for (logit, &target) in logits.iter_mut().zip(targets) {
        let (log, target) = (f64::from(*logit) - normaliser, f64::from(target));
        let share = log.exp();
        row.cross -= target * log;
        row.entropy -= share * log;
        *logit = (factor * (share * target_sum - target)) as f32;
    }
    row
}

/// The logarithm of the sum of exponentials.
fn log_sum(logits: &[f32]) -> f64 {
    let most = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    most + logits.iter().map(|&logit| (f64::from(logit) - most).exp()).sum::<f64>().ln()
}

/// The first index of the largest value.
pub(crate) fn greatest(values: &[f32]) -> usize {
    let mut best = 0;
    for (index, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = index;
        }
    }
    best
}

/// The distance of win − loss from its target, from 0 to 2.
fn value_error(logits: &[f32], wdl: &[f32]) -> f32 {
    let normaliser = log_sum(logits);
    let apart = |result: usize| (f64::from(logits[result]) - normaliser).exp() - f64::from(wdl[result]);
    (apart(0) - apart(2)).abs() as f32
}

#[cfg(test)]
mod tests {
    use training::TrainingBatch;

    use super::{Rows, Sums, Targets};

    const E: f64 = std::f64::consts::E;
    const POLICY: [f32; 6] = [0.0, 1.0, 9.0, 5.0, -5.0, 0.0];
    const VALUE: [f32; 6] = [2.0, 0.0, 0.0, 0.0, 0.0, 1.0];

    /// Two positions with three actions; the second has no policy target, the first may not play action 2.
    fn batch() -> TrainingBatch {
        TrainingBatch {
            policies: vec![0.25, 0.75, 0.0, 0.0, 0.0, 0.0],
            legal: vec![1, 1, 0, 1, 1, 1],
            wdl: vec![1.0, 0.0, 0.0, 0.5, 0.5, 0.0],
            policy_weights: vec![1.0, 0.0],
            ..TrainingBatch::default()
        }
    }

    /// The losses with these logits, their gradients, and the value errors.
    fn losses(batch: &TrainingBatch, policy: [f32; 6], value: [f32; 6]) -> (Sums, Vec<f32>, [f32; 2]) {
        let (mut policy, mut value, mut errors) = (policy, value, [0.0; 2]);
        let rows = Rows { range: 0..2, policy: &mut policy, value: &mut value, value_errors: &mut errors };
        let sums = Targets::new(batch, 0.5).losses(rows);
        (sums, [policy, value].concat(), errors)
    }

    fn close(got: f64, expected: f64) {
        assert!((got - expected).abs() < 1e-6, "{got} instead of {expected}");
    }

    #[test]
    fn losses_are_cross_entropies_over_legal_actions_and_results() {
        let (sums, ..) = losses(&batch(), POLICY, VALUE);
        close(sums.policy, -(0.25 * (1.0 / (1.0 + E)).ln() + 0.75 * (E / (1.0 + E)).ln()));
        close(sums.value, -((E * E / (E * E + 2.0)).ln() + (1.0 / (2.0 + E)).ln()) / 2.0);
        close(sums.value_accuracy, 0.5);
    }

    #[test]
    fn losses_are_weighted_by_importance_and_value_errors_are_returned_per_row() {
        let (sums, _, errors) = losses(&TrainingBatch { importance: vec![0.5, 0.25], ..batch() }, POLICY, VALUE);
        close(sums.policy, -0.5 * (0.25 * (1.0 / (1.0 + E)).ln() + 0.75 * (E / (1.0 + E)).ln()));
        close(sums.value, -(0.5 * (E * E / (E * E + 2.0)).ln() + 0.25 * (1.0 / (2.0 + E)).ln()) / 2.0);
        let (first, second) = ((E * E - 1.0) / (E * E + 2.0), (1.0 - E) / (2.0 + E));
        close(f64::from(errors[0]), 1.0 - first);
        close(f64::from(errors[1]), 0.5 - second);
    }

    #[test]
    fn gradients_are_those_of_finite_differences() {
        let batch = TrainingBatch { importance: vec![0.5, 0.25], policy_weights: vec![1.0, 0.5], ..batch() };
        let batch = TrainingBatch { policies: vec![0.25, 0.75, 0.0, 0.1, 0.2, 0.7], ..batch };
        let total = |policy, value| {
            let (sums, ..) = losses(&batch, policy, value);
            sums.policy + 0.5 * sums.value
        };
        let (_, gradient, _) = losses(&batch, POLICY, VALUE);
        for (index, gradient) in gradient.into_iter().enumerate() {
            let moved = |by: f32| {
                let (mut policy, mut value) = (POLICY, VALUE);
                if index < 6 {
                    policy[index] += by
                } else {
                    value[index - 6] += by
                }
                total(policy, value)
            };
            let difference = (moved(0.0625) - moved(-0.0625)) / 0.125;
            assert!((f64::from(gradient) - difference).abs() < 1e-3, "{index}: {gradient} instead of {difference}");
        }
    }

    #[test]
    fn a_batch_without_any_policy_target_has_a_policy_loss_of_zero() {
        let (sums, ..) = losses(&TrainingBatch { policy_weights: vec![0.0; 2], ..batch() }, POLICY, VALUE);
        assert_eq!(sums.policy.abs(), 0.0);
    }
}
