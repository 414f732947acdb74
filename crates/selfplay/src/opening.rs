//! Random plies that make episodes differ from the start.

use game::{Action, Game};
use rand::{Rng, RngExt};

use crate::settings::Openings;

/// Draws the number of random plies that an episode begins with.
pub(crate) fn draw_length(openings: &Openings, rng: &mut impl Rng) -> u16 {
    if openings.random_plies_max == 0 || rng.random::<f32>() >= openings.probability {
        return 0;
    }
    rng.random_range(1..=openings.random_plies_max)
}

/// Plays a uniformly random action that does not end the game; `None` if every action would.
///
/// `legal` is memory to work in.
pub(crate) fn play_random<G: Game>(
    game: &G,
    position: &mut G::Position,
    legal: &mut Vec<Action>,
    rng: &mut impl Rng,
) -> Option<(Action, f32)> {
    game.legal_actions(position, legal);
    while !legal.is_empty() {
        let action = legal.swap_remove(rng.random_range(0..legal.len()));
        let mut next = position.clone();
        let reward = game.play(&mut next, action);
        if game.outcome(&next).is_none() {
            *position = next;
            return Some((action, reward));
        }
    }
    None
}
