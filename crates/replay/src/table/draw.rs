use std::hint::{black_box, select_unpredictable};
use std::ops::RangeInclusive;

use rand::{Rng, RngExt};

use super::{Drawn, Table};
use crate::Selector;
use crate::tree::Leaf;

/// Items that are looked up together. A table is larger than any cache: each step of a lookup waits for memory, and
/// waits for all of a group at once. More than a core has reads under way.
const GROUP: usize = 32;

/// The range of the window's weight within which weights by version keep their base: 2^±512, so that no weight that
/// matters is near the ends of f64.
const STALENESS_SUMS: RangeInclusive<f64> = 7.458_340_731_200_207e-155..=1.340_780_792_994_259_7e154;

/// The probabilities of items, as long as the table does not change.
#[derive(Debug, Clone, Copy)]
pub(super) enum Odds {
    /// Each of the newest `items` like the others.
    Even { items: u64 },
    /// Always this one.
    Certain { number: u64 },
    /// From one number on in proportion to their weights, which have this sum, above zero.
    ByWeight { from: u64, sum: f64 },
}

/// An item that came up.
#[derive(Debug, Clone, Copy, Default)]
struct Pick {
    number: u64,
    /// With which probability.
    probability: f64,
    /// The entry that holds it, once it is located.
    at: usize,
}

impl Table {
    /// Draws that many items from the window, as the selector chooses, one after the other, and appends them to
    /// `drawn`; fewer if there is none, or none with a weight. The same rng gives the same items for any size of
    /// request; larger requests are faster.
    ///
    /// A draw that is the item's last deletes it from sampling. Its trajectory stays listed: where all items had their
    /// last draw, it leaves with the next insert or [`Table::expire`] that finds it at the front. With counted draws a
    /// table may run dry in the middle of a batch.
    pub fn draw(&mut self, items: usize, rng: &mut (impl Rng + ?Sized), drawn: &mut Vec<Drawn>) {
        // A counted draw may change what comes up next.
        let group = if self.settings.max_times_sampled.is_some() { 1 } else { GROUP };
        let mut missing = items;
        while missing > 0 {
            let table_items = self.window_items();
            let Some(odds) = self.odds(table_items) else { return };
            let mut picks = [Pick::default(); GROUP];
            let picks = &mut picks[..missing.min(group)];
            picks.fill_with(|| self.pick(odds, rng));
            self.locate(picks);
            self.fetch(picks);
            self.take(picks, table_items, drawn);
            missing -= picks.len();
        }
    }

    /// Returns the probabilities of the window's `items`; `None` while there is none, or none with a weight.
    pub(super) fn odds(&mut self, items: u64) -> Option<Odds> {
        if items == 0 {
            return None;
        }
        let Some(tree) = &self.tree else { return Some(Odds::Even { items }) };
        // The oldest item of the window.
        let from = tree.nth(self.items - items);
        let certain = |number| Odds::Certain { number };
        let by_weight = |sum| (sum > 0.0).then_some(Odds::ByWeight { from, sum });
        match self.settings.selector {
            Selector::Uniform => Some(Odds::Even { items }),
            Selector::Fifo => Some(certain(from)),
            Selector::Lifo => Some(certain(tree.nth(self.items - 1))),
            Selector::MinHeap => tree.least(from).map(certain),
            Selector::MaxHeap => tree.greatest(from).map(certain),
            Selector::Prioritised { .. } => by_weight(tree.sum(from)),
            Selector::StalenessAware { .. } => {
                let sum = tree.sum(from);
                if STALENESS_SUMS.contains(&sum) {
                    return by_weight(sum);
                }
                self.rebase(from);
                by_weight(self.tree.as_ref().expect("rebasing leaves the tree where it is").sum(from))
            }
        }
    }

    /// Returns the next item, without counting it as drawn.
    fn pick(&self, odds: Odds, rng: &mut (impl Rng + ?Sized)) -> Pick {
        let (number, probability) = match (odds, &self.tree) {
            (Odds::Even { items }, None) => (self.end - items + rng.random_range(0..items), 1.0 / items as f64),
            (Odds::Even { items }, Some(tree)) => {
                (tree.nth(self.items - items + rng.random_range(0..items)), 1.0 / items as f64)
            }
            (Odds::Certain { number }, _) => (number, 1.0),
            (Odds::ByWeight { from, sum }, tree) => {
                let tree = tree.as_ref().expect("weights stand in a tree");
                let number = tree.pick(from, rng.random::<f64>() * sum).expect("a sum above zero has an item above it");
                (number, tree.weight(number) / sum)
            }
        };
        Pick { number, probability, at: 0 }
    }

    /// Finds the entry of each pick: the last that begins at or before its number, since entries without items begin
    /// where the next one does. All picks go through their searches step by step and without a branch, so that no
    /// read waits for that of another pick.
    fn locate(&self, picks: &mut [Pick]) {
        let mut entries = self.entries.len();
        while entries > 1 {
            let half = entries / 2;
            for pick in &mut *picks {
                let middle = pick.at + half;
                let is_beyond = self.entries[middle].first > pick.number;
                pick.at = select_unpredictable(is_beyond, pick.at, middle);
            }
            entries -= half;
        }
    }

    /// Reads the counters of all trajectories that are about to be shared. Reads wait for memory together; counting up
    /// would wait for each by itself.
    fn fetch(&self, picks: &[Pick]) {
        for pick in picks {
            black_box(self.entries[pick.at].trajectory.clones());
        }
    }

    fn take(&mut self, picks: &[Pick], table_items: u64, drawn: &mut Vec<Drawn>) {
        for &Pick { number, probability, at } in picks {
            let entry = &self.entries[at];
            let item = usize::try_from(number - entry.first).expect("an index into a trajectory in memory");
            let (trajectory, inserted) = (entry.trajectory.clone(), entry.inserted());
            let weights_version = entry.last_weights_version;
            let exhausted = self.settings.max_times_sampled.is_some() && self.count_draw(at, item);
            drawn.push(Drawn { trajectory, item, weights_version, probability, table_items, exhausted, inserted });
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
            let tree = self.tree.as_mut().expect("a table that counts draws keeps state for each item");
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
        let newest = in_window.map(|entry| entry.last_weights_version).max();
        self.base = newest.unwrap_or_default();
        self.plant();
    }
}
