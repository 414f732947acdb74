//! Settings of a table: the items to draw, and the time for which to keep them.

use std::num::NonZeroU32;
use std::time::Duration;

use experience::Invalid;

/// Settings of a [`Table`](crate::Table); all of them may change while it holds trajectories.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TableSettings {
    /// Rule that chooses the next item of the window.
    pub selector: Selector,
    /// Window of the draws, and the capacity in items.
    pub window: Window,
    /// Rules by which trajectories are removed before the capacity is reached.
    pub retention: Retention,
    /// Maximum number of draws of an item, after which it is deleted from sampling. `None`: unlimited, and draws are
    /// not counted.
    pub max_times_sampled: Option<NonZeroU32>,
    /// True if equal positions count once: n items with the same position have weight `log2 n + 1` together. Uniform
    /// draws only.
    pub merge_positions: bool,
    /// s, from 0 to 1: the share of an item's weight that is in proportion to the surprise of the search (KataGo, Wu
    /// 2020). The weight is `(1 - s) + s · surprise / mean`, at most 8, with the mean over the trajectory; the
    /// trajectory as a whole keeps the same weight. Uniform draws only.
    pub surprise_share: f64,
}

impl TableSettings {
    /// Returns settings for uniform and unlimited draws from a window, with no bound except the window's capacity.
    #[cfg(test)]
    pub(crate) fn uniform(window: Window) -> Self {
        let (selector, retention) = (Selector::Uniform, Retention::default());
        let (merge_positions, surprise_share) = (false, 0.0);
        Self { selector, window, retention, max_times_sampled: None, merge_positions, surprise_share }
    }

    /// Validates selector, window and weights; any retention is valid.
    ///
    /// # Errors
    /// [`Invalid`] names the first parameter that is out of range.
    pub fn check(self) -> Result<Self, Invalid> {
        self.selector.check()?;
        self.window.check()?;
        if !(0.0..=1.0).contains(&self.surprise_share) {
            return Err(invalid("surprise_share", format!("must be from 0 to 1, got {}", self.surprise_share)));
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

    /// Returns true if the table keeps state for each item, which only uniform and unlimited draws do not need.
    pub(crate) fn has_item_state(&self) -> bool {
        self.selector != Selector::Uniform || self.max_times_sampled.is_some()
    }
}

/// Returns the error for a parameter that is out of range, with the key in a table's settings.
pub(crate) fn invalid(key: &str, reason: impl Into<String>) -> Invalid {
    Invalid { field: key.to_owned(), reason: reason.into() }
}

/// The rule that chooses the next item of the window.
///
/// Of items with equal priority, the oldest is drawn first. An item with a weight of zero is never drawn, and if all
/// weights of the window are zero, no item is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Selector {
    /// Draws every item with the same probability. Needs no memory per item unless draws are counted.
    Uniform,
    /// Draws items with a probability proportional to `priority^exponent`: proportional prioritisation (Schaul et al.
    /// 2016).
    Prioritised {
        /// α, the exponent of priorities: finite, at least 0. At 0 all items have the same probability, even with
        /// priority 0.
        exponent: f64,
    },
    /// Chooses the oldest item. With one draw for each item the table is a queue.
    Fifo,
    /// Chooses the newest item. With one draw for each item the table is a stack.
    Lifo,
    /// Chooses the item with the lowest priority.
    MinHeap,
    /// Chooses the item with the highest priority.
    MaxHeap,
    /// Draws items with a probability proportional to `2^(-(newest - version) / half_life_versions)`, where `version`
    /// searched the last step of the item's trajectory: the policy of actors ages with every publication.
    StalenessAware {
        /// The age difference at which an item is drawn half as often, in weights versions: finite, above 0.
        half_life_versions: f64,
    },
}

impl Selector {
    /// Checks the range of the selector's parameter.
    ///
    /// # Errors
    /// [`Invalid`] names the parameter if it is out of range.
    pub fn check(self) -> Result<Self, Invalid> {
        match self {
            Self::Prioritised { exponent } if !(exponent >= 0.0 && exponent.is_finite()) => {
                let reason = format!("must be finite and at least 0, got {exponent}");
                Err(invalid("exponent", reason))
            }
            Self::StalenessAware { half_life_versions: versions } if !(versions > 0.0 && versions.is_finite()) => {
                let reason = format!("must be finite and above 0, got {versions}");
                Err(invalid("half_life_versions", reason))
            }
            _ => Ok(self),
        }
    }

    /// Returns true if draws depend on priorities.
    #[must_use]
    pub fn uses_priorities(self) -> bool {
        matches!(self, Self::Prioritised { .. } | Self::MinHeap | Self::MaxHeap)
    }
}

/// The number of newest items that the table may draw: a power law in the number of items ever inserted, under a hard
/// capacity.
///
/// `N_w = c · (1 + β · ((N / c)^α − 1) / α)`, KataGo (Wu 2020), appendix C. Up to `c` items the window holds all items;
/// there the slope is β, and it decreases later. The earliest data are the worst, so the window drops them while it
/// grows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// c, the number of items up to which the window holds all items; at least one.
    pub items_min: u64,
    /// α, the exponent of the growth, in `(0, 1]`; one makes the growth linear.
    pub exponent: f64,
    /// β, in `(0, 1]`: the growth of the window per new item, at `c`.
    pub slope: f64,
    /// Capacity in items, beyond which older items are removed; at least `items_min`.
    pub capacity_items: u64,
}

