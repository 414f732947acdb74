/// The total weight of the items that a table may currently draw: `weight * 2^log2_scale`.
///
/// An item's probability is the item's weight divided by this total. Draws from several tables as one are therefore
/// distributed by [`TotalWeight::shares`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TotalWeight {
    /// The scaled weight: finite, at least 0; 0 if no item may be drawn.
    pub weight: f64,
    /// The binary exponent of the scale: finite. It is separate because weights by version grow without bound.
    pub log2_scale: f64,
}

impl TotalWeight {
    /// Returns the total weight of `items` items of weight one.
    #[must_use]
    pub fn of_items(items: u64) -> Self {
        // Exact to 2^53 items.
        Self { weight: items as f64, log2_scale: 0.0 }
    }

    /// Returns each total weight divided by the sum. Shares sum to one up to rounding, and are all zero if all total
    /// weights are. The share of the only total weight above zero is exactly 1.
    #[must_use]
    pub fn shares(totals: &[Self]) -> Vec<f64> {
        let log2 = |total: &Self| total.weight.log2() + total.log2_scale;
        // The logarithm of a zero total weight is minus infinity.
        let greatest = totals.iter().map(log2).fold(f64::NEG_INFINITY, f64::max);
        if greatest == f64::NEG_INFINITY {
            return vec![0.0; totals.len()];
        }
        let relative: Vec<f64> = totals.iter().map(|total| (log2(total) - greatest).exp2()).collect();
        let sum: f64 = relative.iter().sum();
        relative.into_iter().map(|weight| weight / sum).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::TotalWeight;

    fn total_weight(weight: f64, log2_scale: f64) -> TotalWeight {
        TotalWeight { weight, log2_scale }
    }

    #[test]
    fn shares_are_proportional_to_total_weights_and_sum_to_one() {
        let shares =
            TotalWeight::shares(&[TotalWeight::of_items(100), TotalWeight::of_items(0), TotalWeight::of_items(300)]);
        for (share, expected) in shares.iter().zip([0.25, 0.0, 0.75]) {
            assert!((share - expected).abs() < 1e-12, "{shares:?}");
        }
    }

    #[test]
    fn the_only_total_weight_above_zero_has_a_share_of_exactly_one() {
        for weight in [f64::MIN_POSITIVE, 0.3, 1e300] {
            assert_eq!(TotalWeight::shares(&[total_weight(weight, 700.0), TotalWeight::default()]), [1.0, 0.0]);
        }
    }

    #[test]
    fn total_weights_beyond_the_range_of_a_float_have_correct_shares() {
        let shares = TotalWeight::shares(&[total_weight(1.0, 1e6), total_weight(2.0, 1e6), total_weight(1.0, 0.0)]);
        assert!((shares[0] - 1.0 / 3.0).abs() < 1e-9 && (shares[1] - 2.0 / 3.0).abs() < 1e-9, "{shares:?}");
        assert_eq!(shares[2], 0.0);
    }

    #[test]
    fn all_shares_are_zero_if_all_total_weights_are_zero() {
        assert_eq!(TotalWeight::shares(&[]), Vec::<f64>::new());
        assert_eq!(TotalWeight::shares(&[TotalWeight::default(); 2]), [0.0, 0.0]);
    }
}
