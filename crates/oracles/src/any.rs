use game::Game as _;
use games::{AnyPosition, ConnectFour, ConnectFourBoards, GameKind, Hex, Othello, TicTacToe};

use crate::{ConnectFourOracle, FullSearch, HexOracle, Oracle, OthelloOracle, planes};

/// Number of last plies of Connect Four in which a full search takes milliseconds.
const LATE_PLIES: usize = 14;

/// An oracle for one game, wrapped for positions of any game.
struct Behind<O: Oracle> {
    oracle: O,
    /// Returns the position, if it belongs to the game.
    of_game: fn(&AnyPosition) -> Option<&O::Position>,
}

impl<O: Oracle> Behind<O> {
    fn position<'a>(&self, position: &'a AnyPosition) -> &'a O::Position {
        (self.of_game)(position).expect("the position belongs to the game of this oracle")
    }
}

impl<O: Oracle> Oracle for Behind<O> {
    type Position = AnyPosition;

    fn covers(&self, position: &AnyPosition) -> bool {
        self.oracle.covers(self.position(position))
    }

    fn scores(&mut self, position: &AnyPosition) -> Vec<Option<i32>> {
        self.oracle.scores(self.position(position))
    }
}

/// Wraps the oracle of a game with this name in [`AnyPosition`].
macro_rules! behind {
    ($game:ident, $oracle:expr) => {
        Box::new(Behind {
            oracle: $oracle,
            of_game: |position| match position {
                AnyPosition::$game(position) => Some(position),
                _ => None,
            },
        })
    };
}

/// Returns the oracle for a game; `None` if the game has none. A position from another game is a bug of the caller and
/// makes the oracle panic.
///
/// | game | covered positions | solved by |
/// |---|---|---|
/// | tic-tac-toe | all | search of every line |
/// | Connect Four, 7 columns and 6 rows | 12 stones or more | the crate `connect-four-ai` |
/// | Connect Four on other boards | at most 14 empty cells | search of every line |
/// | Hex on 3 and 4 cells a side | all | [`HexOracle`] |
/// | Hex on 5 cells a side | 5 stones or more | [`HexOracle`] |
/// | Othello | at most 12 empty cells | [`OthelloOracle`] |
#[must_use]
pub fn oracle(game: &GameKind) -> Option<Box<dyn Oracle<Position = AnyPosition>>> {
    match *game {
        GameKind::TicTacToe => {
            let rules = TicTacToe::new();
            let plies = rules.spec().max_plies;
            Some(behind!(TicTacToe, FullSearch::new(rules, planes::count, plies)))
        }
        GameKind::ConnectFour => Some(connect_four(ConnectFourOracle::STONES_MIN)),
        GameKind::ConnectFourBoards { size } => {
            let rules = ConnectFourBoards::new(size);
            Some(behind!(ConnectFourBoards, FullSearch::new(rules, planes::count, LATE_PLIES)))
        }
        GameKind::Hex { size } => {
            let oracle = HexOracle::new(Hex::new(size))?;
            Some(behind!(Hex, oracle))
        }
        GameKind::Othello { size } => Some(behind!(Othello, OthelloOracle::new(Othello::new(size)))),
        _ => None,
    }
}

/// Returns the oracle of Connect Four for positions with at least `stones_min` stones.
pub(crate) fn connect_four(stones_min: usize) -> Box<dyn Oracle<Position = AnyPosition>> {
    behind!(ConnectFour, ConnectFourOracle::new(ConnectFour::new()).covering(stones_min))
}

/// Returns true if a game has an oracle.
#[must_use]
pub fn has_oracle(game: &GameKind) -> bool {
    match *game {
        GameKind::TicTacToe | GameKind::ConnectFour | GameKind::ConnectFourBoards { .. } | GameKind::Othello { .. } => {
            true
        }
        GameKind::Hex { size } => size.get() <= HexOracle::SIZE_MAX,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use games::GAMES;

    use super::*;

    #[test]
    fn the_games_with_an_oracle_are_those_that_have_one() {
        for name in GAMES.iter().flat_map(|entry| entry.examples()).chain(["hex-5".into(), "hex-6".into()]) {
            let game: GameKind = name.parse().unwrap();
            assert_eq!(oracle(&game).is_some(), has_oracle(&game), "{name}");
        }
    }
}