impl Window {
    /// Checks the ranges of all four parameters.
    ///
    /// # Errors
    /// [`Invalid`] names the first parameter that is out of range.
    pub fn check(self) -> Result<Self, Invalid> {
        let Self { items_min, exponent, slope, capacity_items } = self;
        let share = |x: f64| x > 0.0 && x <= 1.0;
        if items_min == 0 {
            return Err(invalid("window_items_min", "must be at least 1, got 0"));
        }
        if !share(exponent) {
            return Err(invalid("window_exponent", format!("must be above 0 and at most 1, got {exponent}")));
        }
        if !share(slope) {
            return Err(invalid("window_slope", format!("must be above 0 and at most 1, got {slope}")));
        }
        if capacity_items < items_min {
            let reason = format!("the capacity of {capacity_items} items is below window_items_min = {items_min}");
            return Err(invalid("capacity_items", reason));
        }
        Ok(self)
    }

    /// Returns the number of newest items that may be drawn after `inserted_items` inserts.
    ///
    /// At most the number of inserted items, because α and β are at most one; at least one item once one was inserted.
    #[must_use]
    pub fn items(&self, inserted_items: u64) -> u64 {
        if inserted_items <= self.items_min {
            return inserted_items.min(self.capacity_items);
        }
        // Exact to 2^53 items, far above any capacity that fits in memory.
        let c = self.items_min as f64;
        let growth = (libm::pow(inserted_items as f64 / c, self.exponent) - 1.0) / self.exponent;
        let items = c * (1.0 + self.slope * growth);
        // Float to integer casts saturate; the bounds below hold for any rounding.
        (items as u64).clamp(self.items_min, self.capacity_items.min(inserted_items))
    }
}

/// Bounds on the trajectories that a table keeps, in addition to the capacity of the [`Window`]; all of them apply.
///
/// Trajectories are removed as a whole and oldest first, so a trajectory beyond a bound stays while an older one is
/// within all bounds. The newest trajectory always stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// Maximum time since the insert of a trajectory. `None`: unlimited.
    pub age_max: Option<Duration>,
    /// Maximum total size of the trajectories held in bytes, as counted by
    /// [`Table::trajectory_bytes`](crate::Table::trajectory_bytes). `None`: limited by the capacity only.
    pub trajectory_bytes_max: Option<u64>,
    /// Maximum number of weights versions by which the last step of a trajectory may be behind the newest, as set by
    /// [`Table::hold_to_newest`](crate::Table::hold_to_newest). `None`: unlimited.
    pub lag_versions_max: Option<u64>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parameters_of_selectors_out_of_range_are_named() {
        let fault_of = |selector: Selector| selector.check().unwrap_err().reason;
        let least = "must be finite and at least 0, got";
        assert_eq!(fault_of(Selector::Prioritised { exponent: -0.5 }), format!("{least} -0.5"));
        assert_eq!(fault_of(Selector::Prioritised { exponent: f64::NAN }), format!("{least} NaN"));
        let above = "must be finite and above 0, got";
        for (half_life_versions, shown) in [(0.0, "0"), (f64::NAN, "NaN"), (f64::INFINITY, "inf")] {
            let selector = Selector::StalenessAware { half_life_versions };
            assert_eq!(fault_of(selector), format!("{above} {shown}"));
        }
    }

    #[test]
    fn selectors_without_parameters_pass() {
        for selector in [Selector::Uniform, Selector::Fifo, Selector::Lifo, Selector::MinHeap, Selector::MaxHeap] {
            assert_eq!(selector.check(), Ok(selector));
        }
    }

    fn katago() -> Window {
        Window { items_min: 250_000, exponent: 0.75, slope: 0.4, capacity_items: u64::MAX }
    }

    #[test]
    fn the_window_holds_every_item_up_to_its_minimum_size() {
        for inserted in [0, 1, 1000, 250_000] {
            assert_eq!(katago().items(inserted), inserted);
        }
    }

    /// KataGo's paper, appendix C: 250 k at the start, and about 22 M of 241 M samples at the end of the main run.
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
    fn parameters_of_windows_out_of_range_are_named() {
        let fault_of = |window: Window| window.check().unwrap_err().reason;
        assert_eq!(fault_of(Window { items_min: 0, ..katago() }), "must be at least 1, got 0");
        assert_eq!(fault_of(Window { exponent: 0.0, ..katago() }), "must be above 0 and at most 1, got 0");
        assert_eq!(fault_of(Window { slope: f64::NAN, ..katago() }), "must be above 0 and at most 1, got NaN");
        assert_eq!(
            fault_of(Window { capacity_items: 9, ..katago() }),
            "the capacity of 9 items is below window_items_min = 250000"
        );
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
