use std::ops::RangeInclusive;
use std::sync::Arc;

use rand::{Rng, RngExt};

use super::{Drawn, Table};
use crate::Selector;
use crate::tree::{Leaf, Tree};

/// What the window may weigh before weights by version are taken from another base: 2^±512, so that no weight that
/// matters is near the ends of f64.
const STALENESS_SUMS: RangeInclusive<f64> = 7.458_340_731_200_207e-155..=1.340_780_792_994_259_7e154;

/// The number of an item, and with which probability it came up.
pub(super) struct Pick {
    number: u64,
    probability: f64,
}

impl Table {
    /// Draws one item from the window, as the selector says; `None` while there is none, or none that weighs anything.
    ///
    /// A draw that is the item's last deletes it from sampling. Its trajectory stays listed: where all items had their
    /// last draw, it leaves with the next insert or [`Table::expire`] that finds it at the front. With counted draws a
    /// table may run dry in the middle of a batch.
    pub fn sample(&mut self, rng: &mut (impl Rng + ?Sized)) -> Option<Drawn> {
        let table_items = self.window_items();
        if table_items == 0 {
            return None;
        }
        let Pick { number, probability } = self.pick(table_items, rng)?;
        // The last entry that begins at or before the number; entries without items begin where the next one does.
        let at = self.entries.partition_point(|entry| entry.first <= number) - 1;
        let entry = &self.entries[at];
        let item = usize::try_from(number - entry.first).expect("an index into a trajectory in memory");
        let ply = entry.trajectory.full_plies().nth(item).expect("the next entry begins after as many items");
        let (trajectory, inserted) = (Arc::clone(&entry.trajectory), entry.inserted());
        let exhausted = self.settings.max_times_sampled.is_some() && self.count_draw(at, item);
        Some(Drawn { trajectory, ply, probability, table_items, exhausted, inserted })
    }

    /// Which item is next, without counting it as drawn. There must be `table_items` in the window, at least one.
    pub(super) fn pick(&mut self, table_items: u64, rng: &mut (impl Rng + ?Sized)) -> Option<Pick> {
        let older = self.items - table_items;
        let Some(tree) = &self.tree else {
            let number = rng.random_range(self.end - table_items..self.end);
            return Some(Pick { number, probability: 1.0 / table_items as f64 });
        };
        // The oldest item of the window.
        let from = tree.nth(older);
        let certain = |number| Pick { number, probability: 1.0 };
        match self.settings.selector {
            Selector::Uniform => {
                let number = tree.nth(older + rng.random_range(0..table_items));
                Some(Pick { number, probability: 1.0 / table_items as f64 })
            }
            Selector::Fifo => Some(certain(from)),
            Selector::Lifo => Some(certain(tree.nth(self.items - 1))),
            Selector::MinHeap => tree.least(from).map(certain),
            Selector::MaxHeap => tree.greatest(from).map(certain),
            Selector::Prioritised { .. } => pick_by_weight(tree, from, tree.sum(from), rng),
            Selector::StalenessAware { .. } => {
                let sum = tree.sum(from);
                if STALENESS_SUMS.contains(&sum) {
                    return pick_by_weight(tree, from, sum, rng);
                }
                self.rebase(from);
                let tree = self.tree.as_ref().expect("rebasing leaves the tree where it is");
                pick_by_weight(tree, from, tree.sum(from), rng)
            }
        }
    }

    /// Counts a draw of an item that could be drawn; whether it was its last.
    fn count_draw(&mut self, at: usize, item: usize) -> bool {
        let weigh = self.weigh();
        let entry = &mut self.entries[at];
        let exhausted = weigh.exhausts(entry.count_draw(item));
        if exhausted {
            entry.drawable -= 1;
            self.items -= 1;
            let tree = self.tree.as_mut().expect("a table that counts draws tells items apart");
            tree.replace(entry.first + item as u64, std::iter::once(Leaf::VACANT));
        }
        exhausted
    }

    /// Weighs all items anew, so that the newest weights version of the window from `from` on weighs one. O(items), and
    /// once in 512 half-lives.
    fn rebase(&mut self, from: u64) {
        // The entry that the window begins in may begin before it.
        let first = self.entries.partition_point(|entry| entry.first <= from) - 1;
        let in_window = self.entries.range(first..).filter(|entry| entry.drawable > 0);
        let newest = in_window.filter_map(|entry| entry.trajectory.last_weights_version()).max();
        self.base = newest.unwrap_or_default();
        self.plant();
    }
}

fn pick_by_weight(tree: &Tree, from: u64, sum: f64, rng: &mut (impl Rng + ?Sized)) -> Option<Pick> {
    let number = tree.pick(from, rng.random::<f64>() * sum)?;
    Some(Pick { number, probability: tree.weight(number) / sum })
}
