/// The number of newest items that the table may draw: a power law in the number of items ever inserted, under a hard
/// capacity.
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
    /// The capacity, which is never exceeded; older items are removed. At least `items_min`.
    pub capacity_items: u64,
}

/// The reason for which a window is rejected.
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

    /// Returns the number of newest items that may be drawn once `inserted_items` have ever been inserted.
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn katago() -> Window {
        Window { items_min: 250_000, exponent: 0.75, slope: 0.4, capacity_items: u64::MAX }
    }

    #[test]
    fn until_c_items_the_window_is_everything() {
        for inserted in [0, 1, 1000, 250_000] {
            assert_eq!(katago().items(inserted), inserted);
        }
    }

    /// KataGo's paper, appendix C: 250 k at the start and about 22 M of 241 M samples at the end of its main run.
    #[test]
    fn the_window_of_katagos_main_run_ends_near_22_million_of_241_million() {
        let items = katago().items(241_000_000);
        assert!((21_000_000..23_500_000).contains(&items), "{items}");
    }

    #[test]
    fn the_capacity_is_never_exceeded() {
        let window = Window { capacity_items: 300_000, ..katago() };
        assert_eq!(window.items(1_000_000_000), 300_000);
    }

    #[test]
    fn parameters_out_of_range_are_named() {
        let said = |window: Window| window.check().unwrap_err().to_string();
        assert_eq!(said(Window { items_min: 0, ..katago() }), "the smallest window is 0 items, it must be at least 1");
        assert_eq!(said(Window { exponent: 0.0, ..katago() }), "the exponent 0 is not above 0 and at most 1");
        assert_eq!(said(Window { slope: f64::NAN, ..katago() }), "the slope NaN is not above 0 and at most 1");
        assert_eq!(
            said(Window { capacity_items: 9, ..katago() }),
            "the capacity of 9 items is below the smallest window of 250000"
        );
    }

    proptest! {
        #[test]
        fn the_window_never_shrinks_and_never_exceeds_what_came_in(
            c in 1_u64..10_000, exponent in 0.01_f64..=1.0, slope in 0.01_f64..=1.0, inserted in 0_u64..10_000_000,
        ) {
            let window = Window { items_min: c, exponent, slope, capacity_items: u64::MAX };
            prop_assert!(window.items(inserted) <= inserted);
            prop_assert!(window.items(inserted) <= window.items(inserted + 1));
        }
    }
}
