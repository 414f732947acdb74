//! Moves, and the notation of each board game: [`Move`], [`BoardGame`].

use crate::board::{Cell, Size};

/// Column letters in Go: without I.
const GO_LETTERS: &[u8] = b"ABCDEFGHJKLMNOPQRSTUVWXYZ";
/// Column letters in Hex and Othello.
const ALL_LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz";

/// A move of either player.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Move {
    /// Places a stone.
    Place(Cell),
    /// Places no stone.
    Pass,
    /// Takes over the opponent's first stone, mirrored to the own side, by the swap rule of Hex.
    Swap,
    /// Gives up the game.
    Resign,
}

/// A game of stones on a board, with a notation and an SGF number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BoardGame {
    /// Go: `A1` at the bottom left, columns without I.
    Go,
    /// Othello: `a1` at the top left.
    Othello,
    /// Gomoku: written as Go in GTP.
    Gomoku,
    /// Hex: `a1` at the top left.
    Hex,
}

impl BoardGame {
    /// All games, sorted by SGF number.
    pub const ALL: [Self; 4] = [Self::Go, Self::Othello, Self::Gomoku, Self::Hex];

    /// Returns the SGF number of the game, the value of the property `GM`.
    #[must_use]
    pub const fn sgf_number(self) -> u32 {
        match self {
            Self::Go => 1,
            Self::Othello => 2,
            Self::Gomoku => 4,
            Self::Hex => 11,
        }
    }

    /// Returns the number of own moves left in a usual game after `plies` plies, for dividing time. The numbers are
    /// estimates, except for Othello, which fills the board.
    pub(crate) fn moves_left(self, size: Size, plies: usize) -> u32 {
        let cells = size.len();
        let expected = match self {
            Self::Go => cells * 3 / 4,
            Self::Othello => cells.saturating_sub(4),
            Self::Gomoku => cells * 3 / 10,
            Self::Hex => cells / 2,
        };
        u32::try_from(expected.saturating_sub(plies).div_ceil(2)).unwrap_or(u32::MAX)
    }

    const fn letters(self) -> &'static [u8] {
        match self {
            Self::Go | Self::Gomoku => GO_LETTERS,
            Self::Othello | Self::Hex => ALL_LETTERS,
        }
    }

    /// Returns the number of a row in the notation, from 1.
    const fn row_number(self, size: Size, row: usize) -> usize {
        match self {
            Self::Go | Self::Gomoku => size.height() - row,
            Self::Othello | Self::Hex => row + 1,
        }
    }

    /// Returns the name of a cell, such as `D4` in Go and `d4` in Hex. Columns after the last letter have two letters.
    #[must_use]
    pub fn cell_name(self, size: Size, cell: Cell) -> String {
        let (letters, column) = (self.letters(), usize::from(cell.column));
        let mut name = String::new();
        if column >= letters.len() {
            name.push(char::from(letters[column / letters.len() - 1]));
        }
        name.push(char::from(letters[column % letters.len()]));
        name.push_str(&self.row_number(size, usize::from(cell.row)).to_string());
        name
    }

    /// Parses a cell name in any case; `None` if there is no such cell on the board.
    #[must_use]
    pub fn parse_cell(self, size: Size, text: &str) -> Option<Cell> {
        let digits_at = text.find(|c: char| c.is_ascii_digit())?;
        let (letters, digits) = text.split_at(digits_at);
        let is_number = digits.len() <= 2 && digits.bytes().all(|digit| digit.is_ascii_digit());
        let number: usize = if is_number { digits.parse().ok()? } else { return None };
        let index = |letter: u8| self.letters().iter().position(|known| known.eq_ignore_ascii_case(&letter));
        let column = match *letters.as_bytes() {
            [letter] => index(letter)?,
            [high, low] => (index(high)? + 1) * self.letters().len() + index(low)?,
            _ => return None,
        };
        if !(1..=size.height()).contains(&number) {
            return None;
        }
        let row = match self {
            Self::Go | Self::Gomoku => size.height() - number,
            Self::Othello | Self::Hex => number - 1,
        };
        size.cell(column, row)
    }

    /// Returns the name of a move, as in GTP.
    #[must_use]
    pub fn move_name(self, size: Size, played: Move) -> String {
        match played {
            Move::Place(cell) => self.cell_name(size, cell),
            Move::Pass => "pass".into(),
            // Go has no swap. GoGui, for which every game has the names of Go, writes one as a pass.
            Move::Swap if self == Self::Go => "pass".into(),
            Move::Swap => "swap-pieces".into(),
            Move::Resign => "resign".into(),
        }
    }

    /// Parses a move in any case; in Hex also `swap-pieces` and `swap`.
    #[must_use]
    pub fn parse_move(self, size: Size, text: &str) -> Option<Move> {
        let is = |name: &str| text.eq_ignore_ascii_case(name);
        if is("pass") {
            Some(Move::Pass)
        } else if is("resign") {
            Some(Move::Resign)
        } else if self == Self::Hex && (is("swap-pieces") || is("swap")) {
            Some(Move::Swap)
        } else {
            self.parse_cell(size, text).map(Move::Place)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_the_names_of_their_game() {
        let size = Size::square(19).unwrap();
        let name = |game: BoardGame, column, row| game.cell_name(size, Cell { column, row });
        assert_eq!(name(BoardGame::Go, 0, 18), "A1");
        assert_eq!(name(BoardGame::Go, 8, 0), "J19");
        assert_eq!(name(BoardGame::Hex, 8, 0), "i1");
        assert_eq!(name(BoardGame::Othello, 3, 2), "d3");
        assert_eq!(BoardGame::Go.move_name(size, Move::Pass), "pass");
        assert_eq!(BoardGame::Hex.parse_move(size, "SWAP-pieces"), Some(Move::Swap));
        assert_eq!(BoardGame::Go.parse_move(size, "swap-pieces"), None);
    }

    #[test]
    fn every_cell_of_every_board_is_parsed_from_its_name_in_any_case() {
        for game in BoardGame::ALL {
            for size in [Size::square(1), Size::new(7, 3), Size::square(25), Size::square(52)].map(Option::unwrap) {
                for cell in size.cells() {
                    let name = game.cell_name(size, cell);
                    assert_eq!(game.parse_cell(size, &name), Some(cell), "{game:?} {name}");
                    assert_eq!(game.parse_cell(size, &name.to_lowercase()), Some(cell), "{game:?} {name}");
                }
            }
        }
    }

    #[test]
    fn text_that_names_no_cell_of_the_board_is_refused() {
        let size = Size::square(9).unwrap();
        for text in ["", "A", "1", "I1", "K1", "A0", "A10", "A+1", "AA1", "AAA1", "A1B", "A001", "é1", "A1 "] {
            assert_eq!(BoardGame::Go.parse_cell(size, text), None, "{text}");
        }
    }
}
