//! Connect Four: four in a line, on the usual board of 7 columns and 6 rows, and on other boards.
//!
//! A position is two 64-bit words. With R rows, column `c` owns the R bits from `c · (R + 1)`, bottom cell first; the
//! bit above each column stays clear, so that shifts never carry a line from one column into the next. [`Rules`] are
//! generic over the [`Board`], so that the size of the usual board is known at compile time. Start with
//! [`ConnectFour`]; `connect_four_boards.rs` registers the other boards.

use std::fmt;

use game::{Action, Error, Game, Geometry, ObservationShape, Outcome, Place, Player, Spec, Symmetry, mix};

use crate::entry::{Entry, SolvedPositions, Variants};
use crate::grid::{self, Cell, narrow, spec_and_symmetries};

/// The registry entry of Connect Four.
pub const ENTRY: Entry = Entry {
    solved: Some(SolvedPositions { file: "connect4_solved.csv", csv: include_str!("../data/connect4_solved.csv") }),
    ..Entry::new("connect_four", Variants::One, include_str!("../presets/connect_four.toml"))
};

/// A board of Connect Four: at most 9 columns, and at most 64 bits, where a column takes one bit more than it has rows.
pub trait Board: Copy + fmt::Debug + Send + Sync + 'static {
    /// Returns the name of the game on this board.
    fn name(self) -> String;

    /// Returns the number of columns.
    fn columns(self) -> usize;

    /// Returns the number of rows.
    fn rows(self) -> usize;

    /// Returns the number of bits from one column to the next: the cells and the clear bit above them.
    fn stride(self) -> usize {
        self.rows() + 1
    }

    /// Returns the number of cells.
    fn cells(self) -> usize {
        self.columns() * self.rows()
    }

    /// Returns the cells in a column.
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
/// Action `c` drops a stone into column `c`, from the left; in notation, columns count from `1`. Observation planes,
/// top row first: stones of the player to move, stones of the opponent, and all ones if the player to move made the
/// first move of the game, which matters for zugzwang and is hard to derive from the stones.
#[derive(Debug, Clone)]
pub struct Rules<B> {
    spec: Spec,
    board: B,
    /// Lowest cell of every column.
    bottom: u64,
    symmetries: Vec<Symmetry>,
}

/// Holds a position of Connect Four.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// Stones of the player to move.
    own: u64,
    /// All stones.
    occupied: u64,
}

impl ConnectFour {
    /// Returns the rules for the usual board.
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
    /// Returns the rules for a board.
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

    /// Returns all cells of the board.
    fn full(&self) -> u64 {
        self.bottom * ((1 << self.board.rows()) - 1)
    }

    /// Returns the lowest empty cell of each open column; no cells once the game is over.
    fn landings(&self, position: Position) -> u64 {
        if self.has_four(position.own ^ position.occupied) {
            0
        } else {
            (position.occupied + self.bottom) & self.full()
        }
    }

    /// Returns true if `stones` contain four in a line.
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

    /// Returns the cells where one more stone would complete four in a line with `stones`.
    fn completions(&self, stones: u64) -> u64 {
        let stride = self.board.stride();
        let upright = stones << 1 & stones << 2 & stones << 3;
        [stride - 1, stride, stride + 1].into_iter().fold(upright, |cells, step| {
            let (after, before) = (stones << step & stones << (2 * step), stones >> step & stones >> (2 * step));
            let outer = after & stones << (3 * step) | before & stones >> (3 * step);
            cells | outer | after & stones >> step | before & stones << step
        }) & self.full()
    }

    /// Returns the number of lines of four within `cells`.
    fn lines(&self, cells: u64) -> i32 {
        let stride = self.board.stride();
        let lines = |step: usize| cells & cells >> step & cells >> (2 * step) & cells >> (3 * step);
        [1, stride - 1, stride, stride + 1].into_iter().map(|step| lines(step).count_ones().cast_signed()).sum()
    }

