//! Connect Four: four in a line, on the usual board of 7 columns and 6 rows and on other boards.
//!
//! A position is two 64-bit words. With R rows, column `c` owns the R bits from `c · (R + 1)`, bottom cell first; the
//! bit above each column stays clear, so that a shift never carries a line from one column into the next. [`Rules`] are
//! generic over the [`Board`], so that the numbers of columns and rows of the usual board are constants of the
//! compiler. Start with [`ConnectFour`]; `connect_four_boards.rs` registers the other boards.

#[cfg(test)]
mod tests;

use std::fmt;

use game::{Action, Error, Game, ObservationShape, Outcome, Player, Spec, Symmetry, mix};

use crate::entry::{Entry, Exhaustive, SolvedPositions, Variants};
use crate::grid::{self, Cell, narrow};

/// The registry entry of Connect Four.
pub const ENTRY: Entry = Entry {
    name: "connect_four",
    variants: Variants::One,
    preset: include_str!("../presets/connect_four.toml"),
    solved: Some(SolvedPositions { file: "connect4_solved.csv", csv: include_str!("../data/connect4_solved.csv") }),
    exhaustive: Exhaustive::Skip,
};

/// A board of Connect Four: at most 9 columns, each of which takes one bit more than it has rows, and at most 64 bits.
pub trait Board: Copy + fmt::Debug + Send + Sync + 'static {
    /// Returns the name of the game on this board.
    fn name(self) -> String;

    /// Returns the number of columns.
    fn columns(self) -> usize;

    /// Returns the number of rows.
    fn rows(self) -> usize;

    /// Returns the number of bits from one column to the next: its cells and the clear bit above them.
    fn stride(self) -> usize {
        self.rows() + 1
    }

    /// Returns the number of cells.
    fn cells(self) -> usize {
        self.columns() * self.rows()
    }

    /// Returns the cells of a column.
    fn column(self, column: usize) -> u64 {
        ((1 << self.rows()) - 1) << (column * self.stride())
    }
}

/// The usual board: 7 columns and 6 rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usual;

impl Board for Usual {
    fn name(self) -> String {
        ENTRY.name.into()
    }

    fn columns(self) -> usize {
        7
    }

    fn rows(self) -> usize {
        6
    }
}

/// Implements the rules of Connect Four on the usual board.
pub type ConnectFour = Rules<Usual>;

/// Implements the rules of Connect Four on one board.
///
/// Action `c` drops a stone into column `c`, from the left; players call the columns from `1`. Observation planes,
/// top row first: the stones of the player to move, those of the opponent, and all ones if the player to move made the
/// first move of the game, which matters for zugzwang and is hard to derive from the stones.
#[derive(Debug, Clone)]
pub struct Rules<B> {
    spec: Spec,
    board: B,
    /// The lowest cell of every column.
    bottom: u64,
    symmetries: Vec<Symmetry>,
}

/// Holds a position of Connect Four.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// The stones of the player to move.
    own: u64,
    /// All stones.
    occupied: u64,
}

impl ConnectFour {
    /// Returns the rules.
    #[must_use]
    pub fn new() -> Self {
        Self::on(Usual)
    }
}

impl Default for ConnectFour {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Board> Rules<B> {
    /// Returns the rules on a board.
    #[must_use]
    pub fn on(board: B) -> Self {
        let columns = board.columns();
        let observation = ObservationShape { planes: 3, height: board.rows(), width: columns };
        let spec = Spec::board(board.name(), columns, observation, board.cells());
        let mirror = grid::symmetry(
            observation,
            columns,
            |cell| Cell { column: columns - 1 - cell.column, ..cell },
            |action| Action(narrow(columns - 1) - action.0),
        );
        let bottom = (0..columns).fold(0, |bottom, column| bottom | 1 << (column * board.stride()));
        Self { spec, board, bottom, symmetries: vec![Symmetry::identity(observation, columns), mirror] }
    }

    /// Returns every cell of the board.
    fn full(&self) -> u64 {
        self.bottom * ((1 << self.board.rows()) - 1)
    }

    /// Returns the lowest empty cell of each open column; none once the game is over.
    fn landings(&self, position: Position) -> u64 {
        if self.has_four(position.own ^ position.occupied) {
            0
        } else {
            (position.occupied + self.bottom) & self.full()
        }
    }

    /// Returns whether `stones` contain four in a line.
    fn has_four(&self, stones: u64) -> bool {
        let stride = self.board.stride();
        let up = stones & (stones >> 1);
        let across = stones & (stones >> stride);
        let falling = stones & (stones >> (stride - 1));
        let rising = stones & (stones >> (stride + 1));
        (up & (up >> 2))
            | (across & (across >> (2 * stride)))
            | (falling & (falling >> (2 * (stride - 1))))
            | (rising & (rising >> (2 * (stride + 1))))
            != 0
    }

