use crate::Error;

/// The rule that turns gradients into steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Optimiser {
    /// Adam with decoupled weight decay, Loshchilov and Hutter 2019, algorithm 2.
    AdamW {
        /// Decay of the mean of gradients and of the mean of their squares, each in `[0, 1)`.
        betas: [f64; 2],
        /// Added to the root of the second moment.
        epsilon: f64,
    },
    /// Gradient descent with heavy-ball momentum; weight decay is part of the gradient, as L2 in the loss.
    Sgd {
        /// Decay of the sum of gradients, in `[0, 1)`.
        momentum: f64,
    },
}

impl Optimiser {
    /// AdamW with the constants of its paper.
    #[must_use]
    pub const fn adamw() -> Self {
        Self::AdamW { betas: [0.9, 0.999], epsilon: 1e-8 }
    }

    pub(crate) fn check(self) -> Result<(), Error> {
        let below_one = |field, got: f64| match got {
            _ if (0.0..1.0).contains(&got) => Ok(()),
            _ => Err(Error::Setting { field, got, expected: "a number from 0 to below 1" }),
        };
        match self {
            Self::AdamW { betas, epsilon } => {
                betas.iter().try_for_each(|&beta| below_one("optimiser.betas", beta))?;
                if !(epsilon > 0.0 && epsilon.is_finite()) {
                    return Err(Error::Setting { field: "optimiser.epsilon", got: epsilon, expected: "above 0" });
                }
                Ok(())
            }
            Self::Sgd { momentum } => below_one("optimiser.momentum", momentum),
        }
    }

    /// The names of the moments in a checkpoint.
    #[must_use]
    pub fn moment_names(self) -> &'static [&'static str] {
        match self {
            Self::AdamW { .. } => &["first_moment.", "second_moment."],
            Self::Sgd { .. } => &["momentum."],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Optimiser;

    #[test]
    fn constants_outside_their_range_are_refused_by_name() {
        assert!(Optimiser::Sgd { momentum: 1.0 }.check().unwrap_err().to_string().contains("optimiser.momentum"));
        assert!(Optimiser::AdamW { betas: [0.9, -0.1], epsilon: 1e-8 }.check().is_err());
        assert!(Optimiser::AdamW { betas: [0.9, 0.99], epsilon: 0.0 }.check().is_err());
    }
}
