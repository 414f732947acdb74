use std::fmt::{Display, Write as _};

use game::{Action, Board, Game, Geometry, Mark, ObservationShape, Place, Player, Symmetry};

/// The coordinates of a cell: row from the top, column from the left, both from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) row: usize,
    pub(crate) column: usize,
}

/// Returns the symmetry that maps cells by `image_of_cell` and actions by `image_of_action`; planes keep the order.
pub(crate) fn symmetry(
    shape: ObservationShape,
    actions: usize,
    image_of_cell: impl Fn(Cell) -> Cell,
    image_of_action: impl Fn(Action) -> Action,
) -> Symmetry {
    let mut symmetry = Symmetry::identity(shape, actions);
    for row in 0..shape.height {
        for column in 0..shape.width {
            let image = image_of_cell(Cell { row, column });
            symmetry.cells[image.row * shape.width + image.column] = narrow(row * shape.width + column);
        }
    }
    for (action, image) in symmetry.actions.iter_mut().enumerate() {
        *image = image_of_action(Action(narrow(action))).0;
    }
    symmetry
}

/// Returns the eight symmetries of a square board, identity first. The first actions have the indices of the cells;
/// actions after them are mapped to themselves.
pub(crate) fn square_symmetries(shape: ObservationShape, actions: usize) -> [Symmetry; 8] {
    let side = shape.height;
    let last = side - 1;
    let images: [fn(Cell, usize) -> Cell; 8] = [
        |c, _| c,
        |c, last| Cell { row: c.column, column: last - c.row },
        |c, last| Cell { row: last - c.row, column: last - c.column },
        |c, last| Cell { row: last - c.column, column: c.row },
        |c, last| Cell { row: c.row, column: last - c.column },
        |c, last| Cell { row: last - c.row, column: c.column },
        |c, _| Cell { row: c.column, column: c.row },
        |c, last| Cell { row: last - c.column, column: last - c.row },
    ];
    images.map(|image| {
        let image_of_action = |action: Action| {
            if action.index() >= side * side {
                return action;
            }
            let to = image(Cell { row: action.index() / side, column: action.index() % side }, last);
            Action(narrow(to.row * side + to.column))
        };
        symmetry(shape, actions, |cell| image(cell, last), image_of_action)
    })
}

/// Implements the methods of [`game::Game`] that return the fields `spec` and `symmetries` of the rules.
macro_rules! spec_and_symmetries {
    () => {
        fn spec(&self) -> &game::Spec {
            &self.spec
        }

        fn symmetries(&self) -> &[game::Symmetry] {
            &self.symmetries
        }
    };
}

pub(crate) use spec_and_symmetries;

/// Converts a cell or action index to 16 bits.
pub(crate) fn narrow(index: usize) -> u16 {
    u16::try_from(index).expect("boards have fewer than 65,536 cells")
}

/// Returns the letter of a column, `a` for the first.
fn column_letter(column: usize) -> char {
    char::from(b'a' + u8::try_from(column).expect("boards have at most 26 columns"))
}

/// Returns the name of a cell on a square board, numbered row by row from row 1: `c7`.
pub(crate) fn cell_name(cell: usize, size: usize) -> String {
    format!("{}{}", column_letter(cell % size), cell / size + 1)
}

/// Parses `c7`, a letter for the column and a number from 1 for the row, to a cell as in [`cell_name`].
pub(crate) fn parse_cell(text: &str, size: usize) -> Option<usize> {
    let (&letter, row) = text.as_bytes().split_first()?;
    let column = letter.to_ascii_lowercase().checked_sub(b'a')? as usize;
    let row = std::str::from_utf8(row).ok().filter(|row| row.bytes().all(|byte| byte.is_ascii_digit()))?;
    let row = row.parse::<usize>().ok()?.checked_sub(1)?;
    (row < size && column < size).then_some(row * size + column)
}

/// Returns the character of a cell: `X` for the first player, `O` for the second, `.` if empty.
pub(crate) const fn symbol(owner: Option<Player>) -> char {
    match owner {
        Some(Player::First) => 'X',
        Some(Player::Second) => 'O',
        None => '.',
    }
}

/// Renders a square board with coordinates; `label` returns the label of a row, counted from 0 at the top, and
/// `stone` the character of a cell.
pub(crate) fn render<L: Display>(size: usize, label: impl Fn(usize) -> L, stone: impl Fn(usize) -> char) -> String {
    let mut text = String::from("  ");
    for column in 0..size {
        write!(text, " {}", column_letter(column)).expect("a string takes all text");
    }
    for row in 0..size {
        write!(text, "\n{:>2}", label(row)).expect("a string takes all text");
        for column in 0..size {
            write!(text, " {}", stone(row * size + column)).expect("a string takes all text");
        }
    }
    text
}

/// Returns the mark of a stone or a piece that [`symbol`] renders.
pub(crate) fn stone(kind: &'static str, owner: Player) -> Mark {
    Mark { owner: Some(owner), kind, label: symbol(Some(owner)).into() }
}

/// Returns a square board of stones. The first actions have cell indices, which `framed` converts to cells of the
/// rendered board; actions after them have no cell.
pub(crate) fn board_of_stones<G: Game>(
    game: &G,
    position: &G::Position,
    geometry: Geometry,
    owner: impl Fn(usize) -> Option<Player>,
    framed: impl Fn(usize) -> usize,
) -> Board {
    let size = game.spec().observation.height;
    let is_cell = |action: Action| action.index() < size * size;
    let place = |action: Action| if is_cell(action) { Place::Cell(framed(action.index())) } else { Place::Nowhere };
    let mark = |cell| owner(cell).map(|owner| stone("stone", owner));
    Board::new(geometry, size, size, mark).with_moves(game, position, place)
}

/// An object in a cell of an environment: the kind, and the character in the rendered board.
pub(crate) type Object = (&'static str, char);

/// Returns the board of an environment with an object, if any, in each row and column.
pub(crate) fn board_of_objects<G: Game>(
    game: &G,
    position: &G::Position,
    (rows, columns): (u8, u8),
    object: impl Fn(u8, u8) -> Option<Object>,
) -> Board {
    let cells: Vec<_> = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))).collect();
    let mark = |cell: usize| {
        let (kind, symbol) = object(cells[cell].0, cells[cell].1)?;
        Some(Mark { owner: None, kind, label: symbol.into() })
    };
    Board::new(Geometry::Squares, rows.into(), columns.into(), mark).with_moves(game, position, |_| Place::Nowhere)
}

/// Renders the same board, with `.` for empty cells.
pub(crate) fn render_objects((rows, columns): (u8, u8), object: impl Fn(u8, u8) -> Option<Object>) -> String {
    let symbol = |row, column| object(row, column).map_or('.', |(_, symbol)| symbol);
    let line = |row| (0..columns).map(|column| symbol(row, column)).collect::<String>();
    (0..rows).map(line).collect::<Vec<_>>().join("\n")
}
