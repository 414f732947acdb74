//! Points and moves in each game's coordinates: [`parse_move`], [`move_value`], [`parse_cells`].

use crate::{BoardGame, Cell, Move, Size};

/// Maximum side of a board on which `tt` is a pass.
const SIDE_OF_TT_MAX: usize = 19;

/// Number of letters in either case. On boards with more cells a side, capital letters follow the small ones.
const LETTERS: usize = 26;

/// Parses the value of a move property.
pub(super) fn parse_move(game: BoardGame, size: Size, value: &str) -> Option<Move> {
    let value = value.trim();
    if game == BoardGame::Hex {
        return match value.to_ascii_lowercase().as_str() {
            "forfeit" => Some(Move::Resign),
            _ => game.parse_move(size, value),
        };
    }
    let is_small = size.width() <= SIDE_OF_TT_MAX && size.height() <= SIDE_OF_TT_MAX;
    let is = |name: &str| value.eq_ignore_ascii_case(name);
    if value.is_empty() || is("pass") || (is("tt") && is_small) {
        return Some(Move::Pass);
    }
    parse_cell(game, size, value).map(Move::Place)
}

/// Returns the value of a move; `None` if the game has no value for it, such as a resignation in Go.
pub(super) fn move_value(game: BoardGame, size: Size, played: Move) -> Option<String> {
    match (game, played) {
        (BoardGame::Hex, _) => Some(game.move_name(size, played)),
        (_, Move::Pass) => Some(String::new()),
        (_, Move::Place(cell)) => Some(cell_value(game, size, cell)),
        (_, Move::Swap | Move::Resign) => None,
    }
}

/// Returns the value of a cell: column and row as letters; in Hex the cell name.
pub(super) fn cell_value(game: BoardGame, size: Size, cell: Cell) -> String {
    if game == BoardGame::Hex {
        return game.cell_name(size, cell);
    }
    let letter = |index: u8| char::from(if index < 26 { b'a' + index } else { b'A' + index - 26 });
    [letter(cell.column), letter(cell.row)].iter().collect()
}

fn parse_cell(game: BoardGame, size: Size, value: &str) -> Option<Cell> {
    if game == BoardGame::Hex {
        return game.parse_cell(size, value);
    }
    let is_large = size.width().max(size.height()) > LETTERS;
    let index = |letter: u8| match letter {
        b'a'..=b'z' => Some(usize::from(letter - b'a')),
        b'A'..=b'Z' => Some(usize::from(letter - b'A') + if is_large { LETTERS } else { 0 }),
        _ => None,
    };
    let [column, row] = *value.as_bytes() else { return None };
    size.cell(index(column)?, index(row)?)
}

/// Parses a cell, or a rectangle of cells: `aa:cc`.
pub(super) fn parse_cells(game: BoardGame, size: Size, value: &str) -> Option<Vec<Cell>> {
    let (first, last) = value.trim().split_once(':').unwrap_or((value.trim(), value.trim()));
    let (first, last) = (parse_cell(game, size, first)?, parse_cell(game, size, last)?);
    let columns = first.column.min(last.column)..=first.column.max(last.column);
    let rows = first.row.min(last.row)..=first.row.max(last.row);
    Some(rows.flat_map(|row| columns.clone().map(move |column| Cell { column, row })).collect())
}
