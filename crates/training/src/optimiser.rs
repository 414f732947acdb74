use crate::{Error, MomentKind};

/// The rule that turns gradients into steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Optimiser {
    /// Adam with decoupled weight decay, Loshchilov and Hutter 2019, algorithm 2.
    AdamW {
        /// Decay of the mean gradient and of the mean squared gradient, each in `[0, 1)`.
        betas: [f64; 2],
        /// Added to the root of the second moment.
        epsilon: f64,
    },
    /// The sign of a mean gradient as the step, with decoupled weight decay (Chen et al. 2023, algorithm 2).
    Lion {
        /// Weights of the previous mean, first in the step and then in the stored mean; each in `[0, 1)`.
        betas: [f64; 2],
    },
    /// Momentum with orthogonalised matrices for hidden-layer weights
    /// ([`Entry::is_hidden`](crate::Entry::is_hidden)), and [`adamw`](Self::adamw) for all other parameters (Jordan
    /// et al. 2024), both with decoupled weight decay.
    Muon {
        /// Decay of the gradient sum, in `[0, 1)`; 0.95 as published.
        momentum: f64,
    },
    /// Gradient descent with heavy-ball momentum; weight decay is part of the gradient, like L2 in the loss.
    Sgd {
        /// Decay of the gradient sum, in `[0, 1)`.
        momentum: f64,
    },
}

impl Optimiser {
    /// AdamW with the published constants.
    #[must_use]
    pub const fn adamw() -> Self {
        Self::AdamW { betas: [0.9, 0.999], epsilon: 1e-8 }
    }

    /// Lion with the published constants.
    #[must_use]
    pub const fn lion() -> Self {
        Self::Lion { betas: [0.9, 0.99] }
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
            Self::Lion { betas } => betas.iter().try_for_each(|&beta| below_one("optimiser.betas", beta)),
            Self::Muon { momentum } | Self::Sgd { momentum } => below_one("optimiser.momentum", momentum),
        }
    }

    /// Returns the name prefixes of the moments in a checkpoint.
    #[must_use]
    pub fn moment_names(self) -> &'static [&'static str] {
        match self {
            Self::AdamW { .. } => &["first_moment.", "second_moment."],
            // The meaning is the same as in AdamW; the missing second moment keeps the checkpoints apart.
            Self::Lion { .. } => &["first_moment."],
            // AdamW parameters keep the mean gradient here; all other second moments are 0.
            Self::Muon { .. } => &["momentum.", "second_moment."],
            Self::Sgd { .. } => &["momentum."],
        }
    }

    /// Returns the kind of each moment, in the order of [`moment_names`](Self::moment_names).
    #[must_use]
    pub fn moment_kinds(self) -> &'static [MomentKind] {
        match self {
            Self::AdamW { .. } | Self::Muon { .. } => &[MomentKind::Gradient, MomentKind::Square],
            Self::Lion { .. } | Self::Sgd { .. } => &[MomentKind::Gradient],
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
        assert!(Optimiser::Lion { betas: [0.9, 1.0] }.check().is_err());
        assert!(Optimiser::Muon { momentum: 1.0 }.check().unwrap_err().to_string().contains("optimiser.momentum"));
    }

    #[test]
    fn every_moment_has_a_name_and_a_meaning() {
        let muon = Optimiser::Muon { momentum: 0.95 };
        for optimiser in [Optimiser::adamw(), Optimiser::lion(), muon, Optimiser::Sgd { momentum: 0.9 }] {
            assert_eq!(optimiser.moment_names().len(), optimiser.moment_kinds().len());
            let others = [Optimiser::adamw(), Optimiser::lion(), muon, Optimiser::Sgd { momentum: 0.9 }];
            let same = others.into_iter().filter(|other| other.moment_names() == optimiser.moment_names());
            assert_eq!(same.collect::<Vec<_>>(), [optimiser], "a checkpoint of another optimiser is refused");
        }
    }
}
