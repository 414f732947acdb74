use experience::Mass;

use super::Table;
use crate::Selector;

impl Table {
    /// Returns the total weight of the window's items: a draw takes an item with its weight divided by this. Where the
    /// selector leaves no choice each item weighs one, so that of several tables the larger is drawn from more often.
    ///
    /// Masses of tables with the same settings have the same unit, whatever each takes for the version that weighs one.
    #[must_use]
    pub fn mass(&self) -> Mass {
        let items = self.window_items();
        let (Some(tree), true) = (&self.tree, items > 0) else { return Mass::of_items(items) };
        let weight = || tree.sum(tree.nth(self.items - items));
        match self.settings.selector {
            Selector::Prioritised { .. } => Mass { weight: weight(), log2_scale: 0.0 },
            Selector::StalenessAware { half_life_versions } => {
                // Exact to 2^53 versions.
                Mass { weight: weight(), log2_scale: (self.base.0 as f64 / half_life_versions).min(f64::MAX) }
            }
            Selector::Uniform | Selector::Fifo | Selector::Lifo | Selector::MinHeap | Selector::MaxHeap => {
                Mass::of_items(items)
            }
        }
    }
}
