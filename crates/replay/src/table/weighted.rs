//! Uniform draws whose items have weights by their positions, by rejection: an item that is not accepted is drawn again.

use rand::{Rng, RngExt};

use super::Table;
use super::draw::{Odds, Pick};

/// The maximum number of draws of one item. Where each is accepted with a probability of a tenth, one item in 10^6 is
/// taken although it was not.
const TRIES_MAX: usize = 128;

impl Table {
    /// Draws `pick` again until it is accepted with the probability that is its weight.
    pub(super) fn weigh_positions(&self, pick: &mut Pick, odds: Odds, rng: &mut (impl Rng + ?Sized)) {
        for _ in 1..TRIES_MAX {
            if rng.random::<f64>() < self.position_weight(*pick) {
                return;
            }
            *pick = self.pick(odds, rng);
            self.locate(std::slice::from_mut(pick));
        }
    }

    /// Returns the weight of a located item, at most 1; items whose positions are unknown have 1.
    fn position_weight(&self, pick: Pick) -> f64 {
        let Some(positions) = &self.positions else { return 1.0 };
        let entry = &self.entries[pick.at];
        let position = entry.trajectory.positions().nth((pick.number - entry.first) as usize);
        position.map_or(1.0, |position| positions.weight(position))
    }
}
