//! Choice of integers without a configured precision: only if they are clearly faster than floating point.

use std::sync::Arc;
use std::time::{Duration, Instant};

use inference::{Batch, Evaluator, Predictions};
use weights::{Architecture, WeightsVersion};

use crate::{KernelVariant, Tower, TowerEvaluator};

/// Minimum speed-up over floating point to use integers unasked; less is not worth the rounding.
pub const INTEGERS_SPEEDUP_MIN: f64 = 1.25;

/// Positions of a measured evaluation: two batches of the preferred size.
const POSITIONS: usize = 64;
/// Alternating evaluations of each path; the fastest counts, so that other load distorts the ratio less.
const TURNS: usize = 7;

/// An integer path to try against floating point.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IntegerTrial {
    pub(crate) path: KernelVariant,
    /// Clock for both measurements.
    pub(crate) now: fn() -> Instant,
}

/// Measured speed-up for a network.
#[derive(Debug, Clone)]
pub(crate) struct SpeedUp {
    architecture: Architecture,
    /// Floating-point path of the measurement.
    float: KernelVariant,
    /// Evaluations/s in integers divided by evaluations/s in floating point.
    pub(crate) ratio: f64,
}

impl SpeedUp {
    /// Returns whether the measurement was for this network and path.
    pub(crate) fn is_of(&self, float: &Tower) -> bool {
        self.architecture == *float.architecture() && self.float == float.path()
    }

    /// Returns whether integers are worth it.
    pub(crate) fn suffices(&self) -> bool {
        self.ratio >= INTEGERS_SPEEDUP_MIN
    }
}

impl IntegerTrial {
    /// Measures the same weights on both paths, with positions of a sample.
    pub(crate) fn measure(self, float: &Arc<Tower>, integers: &Arc<Tower>, sample: &Batch) -> SpeedUp {
        let mut positions = Batch::new(sample.shape());
        for index in 0..sample.len().min(POSITIONS) {
            positions.push(sample.legal(index), |planes| planes.copy_from_slice(sample.observation(index)));
        }
        let mut evaluators = [float, integers].map(|tower| TowerEvaluator::new(Arc::clone(tower), WeightsVersion(0)));
        let mut best = [Duration::MAX; 2];
        let mut predictions = Predictions::new();
        for _ in 0..TURNS {
            for (evaluator, best) in evaluators.iter_mut().zip(&mut best) {
                let begun = (self.now)();
                // The evaluator of these weights reports an error when it evaluates.
                let _ = evaluator.evaluate(&positions, &mut predictions);
                *best = (*best).min((self.now)().duration_since(begun));
            }
        }
        let [float_time, integer_time] = best.map(|time| time.max(Duration::from_nanos(1)).as_secs_f64());
        let ratio = float_time / integer_time;
        SpeedUp { architecture: float.architecture().clone(), float: float.path(), ratio }
    }
}
