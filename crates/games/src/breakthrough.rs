//! Breakthrough (Troyka 2000) on boards of 5 to 8 cells a side.
//!
//! Each player starts with two rows of pieces. A piece steps one row forward: straight or diagonally to an empty
//! cell, or diagonally to a cell with an opposing piece, which it captures. A player wins with a piece in the last
//! row, or by capturing all pieces; there are no draws. Start with [`Breakthrough`].

use game::{Action, Board, Error, Game, Geometry, ObservationShape, Outcome, Place, Player, Spec, Symmetry, mix};

use crate::bitboard::{Layout, STRIDE};
use crate::entry::{Entry, Variants};
use crate::grid::{self, Cell, narrow, spec_and_symmetries};
use crate::side::Side;

/// The registry entry of Breakthrough.
pub const ENTRY: Entry =
    Entry::new("breakthrough", Variants::Sizes(Size::sizes(8)), include_str!("../presets/breakthrough.toml"));

/// Heuristic value of a piece, apart from the row.
const MATERIAL: i32 = 10;

/// Number of planes in an observation.
const PLANES: usize = 3;

/// Number of cells along a side of the board, 5 to 8: on 5, one empty row lies between the players.
pub type Size = Side<5, 8>;

/// Implements the rules of Breakthrough on one board size.
///
/// Actions and observations are in the frame of the player to move, whose pieces step towards the top: the rows are
/// reversed for the second player. A network then learns one game instead of two.
///
/// Action `(row · size + column) · 3 + direction` moves the piece on that cell of the frame to the left (direction
/// 0), straight ahead (1) or to the right (2). In notation, a step names both cells, with rows counted from the first
/// player's side: `a2-a3`, and `a2xb3` for a capture. Observation planes: pieces of the player to move, pieces of the
/// opponent, and all ones, which mark the board among the zeros that convolutions read around it.
#[derive(Debug, Clone)]
pub struct Breakthrough {
    spec: Spec,
    layout: Layout,
    symmetries: Vec<Symmetry>,
}

/// Holds a position of Breakthrough, in the frame of the player to move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// Pieces of the player to move.
    own: u64,
    /// Pieces of the opponent.
    opponent: u64,
    to_move: Player,
}

/// The direction of a step in the frame of the player to move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Left,
    Straight,
    Right,
}

impl Direction {
    const ALL: [Self; 3] = [Self::Left, Self::Straight, Self::Right];

    /// Returns the number of bits by which a step lowers the bit of a piece.
    const fn shift(self) -> usize {
        match self {
            Self::Left => STRIDE + 1,
            Self::Straight => STRIDE,
            Self::Right => STRIDE - 1,
        }
    }

    const fn mirrored(self) -> Self {
        match self {
            Self::Left => Self::Right,
            Self::Straight => Self::Straight,
            Self::Right => Self::Left,
        }
    }

    /// Returns the direction between two columns that are at most one apart.
    fn between(from: usize, to: usize) -> Option<Self> {
        Self::ALL.get((to + 1).checked_sub(from)?).copied()
    }
}

impl Breakthrough {
    /// Returns the rules on a board of `size`.
    #[must_use]
    pub fn new(size: Size) -> Self {
        let size = size.get();
        let layout = Layout::new(size);
        let observation = ObservationShape { planes: PLANES, height: size, width: size };
        let actions = Direction::ALL.len() * layout.cells();
        // Every action moves a piece one row. Unless it wins, a piece of the first row makes at most size − 2 steps
        // and a piece of the second row size − 3; each player has `size` of each. One more step ends the game.
        let steps_max = 2 * size * (size - 2 + size - 3);
        let spec = Spec::board(ENTRY.name_of(size), actions, observation, steps_max + 1);
        let mirrored = |column: usize| size - 1 - column;
        let mirror = grid::symmetry(
            observation,
            actions,
            |cell| Cell { column: mirrored(cell.column), ..cell },
            |action| {
                let (direction, from) = step(action);
                action_from(direction.mirrored(), from / size * size + mirrored(from % size))
            },
        );
        Self { spec, layout, symmetries: vec![Symmetry::identity(observation, actions), mirror] }
    }