    /// Reverses the order of the columns.
    fn mirrored(&self, stones: u64) -> u64 {
        let (columns, stride) = (self.board.columns(), self.board.stride());
        (0..columns).fold(0, |image, column| {
            image | (stones & self.board.column(column)) >> (column * stride) << ((columns - 1 - column) * stride)
        })
    }

    /// Writes one plane `[H, W]` of zeros and ones, top row first.
    fn write_plane(&self, stones: u64, plane: &mut [f32]) {
        let (rows, stride) = (self.board.rows(), self.board.stride());
        for (row, values) in plane.chunks_exact_mut(self.board.columns()).enumerate() {
            for (column, value) in values.iter_mut().enumerate() {
                let bit = stones >> (column * stride + rows - 1 - row) & 1;
                *value = if bit == 1 { 1.0 } else { 0.0 };
            }
        }
    }
}

impl<B: Board> Game for Rules<B> {
    type Position = Position;

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn start(&self) -> Position {
        Position { own: 0, occupied: 0 }
    }

    fn to_move(&self, position: &Position) -> Player {
        // Parity alone is cheaper than the count.
        if position.occupied.count_ones() & 1 == 0 { Player::First } else { Player::Second }
    }

    fn legal_actions(&self, position: &Position, actions: &mut Vec<Action>) {
        let landings = self.landings(*position);
        // The loop is branchless because full columns are unpredictable.
        actions.resize(self.board.columns(), Action(0));
        let mut len = 0;
        for column in 0..self.board.columns() {
            actions[len] = Action(narrow(column));
            len += usize::from(landings & self.board.column(column) != 0);
        }
        actions.truncate(len);
    }

    fn is_legal(&self, position: &Position, action: Action) -> bool {
        action.index() < self.board.columns() && self.landings(*position) & self.board.column(action.index()) != 0
    }

    fn play(&self, position: &mut Position, action: Action) -> f32 {
        debug_assert!(self.is_legal(position, action), "{action} is not legal");
        // The players change sides before the stone lands: a stone set in `occupied` only belongs to the opponent of
        // the next player to move.
        position.own ^= position.occupied;
        position.occupied |= position.occupied + (1 << (action.index() * self.board.stride()));
        0.0
    }

    fn outcome(&self, position: &Position) -> Option<Outcome> {
        if self.has_four(position.own ^ position.occupied) {
            return Some(Outcome::Win(self.to_move(position).opponent()));
        }
        (position.occupied == self.full()).then_some(Outcome::Draw)
    }

    fn observe(&self, position: &Position, planes: &mut [f32]) {
        let (own, rest) = planes.split_at_mut(self.board.cells());
        let (opponent, began) = rest.split_at_mut(self.board.cells());
        self.write_plane(position.own, own);
        self.write_plane(position.own ^ position.occupied, opponent);
        began.fill(if self.to_move(position) == Player::First { 1.0 } else { 0.0 });
    }

    /// The sum of both words is unique for every position: in each column it sets the bit above the topmost stone and
    /// keeps the owners of the stones below (Pons, "Solving Connect 4", part 6).
    fn hash(&self, position: &Position) -> u64 {
        mix(position.own + position.occupied + self.bottom)
    }

    fn symmetries(&self) -> &[Symmetry] {
        &self.symmetries
    }

    fn image(&self, position: &Position, symmetry: usize) -> Position {
        match symmetry {
            0 => *position,
            _ => Position { own: self.mirrored(position.own), occupied: self.mirrored(position.occupied) },
        }
    }

    fn action_name(&self, _: &Position, action: Action) -> String {
        (action.0 + 1).to_string()
    }

    fn parse_action(&self, _: &Position, text: &str) -> Result<Action, Error> {
        let columns = self.board.columns();
        match text.trim().as_bytes() {
            [digit @ b'1'..=b'9'] if usize::from(digit - b'1') < columns => Ok(Action(u16::from(digit - b'1'))),
            _ => Err(Error::Notation { text: text.into(), expected: format!("a column from 1 to {columns}") }),
        }
    }

    /// Renders the board; stones are `X` (first player) and `O` (second player).
    fn render(&self, position: &Position) -> String {
        let first = match self.to_move(position) {
            Player::First => position.own,
            Player::Second => position.own ^ position.occupied,
        };
        let (columns, rows) = (self.board.columns(), self.board.rows());
        let mut text = String::with_capacity((rows + 1) * 2 * columns);
        for row in (0..rows).rev() {
            for column in 0..columns {
                let bit = 1 << (column * self.board.stride() + row);
                let stone = if position.occupied & bit == 0 {
                    '.'
                } else if first & bit != 0 {
                    'X'
                } else {
                    'O'
                };
                text.push(stone);
                text.push(if column + 1 < columns { ' ' } else { '\n' });
            }
        }
        let names: Vec<String> = (1..=columns).map(|column| column.to_string()).collect();
        text + &names.join(" ")
    }
}
