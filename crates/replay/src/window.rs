/// How far back the table may draw: a power law in the number of items ever inserted, under a hard capacity.
///
/// `N_w = c · (1 + β · ((N / c)^α − 1) / α)`, KataGo (Wu 2020), appendix C. Up to `c` items the window is everything;
/// there its slope is β, later it flattens. Early data are the worst, so the window lets go of them while it grows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// c: items up to which everything is drawn from. At least one.
    pub items_min: u64,
    /// α: in `(0, 1]`; one makes the growth linear.
    pub exponent: f64,
    /// β: in `(0, 1]`; the share of each new item by which the window grows at `c`.
    pub slope: f64,
    /// What is never exceeded; items further back are forgotten. At least `items_min`.
    pub capacity_items: u64,
}

/// Why a window makes no sense.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvalidWindow {
    /// c is zero.
    #[error("the smallest window is 0 items, it must be at least 1")]
    Empty,
    /// α is outside `(0, 1]`.
    #[error("the exponent {0} is not above 0 and at most 1")]
    Exponent(f64),
    /// β is outside `(0, 1]`.
    #[error("the slope {0} is not above 0 and at most 1")]
    Slope(f64),
    /// The capacity is below c.
    #[error("the capacity of {capacity_items} items is below the smallest window of {items_min}")]
    Capacity {
        /// As given.
        capacity_items: u64,
        /// As given.
        items_min: u64,
    },
}

impl Window {
    /// Checks the ranges of all four parameters.
    ///
    /// # Errors
    /// The first parameter out of range.
    pub fn check(self) -> Result<Self, InvalidWindow> {
        let share = |x: f64| x > 0.0 && x <= 1.0;
        if self.items_min == 0 {
            return Err(InvalidWindow::Empty);
        }
        if !share(self.exponent) {
            return Err(InvalidWindow::Exponent(self.exponent));
        }
        if !share(self.slope) {
            return Err(InvalidWindow::Slope(self.slope));
        }
        if self.capacity_items < self.items_min {
            return Err(InvalidWindow::Capacity { capacity_items: self.capacity_items, items_min: self.items_min });
        }
        Ok(self)
    }

    /// How many of the newest items may be drawn once `inserted_items` have ever come in.
    ///
    /// Never more than came in, because α and β are at most one; never less than one item once there is one.
    #[must_use]
    pub fn items(&self, inserted_items: u64) -> u64 {
        if inserted_items <= self.items_min {
            return inserted_items.min(self.capacity_items);
        }
        // Exact to 2^53 items, far above any capacity that fits in memory.
        let c = self.items_min as f64;
        let growth = ((inserted_items as f64 / c).powf(self.exponent) - 1.0) / self.exponent;
        let items = c * (1.0 + self.slope * growth);
        // Float to integer casts saturate; the bounds below hold for any rounding.
        (items as u64).clamp(self.items_min, self.capacity_items.min(inserted_items))
    }
}

#[cfg(test)]
mod tests;
