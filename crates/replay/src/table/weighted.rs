//! Uniform draws with items weighted by position and surprise.
//!
//! A uniform draw selects a trajectory in proportion to the number of items. A second draw by surprise then selects an
//! item of the trajectory. The item is accepted with a probability equal to the position weight, otherwise drawn again.

use rand::{Rng, RngExt};

use super::Table;
use super::draw::{Odds, Pick};

/// Maximum number of attempts; the last item drawn is taken even if rejected. With an acceptance probability of 0.1,
/// this happens for one item in 10^6.
const TRIES_MAX: usize = 128;
/// Maximum surprise weight, so that a single unusual search cannot dominate a batch.
const SURPRISE_WEIGHT_MAX: f64 = 8.0;

impl Table {
    /// Draws `pick` again until accepted. The acceptance probability is the position weight.
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

    /// Replaces a located item by an item of the same trajectory, drawn by surprise weight from the drawable items in
    /// the window. O(items of the trajectory).
    fn prefer_surprising(&self, pick: &mut Pick, odds: Odds, rng: &mut (impl Rng + ?Sized)) {
        let share = self.settings.surprise_share;
        let (Odds::Even { items }, true) = (odds, share > 0.0) else { return };
        let entry = &self.entries[pick.at];
        let surprises = || entry.trajectory.surprises().map(f64::from);
        let mean = surprises().sum::<f64>() / surprises().len() as f64;
        // If the trajectory stores no surprises, the mean is NaN.
        if mean.is_nan() || mean <= 0.0 {
            return;
        }
        let from = self.end - items;
        let weights = || {
            surprises().enumerate().map(|(item, surprise)| {
                let may_be_drawn = entry.first + item as u64 >= from;
                let weight = (1.0 - share + share * surprise / mean).min(SURPRISE_WEIGHT_MAX);
                (item, if may_be_drawn { weight } else { 0.0 })
            })
        };
        let mut left = rng.random::<f64>() * weights().map(|(_, weight)| weight).sum::<f64>();
        let drawn = weights().find(|(_, weight)| {
            left -= weight;
            left < 0.0
        });
        // If rounding leaves a remainder or all weights are 0, the item stays.
        pick.number = drawn.map_or(pick.number, |(item, _)| entry.first + item as u64);
    }

    /// Returns the position weight of a located item: at most 1, and exactly 1 if the position is unknown.
    fn position_weight(&self, pick: Pick) -> f64 {
        let Some(positions) = &self.positions else { return 1.0 };
        let entry = &self.entries[pick.at];
        let position = entry.trajectory.positions().nth((pick.number - entry.first) as usize);
        position.map_or(1.0, |position| positions.weight(position))
    }
}
