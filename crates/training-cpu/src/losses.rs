//! Losses of batch rows, and the gradients of the logits.

mod categorical;
mod positions;
mod unrolled;

use std::ops::Range;

use training::{Examples, Losses, Observations};
use weights::Architecture;

use self::positions::PositionTargets;
pub(crate) use self::unrolled::{ChanceRows, UnrolledTargets};
use crate::graph::Observation;

/// Targets of a whole batch, with the observations.
#[derive(Debug)]
pub(crate) enum Targets<'a> {
    /// Targets of positions.
    Positions(PositionTargets<'a>),
    /// Targets of positions and the steps after them.
    Unrolled(UnrolledTargets<'a>),
}

impl<'a> Targets<'a> {
    /// Returns the targets of checked examples, for losses with these weights.
    pub(crate) fn new(architecture: &Architecture, examples: &'a Examples, weights: Losses) -> Self {
        match examples {
            Examples::Positions(batch) => Self::Positions(PositionTargets::new(batch, weights)),
            Examples::Unrolled(batch) => Self::Unrolled(UnrolledTargets::new(architecture, batch, weights)),
        }
    }

    /// Returns the targets of an unrolled batch.
    ///
    /// # Panics
    /// If the batch has no steps: only graphs for unrolled batches have operations that call this.
    pub(crate) fn unrolled(&self) -> &UnrolledTargets<'a> {
        match self {
            Self::Unrolled(targets) => targets,
            Self::Positions(_) => unreachable!("the examples were checked"),
        }
    }

    /// Returns the observations that contain the observation of a row, and the index within them.
    pub(crate) fn observation(&self, row: usize, observation: Observation) -> (&'a Observations, usize) {
        match self {
            Self::Positions(targets) => (targets.observations(), row),
            Self::Unrolled(targets) => targets.observation(row, observation),
        }
    }

    /// Adds the policy losses of rows at step k, and overwrites the logits `[rows, A]` with their gradient.
    pub(crate) fn policy(&self, rows: Range<usize>, step: usize, logits: &mut [f32], sums: &mut Losses) {
        match self {
            Self::Positions(targets) => targets.policy(rows, logits, sums),
            Self::Unrolled(targets) => targets.policy(rows, step, logits, sums),
        }
    }

    /// Adds the value losses of rows at step k, and overwrites the logits with the gradient. At the roots it appends
    /// the distance of each value from the target to `errors`.
    pub(crate) fn value(
        &self,
        rows: Range<usize>,
        step: usize,
        logits: &mut [f32],
        sums: &mut Losses,
        errors: &mut Vec<f32>,
    ) {
        match self {
            Self::Positions(targets) => targets.value(rows, logits, sums, errors),
            Self::Unrolled(targets) => targets.value(rows, step, logits, sums, errors),
        }
    }
}

/// Cross-entropy and entropy of one row.
struct Row {
    cross: f64,
    entropy: f64,
}

/// Returns the cross-entropy of the softmax of `logits` against `targets`, and the softmax entropy. Overwrites the
/// logits with the gradient of `factor` times the cross-entropy.
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

/// Returns the logarithm of the sum of exponentials.
fn log_sum(logits: &[f32]) -> f64 {
    let most = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    most + logits.iter().map(|&logit| (f64::from(logit) - most).exp()).sum::<f64>().ln()
}

/// Returns the first index of the largest value.
pub(crate) fn greatest(values: &[f32]) -> usize {
    let mut best = 0;
    for (index, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = index;
        }
    }
    best
}
