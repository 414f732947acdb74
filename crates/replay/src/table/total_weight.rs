use super::Table;
use crate::Selector;

impl Table {
    /// Returns the total weight of all items in the window, for drawing from several tables with the same settings in
    /// proportion to weight: finite, at least 0. With uniform and deterministic selectors, each item has weight 1.
    #[must_use]
    pub fn total_weight(&self) -> f64 {
        let items = self.window_items();
        match (&self.tree, self.settings.selector) {
            (Some(tree), Selector::Prioritised { .. }) if items > 0 => tree.sum(tree.nth(self.items - items)),
            // Exact up to 2^53 items.
            _ => items as f64,
        }
    }
}
