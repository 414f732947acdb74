use experience::TotalWeight;

use super::Table;
use crate::Selector;

impl Table {
    /// Returns the total weight of the window's items, by which an item's weight is divided to give the probability. If
    /// the selector is deterministic, each item weighs one, so that a larger table is drawn from more often than a
    /// smaller one.
    ///
    /// Total weights of tables with the same settings have the same unit, although the version with items of weight one
    /// may differ between tables.
    #[must_use]
    pub fn total_weight(&self) -> TotalWeight {
        let items = self.window_items();
        let (Some(tree), true) = (&self.tree, items > 0) else { return TotalWeight::of_items(items) };
        let weight = || tree.sum(tree.nth(self.items - items));
        match self.settings.selector {
            Selector::Prioritised { .. } => TotalWeight { weight: weight(), log2_scale: 0.0 },
            Selector::StalenessAware { half_life_versions } => {
                // Exact to 2^53 versions.
                TotalWeight { weight: weight(), log2_scale: (self.base.0 as f64 / half_life_versions).min(f64::MAX) }
            }
            Selector::Uniform | Selector::Fifo | Selector::Lifo | Selector::MinHeap | Selector::MaxHeap => {
                TotalWeight::of_items(items)
            }
        }
    }
}
