//! Decides whether a version may run in a lower precision, by comparing predictions for positions of the run.

use std::fmt;
use std::sync::Arc;

use inference::{Batch, Evaluator, Predictions};
use weights::WeightsVersion;

use crate::folded::Folded;
use crate::{Error, KernelVariant, Tower, TowerEvaluator};

/// Maximum drift for a lower precision. 8-bit integers were measured below 0.0001 nats and at 0.008 with trained
/// weights of Connect Four (`crates/strength/examples/kernel_paths.rs`).
const DIVERGENCE_MAX: f64 = 0.01;
const VALUE_MAX: f64 = 0.03;

/// Mean distance between the predictions of two evaluators over positions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drift {
    /// Kullback-Leibler divergence of the priors, in nats.
    pub divergence: f64,
    /// Distance between the values (win − loss).
    pub value: f64,
}

impl Drift {
    /// Measures the drift between two packings of a version, over at least one position. Weights that predict NaN
    /// have a drift of NaN.
    pub(crate) fn on(positions: &Batch, fine: &Arc<Tower>, coarse: &Arc<Tower>) -> Self {
        let answers = |tower: &Arc<Tower>| {
            let mut predictions = Predictions::new();
            let answer =
                TowerEvaluator::new(Arc::clone(tower), WeightsVersion(0)).evaluate(positions, &mut predictions);
            answer.map(|()| predictions)
        };
        match (answers(fine), answers(coarse)) {
            (Ok(fine), Ok(coarse)) => Self::between(&fine, &coarse),
            // The evaluator of these weights reports the error when it evaluates.
            _ => Self { divergence: f64::NAN, value: f64::NAN },
        }
    }

    /// Computes the drift between predictions for the same positions.
    ///
    /// # Panics
    /// If there are no predictions, or the two counts differ.
    #[must_use]
    pub fn between(fine: &Predictions, coarse: &Predictions) -> Self {
        assert!(fine.len() == coarse.len() && !fine.is_empty(), "answers to the same positions, at least one");
        let (mut divergence, mut value) = (0.0, 0.0);
        for index in 0..fine.len() {
            let priors = fine.priors(index).iter().zip(coarse.priors(index));
            divergence += priors
                .map(|(&fine, &coarse)| (f64::from(fine), f64::from(coarse).max(1e-9)))
                .filter(|(fine, _)| *fine > 0.0)
                .map(|(fine, coarse)| fine * (fine / coarse).ln())
                .sum::<f64>();
            value += f64::from((fine.value(index) - coarse.value(index)).abs());
        }
        let positions = fine.len() as f64;
        Self { divergence: divergence / positions, value: value / positions }
    }

    /// Returns whether the coarser evaluator may be used.
    #[must_use]
    pub fn is_small(self) -> bool {
        // Written so that NaN is not small.
        self.divergence <= DIVERGENCE_MAX && self.value <= VALUE_MAX
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "priors by {:.4} nats, values by {:.4}", self.divergence, self.value)
    }
}

/// Calibrates a version on every second position of the sample, and checks it against floating point on the rest; the
/// inner error is a drift that is too large.
///
/// # Errors
/// The same as [`Tower::new`].
pub(crate) fn quantise(
    folded: &Folded,
    path: KernelVariant,
    float: &Arc<Tower>,
    sample: &Batch,
) -> Result<Result<Arc<Tower>, Drift>, Error> {
    let (calibration, check) = (every_other(sample, 0), every_other(sample, 1));
    let observations = calibration.observations();
    let ranges = match float.path() == path.base() {
        true => float.ranges(observations),
        false => Tower::from_folded(folded, path.base(), None)?.ranges(observations),
    };
    let tower = Arc::new(Tower::from_folded(folded, path, Some(&ranges))?);
    let drift = Drift::on(&check, float, &tower);
    Ok(if drift.is_small() { Ok(tower) } else { Err(drift) })
}

fn every_other(sample: &Batch, first: usize) -> Batch {
    let mut half = Batch::new(sample.shape());
    for index in (first..sample.len()).step_by(2) {
        half.push(sample.legal(index), |planes| planes.copy_from_slice(sample.observation(index)));
    }
    half
}

#[cfg(test)]
mod tests {
    use inference::Wdl;

    use super::*;

    fn answers(priors: &[f32], win: f32) -> Predictions {
        let mut predictions = Predictions::new();
        predictions.push(priors, Wdl { win, draw: 0.0, loss: 1.0 - win });
        predictions
    }

    #[test]
    fn drift_is_divergence_and_distance_on_average() {
        let (mut fine, mut coarse) = (answers(&[0.5, 0.5], 0.75), answers(&[0.25, 0.75], 0.5));
        let one = Drift::between(&fine, &coarse);
        let divergence = 0.5 * 2.0_f64.ln() + 0.5 * (2.0_f64 / 3.0).ln();
        assert!((one.divergence - divergence).abs() < 1e-9 && (one.value - 0.5).abs() < 1e-6, "{one:?}");
        for both in [&mut fine, &mut coarse] {
            both.push(&[1.0, 0.0], Wdl { win: 1.0, draw: 0.0, loss: 0.0 });
        }
        let two = Drift::between(&fine, &coarse);
        assert!((two.divergence - divergence / 2.0).abs() < 1e-9 && (two.value - 0.25).abs() < 1e-6, "{two:?}");
    }

    #[test]
    fn a_drift_with_nan_or_a_large_number_is_not_small() {
        assert!(Drift { divergence: 0.0, value: 0.0 }.is_small());
        for (divergence, value) in [(f64::NAN, 0.0), (0.0, f64::NAN), (0.5, 0.0), (0.0, 0.5)] {
            assert!(!Drift { divergence, value }.is_small());
        }
    }

    #[test]
    fn a_prior_of_zero_yields_a_large_but_finite_divergence() {
        let drift = Drift::between(&answers(&[0.5, 0.5], 0.5), &answers(&[1.0, 0.0], 0.5));
        assert!(drift.divergence.is_finite() && !drift.is_small(), "{drift}");
    }
}