    /// Returns the target cell of a step, if it is on the board.
    fn target(&self, direction: Direction, from: usize) -> Option<usize> {
        let size = self.layout.size();
        let column = (from % size + direction as usize).checked_sub(1).filter(|&column| column < size)?;
        Some((from / size).checked_sub(1)? * size + column)
    }

    /// Returns the pieces of the player to move that may step in a direction.
    fn movable(&self, position: &Position, direction: Direction) -> u64 {
        if self.is_over(position) {
            return 0;
        }
        // No piece is in the first row: the game would be over.
        let Position { own, opponent, .. } = *position;
        let (inside, blocked) = match direction {
            Direction::Left => (!self.layout.column(0), own),
            Direction::Straight => (u64::MAX, own | opponent),
            Direction::Right => (!self.layout.column(self.layout.size() - 1), own),
        };
        own & inside & !(blocked << direction.shift())
    }

    /// Returns true if the last action won: with a piece in the last row, or by capturing the last piece.
    fn is_over(&self, position: &Position) -> bool {
        position.own == 0 || position.opponent & self.layout.row(self.layout.size() - 1) != 0
    }

    /// Converts a cell number from the frame of `player` to rows counted from the first player's side, or back.
    fn for_first(&self, cell: usize, player: Player) -> usize {
        let size = self.layout.size();
        match player {
            Player::First => (size - 1 - cell / size) * size + cell % size,
            Player::Second => cell,
        }
    }

    /// Returns the pieces of the first and second player, in the frame of the first player.
    fn by_player(&self, position: &Position) -> [u64; 2] {
        let Position { own, opponent, to_move } = *position;
        match to_move {
            Player::First => [own, opponent],
            Player::Second => [opponent, own].map(|pieces| self.layout.upside_down(pieces)),
        }
    }

    /// Returns the owner of the piece on a cell of the rendered board.
    fn owner(&self, position: &Position, cell: usize) -> Option<Player> {
        let (pieces, cell) = (self.by_player(position), self.layout.cell(cell));
        [Player::First, Player::Second].into_iter().find(|player| pieces[player.index()] & cell != 0)
    }

    /// Parses `a2-a3` or `a2xb3`.
    fn parse_step(&self, position: &Position, text: &str) -> Option<Action> {
        let size = self.layout.size();
        let cell = |text| Some(self.for_first(grid::parse_cell(text, size)?, position.to_move));
        let (from, to) = text.split_once(['-', 'x', 'X'])?;
        let (from, to) = (cell(from)?, cell(to)?);
        let direction = Direction::between(from % size, to % size)?;
        (self.target(direction, from) == Some(to)).then(|| action_from(direction, from))
    }
}

/// Returns the action that moves the piece on a cell.
fn action_from(direction: Direction, from: usize) -> Action {
    Action(narrow(from * Direction::ALL.len() + direction as usize))
}

/// Returns the direction and the cell of an action.
fn step(action: Action) -> (Direction, usize) {
    let directions = Direction::ALL.len();
    (Direction::ALL[action.index() % directions], action.index() / directions)
}

impl Game for Breakthrough {
    type Position = Position;

    spec_and_symmetries!();

    fn start(&self) -> Position {
        let last = self.layout.size() - 1;
        Position {
            own: self.layout.row(last - 1) | self.layout.row(last),
            opponent: self.layout.row(0) | self.layout.row(1),
            to_move: Player::First,
        }
    }

    fn to_move(&self, position: &Position) -> Player {
        position.to_move
    }

    fn legal_actions(&self, position: &Position, actions: &mut Vec<Action>) {
        let movable = Direction::ALL.map(|direction| self.movable(position, direction));
        let pieces = movable[0] | movable[1] | movable[2];
        // The loop is branchless, since blocked steps are unpredictable.
        actions.resize(Direction::ALL.len() * pieces.count_ones() as usize, Action(0));
        let mut len = 0;
        for (from, cell) in self.layout.numbered(pieces) {
            for (direction, pieces) in Direction::ALL.into_iter().zip(movable) {
                actions[len] = action_from(direction, from);
                len += usize::from(pieces & cell != 0);
            }
        }
        actions.truncate(len);
    }

