/// The rule that chooses the next item of the window.
///
/// Equals are drawn oldest first. An item whose weight is zero is never drawn, and where the whole window weighs
/// nothing, nothing is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Selector {
    /// Each with the same probability. Costs no memory for each item unless draws are counted.
    Uniform,
    /// With a probability proportional to `priority^exponent`: proportional prioritisation (Schaul et al. 2016).
    Prioritised {
        /// α: how much priorities matter; finite, at least 0. At 0 all are equal, also those of priority 0.
        exponent: f64,
    },
    /// The oldest. With one draw for each item the table is a queue.
    Fifo,
    /// The newest. With one draw for each item the table is a stack.
    Lifo,
    /// The one of the least priority.
    MinHeap,
    /// The one of the greatest priority.
    MaxHeap,
    /// With a probability proportional to `2^(-(newest - version) / half_life_versions)`, where the version is that
    /// which searched the last step of the item's trajectory: the policy of actors ages with every publication.
    StalenessAware {
        /// By how many weights versions an item must be older than another to be drawn half as often. Finite, above 0.
        half_life_versions: f64,
    },
}

/// The reason for which a selector is rejected.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvalidSelector {
    /// The exponent of priorities is below zero or not finite.
    #[error("the exponent {0} of priorities is not a finite number of at least 0")]
    Exponent(f64),
    /// The half-life is not above zero, or not finite.
    #[error("a half-life of {0} weights versions is not a finite number above 0")]
    HalfLife(f64),
}

impl Selector {
    /// Checks the range of its parameter.
    ///
    /// # Errors
    /// The parameter out of range.
    pub fn check(self) -> Result<Self, InvalidSelector> {
        match self {
            Self::Prioritised { exponent } if !(exponent >= 0.0 && exponent.is_finite()) => {
                Err(InvalidSelector::Exponent(exponent))
            }
            Self::StalenessAware { half_life_versions }
                if !(half_life_versions > 0.0 && half_life_versions.is_finite()) =>
            {
                Err(InvalidSelector::HalfLife(half_life_versions))
            }
            _ => Ok(self),
        }
    }

    /// Returns true if its draws depend on priorities.
    #[must_use]
    pub fn uses_priorities(self) -> bool {
        matches!(self, Self::Prioritised { .. } | Self::MinHeap | Self::MaxHeap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_out_of_range_are_named() {
        let said = |selector: Selector| selector.check().unwrap_err().to_string();
        let least = "is not a finite number of at least 0";
        assert_eq!(said(Selector::Prioritised { exponent: -0.5 }), format!("the exponent -0.5 of priorities {least}"));
        assert_eq!(
            said(Selector::Prioritised { exponent: f64::NAN }),
            format!("the exponent NaN of priorities {least}")
        );
        let above = "is not a finite number above 0";
        for (half_life_versions, shown) in [(0.0, "0"), (f64::NAN, "NaN"), (f64::INFINITY, "inf")] {
            let selector = Selector::StalenessAware { half_life_versions };
            assert_eq!(said(selector), format!("a half-life of {shown} weights versions {above}"));
        }
    }

    #[test]
    fn selectors_without_parameters_pass() {
        for selector in [Selector::Uniform, Selector::Fifo, Selector::Lifo, Selector::MinHeap, Selector::MaxHeap] {
            assert_eq!(selector.check(), Ok(selector));
        }
    }
}
