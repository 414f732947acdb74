use experience::TotalWeight;

use super::Table;
use crate::Selector;

impl Table {
    /// Returns the total weight of all items in the window, for drawing from several tables in proportion to weight.
    /// With uniform and deterministic selectors, each item has weight 1.
    ///
    /// Total weights of tables with the same settings are comparable. Under [`Selector::StalenessAware`], the scale of
    /// the result accounts for different base versions.
    #[must_use]
    pub fn total_weight(&self) -> TotalWeight {
        let items = self.window_items();
        let (Some(tree), true) = (&self.tree, items > 0) else { return TotalWeight::of_items(items) };
        let weight = || tree.sum(tree.nth(self.items - items));
        match self.settings.selector {
            Selector::Prioritised { .. } => TotalWeight { weight: weight(), log2_scale: 0.0 },
            Selector::StalenessAware { half_life_versions } => {
                // Exact up to 2^53 versions.
                TotalWeight { weight: weight(), log2_scale: (self.base.0 as f64 / half_life_versions).min(f64::MAX) }
            }
            Selector::Uniform | Selector::Fifo | Selector::Lifo | Selector::MinHeap | Selector::MaxHeap => {
                TotalWeight::of_items(items)
            }
        }
    }
}
