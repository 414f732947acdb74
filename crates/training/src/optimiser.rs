use crate::{Error, MomentKind};

/// The rule that computes parameter updates from gradients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Optimiser {
    /// Adam with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2).
    AdamW {
        /// Decay rates of the mean gradient and of the mean squared gradient, each in `[0, 1)`.
        betas: [f64; 2],
        /// Term added to the root of the second moment.
        epsilon: f64,
    },
    /// The sign of an interpolated mean gradient, with decoupled weight decay (Chen et al. 2023, algorithm 2).
    Lion {
        /// Weights of the previous mean, first in the update and then in the stored mean, each in `[0, 1)`.
        betas: [f64; 2],
    },
    /// Orthogonalised momentum for the weights of hidden layers ([`Entry::is_hidden`](crate::Entry::is_hidden)), and
    /// [`adamw`](Self::adamw) for all other parameters (Jordan et al. 2024). Both have decoupled weight decay.
    Muon {
        /// Decay rate of the gradient sum, in `[0, 1)`; the publication uses 0.95.
        momentum: f64,
    },
    /// Gradient descent with heavy-ball momentum. Weight decay is added to the gradient, like an L2 term in the loss.
    Sgd {
        /// Decay rate of the gradient sum, in `[0, 1)`.
        momentum: f64,
    },
}

impl Optimiser {
    /// Returns AdamW with the published constants.
    #[must_use]
    pub const fn adamw() -> Self {
        Self::AdamW { betas: [0.9, 0.999], epsilon: 1e-8 }
    }

    /// Returns Lion with the published constants.
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
            // The first moment has the same meaning as in AdamW. The missing second moment distinguishes the
            // checkpoints.
            Self::Lion { .. } => &["first_moment."],
            // For parameters updated with AdamW, `momentum` contains the mean gradient. All other parameters have
            // second moments of 0.
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
