//! Leaves valued by random play to the end: search without a network, the fixed opponent that strength is measured by.

use game::{Action, Game};
use inference::{Error, Predictions, Wdl};
use rand::{Rng, RngExt};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::analysis::{Analysis, AnalysisSettings, analyse_with};
use crate::leaves::LeafEvaluator;

/// No batch limit is needed where nothing is batched; this one bounds memory.
const BATCH_MAX: usize = 4096;

/// Uniform priors, and the result of one uniformly random game from the leaf as its value.
#[derive(Debug)]
pub struct Playouts {
    rng: ChaCha8Rng,
    /// What was pushed, answered already.
    pushed: Predictions,
    answers: Predictions,
    priors: Vec<f32>,
    legal: Vec<Action>,
}

impl Playouts {
    /// With a generator of its own, seeded from `rng`.
    #[must_use]
    pub fn new(rng: &mut impl Rng) -> Self {
        Self {
            rng: ChaCha8Rng::seed_from_u64(rng.random()),
            pushed: Predictions::new(),
            answers: Predictions::new(),
            priors: Vec::new(),
            legal: Vec::new(),
        }
    }

    /// The result of a random game, to the player to move at its start.
    fn play_out<G: Game>(&mut self, game: &G, position: &G::Position) -> f32 {
        let judge = game.to_move(position);
        let mut position = position.clone();
        let mut rewards = 0.0;
        loop {
            if let Some(outcome) = game.outcome(&position) {
                return outcome.value_for(judge) + rewards;
            }
            game.legal_actions(&position, &mut self.legal);
            let action = self.legal[self.rng.random_range(0..self.legal.len())];
            let sign = if game.to_move(&position) == judge { 1.0 } else { -1.0 };
            rewards += sign * game.play(&mut position, action);
        }
    }
}

impl<G: Game> LeafEvaluator<G> for Playouts {
    fn batch_max(&self) -> usize {
        BATCH_MAX
    }

    fn weights_version(&self) -> u64 {
        0
    }

    fn is_deterministic(&self) -> bool {
        false
    }

    fn push(&mut self, game: &G, position: &G::Position, legal: &[Action]) {
        let value = self.play_out(game, position);
        self.priors.clear();
        self.priors.resize(legal.len(), 1.0 / legal.len() as f32);
        // Only win − loss is read; in games with rewards it may leave [-1, 1].
        let win = 0.5 * (1.0 + value);
        self.pushed.push(&self.priors, Wdl { win, draw: 0.0, loss: 1.0 - win });
    }

    fn evaluate(&mut self) -> Result<&Predictions, Error> {
        std::mem::swap(&mut self.pushed, &mut self.answers);
        self.pushed.clear();
        Ok(&self.answers)
    }
}

/// [`analyse`](crate::analysis::analyse) with random playouts instead of an evaluator.
///
/// # Panics
/// If one of the positions is over.
pub fn analyse_with_playouts<G: Game>(
    game: &G,
    positions: &[G::Position],
    settings: &AnalysisSettings,
    rng: &mut impl Rng,
) -> Vec<Analysis> {
    let mut playouts = Playouts::new(rng);
    analyse_with(game, positions, settings, &mut playouts, rng).expect("playouts do not fail")
}

#[cfg(test)]
mod tests;
