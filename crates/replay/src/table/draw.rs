use std::hint::{black_box, select_unpredictable};

use rand::{Rng, RngExt};

use super::{Drawn, Table};
use crate::Selector;

/// The number of items looked up together. Tables are larger than CPU caches, so each step of a lookup waits for
/// memory. Lookups in a group overlap these waits. The group exceeds the number of outstanding reads of a CPU core.
const GROUP: usize = 32;

/// The probability of each item in the next draw, valid until the table changes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Odds {
    /// The latest `items` items have equal probability.
    Even { items: u64 },
    /// The item with the number `number` has probability 1.
    Certain { number: u64 },
    /// Items from number `from` on have probabilities proportional to weight. The total weight `sum` is above zero.
    ByWeight { from: u64, sum: f64 },
}

/// A chosen item.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pick {
    pub(super) number: u64,
    /// The probability of the draw, without position and surprise weights.
    probability: f64,
    /// The index of the entry that contains the item, set by `locate`.
    pub(super) at: usize,
}

impl Table {
    /// Draws `items` items from the window by the rule of the selector, and appends the items to `drawn`. Draws fewer
    /// items if the selector finds no further item. The drawn items depend only on the table and on the state of `rng`:
    /// one call for many items draws the same items as several calls for fewer, but is faster.
    pub fn draw(&mut self, items: usize, rng: &mut (impl Rng + ?Sized), drawn: &mut Vec<Drawn>) {
        // A weighted draw uses more random numbers.
        let is_weighted = self.settings.is_weighted();
        let group = if is_weighted { 1 } else { GROUP };
        let mut missing = items;
        while missing > 0 {
            let table_items = self.window_items();
            let Some(odds) = self.odds(table_items) else { return };
            let mut picks = [Pick::default(); GROUP];
            let picks = &mut picks[..missing.min(group)];
            picks.fill_with(|| self.pick(odds, rng));
            self.locate(picks);
            if is_weighted {
                picks.iter_mut().for_each(|pick| self.weigh_picked(pick, odds, rng));
            }
            self.fetch(picks);
            self.take(picks, table_items, drawn);
            missing -= picks.len();
        }
    }

    /// Returns the distribution over the `items` items of the window. `None` if `items` is 0 or all weights are zero.
    pub(super) fn odds(&self, items: u64) -> Option<Odds> {
        if items == 0 {
            return None;
        }
        let Some(tree) = &self.tree else { return Some(Odds::Even { items }) };
        // The oldest item of the window.
        let from = tree.nth(self.items - items);
        match self.settings.selector {
            Selector::Uniform => Some(Odds::Even { items }),
            Selector::MaxHeap => tree.greatest(from).map(|number| Odds::Certain { number }),
            Selector::Prioritised { .. } => {
                let sum = tree.sum(from);
                (sum > 0.0).then_some(Odds::ByWeight { from, sum })
            }
        }
    }

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

    /// Chooses the next item.
    pub(super) fn pick(&self, odds: Odds, rng: &mut (impl Rng + ?Sized)) -> Pick {
        let (number, probability) = match (odds, &self.tree) {
            (Odds::Even { items }, None) => (self.end - items + rng.random_range(0..items), 1.0 / items as f64),
            // A choice of a trajectory for new searches, whatever the selector.
            (Odds::Even { items }, Some(tree)) => {
                (tree.nth(self.items - items + rng.random_range(0..items)), 1.0 / items as f64)
            }
            (Odds::Certain { number }, _) => (number, 1.0),
            (Odds::ByWeight { from, sum }, tree) => {
                let tree = tree.as_ref().expect("weights are stored in a tree");
                let number = tree.pick(from, rng.random::<f64>() * sum).expect("a sum above zero contains an item");
                (number, tree.weight(number) / sum)
            }
        };
        Pick { number, probability, at: 0 }
    }

    /// Finds the entry of each pick: the last entry whose first item number does not exceed the number of the pick. (An
    /// entry without items has the same first number as the next entry.) All binary searches advance together and
    /// without branches, so that the memory reads overlap.
    pub(super) fn locate(&self, picks: &mut [Pick]) {
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

    /// Prefetches the reference counters of all picked trajectories before cloning. The prefetches overlap, whereas the
    /// increments alone would wait for memory one after another.
    fn fetch(&self, picks: &[Pick]) {
        for pick in picks {
            black_box(self.entries[pick.at].trajectory.clones());
        }
    }

    fn take(&self, picks: &[Pick], table_items: u64, drawn: &mut Vec<Drawn>) {
        for &Pick { number, probability, at } in picks {
            let entry = &self.entries[at];
            let item = usize::try_from(number - entry.first).expect("an index into a trajectory in memory");
            let (trajectory, inserted) = (entry.trajectory.clone(), entry.inserted());
            let weights_version = entry.last_weights_version;
            drawn.push(Drawn { trajectory, item, weights_version, probability, table_items, inserted });
        }
    }
}
