//! Searches without a network: leaf values come from random playouts. This is a fixed baseline for measuring playing
//! strength.

use game::{Action, Game};
use inference::{Error, Predictions};
use rand::{Rng, RngExt};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::analysis::{Analysis, AnalysisSettings, analyse_by_rules};
use crate::leaf_batcher::{LeafAttributes, LeafEvaluator};

/// The maximum batch size in positions. The limit only bounds memory: playouts do not benefit from batches.
const BATCH_MAX: usize = 4096;

/// A leaf evaluator with uniform priors. Each value is the result of one uniformly random game.
struct Playouts {
    rng: ChaCha8Rng,
    /// The discount γ for each ply.
    discount: f32,
    /// The predictions for the positions pushed since the last call of `evaluate`.
    pushed: Predictions,
    answers: Predictions,
    legal: Vec<Action>,
}

impl Playouts {
    /// Creates an evaluator with a new random number generator, seeded from `rng`.
    fn new(discount: f32, rng: &mut impl Rng) -> Self {
        Self {
            rng: ChaCha8Rng::seed_from_u64(rng.random()),
            discount,
            pushed: Predictions::new(),
            answers: Predictions::new(),
            legal: Vec::new(),
        }
    }

    /// Plays a random game from `position` and returns the discounted result for the player to move at `position`.
    fn play_out<G: Game>(&mut self, game: &G, position: &G::Position) -> f32 {
        let judge = game.to_move(position);
        let mut position = position.clone();
        let (mut rewards, mut weight) = (0.0, 1.0);
        loop {
            if let Some(outcome) = game.outcome(&position) {
                return weight * outcome.value_for(judge) + rewards;
            }
            game.legal_actions(&position, &mut self.legal);
            let action = self.legal[self.rng.random_range(0..self.legal.len())];
            let sign = if game.to_move(&position) == judge { 1.0 } else { -1.0 };
            rewards += weight * sign * game.play(&mut position, action);
            weight *= self.discount;
        }
    }
}

impl<G: Game> LeafEvaluator<G> for Playouts {
    fn attributes(&self) -> LeafAttributes {
        LeafAttributes { batch_max: BATCH_MAX, weights_version: 0, is_deterministic: false }
    }

    fn push(&mut self, game: &G, position: &G::Position, legal: &[Action]) {
        let value = self.play_out(game, position);
        self.pushed.push_return(std::iter::repeat_n(1.0 / legal.len() as f32, legal.len()), value);
    }

    fn evaluate(&mut self) -> Result<&Predictions, Error> {
        std::mem::swap(&mut self.pushed, &mut self.answers);
        self.pushed.clear();
        Ok(&self.answers)
    }
}

/// Runs [`analyse`](crate::analysis::analyse) with random playouts instead of an evaluator.
///
/// # Panics
/// If the game is over at a position.
pub fn analyse_with_playouts<G: Game>(
    game: &G,
    positions: &[G::Position],
    settings: &AnalysisSettings,
    rng: &mut impl Rng,
) -> Vec<Analysis> {
    let mut playouts = Playouts::new(settings.discount, rng);
    analyse_by_rules(game, positions, settings, &mut playouts, rng).expect("playouts do not fail")
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use game::{Outcome, Player};
    use games::TicTacToe;
    use games::catch::Catch;
    use rand_chacha::ChaCha8Rng;
    use search::Settings as SearchSettings;

    use super::*;

    fn settings(simulations: u32) -> AnalysisSettings {
        AnalysisSettings {
            simulations,
            search: SearchSettings::default(),
            leaves_per_tree: 1,
            batch: 64,
            discount: 1.0,
        }
    }

    type Position = <TicTacToe as Game>::Position;

    /// Plays the moves of the search against every reply of the opponent. Checks that no game is lost, and returns the
    /// number of finished games.
    fn play_against_every_reply(game: &TicTacToe, searcher: Player) -> usize {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let (mut ended, mut layer): (usize, Vec<Position>) = (0, vec![game.start()]);
        while !layer.is_empty() {
            let is_search = game.to_move(&layer[0]) == searcher;
            let mut next: HashMap<u64, Position> = HashMap::new();
            let mut replies: Vec<(Position, Vec<Action>)> = Vec::new();
            if is_search {
                let analyses = analyse_with_playouts(game, &layer, &settings(2_000), &mut rng);
                replies.extend(layer.into_iter().zip(analyses.iter().map(|analysis| vec![analysis.best])));
            } else {
                for position in layer {
                    let mut legal = Vec::new();
                    game.legal_actions(&position, &mut legal);
                    replies.push((position, legal));
                }
            }
            for (position, actions) in replies {
                for action in actions {
                    let mut child = position;
                    game.play(&mut child, action);
                    match game.outcome(&child) {
                        Some(outcome) => {
                            assert_ne!(outcome, Outcome::Win(searcher.opponent()), "{}", game.render(&child));
                            ended += 1;
                        }
                        None => drop(next.insert(game.hash(&child), child)),
                    }
                }
            }
            layer = next.into_values().collect();
            layer.sort_by_key(|position| game.hash(position));
        }
        ended
    }

    #[test]
    fn a_search_of_2000_simulations_never_loses_tic_tac_toe() {
        let game = TicTacToe::new();
        assert!(play_against_every_reply(&game, Player::First) > 10);
        assert!(play_against_every_reply(&game, Player::Second) > 10);
    }

    #[test]
    fn a_seed_fixes_the_analyses() {
        let game = TicTacToe::new();
        let run =
            |seed| analyse_with_playouts(&game, &[game.start()], &settings(100), &mut ChaCha8Rng::seed_from_u64(seed));
        assert_eq!(run(1), run(1));
        assert_ne!(run(1)[0].value, run(2)[0].value);
    }

    /// In random tic-tac-toe the first player wins 58.5 %, draws 12.7 % and loses 28.8 %: 0.297 on average. The mean of
    /// 4,000 games has a standard deviation of 0.014.
    #[test]
    fn playouts_are_unbiased() {
        let game = TicTacToe::new();
        let mut playouts = Playouts::new(1.0, &mut ChaCha8Rng::seed_from_u64(3));
        let start = game.start();
        let mean = (0..4_000).map(|_| f64::from(playouts.play_out(&game, &start))).sum::<f64>() / 4_000.0;
        assert!((mean - 0.297).abs() < 0.06, "{mean}");
    }

    #[test]
    fn a_playout_returns_its_discounted_rewards() {
        let game = Catch::new();
        let mut playouts = Playouts::new(0.5, &mut ChaCha8Rng::seed_from_u64(3));
        let results: Vec<f32> = (0..40).map(|_| playouts.play_out(&game, &game.start())).collect();
        // The ball is caught or missed with the ninth action.
        let reward = 0.5_f32.powi(8);
        assert!([reward, -reward].iter().all(|end| results.contains(end)), "{results:?}");
        assert!(results.iter().all(|result| result.abs() == reward), "{results:?}");
    }
}
