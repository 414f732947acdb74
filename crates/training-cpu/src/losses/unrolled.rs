//! Losses of MuZero over a position and the K steps after it (Schrittwieser et al. 2020, appendix G). With K = 0 they
//! are the losses of an AlphaZero network of returns.

use std::ops::Range;

use training::{Losses, Observations, UnrolledBatch};
use weights::Architecture;

use super::{categorical, cross_entropy, greatest};
use crate::graph::Observation;

/// A root value counts as accurate within this share of `1 + |target|`.
const ACCURATE: f64 = 0.1;
/// Minimum norm in the division of a projection.
const NORM_MIN: f64 = 1e-5;

/// Targets of a whole batch, with the observations.
///
/// With `s₀ = 1`, `sₖ = 1 / K`, r the importance (1 without), w the weights and B the rows of the batch:
///
/// `policy = Σᵢₖ sₖ rᵢ wᵢₖ Σₐ −πᵢₖₐ ln pᵢₖₐ / policy_weight` with p the softmax over all actions and
/// `policy_weight = max(1, Σₖ sₖ Σᵢ wᵢₖ / Σₖ sₖ)`, `value = Σᵢₖ sₖ rᵢ wᵢₖ H(two-hot of zᵢₖ, vᵢₖ) / B` and, over k ≥
/// 1, `reward = Σᵢₖ sₖ rᵢ wᵢₖ₋₁ H(two-hot of uᵢₖ, ûᵢₖ) / B` with the cross-entropy H. A reward has the value weight
/// of the state before the action.
#[derive(Debug)]
pub(crate) struct UnrolledTargets<'a> {
    batch: &'a UnrolledBatch,
    positions: usize,
    actions: usize,
    policy_weight: f64,
    weights: Losses,
}

/// Inputs of the chance loss for a range of rows, which are overwritten with the gradients.
#[derive(Debug)]
pub(crate) struct ChanceRows<'a> {
    /// `[rows, M]`.
    pub(crate) logits: &'a mut [f32],
    /// `[rows, M]`: the index of the largest number is the code.
    pub(crate) encodings: &'a mut [f32],
}

impl<'a> UnrolledTargets<'a> {
    /// Returns the targets of the checked `batch`.
    pub(crate) fn new(architecture: &Architecture, batch: &'a UnrolledBatch, weights: Losses) -> Self {
        let states = batch.unroll_steps + 1;
        let share = |step: usize| step_share(step, batch.unroll_steps);
        let of_policies = batch.policy_weights.iter().enumerate();
        let policy_weight: f64 = of_policies.map(|(index, &weight)| share(index % states) * f64::from(weight)).sum();
        let shares: f64 = (0..states).map(share).sum();
        Self {
            batch,
            positions: batch.policy_weights.len() / states,
            actions: architecture.actions,
            policy_weight: (policy_weight / shares).max(1.0),
            weights,
        }
    }

    /// Returns the action of a row at a step (0-based).
    pub(crate) fn action(&self, row: usize, step: usize) -> usize {
        usize::from(self.batch.actions[row * self.batch.unroll_steps + step])
    }

    /// Returns the observations that contain the observation of a row, and the index within them.
    pub(crate) fn observation(&self, row: usize, observation: Observation) -> (&'a Observations, usize) {
        match observation {
            Observation::Root => (&self.batch.observations, row),
            Observation::After(step) => (&self.batch.next_observations, row * self.batch.unroll_steps + step),
        }
    }

    /// Adds the policy losses of rows at step k, and overwrites the logits `[rows, A]` with their gradient.
    pub(crate) fn policy(&self, rows: Range<usize>, step: usize, logits: &mut [f32], sums: &mut Losses) {
        for (row, logits) in rows.zip(logits.chunks_exact_mut(self.actions)) {
            let state = self.state(row, step);
            let policy = &self.batch.policies[state * self.actions..(state + 1) * self.actions];
            let weight = f64::from(self.batch.policy_weights[state]);
            let factor = self.share(row, step) * weight / self.policy_weight;
            let of_row = cross_entropy(logits, policy, factor * self.weights.policy);
            sums.policy += factor * of_row.cross;
            if step == 0 {
                sums.policy_entropy += of_row.entropy / self.positions as f64;
            }
        }
    }

    /// Adds the value losses of rows at step k, and overwrites the logits `[rows, 2n + 1]` with their gradient. At
    /// the roots it appends the distance of each value from the target to `errors`, 0 without a value target.
    pub(crate) fn value(
        &self,
        rows: Range<usize>,
        step: usize,
        logits: &mut [f32],
        sums: &mut Losses,
        errors: &mut Vec<f32>,
    ) {
        for (row, logits) in self.by_row(rows, logits) {
            let state = self.state(row, step);
            let (target, weight) = (self.batch.values[state], f64::from(self.batch.value_weights[state]));
            let factor = self.share(row, step) * weight / self.positions as f64;
            let of_row = categorical::cross_entropy(logits, target, factor * self.weights.value);
            sums.value += factor * of_row.cross;
            if step == 0 {
                let (target, apart) = (f64::from(target), (of_row.value - f64::from(target)).abs());
                let is_accurate = apart <= ACCURATE * (1.0 + target.abs());
                sums.value_accuracy += f64::from(u8::from(is_accurate)) / self.positions as f64;
                errors.push((apart * weight) as f32);
            }
        }
    }

