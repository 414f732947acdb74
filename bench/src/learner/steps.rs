//! The results of the first training steps, which are the same in every backend.

use anyhow::ensure;
use network_torch::Precision;
use serde::Deserialize;
use training::{Losses, checkpoint};

use super::inputs::Inputs;

/// Number of first steps with compared results. Losses of the second and third step depend on the gradient, clipping
/// and the optimiser.
pub(super) const CHECKED_STEPS: usize = 3;
/// Maximum relative difference between the norms of the averaged weights.
const AVERAGE_TOLERANCE: f64 = 1e-3;

/// Results of the first [`CHECKED_STEPS`] steps.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct FirstSteps {
    /// Total, policy and value loss and gradient norm of each step, before it changed the weights.
    losses: Vec<[f64; 4]>,
    /// Euclidean norm of the averaged parameters and running statistics after these steps.
    average_norm: f64,
}

impl FirstSteps {
    /// Returns the results of steps with these losses; `published` is the file of the averaged weights.
    ///
    /// # Errors
    /// The file holds another network.
    pub(super) fn new(losses: &[Losses], published: &[u8], inputs: &Inputs) -> anyhow::Result<Self> {
        let layout = inputs.settings.layers(&inputs.architecture)?.layout();
        let average = checkpoint::read(&layout.published(), published)?;
        let numbers = average.parameters.iter().chain(&average.statistics);
        let average_norm = numbers.map(|&number| f64::from(number).powi(2)).sum::<f64>().sqrt();
        let of_step = |losses: &Losses| [losses.total, losses.policy, losses.value, losses.gradient_norm];
        Ok(Self { losses: losses.iter().map(of_step).collect(), average_norm })
    }

    /// Checks that another backend computed the same, up to rounding in `precision`.
    ///
    /// # Errors
    /// The results differ; the error gives the first difference.
    pub(super) fn check(&self, other: &Self, precision: Precision) -> anyhow::Result<()> {
        let tolerance = match precision {
            Precision::F32 => 5e-3,
            Precision::Bf16 | Precision::F16 => 5e-2,
        };
        let agree = |a: f64, b: f64, tolerance: f64| (a - b).abs() <= tolerance * b.abs().max(1e-3);
        ensure!(self.losses.len() == other.losses.len(), "{} steps were taken", self.losses.len());
        for (step, (ours, others)) in self.losses.iter().zip(&other.losses).enumerate() {
            for ((what, a), b) in ["total", "policy", "value", "gradient norm"].iter().zip(ours).zip(others) {
                ensure!(agree(*a, *b, tolerance), "step {}: {what} is {a:.5}, not {b:.5}", step + 1);
            }
        }
        let (a, b) = (self.average_norm, other.average_norm);
        ensure!(agree(a, b, AVERAGE_TOLERANCE), "the norm of the average is {a:.5}, not {b:.5}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_differ_by_more_than_rounding_are_named() {
        let steps = || FirstSteps { losses: vec![[3.0, 2.0, 1.0, 4.0]; CHECKED_STEPS], average_norm: 30.0 };
        let error = |spoil: fn(&mut FirstSteps), precision| {
            let mut spoilt = steps();
            spoil(&mut spoilt);
            spoilt.check(&steps(), precision).err().map(|error| error.to_string())
        };
        assert_eq!(error(|steps| steps.losses[1][3] *= 1.004, Precision::F32), None);
        let norm = error(|steps| steps.losses[1][3] *= 1.01, Precision::F32).unwrap();
        assert_eq!(norm, "step 2: gradient norm is 4.04000, not 4.00000");
        assert_eq!(error(|steps| steps.losses[1][3] *= 1.01, Precision::Bf16), None);
        assert!(error(|steps| steps.losses[2][1] = f64::NAN, Precision::Bf16).unwrap().contains("policy is NaN"));
        assert!(error(|steps| steps.average_norm = 30.1, Precision::Bf16).unwrap().contains("average"));
        assert!(error(|steps| steps.losses.truncate(1), Precision::F32).unwrap().contains("1 steps"));
    }
}