    /// Values the completing cells of the first player against those of the second, positive for the first player.
    ///
    /// When all other columns are full, the first player gets the cells in odd rows, counted from one, and the second
    /// player the cells in even rows (Allis 1988, chapter 3). The lowest such cell decides a column. The weights were
    /// chosen by the accuracy of searches to depth 8.
    fn threats(&self, first: u64, second: u64) -> i32 {
        let mut value = 0;
        for column in 0..self.board.columns() {
            let mut is_decided = false;
            for row in 0..self.board.rows() {
                let is_threat = |cells: u64| cells >> (column * self.board.stride() + row) & 1 == 1;
                for (sign, is_threat, suits) in
                    [(1, is_threat(first), row % 2 == 0), (-1, is_threat(second), row % 2 == 1)]
                {
                    if is_threat {
                        let weight = match (is_decided, suits) {
                            (true, _) => 3,
                            (false, true) => 30,
                            (false, false) => 8,
                        };
                        value += sign * weight;
                        is_decided |= suits;
                    }
                }
            }
        }
        value
    }

    /// Reverses the order of the columns.
    fn mirrored(&self, stones: u64) -> u64 {
        let (columns, stride) = (self.board.columns(), self.board.stride());
        (0..columns).fold(0, |image, column| {
            image | (stones & self.board.column(column)) >> (column * stride) << ((columns - 1 - column) * stride)
        })
    }

    /// Returns the owner of the stone on a cell, numbered row by row from the top left.
    fn stone(&self, position: &Position, cell: usize) -> Option<Player> {
        let (row, column) = (cell / self.board.columns(), cell % self.board.columns());
        let bit = 1 << (column * self.board.stride() + self.board.rows() - 1 - row);
        let mover = self.to_move(position);
        let owner = if position.own & bit == 0 { mover.opponent() } else { mover };
        (position.occupied & bit != 0).then_some(owner)
    }

