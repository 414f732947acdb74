//! Connect Four: 7 columns, 6 rows, four in a line.
//!
//! A position is two 64-bit words. Column `c` owns bits `7c` to `7c + 5`, bottom cell first; the bit above each column
//! stays clear, so that a shift never carries a line from one column into the next. Start with [`ConnectFour`].

#[cfg(test)]
mod tests;

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

const COLUMNS: usize = 7;
const ROWS: usize = 6;
const CELLS: usize = COLUMNS * ROWS;
/// The number of bits from one column to the next: its cells and the clear bit above them.
const STRIDE: usize = ROWS + 1;

/// The lowest cell of every column, a geometric series of 2^STRIDE.
const BOTTOM: u64 = ((1 << (COLUMNS * STRIDE)) - 1) / ((1 << STRIDE) - 1);
/// Every cell of the board.
const BOARD: u64 = BOTTOM * ((1 << ROWS) - 1);

/// Implements the rules of Connect Four.
///
/// Action `c` drops a stone into column `c`, from the left; players call the columns `1` to `7`. Observation planes,
/// top row first: the stones of the player to move, those of the opponent, and all ones if the player to move made the
/// first move of the game, which matters for zugzwang and is hard to derive from the stones.
#[derive(Debug, Clone)]
pub struct ConnectFour {
    spec: Spec,
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
        let observation = ObservationShape { planes: 3, height: ROWS, width: COLUMNS };
        let spec = Spec::board(ENTRY.name.into(), COLUMNS, observation, CELLS);
        let mirror = grid::symmetry(
            observation,
            COLUMNS,
            |cell| Cell { column: COLUMNS - 1 - cell.column, ..cell },
            |action| Action(narrow(COLUMNS - 1) - action.0),
        );
        Self { spec, symmetries: vec![Symmetry::identity(observation, COLUMNS), mirror] }
    }
}

impl Default for ConnectFour {
    fn default() -> Self {
        Self::new()
    }
}

impl Position {
    /// Returns the lowest empty cell of each open column; none once the game is over.
    fn landings(self) -> u64 {
        if has_four(self.own ^ self.occupied) { 0 } else { (self.occupied + BOTTOM) & BOARD }
    }
}

const fn column_mask(column: usize) -> u64 {
    ((1 << ROWS) - 1) << (column * STRIDE)
}

/// Returns whether `stones` contain four in a line.
const fn has_four(stones: u64) -> bool {
    let up = stones & (stones >> 1);
    let across = stones & (stones >> STRIDE);
    let falling = stones & (stones >> (STRIDE - 1));
    let rising = stones & (stones >> (STRIDE + 1));
    (up & (up >> 2))
        | (across & (across >> (2 * STRIDE)))
        | (falling & (falling >> (2 * (STRIDE - 1))))
        | (rising & (rising >> (2 * (STRIDE + 1))))
        != 0
}

/// Reverses the order of the columns.
fn mirrored(stones: u64) -> u64 {
    const COLUMN: u64 = (1 << STRIDE) - 1;
    (0..COLUMNS)
        .fold(0, |image, column| image | (stones >> (column * STRIDE) & COLUMN) << ((COLUMNS - 1 - column) * STRIDE))
}

/// Writes one plane `[H, W]` of zeros and ones, top row first.
fn write_plane(stones: u64, plane: &mut [f32]) {
    for (row, values) in plane.chunks_exact_mut(COLUMNS).enumerate() {
        for (column, value) in values.iter_mut().enumerate() {
            let bit = stones >> (column * STRIDE + ROWS - 1 - row) & 1;
            *value = if bit == 1 { 1.0 } else { 0.0 };
        }
    }
}

impl Game for ConnectFour {
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
        let landings = position.landings();
        // The loop is branchless because full columns are unpredictable.
        actions.resize(COLUMNS, Action(0));
        let mut len = 0;
        for (column, bottom) in (0..COLUMNS).zip((0..).step_by(STRIDE)) {
            actions[len] = Action(narrow(column));
            len += usize::from(landings & (((1 << ROWS) - 1) << bottom) != 0);
        }
        actions.truncate(len);
    }

    fn is_legal(&self, position: &Position, action: Action) -> bool {
        action.index() < COLUMNS && position.landings() & column_mask(action.index()) != 0
    }

    fn play(&self, position: &mut Position, action: Action) -> f32 {
        debug_assert!(self.is_legal(position, action), "{action} is not legal");
        // The players change sides before the stone lands: a stone set in `occupied` only belongs to the opponent of
        // the next player to move.
        position.own ^= position.occupied;
        position.occupied |= position.occupied + (1 << (action.index() * STRIDE));
        0.0
    }

    fn outcome(&self, position: &Position) -> Option<Outcome> {
        if has_four(position.own ^ position.occupied) {
            return Some(Outcome::Win(self.to_move(position).opponent()));
        }
        (position.occupied == BOARD).then_some(Outcome::Draw)
    }

    fn observe(&self, position: &Position, planes: &mut [f32]) {
        let (own, rest) = planes.split_at_mut(CELLS);
        let (opponent, began) = rest.split_at_mut(CELLS);
        write_plane(position.own, own);
        write_plane(position.own ^ position.occupied, opponent);
        began.fill(if self.to_move(position) == Player::First { 1.0 } else { 0.0 });
    }

    /// The sum of both words is unique for every position: in each column it sets the bit above the topmost stone and
    /// keeps the owners of the stones below (Pons, "Solving Connect 4", part 6).
    fn hash(&self, position: &Position) -> u64 {
        mix(position.own + position.occupied + BOTTOM)
    }

    fn symmetries(&self) -> &[Symmetry] {
        &self.symmetries
    }

    fn image(&self, position: &Position, symmetry: usize) -> Position {
        match symmetry {
            0 => *position,
            _ => Position { own: mirrored(position.own), occupied: mirrored(position.occupied) },
        }
    }

    fn action_name(&self, _: &Position, action: Action) -> String {
        (action.0 + 1).to_string()
    }

    fn parse_action(&self, _: &Position, text: &str) -> Result<Action, Error> {
        match text.trim().as_bytes() {
            [digit @ b'1'..=b'7'] => Ok(Action(u16::from(digit - b'1'))),
            _ => Err(Error::Notation { text: text.into(), expected: "a column from 1 to 7".into() }),
        }
    }

    /// Renders the board; stones are `X` (first player) and `O` (second player).
    fn render(&self, position: &Position) -> String {
        let first = match self.to_move(position) {
            Player::First => position.own,
            Player::Second => position.own ^ position.occupied,
        };
        let mut text = String::with_capacity((ROWS + 1) * 2 * COLUMNS);
        for row in (0..ROWS).rev() {
            for column in 0..COLUMNS {
                let bit = 1 << (column * STRIDE + row);
                let stone = if position.occupied & bit == 0 {
                    '.'
                } else if first & bit != 0 {
                    'X'
                } else {
                    'O'
                };
                text.push(stone);
                text.push(if column + 1 < COLUMNS { ' ' } else { '\n' });
            }
        }
        text + "1 2 3 4 5 6 7"
    }
}
