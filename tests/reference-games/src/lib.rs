//! Slow rules of board games, for comparison with the rules of `games` in tests and fuzz targets.
//!
//! A [`Reference`] holds the stones in an array and follows the written rules cell by cell; it shares no code with the
//! rules under test. [`reference()`] returns the reference of a game. [`compare`] plays a game by both,
//! [`compare_moves`] a given one, and [`compare_tree`] all games to a depth. [`perft`] counts positions by the fast
//! rules alone. A further game is a file here and a line in [`reference()`]. Only tests and fuzz targets depend on this
//! crate.

mod breakthrough;
mod chess;
mod compare;
mod connect_four;
mod go;
mod hex;
mod in_a_row;
mod othello;
mod stones;

use game::{Action, Outcome, Player};

pub use compare::{compare, compare_moves, compare_position, compare_tree, perft};
pub use go::Go;
pub use in_a_row::InARow;

/// A position of a board game for two players, with slow rules.
pub trait Reference {
    /// Returns the player who chooses the next action. Unspecified once the game is over.
    fn to_move(&self) -> Player;

    /// Returns the legal actions in ascending order; none once the game is over.
    fn legal_actions(&self) -> Vec<Action>;

    /// Plays a legal action.
    fn play(&mut self, action: Action);

    /// Returns the outcome of the game, or `None` while it is not over.
    fn outcome(&self) -> Option<Outcome>;

    /// Returns the cells in the order in which [`Game::render`](game::Game::render) draws them: `X` is a stone of the
    /// first player, `O` of the second, and `.` an empty cell, which is omitted if it is drawn otherwise. Chess pieces
    /// have the usual letters.
    fn stones(&self) -> String;

    /// Extracts the cells from a board drawn by [`Game::render`](game::Game::render), in the form of
    /// [`stones`](Self::stones).
    fn drawn_stones(&self, board: &str) -> String {
        board.chars().filter(|cell| "XO.".contains(*cell)).collect()
    }

    /// Returns a copy of the position.
    fn copied(&self) -> Box<dyn Reference>;
}

/// Returns the start of the game of this name with slow rules, if there are any; an example is `othello-8`.
#[must_use]
pub fn reference(name: &str) -> Option<Box<dyn Reference>> {
    match name {
        "tic_tac_toe" => return Some(Box::new(in_a_row::InARow::tic_tac_toe())),
        "chess" => return Some(Box::new(chess::Chess::new())),
        "connect_four" => return Some(Box::new(connect_four::ConnectFour::new(7, 6))),
        _ => {}
    }
    let (game, size) = name.rsplit_once('-')?;
    if let ("connect_four", Some((columns, rows))) = (game, size.split_once('x')) {
        return Some(Box::new(connect_four::ConnectFour::new(columns.parse().ok()?, rows.parse().ok()?)));
    }
    let size = size.parse().ok()?;
    match game {
        "breakthrough" => Some(Box::new(breakthrough::Breakthrough::new(size))),
        "go" => Some(Box::new(Go::usual(size))),
        "gomoku" => Some(Box::new(InARow::gomoku(size))),
        "hex" => Some(Box::new(hex::Hex::new(size))),
        "othello" => Some(Box::new(othello::Othello::new(size))),
        _ => None,
    }
}

/// Returns the action of this index.
fn action(index: usize) -> Action {
    Action(u16::try_from(index).expect("actions have 16 bits"))
}

/// Returns the letter of a cell: `X`, `O` or `.`.
fn letter(cell: Option<Player>) -> char {
    match cell {
        Some(Player::First) => 'X',
        Some(Player::Second) => 'O',
        None => '.',
    }
}
