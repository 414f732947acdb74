//! Settings of a table: item selection for sampling, and trajectory retention.

use std::time::Duration;

use experience::{Invalid, invalid};

/// Settings of a [`Table`](crate::Table). All settings may change while the table holds trajectories.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TableSettings {
    /// Rule for choosing the next item from the window.
    pub selector: Selector,
    /// Sampling window and table capacity, both in items.
    pub window: Window,
    /// Further bounds for the removal of trajectories, in addition to the capacity.
    pub retention: Retention,
    /// True to merge items with equal positions: n such items have the total weight `log2 n + 1`. Requires
    /// [`Selector::Uniform`].
    pub merge_positions: bool,
    /// The fraction s of the item weight that depends on the surprise of the search, from 0 to 1 (KataGo, Wu 2020). The
    /// weight is `(1 - s) + s · surprise / mean`, at most 8, with the mean surprise of the trajectory. The total weight
    /// of a trajectory does not change. Requires [`Selector::Uniform`].
    pub surprise_share: f64,
}

impl TableSettings {
    /// Returns settings that draw uniformly from `window`, and that bound the table only by its capacity.
    #[cfg(test)]
    pub(crate) fn uniform(window: Window) -> Self {
        let (selector, retention) = (Selector::Uniform, Retention::default());
        let (merge_positions, surprise_share) = (false, 0.0);
        Self { selector, window, retention, merge_positions, surprise_share }
    }

    /// Checks that the settings are consistent. The run file checks the range of each number.
    ///
    /// # Errors
    /// [`Invalid`] names the setting at fault.
    pub fn check(self) -> Result<Self, Invalid> {
        let Window { items_min, capacity_items, .. } = self.window;
        if capacity_items < items_min {
            let reason = format!("the capacity of {capacity_items} items is below window_items_min = {items_min}");
            return Err(invalid("capacity_items", reason));
        }
        if self.is_weighted() && self.selector != Selector::Uniform {
            let key = if self.merge_positions { "merge_positions" } else { "surprise_share" };
            return Err(invalid(key, "requires the selector uniform"));
        }
        Ok(self)
    }

    /// Returns true if items are weighted by position or surprise.
    pub(crate) fn is_weighted(&self) -> bool {
        self.merge_positions || self.surprise_share > 0.0
    }
}

/// The rule for choosing the next item from the window.
///
/// Among items with equal priority, [`Selector::MaxHeap`] draws the oldest first. [`Selector::Prioritised`] never draws
/// an item with weight zero, and draws nothing if all weights in the window are zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Selector {
    /// Draws every item with equal probability. Needs no memory per item.
    Uniform,
    /// Draws items with a probability proportional to `priority^exponent`: proportional prioritisation (Schaul et al.
    /// 2016).
    Prioritised {
        /// The exponent α of priorities: finite, at least 0. With 0, all items have equal probability, even items with
        /// priority 0.
        exponent: f64,
    },
    /// Chooses the item with the highest priority.
    MaxHeap,
}

impl Selector {
    /// Returns true if draws depend on priorities.
    #[must_use]
    pub fn uses_priorities(self) -> bool {
        matches!(self, Self::Prioritised { .. } | Self::MaxHeap)
    }
}

/// The sampling window: the number of latest items that may be drawn. The window grows by a power law in the number of
/// items ever inserted, up to a fixed capacity.
///
/// `N_w = c · (1 + β · ((N / c)^α − 1) / α)`, KataGo (Wu 2020), appendix C. Up to `c` items, the window holds all
/// items. Beyond `c` items, the window grows more slowly than the inserts (slope β at `c`), so it drops the earliest
/// items, which have the worst quality.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// The number of items `c` up to which the window holds all items; at least 1.
    pub items_min: u64,
    /// The growth exponent α, in `(0, 1]`; 1 gives linear growth.
    pub exponent: f64,
    /// The slope β: by how many items the window grows for each new item when the table holds `c` items, in `(0, 1]`.
    pub slope: f64,
    /// Capacity of the table in items, at least `items_min`. Beyond the capacity the oldest trajectories are removed.
    pub capacity_items: u64,
}

impl Window {
    /// Returns the number of latest items that may be drawn after `inserted_items` inserted items.
    ///
    /// The result is at most `inserted_items`, because α and β are at most 1, and at least 1 after the first insert.
    #[must_use]
    pub fn items(&self, inserted_items: u64) -> u64 {
        if inserted_items <= self.items_min {
            return inserted_items.min(self.capacity_items);
        }
        // Exact up to 2^53 items, far above any capacity that fits in memory.
        let c = self.items_min as f64;
        let growth = (libm::pow(inserted_items as f64 / c, self.exponent) - 1.0) / self.exponent;
        let items = c * (1.0 + self.slope * growth);
        // Float to integer casts saturate. The clamp ensures the bounds despite rounding.
        (items as u64).clamp(self.items_min, self.capacity_items.min(inserted_items))
    }
}

/// Bounds on the trajectories held by a table, in addition to the capacity of the [`Window`]. All bounds apply
/// together.
///
/// Whole trajectories are removed, oldest first. A trajectory beyond a bound stays as long as an older trajectory is
/// within all bounds. The latest trajectory always stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// Maximum age of a trajectory since the insert. `None`: unlimited.
    pub age_max: Option<Duration>,
    /// Maximum total size of all trajectories in bytes, as returned by
    /// [`Table::trajectory_bytes`](crate::Table::trajectory_bytes). `None`: limited only by the capacity.
    pub trajectory_bytes_max: Option<u64>,
    /// Maximum lag of a trajectory in weights versions: from the version in the last step to the latest version set by
    /// [`Table::hold_to_newest`](crate::Table::hold_to_newest). `None`: unlimited.
    pub lag_versions_max: Option<u64>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn katago() -> Window {
        Window { items_min: 250_000, exponent: 0.75, slope: 0.4, capacity_items: u64::MAX }
    }

    #[test]
    fn the_window_holds_every_item_up_to_its_minimum_size() {
        for inserted in [0, 1, 1000, 250_000] {
            assert_eq!(katago().items(inserted), inserted);
        }
    }

    /// KataGo (Wu 2020), appendix C: 250 k at the start, and about 22 M of 241 M samples at the end of the main run.
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
    fn a_capacity_below_the_minimum_of_the_window_is_refused() {
        let settings = TableSettings::uniform(Window { capacity_items: 9, ..katago() });
        let reason = settings.check().unwrap_err().reason;
        assert_eq!(reason, "the capacity of 9 items is below window_items_min = 250000");
    }

    proptest! {
        #[test]
        fn the_window_never_shrinks_and_never_exceeds_the_inserted_items(
            c in 1_u64..10_000, exponent in 0.01_f64..=1.0, slope in 0.01_f64..=1.0, inserted in 0_u64..10_000_000,
        ) {
            let window = Window { items_min: c, exponent, slope, capacity_items: u64::MAX };
            prop_assert!(window.items(inserted) <= inserted);
            prop_assert!(window.items(inserted) <= window.items(inserted + 1));
        }
    }
}