    /// Adds the reward losses of a step (0-based), and overwrites the logits `[rows, 2n + 1]` with their gradient.
    pub(crate) fn reward(&self, rows: Range<usize>, step: usize, logits: &mut [f32], sums: &mut Losses) {
        for (row, logits) in self.by_row(rows, logits) {
            let factor = self.after_action(row, step, &self.batch.value_weights, self.batch.unroll_steps + 1);
            let target = self.batch.rewards[row * self.batch.unroll_steps + step];
            let of_row = categorical::cross_entropy(logits, target, factor * self.weights.reward);
            sums.reward += factor * of_row.cross;
        }
    }

    /// Adds the value losses of the afterstates of a step (0-based), and overwrites the logits with their gradient.
    /// The afterstate of an action has the value target of the state before the action (Antonoglou et al. 2022).
    pub(crate) fn afterstate(&self, rows: Range<usize>, step: usize, logits: &mut [f32], sums: &mut Losses) {
        for (row, logits) in self.by_row(rows, logits) {
            let factor = self.after_action(row, step, &self.batch.value_weights, self.batch.unroll_steps + 1);
            let target = self.batch.values[self.state(row, step)];
            let of_row = categorical::cross_entropy(logits, target, factor * self.weights.value);
            sums.value += factor * of_row.cross;
        }
    }

    /// Adds `Σᵢ rᵢ uᵢₖ (−ln σᵢₖ(cᵢₖ) + ‖cᵢₖ − eᵢₖ‖²) / (K B)` of a step, with the code c of the encoding e and the
    /// chance weight u, and overwrites logits and encodings with the gradients; c has none.
    pub(crate) fn chance(&self, rows: Range<usize>, step: usize, chance: ChanceRows<'_>, sums: &mut Losses) {
        let codes = chance.logits.len() / rows.len();
        let of_rows = chance.logits.chunks_exact_mut(codes).zip(chance.encodings.chunks_exact_mut(codes));
        let mut code = vec![0.0; codes];
        for (row, (logits, encoding)) in rows.zip(of_rows) {
            let factor = self.after_action(row, step, &self.batch.chance_weights, self.batch.unroll_steps);
            let weighted = factor * self.weights.chance;
            code.fill(0.0);
            code[greatest(encoding)] = 1.0;
            let mut apart = 0.0;
            for (encoding, code) in encoding.iter_mut().zip(&code) {
                let distance = f64::from(*encoding) - f64::from(*code);
                apart += distance * distance;
                *encoding = (2.0 * weighted * distance) as f32;
            }
            sums.chance += factor * (cross_entropy(logits, &code, weighted).cross + apart);
        }
    }

    /// Adds `Σᵢ rᵢ mᵢₖ (1 − cos(predicted, observed)) / (K B)` of a step with the next-observation weights m (Ye et
    /// al. 2021, section 4.1), and overwrites the predicted projections `[rows, units]` with the gradients.
    pub(crate) fn consistency(
        &self,
        rows: Range<usize>,
        step: usize,
        observed: &[f32],
        predicted: &mut [f32],
        sums: &mut Losses,
    ) {
        let units = predicted.len() / rows.len();
        let of_rows = predicted.chunks_exact_mut(units).zip(observed.chunks_exact(units));
        for (row, (predicted, observed)) in rows.zip(of_rows) {
            let factor = self.after_action(row, step, &self.batch.next_weights, self.batch.unroll_steps);
            let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
            let norm = dot(predicted, predicted).sqrt();
            let inverse = 1.0 / (norm.max(NORM_MIN) * dot(observed, observed).sqrt().max(NORM_MIN));
            let cosine = dot(predicted, observed) * inverse;
            // A norm below the minimum counts as a constant.
            let along = if norm > NORM_MIN { cosine / (norm * norm) } else { 0.0 };
            sums.consistency += factor * (1.0 - cosine);
            let factor = factor * self.weights.consistency;
            for (predicted, observed) in predicted.iter_mut().zip(observed) {
                let of_cosine = f64::from(*observed) * inverse - f64::from(*predicted) * along;
                *predicted = (-factor * of_cosine) as f32;
            }
        }
    }

    /// Returns the state index of a row at step k.
    fn state(&self, row: usize, step: usize) -> usize {
        row * (self.batch.unroll_steps + 1) + step
    }

    /// Returns `sₖ rᵢ`.
    fn share(&self, row: usize, step: usize) -> f64 {
        let importance = self.batch.importance.get(row).map_or(1.0, |&importance| f64::from(importance));
        step_share(step, self.batch.unroll_steps) * importance
    }

    /// Returns the multiplier of a loss after an action; `weights` has `stride` entries per row.
    fn after_action(&self, row: usize, step: usize, weights: &[f32], stride: usize) -> f64 {
        self.share(row, step + 1) * f64::from(weights[row * stride + step]) / self.positions as f64
    }

    /// Iterates over rows with their logits.
    fn by_row<'b>(
        &self,
        rows: Range<usize>,
        logits: &'b mut [f32],
    ) -> impl Iterator<Item = (usize, &'b mut [f32])> + use<'b> {
        let outputs = logits.len() / rows.len();
        rows.zip(logits.chunks_exact_mut(outputs))
    }
}

/// Returns s, the share of a step in a loss.
fn step_share(step: usize, steps: usize) -> f64 {
    if step == 0 { 1.0 } else { 1.0 / steps as f64 }
}