    /// Returns the cell on which a stone in an open column lands, numbered like the cells of [`stone`](Self::stone).
    fn landing(&self, position: &Position, column: usize) -> usize {
        let landing = self.landings(*position) & self.board.column(column);
        let row = landing.trailing_zeros() as usize - column * self.board.stride();
        (self.board.rows() - 1 - row) * self.board.columns() + column
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

    spec_and_symmetries!();

    fn start(&self) -> Position {
        Position { own: 0, occupied: 0 }
    }

    fn to_move(&self, position: &Position) -> Player {
        // Parity alone is cheaper than the count.
        if position.occupied.count_ones() & 1 == 0 { Player::First } else { Player::Second }
    }

    fn legal_actions(&self, position: &Position, actions: &mut Vec<Action>) {
        let landings = self.landings(*position);
        // The loop is branchless, since full columns are unpredictable.
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
        // The players change sides before the stone lands: a stone set only in `occupied` belongs to the opponent of
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

    /// The sum of both words is unique per position: in each column it sets the bit above the topmost stone and keeps
    /// the owners of the stones below (Pons, "Solving Connect 4", part 6).
    fn hash(&self, position: &Position) -> u64 {
        mix(position.own + position.occupied + self.bottom)
    }

    fn image(&self, position: &Position, symmetry: usize) -> Position {
        match symmetry {
            0 => *position,
            _ => Position { own: self.mirrored(position.own), occupied: self.mirrored(position.occupied) },
        }
    }

    /// Values the lines that a player can still complete, and the empty cells that complete a line.
    fn heuristic_value(&self, position: &Position) -> i32 {
        let (own, opponent) = (position.own, position.own ^ position.occupied);
        let free = self.full() ^ position.occupied;
        let lines = self.lines(own | free) - self.lines(opponent | free);
        let [own, opponent] = [own, opponent].map(|stones| self.completions(stones) & free);
        match self.to_move(position) {
            Player::First => lines + self.threats(own, opponent),
            Player::Second => lines - self.threats(opponent, own),
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
        let columns = self.board.columns();
        let mut text = String::with_capacity((self.board.rows() + 1) * 2 * columns);
        for cell in 0..self.board.cells() {
            text.push(grid::symbol(self.stone(position, cell)));
            text.push(if (cell + 1).is_multiple_of(columns) { '\n' } else { ' ' });
        }
        let names: Vec<String> = (1..=columns).map(|column| column.to_string()).collect();
        text + &names.join(" ")
    }

    fn board(&self, position: &Position) -> Option<game::Board> {
        let mark = |cell| self.stone(position, cell).map(|owner| grid::stone("stone", owner));
        let board = game::Board::new(Geometry::Columns, self.board.rows(), self.board.columns(), mark);
        let place = |action: Action| Place::Cell(self.landing(position, action.index()));
        Some(board.with_moves(self, position, place))
    }
}

#[cfg(test)]
mod tests {
    use connect_four_ai::Solver;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use reference_games::perft;

    use super::*;

    const COLUMNS: usize = 7;
    const CELLS: usize = 42;

    fn actions(moves: &str) -> Vec<Action> {
        let game = ConnectFour::new();
        moves.chars().map(|column| game.parse_action(&game.start(), &column.to_string()).unwrap()).collect()
    }

    fn after(moves: &str) -> Position {
        ConnectFour::new().replay(&actions(moves)).unwrap()
    }

    fn outcome(moves: &str) -> Option<Outcome> {
        ConnectFour::new().outcome(&after(moves))
    }

    #[test]
    fn the_tree_has_the_known_number_of_nodes() {
        let game = ConnectFour::new();
        let nodes: Vec<u64> = (0..=8).map(|depth| perft(&game, &game.start(), depth)).collect();
        assert_eq!(nodes, [1, 7, 49, 343, 2401, 16_807, 117_649, 823_536, 5_673_234]);
    }

    #[test]
    fn four_in_a_line_win_in_every_direction() {
        assert_eq!(outcome("1212121"), Some(Outcome::Win(Player::First)), "upright");
        assert_eq!(outcome("1122334"), Some(Outcome::Win(Player::First)), "across");
        assert_eq!(outcome("12234334544"), Some(Outcome::Win(Player::First)), "rising");
        assert_eq!(outcome("76654554344"), Some(Outcome::Win(Player::First)), "falling");
        assert_eq!(outcome("71212121"), Some(Outcome::Win(Player::Second)), "the second player");
    }

    #[test]
    fn a_line_does_not_run_over_the_edge_of_a_column() {
        // The three topmost stones of the first column and the lowest of the second are adjacent only in memory.
        assert_eq!(outcome("1112121"), None);
        assert_eq!(outcome("21211111"), None);
    }

    #[test]
    fn the_heuristic_value_counts_open_lines_and_completing_cells() {
        let game = ConnectFour::new();
        let value = |moves| game.heuristic_value(&after(moves));
        assert_eq!((game.lines(game.full()), value("")), (69, 0), "the board has 69 lines");
        assert_eq!(value("1"), -3, "three lines through a corner are closed to the player to move");
        let cells =
            |names: &[(usize, usize)]| names.iter().fold(0, |cells, &(column, row)| cells | 1 << (7 * column + row));
        assert_eq!(game.completions(cells(&[(0, 0), (0, 1), (0, 2)])), cells(&[(0, 3)]));
        assert_eq!(game.completions(cells(&[(2, 0), (3, 0), (4, 0)])), cells(&[(1, 0), (5, 0)]));
        assert_eq!(game.completions(cells(&[(0, 5), (1, 4), (3, 2)])), cells(&[(2, 3)]));
        let (odd, even) = (cells(&[(0, 2)]), cells(&[(0, 3)]));
        assert_eq!([game.threats(odd, 0), game.threats(even, 0), game.threats(0, even)], [30, 8, -30]);
        assert_eq!(game.threats(odd, even), 27, "the lower cell decides");
    }

    #[test]
    fn a_full_board_without_a_line_is_a_draw() {
        let halves = ["121212212121", "343434434343", "565656656565", "777777"];
        assert_eq!(outcome(&halves.concat()), Some(Outcome::Draw));
    }

    #[test]
    fn the_board_is_drawn_with_the_first_player_as_crosses() {
        let board = [
            ". . . . . . .",
            ". . . . . . .",
            ". . . . . . .",
            ". . . . . . .",
            ". . . X . . .",
            ". O . O X . .",
            "1 2 3 4 5 6 7",
        ];
        assert_eq!(ConnectFour::new().render(&after("5442")), board.join("\n"));
    }

    #[test]
    fn the_observation_shows_the_mover_first_and_marks_the_first_player_to_move() {
        let game = ConnectFour::new();
        let mut planes = [f32::NAN; 3 * CELLS];
        game.observe(&after("445"), &mut planes);
        let ones: Vec<usize> = (0..2 * CELLS).filter(|&i| planes[i] == 1.0).collect();
        let cell = |row: usize, column: usize| row * COLUMNS + column;
        assert_eq!(ones, [cell(4, 3), CELLS + cell(5, 3), CELLS + cell(5, 4)], "rows are counted from the top");
        assert!(planes[2 * CELLS..].iter().all(|&value| value == 0.0), "the second player is to move");
        game.observe(&game.start(), &mut planes);
        assert!(planes[2 * CELLS..].iter().all(|&value| value == 1.0), "the first player is to move");
    }

    /// Compares open columns, winning moves and won positions with another implementation of the rules.
    #[test]
    fn random_episodes_agree_with_another_implementation() {
        let game = ConnectFour::new();
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        for episode in 0..2_000 {
            let (mut position, mut other) = (game.start(), connect_four_ai::Position::new());
            let mut moves = String::new();
            while game.outcome(&position).is_none() {
                assert!(!other.is_won_position(), "episode {episode}: {moves}");
                let mut legal = Vec::new();
                game.legal_actions(&position, &mut legal);
                let open: Vec<Action> = (0..7).map(Action).filter(|column| other.is_playable(column.index())).collect();
                assert_eq!(legal, open, "episode {episode}: {moves}");
                for &action in &legal {
                    let mut next = position;
                    game.play(&mut next, action);
                    let wins = matches!(game.outcome(&next), Some(Outcome::Win(_)));
                    assert_eq!(wins, other.is_winning_move(action.index()), "episode {episode}: {moves} then {action}");
                }
                let action = legal[rng.random_range(0..legal.len())];
                moves += &game.action_name(&position, action);
                game.play(&mut position, action);
                other.play(action.index());
            }
            let won = matches!(game.outcome(&position), Some(Outcome::Win(_)));
            assert_eq!(won, other.is_won_position(), "episode {episode}: {moves}");
        }
    }

    struct Solved {
        moves: &'static str,
        band: &'static str,
        scores: Vec<Option<i8>>,
    }

    fn solved() -> impl Iterator<Item = Solved> {
        ENTRY.solved.unwrap().csv.lines().skip(1).map(|line| {
            let mut fields = line.split(',');
            let (moves, band) = (fields.next().unwrap(), fields.next().unwrap());
            Solved { moves, band, scores: fields.map(|score| score.parse().ok()).collect() }
        })
    }

    #[test]
    fn solved_positions_score_exactly_the_legal_columns() {
        let game = ConnectFour::new();
        for Solved { moves, scores, .. } in solved() {
            let position = after(moves);
            let legal: Vec<bool> = (0..7).map(|column| game.is_legal(&position, Action(column))).collect();
            assert_eq!(legal, scores.iter().map(Option::is_some).collect::<Vec<_>>(), "{moves}");
        }
    }

    /// Compares with a third solver, independent of the two that produced the scores.
    #[test]
    fn late_solved_positions_have_the_scores_of_another_solver() {
        let mut solver = Solver::new();
        for Solved { moves, scores, .. } in solved().filter(|solved| solved.band == "late").step_by(10) {
            let position = connect_four_ai::Position::from_moves(moves).unwrap();
            assert_eq!(solver.get_all_move_scores(&position).to_vec(), scores, "{moves}");
        }
    }
}
