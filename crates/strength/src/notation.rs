//! Defines [`Notation`], which names the moves of board games as the protocols do.

use game::{Action, Game as _};
use games::AnyGame;
use protocols::{BoardGame, Cell, Color, Move, Size};

/// Converts between the actions of a board game's rules and the moves of protocols.
///
/// Both count rows from the top. Actions have the numbers `row · width + column`, and `width · height` is the pass of
/// Go and Othello and the swap of Hex. Actions in Hex are in the frame of the player to move: White's actions are
/// mirrored across the main diagonal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notation {
    game: BoardGame,
    size: Size,
}

impl Notation {
    /// Returns the notation of a game; `None` if the protocols do not support the game.
    #[must_use]
    pub fn of(game: &AnyGame) -> Option<Self> {
        let shape = game.spec().observation;
        Some(Self { game: board_game(game)?, size: Size::new(shape.width, shape.height)? })
    }

    /// Returns the game.
    #[must_use]
    pub const fn game(self) -> BoardGame {
        self.game
    }

    /// Returns the size of the board.
    #[must_use]
    pub const fn size(self) -> Size {
        self.size
    }

    /// Returns the move of an action of the player `mover`.
    ///
    /// # Panics
    /// The rules have no such action.
    #[must_use]
    pub fn to_move(self, mover: Color, action: Action) -> Move {
        if action.index() == self.size.len() {
            return if self.game == BoardGame::Hex { Move::Swap } else { Move::Pass };
        }
        let (row, column) = (action.index() / self.size.width(), action.index() % self.size.width());
        let (row, column) = if self.is_mirrored(mover) { (column, row) } else { (row, column) };
        Move::Place(self.size.cell(column, row).expect("an action places a stone on the board"))
    }

    /// Returns the action for a move of the player `mover`; `None` if the rules have no such action at all. Legality
    /// in a position is not checked.
    #[must_use]
    pub fn to_action(self, mover: Color, played: Move) -> Option<Action> {
        let index = match (played, self.game) {
            (Move::Place(cell), _) if self.size.contains(cell) => self.size.index(self.framed(mover, cell)),
            (Move::Pass, BoardGame::Go | BoardGame::Othello) | (Move::Swap, BoardGame::Hex) => self.size.len(),
            _ => return None,
        };
        u16::try_from(index).ok().map(Action)
    }

    fn framed(self, mover: Color, cell: Cell) -> Cell {
        if self.is_mirrored(mover) { Cell { column: cell.row, row: cell.column } } else { cell }
    }

    fn is_mirrored(self, mover: Color) -> bool {
        self.game == BoardGame::Hex && mover == Color::White
    }
}

/// Returns the protocol name of a game, if there is one.
#[must_use]
pub const fn board_game(game: &AnyGame) -> Option<BoardGame> {
    match game {
        AnyGame::Go(_) => Some(BoardGame::Go),
        AnyGame::Hex(_) => Some(BoardGame::Hex),
        AnyGame::Othello(_) => Some(BoardGame::Othello),
        AnyGame::Gomoku(_) => Some(BoardGame::Gomoku),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use games::GameKind;
    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn rules(name: &str) -> AnyGame {
        name.parse::<GameKind>().unwrap().rules()
    }

    /// The names from the rules are an independent description. In Gomoku they count columns with the letter I, and
    /// they name the swap of Hex `swap`.
    #[test]
    fn random_games_have_the_moves_that_the_rules_name() {
        for name in ["go-5", "go-19", "hex-4", "hex-11", "othello-6", "othello-8", "gomoku-7", "gomoku-20"] {
            let game = rules(name);
            let notation = Notation::of(&game).unwrap();
            let mut rng = ChaCha8Rng::seed_from_u64(5);
            let (mut position, mut legal) = (game.start(), Vec::new());
            while game.outcome(&position).is_none() {
                game.legal_actions(&position, &mut legal);
                let mover = Color::from(game.to_move(&position));
                for &action in &legal {
                    let played = notation.to_move(mover, action);
                    assert_eq!(notation.to_action(mover, played), Some(action), "{name} {played:?}");
                    let (named, size) = (game.action_name(&position, action), notation.size());
                    match (notation.game(), played) {
                        (BoardGame::Gomoku, Move::Place(cell)) => {
                            let column = char::from(b'a' + cell.column);
                            assert_eq!(named, format!("{column}{}", size.height() - usize::from(cell.row)));
                        }
                        (_, Move::Swap) => assert_eq!(named, "swap"),
                        (game, _) => assert_eq!(named, game.move_name(size, played), "{name}"),
                    }
                }
                game.play(&mut position, legal[rng.random_range(0..legal.len())]);
            }
        }
    }

    #[test]
    fn moves_that_the_rules_do_not_have_have_no_action() {
        let outside = Move::Place(Cell { column: 7, row: 0 });
        for (name, missing) in [
            ("go-7", vec![Move::Swap, Move::Resign, outside]),
            ("hex-7", vec![Move::Pass, Move::Resign, outside]),
            ("othello-6", vec![Move::Swap, Move::Resign, outside]),
            ("gomoku-7", vec![Move::Swap, Move::Pass, Move::Resign, outside]),
        ] {
            let notation = Notation::of(&rules(name)).unwrap();
            for played in missing {
                assert_eq!(notation.to_action(Color::White, played), None, "{name} {played:?}");
            }
        }
        assert_eq!(Notation::of(&rules("connect_four")), None);
    }

    #[test]
    fn the_cells_of_white_in_hex_are_mirrored() {
        let notation = Notation::of(&rules("hex-5")).unwrap();
        let cell = Move::Place(Cell { column: 3, row: 1 });
        assert_eq!(notation.to_action(Color::Black, cell), Some(Action(8)));
        assert_eq!(notation.to_action(Color::White, cell), Some(Action(16)));
    }
}
