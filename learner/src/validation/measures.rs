//! Measures losses, accuracy and calibration of the predictions for validation, in float64.

use inference::Wdl;
use metrics::gauge;
use weights::WeightsVersion;

use super::buffer::{Row, ValueTarget};

/// M, the number of bins in the calibration error, as in Guo et al. (2017).
const BINS: usize = 15;

/// Validation measures of one weights version on all positions in the buffer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Measures {
    /// Number of evaluated positions.
    pub(crate) positions: usize,
    /// Cross-entropy of the priors against the search policies, in nats: the mean weighted by policy weights.
    pub(crate) policy_loss: f64,
    /// Fraction of positions in which the move with the highest prior is among the most visited moves, weighted by
    /// policy weights.
    pub(crate) policy_accuracy: f64,
    /// Cross-entropy of win, draw and loss against the targets, in nats; `None` if the network predicts no
    /// probabilities.
    pub(crate) value_loss: Option<f64>,
    /// Mean squared distance between values and targets; both are win minus loss, or returns.
    pub(crate) value_squared_error: f64,
    /// Expected calibration error of the expected score, from 0 to 1 ([`Calibration::error`]); `None` in games scored
    /// by rewards.
    pub(crate) calibration_error: Option<f64>,
}

impl Measures {
    /// Exports the measures of this version as metrics.
    pub(crate) fn export(&self, version: WeightsVersion) {
        gauge!("zerofleet_learner_validation_weights_version").set(version.0 as f64);
        gauge!("zerofleet_learner_validation_positions").set(self.positions as f64);
        gauge!("zerofleet_learner_validation_loss", "part" => "policy").set(self.policy_loss);
        gauge!("zerofleet_learner_validation_policy_accuracy").set(self.policy_accuracy);
        gauge!("zerofleet_learner_validation_value_squared_error").set(self.value_squared_error);
        if let Some(loss) = self.value_loss {
            gauge!("zerofleet_learner_validation_loss", "part" => "value").set(loss);
        }
        if let Some(error) = self.calibration_error {
            gauge!("zerofleet_learner_validation_calibration_error").set(error);
        }
    }

    /// Exports the measures that are comparable between boards, for an additional board of the run.
    pub(crate) fn export_of(&self, board: &str) {
        let board = || board.to_owned();
        gauge!("zerofleet_learner_board_validation_loss", "board" => board(), "part" => "policy").set(self.policy_loss);
        gauge!("zerofleet_learner_board_validation_policy_accuracy", "board" => board()).set(self.policy_accuracy);
        gauge!("zerofleet_learner_board_validation_value_squared_error", "board" => board())
            .set(self.value_squared_error);
        if let Some(loss) = self.value_loss {
            gauge!("zerofleet_learner_board_validation_loss", "board" => board(), "part" => "value").set(loss);
        }
    }
}

/// Sums of the measures over rows.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    positions: usize,
    policy_weight: f64,
    policy: f64,
    right: f64,
    wdl_rows: usize,
    wdl: f64,
    value_weight: f64,
    squares: f64,
    calibration: Calibration,
}

impl Sums {
    /// Adds a row with the predicted `priors` over the row's actions, the predicted value, and the outcome
    /// probabilities `wdl` if the network predicts them. Returns the distance between value and target; 0 without a
    /// target.
    pub(crate) fn add(&mut self, row: &Row, priors: &[f32], value: f32, wdl: Option<Wdl>) -> f32 {
        let weight = f64::from(row.policy_weight);
        self.positions += 1;
        if weight > 0.0 {
            self.policy_weight += weight;
            self.policy += weight * cross_entropy(&row.policy, priors);
            let most = row.policy.iter().copied().fold(0.0, f32::max);
            let is_right = likeliest(priors).is_some_and(|action| row.policy[action] >= most);
            self.right += if is_right { weight } else { 0.0 };
        }
        if let (ValueTarget::Wdl(target), Some(Wdl { win, draw, loss })) = (&row.value, wdl) {
            self.wdl_rows += 1;
            self.wdl += cross_entropy(target, &[win, draw, loss]);
        }
        if let Some(score) = row.score {
            // The expected score is win + draw / 2 = (1 + win − loss) / 2.
            self.calibration.add((1.0 + f64::from(value)) / 2.0, f64::from(score));
        }
        let (target, weight) = row.value.scalar();
        if weight <= 0.0 {
            return 0.0;
        }
        let distance = f64::from(value) - f64::from(target);
        self.value_weight += f64::from(weight);
        self.squares += f64::from(weight) * distance * distance;
        distance.abs() as f32
    }

    /// Returns the measures of all added rows; `None` without rows.
    pub(crate) fn measures(&self) -> Option<Measures> {
        let share = |sum: f64, of: f64| if of > 0.0 { sum / of } else { 0.0 };
        (self.positions > 0).then(|| Measures {
            positions: self.positions,
            policy_loss: share(self.policy, self.policy_weight),
            policy_accuracy: share(self.right, self.policy_weight),
            value_loss: (self.wdl_rows > 0).then(|| self.wdl / self.wdl_rows as f64),
            value_squared_error: share(self.squares, self.value_weight),
            calibration_error: self.calibration.error(),
        })
    }
}

/// Predicted and actual scores, summed in bins by predicted score.
#[derive(Debug, Default)]
pub(crate) struct Calibration {
    bins: [Bin; BINS],
}

#[derive(Debug, Default, Clone, Copy)]
struct Bin {
    rows: usize,
    predicted: f64,
    realised: f64,
}

impl Calibration {
    /// Adds a predicted expected score and the actual score, both from 0 to 1: 1 for a win, ½ for a draw.
    pub(crate) fn add(&mut self, predicted: f64, realised: f64) {
        let predicted = predicted.clamp(0.0, 1.0);
        // The cast truncates; a score of 1 belongs to the last bin.
        let bin = &mut self.bins[((predicted * BINS as f64) as usize).min(BINS - 1)];
        bin.rows += 1;
        bin.predicted += predicted;
        bin.realised += realised;
    }

    /// Returns the expected calibration error `Σₘ |Bₘ| / n · |actual(Bₘ) − predicted(Bₘ)|` over M bins Bₘ of equal
    /// width, with mean scores (Naeini et al. 2015; Guo et al. 2017, equation 3, with scores instead of accuracy and
    /// confidence). Returns `None` without rows.
    pub(crate) fn error(&self) -> Option<f64> {
        let rows: usize = self.bins.iter().map(|bin| bin.rows).sum();
        let apart: f64 = self.bins.iter().map(|bin| (bin.realised - bin.predicted).abs()).sum();
        (rows > 0).then(|| apart / rows as f64)
    }
}

/// Returns the cross-entropy `Σ −πₐ ln pₐ`; a probability of 0 counts as the smallest positive float.
fn cross_entropy(targets: &[f32], probabilities: &[f32]) -> f64 {
    let term = |(&target, &p): (&f32, &f32)| match target {
        0.0 => 0.0,
        _ => -f64::from(target) * f64::from(p.max(f32::MIN_POSITIVE)).ln(),
    };
    targets.iter().zip(probabilities).map(term).sum()
}

/// Returns the index of the largest probability; the first index in a tie.
fn likeliest(probabilities: &[f32]) -> Option<usize> {
    (0..probabilities.len()).rev().max_by(|&a, &b| probabilities[a].total_cmp(&probabilities[b]))
}

#[cfg(test)]
mod tests;