    fn is_legal(&self, position: &Position, action: Action) -> bool {
        if action.index() >= self.spec.actions {
            return false;
        }
        let (direction, from) = step(action);
        self.movable(position, direction) & self.layout.cell(from) != 0
    }

    fn play(&self, position: &mut Position, action: Action) -> f32 {
        debug_assert!(self.is_legal(position, action), "{action} is not legal");
        let (direction, from) = step(action);
        let from = self.layout.cell(from);
        let to = from >> direction.shift();
        let own = (position.own ^ from) | to;
        let opponent = position.opponent & !to;
        *position = Position {
            own: self.layout.upside_down(opponent),
            opponent: self.layout.upside_down(own),
            to_move: position.to_move.opponent(),
        };
        0.0
    }

    fn outcome(&self, position: &Position) -> Option<Outcome> {
        self.is_over(position).then(|| Outcome::Win(position.to_move.opponent()))
    }

    fn observe(&self, position: &Position, planes: &mut [f32]) {
        let sets = [position.own, position.opponent, self.layout.board()];
        for (plane, cells) in planes.chunks_exact_mut(self.layout.cells()).zip(sets) {
            self.layout.write_plane(cells, plane);
        }
    }

    fn hash(&self, position: &Position) -> u64 {
        // Equal positions in the frames of both players have equal observations, but different players to move.
        mix(mix(mix(position.to_move.index() as u64) ^ position.own) ^ position.opponent)
    }

    fn image(&self, position: &Position, symmetry: usize) -> Position {
        let image = |pieces| if symmetry == 0 { pieces } else { self.layout.mirrored(pieces) };
        Position { own: image(position.own), opponent: image(position.opponent), to_move: position.to_move }
    }

    /// Values pieces more the further they have advanced: by the triangular numbers, as in most columns of the table
    /// of Lorentz and Horey 2013.
    fn heuristic_value(&self, position: &Position) -> i32 {
        let value = |advance: usize| {
            let advance = i32::try_from(advance).expect("boards have at most 8 rows");
            MATERIAL + (advance + 1) * (advance + 2) / 2
        };
        let count = |pieces: u64| pieces.count_ones().cast_signed();
        let size = self.layout.size();
        let of_row = |row: usize| {
            let cells = self.layout.row(row);
            value(size - 1 - row) * count(position.own & cells) - value(row) * count(position.opponent & cells)
        };
        (0..size).map(of_row).sum()
    }

    fn action_name(&self, position: &Position, action: Action) -> String {
        let (direction, from) = step(action);
        let Some(to) = self.target(direction, from) else { return action.to_string() };
        let separator = if position.opponent & self.layout.cell(to) == 0 { '-' } else { 'x' };
        let [from, to] =
            [from, to].map(|cell| grid::cell_name(self.for_first(cell, position.to_move), self.layout.size()));
        format!("{from}{separator}{to}")
    }

    fn parse_action(&self, position: &Position, text: &str) -> Result<Action, Error> {
        self.parse_step(position, text.trim()).ok_or_else(|| {
            let last = grid::cell_name(self.layout.cells() - 1, self.layout.size());
            let expected =
                format!("a step forward between cells from a1 to {last}, such as a2-a3 or the capture a2xb3");
            Error::Notation { text: text.into(), expected }
        })
    }

    /// Renders the board; pieces are `X` (first player, upwards) and `O` (second player, downwards).
    fn render(&self, position: &Position) -> String {
        let size = self.layout.size();
        grid::render(size, |row| size - row, |cell| grid::symbol(self.owner(position, cell)))
    }

    fn board(&self, position: &Position) -> Option<Board> {
        let size = self.layout.size();
        let mark = |cell| self.owner(position, cell).map(|owner| grid::stone("piece", owner));
        // Rows are rendered from the second player's side.
        let rendered = |cell| self.for_first(cell, position.to_move.opponent());
        let place = |action| {
            let (direction, from) = step(action);
            let to = self.target(direction, from);
            to.map_or(Place::Nowhere, |to| Place::Step { from: rendered(from), to: rendered(to) })
        };
        Some(Board::new(Geometry::Squares, size, size, mark).with_moves(self, position, place))
    }
}

#[cfg(test)]
mod tests;
