/// What the items that a table may draw now weigh together: `weight * 2^log2_scale`.
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
mod tests;
