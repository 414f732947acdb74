//! Uniform draws in which positions and surprises weigh items.
//!
//! A uniform draw selects a trajectory in proportion to the number of items in it. Surprises then choose among these
//! items. An item that is not accepted by position weight is drawn again.

use rand::{Rng, RngExt};

use super::Table;
use super::draw::{Odds, Pick};

/// Maximum number of draws for one item. If each is accepted with a probability of a tenth, one item in 10^6 is taken
/// without acceptance.
const TRIES_MAX: usize = 128;
/// Maximum weight by surprise: one odd search must not make up a batch.
const SURPRISE_WEIGHT_MAX: f64 = 8.0;

impl Table {
    /// Draws `pick` again until it is accepted; the probability of acceptance is the weight of the position.
    pub(super) fn weigh_picked(&self, pick: &mut Pick, odds: Odds, rng: &mut (impl Rng + ?Sized)) {
        for tries in 1.. {
            self.prefer_surprising(pick, odds, rng);
            if tries == TRIES_MAX || rng.random::<f64>() < self.position_weight(*pick) {
                return;
            }
            *pick = self.pick(odds, rng);
            self.locate(std::slice::from_mut(pick));
        }
    }

    /// Replaces a located item by a weighted draw from the drawable items of the trajectory. O(items of a trajectory).
    fn prefer_surprising(&self, pick: &mut Pick, odds: Odds, rng: &mut (impl Rng + ?Sized)) {
        let share = self.settings.surprise_share;
        let (Odds::Even { items }, true) = (odds, share > 0.0) else { return };
        let entry = &self.entries[pick.at];
        let surprises = || entry.trajectory.surprises().map(f64::from);
        let mean = surprises().sum::<f64>() / surprises().len() as f64;
        // Without surprises, the mean is no number.
        if mean.is_nan() || mean <= 0.0 {
            return;
        }
        let weigh = self.weigh();
        let from = self.tree.as_ref().map_or(self.end - items, |tree| tree.nth(self.items - items));
        let weights = || {
            surprises().enumerate().map(|(item, surprise)| {
                let may_be_drawn = entry.first + item as u64 >= from && !entry.is_exhausted_at(item, weigh);
                let weight = (1.0 - share + share * surprise / mean).min(SURPRISE_WEIGHT_MAX);
                (item, if may_be_drawn { weight } else { 0.0 })
            })
        };
        let mut left = rng.random::<f64>() * weights().map(|(_, weight)| weight).sum::<f64>();
        let drawn = weights().find(|(_, weight)| {
            left -= weight;
            left < 0.0
        });
        // Rounding may leave a rest, and the weights of all may be 0: the item stays.
        pick.number = drawn.map_or(pick.number, |(item, _)| entry.first + item as u64);
    }

    /// Returns the weight of the position of a located item: at most 1, and 1 if the position is unknown.
    fn position_weight(&self, pick: Pick) -> f64 {
        let Some(positions) = &self.positions else { return 1.0 };
        let entry = &self.entries[pick.at];
        let position = entry.trajectory.positions().nth((pick.number - entry.first) as usize);
        position.map_or(1.0, |position| positions.weight(position))
    }
}
