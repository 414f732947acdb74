/// The total weight of the items that a table may draw now: `weight * 2^log2_scale`.
///
/// An item is drawn with its own weight divided by this, so of several tables that are drawn from as one, each gets its
/// share of the sum of their masses: [`Mass::shares`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Mass {
    /// Finite, at least 0; 0 if nothing may be drawn.
    pub weight: f64,
    /// Finite. Apart from the weight, because weights by version grow without end.
    pub log2_scale: f64,
}

impl Mass {
    /// The mass of so many items that weigh one each.
    #[must_use]
    pub fn of_items(items: u64) -> Self {
        // Exact to 2^53 items.
        Self { weight: items as f64, log2_scale: 0.0 }
    }

    /// The share of each in their sum: they sum to one up to rounding, and are all zero where nothing weighs anything.
    /// The only one that weighs something has exactly 1.
    #[must_use]
    pub fn shares(masses: &[Self]) -> Vec<f64> {
        let log2 = |mass: &Self| mass.weight.log2() + mass.log2_scale;
        // Minus infinity of a mass of zero.
        let greatest = masses.iter().map(log2).fold(f64::NEG_INFINITY, f64::max);
        if greatest == f64::NEG_INFINITY {
            return vec![0.0; masses.len()];
        }
        let relative: Vec<f64> = masses.iter().map(|mass| (log2(mass) - greatest).exp2()).collect();
        let sum: f64 = relative.iter().sum();
        relative.into_iter().map(|weight| weight / sum).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Mass;

    fn mass(weight: f64, log2_scale: f64) -> Mass {
        Mass { weight, log2_scale }
    }

    #[test]
    fn shares_are_proportional_to_masses_and_sum_to_one() {
        let shares = Mass::shares(&[Mass::of_items(100), Mass::of_items(0), Mass::of_items(300)]);
        for (share, expected) in shares.iter().zip([0.25, 0.0, 0.75]) {
            assert!((share - expected).abs() < 1e-12, "{shares:?}");
        }
    }

    #[test]
    fn the_only_one_that_weighs_something_has_exactly_all() {
        for weight in [f64::MIN_POSITIVE, 0.3, 1e300] {
            assert_eq!(Mass::shares(&[mass(weight, 700.0), Mass::default()]), [1.0, 0.0]);
        }
    }

    #[test]
    fn scales_beyond_every_float_are_compared_all_the_same() {
        let shares = Mass::shares(&[mass(1.0, 1e6), mass(2.0, 1e6), mass(1.0, 0.0)]);
        assert!((shares[0] - 1.0 / 3.0).abs() < 1e-9 && (shares[1] - 2.0 / 3.0).abs() < 1e-9, "{shares:?}");
        assert_eq!(shares[2], 0.0);
    }

    #[test]
    fn where_nothing_weighs_anything_nobody_has_a_share() {
        assert_eq!(Mass::shares(&[]), Vec::<f64>::new());
        assert_eq!(Mass::shares(&[Mass::default(); 2]), [0.0, 0.0]);
    }
}
