use crate::Error;

/// Decay of the learning rate with the progress of a run, from 0 to 1.
#[derive(Debug, Clone, PartialEq)]
pub enum Decay {
    /// The learning rate does not decay.
    Constant,
    /// Half a cosine from the peak learning rate to `floor` times the peak.
    Cosine {
        /// Share of the peak that remains at the end, from 0 to 1.
        floor: f64,
    },
}

impl Decay {
    /// Returns the learning rate at `progress`, as a share of the peak.
    #[must_use]
    pub fn factor(&self, progress: f64) -> f64 {
        match self {
            Self::Constant => 1.0,
            Self::Cosine { floor } => floor + (1.0 - floor) * 0.5 * (1.0 + (std::f64::consts::PI * progress).cos()),
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        match *self {
            Self::Cosine { floor: got } if !(0.0..=1.0).contains(&got) => {
                Err(Error::Setting { field: "decay.floor", got, expected: "a share from 0 to 1" })
            }
            Self::Constant | Self::Cosine { .. } => Ok(()),
        }
    }
}

/// Returns the learning rate in training step `step` (0-based), as a share of the peak. The warm-up is linear over the
/// first `steps` steps.
pub(crate) fn warm_up(step: u64, steps: u64) -> f64 {
    if step >= steps { 1.0 } else { (step + 1) as f64 / (steps + 1) as f64 }
}

#[cfg(test)]
mod tests {
    use super::{Decay, warm_up};

    #[test]
    fn a_cosine_falls_from_the_peak_to_its_floor_through_the_middle() {
        let cosine = Decay::Cosine { floor: 0.1 };
        let factors = [0.0, 0.5, 1.0].map(|progress| cosine.factor(progress));
        for (got, expected) in factors.into_iter().zip([1.0, 0.55, 0.1]) {
            assert!((got - expected).abs() < 1e-12, "{factors:?}");
        }
    }

    #[test]
    fn the_warm_up_is_a_line_that_never_gives_zero() {
        assert_eq!([0, 1, 2, 3, 9].map(|step| warm_up(step, 3)), [0.25, 0.5, 0.75, 1.0, 1.0]);
        assert_eq!(warm_up(0, 0), 1.0);
    }

    #[test]
    fn shares_outside_their_range_are_refused_by_name() {
        let error = Decay::Cosine { floor: f64::NAN }.check().unwrap_err();
        assert_eq!(error.to_string(), "setting `decay.floor` is NaN, expected a share from 0 to 1");
        assert!(Decay::Cosine { floor: 1.5 }.check().is_err());
    }
}
