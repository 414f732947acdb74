use std::collections::HashSet;
use std::ops::Range;

use game::{Action, Game, Outcome};
use games::{AnyGame, AnyPosition, GameKind, Generator};

use crate::any::connect_four;
use crate::{Oracle, oracle};

/// Random games per position after which a game has no more positions to draw.
const ATTEMPTS_PER_POSITION: usize = 200;

/// A position with the exact score of every action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelledPosition {
    /// Actions from the start to the position.
    pub actions: Vec<Action>,
    /// `early`, `middle` or `late`, by thirds of the number of actions that fill the board.
    pub band: &'static str,
    /// The [scores](crate::Oracle::scores) of all actions, `[A]`.
    pub scores: Vec<Option<i32>>,
}

/// Draws positions of a game from a seed and labels them with the oracle's scores, sequentially; `None` if the game
/// has no oracle.
///
/// A position is reached by uniformly random play to a random ply. No position is over or has a win in one action; in
/// each, at least one action changes the outcome; and no position is the image of another. If a game has few such
/// positions, or they are rare, fewer than `count` are returned: the number of random games is limited.
#[must_use]
pub fn draw(game: &GameKind, seed: u64, count: usize) -> Option<impl Iterator<Item = LabelledPosition> + use<>> {
    let rules = game.rules();
    let plies = 0..rules.spec().max_plies;
    Some(labelled(rules, oracle(game)?, seed, plies, count))
}

/// Draws positions of Connect Four with 8 to 11 stones, which take minutes to solve, like [`draw`].
pub fn connect_four_openings(seed: u64, count: usize) -> impl Iterator<Item = LabelledPosition> {
    let stones = 8..12;
    labelled(GameKind::ConnectFour.rules(), connect_four(stones.start), seed, stones, count)
}

fn labelled(
    game: AnyGame,
    mut oracle: Box<dyn Oracle<Position = AnyPosition>>,
    seed: u64,
    plies: Range<usize>,
    count: usize,
) -> impl Iterator<Item = LabelledPosition> {
    let mut random = Generator::new(seed);
    let mut seen = HashSet::new();
    let attempt = move |_| {
        let (actions, position) = random_position(&game, plies.clone(), &mut random)?;
        let is_covered = oracle.covers(&position) && !wins_at_once(&game, &position);
        if !is_covered || !seen.insert(canonical_hash(&game, &position)) {
            return None;
        }
        let scores = oracle.scores(&position);
        has_choice(&scores).then(|| LabelledPosition { band: band(&game, actions.len()), actions, scores })
    };
    (0..count.saturating_mul(ATTEMPTS_PER_POSITION)).filter_map(attempt).take(count)
}

/// Plays random actions up to a random ply; `None` if the game is over there.
fn random_position(game: &AnyGame, plies: Range<usize>, random: &mut Generator) -> Option<(Vec<Action>, AnyPosition)> {
    let plies = plies.start + random.below(plies.len());
    let (mut position, mut actions, mut legal) = (game.start(), Vec::with_capacity(plies), Vec::new());
    loop {
        game.legal_actions(&position, &mut legal);
        if legal.is_empty() {
            return None;
        }
        if actions.len() == plies {
            return Some((actions, position));
        }
        let action = legal[random.below(legal.len())];
        game.play(&mut position, action);
        actions.push(action);
    }
}

/// Returns true if the player to move wins with one action.
fn wins_at_once(game: &AnyGame, position: &AnyPosition) -> bool {
    let mut legal = Vec::new();
    game.legal_actions(position, &mut legal);
    legal.into_iter().any(|action| {
        let mut next = position.clone();
        game.play(&mut next, action);
        game.outcome(&next) == Some(Outcome::Win(game.to_move(position)))
    })
}

/// Returns the minimum hash among the images of a position.
fn canonical_hash(game: &AnyGame, position: &AnyPosition) -> u64 {
    let hashes = (0..game.symmetries().len()).map(|symmetry| game.hash(&game.image(position, symmetry)));
    hashes.min().expect("a game has at least the identity")
}

/// Returns true if two actions lead to different outcomes.
fn has_choice(scores: &[Option<i32>]) -> bool {
    let mut outcomes = scores.iter().flatten().map(|score| score.signum());
    outcomes.next().is_some_and(|first| outcomes.any(|outcome| outcome != first))
}

/// Returns the third of a game for a position after this number of plies. Passes and swaps do not lengthen a game
/// beyond the number of cells here.
fn band(game: &AnyGame, plies: usize) -> &'static str {
    let shape = game.spec().observation;
    let thirds = 3 * plies / game.spec().max_plies.min(shape.height * shape.width);
    ["early", "middle", "late"][thirds.min(2)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(game: &str, seed: u64, count: usize) -> Vec<LabelledPosition> {
        draw(&game.parse().unwrap(), seed, count).unwrap().collect()
    }

    #[test]
    fn a_seed_determines_the_positions_and_another_gives_others() {
        let positions = drawn("hex-4", 1, 50);
        assert_eq!(positions.len(), 50);
        assert_eq!(positions, drawn("hex-4", 1, 50));
        let others = drawn("hex-4", 2, 50);
        let repeated = others.iter().filter(|other| positions.contains(other)).count();
        assert!(repeated < 25, "{repeated} of 50 positions occur again");
    }

    #[test]
    fn drawn_positions_have_a_score_for_each_legal_action_and_actions_of_different_outcomes() {
        for game in ["tic_tac_toe", "connect_four", "hex-3"] {
            let rules = game.parse::<GameKind>().unwrap().rules();
            let mut hashes = HashSet::new();
            for LabelledPosition { actions, band, scores } in drawn(game, 3, 12) {
                let position = rules.replay(&actions).unwrap();
                for (index, score) in scores.iter().enumerate() {
                    let is_legal = rules.is_legal(&position, Action(u16::try_from(index).unwrap()));
                    assert_eq!(is_legal, score.is_some(), "{game}, {band}, {actions:?}: {scores:?}");
                }
                assert!(has_choice(&scores) && !wins_at_once(&rules, &position), "{game}, {actions:?}: {scores:?}");
                assert!(hashes.insert(canonical_hash(&rules, &position)), "{game}, {actions:?} occurs twice");
            }
            assert!(hashes.len() == 12, "{game} has {} positions", hashes.len());
        }
    }

    #[test]
    fn a_game_without_an_oracle_has_no_positions_and_a_small_one_few() {
        assert!(draw(&"hex-6".parse().unwrap(), 1, 10).is_none());
        let positions = drawn("tic_tac_toe", 1, 1000);
        assert!((20..765).contains(&positions.len()), "{} positions", positions.len());
    }
}
