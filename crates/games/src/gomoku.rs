//! Free-style Gomoku on boards of 7 to 20 cells a side: five or more stones in a row win.
//!
//! Free-style Gomoku does not restrict the first player, who wins from the empty board of 15 cells a side (Allis,
//! "Searching for Solutions in Games and Artificial Intelligence", 1994). Start with [`Gomoku`].

use game::{Action, Board, Error, Game, Geometry, ObservationShape, Outcome, Player, Spec, Symmetry, mix};

use crate::cells::{self, Cells, stone_key};
use crate::entry::{Entry, Variants};
use crate::grid::{self, narrow, spec_and_symmetries};
use crate::side::Side;

/// The registry entry of Gomoku.
pub const ENTRY: Entry = Entry::new("gomoku", Variants::Sizes(Size::sizes(15)), include_str!("../presets/gomoku.toml"));

/// Number of stones in a row that wins.
const ROW: usize = 5;

/// Directions of rows, as steps down and to the right.
const DIRECTIONS: [(isize, isize); 4] = [(0, 1), (1, 0), (1, 1), (1, -1)];

/// Bit of `plies` that exchanges the player to move; the other bits count the stones.
const PASSED: u16 = 1 << 15;

/// Number of cells along a side of the board, 7 to 20.
pub type Size = Side<7, 20>;

/// Implements the rules of free-style Gomoku on one board size.
///
/// Action `row · size + column` places a stone on that cell, row 0 at the top. Cells are named by column letter and
/// row number, counted from the bottom: `h8` is the centre of 15 cells a side. No letter is left out.
///
/// Observation planes: stones of the player to move, stones of the opponent, and all ones, which mark the board among
/// the zeros that convolutions read around it. Both players have the same winning rows and no stone is ever removed,
/// so neither the mover's colour nor the last move would add information; a plane of the last move would give equal
/// boards different hashes.
#[derive(Debug, Clone)]
pub struct Gomoku {
    spec: Spec,
    size: usize,
    /// All cells of the board.
    board: Cells,
    symmetries: Vec<Symmetry>,
}

/// Holds a position of Gomoku.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    stones: [Cells; 2],
    /// Number of stones, and the bit [`PASSED`].
    plies: u16,
    winner: Option<Player>,
    /// Hash of the stones, updated incrementally.
    hash: u64,
}

impl Gomoku {
    /// Returns the rules for a board of `size`.
    #[must_use]
    pub fn new(size: Size) -> Self {
        let size = size.get();
        let cells = size * size;
        let observation = ObservationShape { planes: 3, height: size, width: size };
        let spec = Spec::board(ENTRY.name_of(size), cells, observation, cells);
        let symmetries = grid::square_symmetries(observation, cells).into();
        Self { spec, size, board: (0..cells).collect(), symmetries }
    }

    /// Returns the owner of the stone on a cell; cells are numbered like actions.
    #[must_use]
    pub fn stone(&self, position: &Position, cell: usize) -> Option<Player> {
        cells::owner(&position.stones, cell)
    }

    /// Returns an unfinished position with the opponent to move, as after a pass, which the rules do not have. Set-up
    /// positions need it.
    #[must_use]
    pub fn passed(&self, position: &Position) -> Position {
        Position { plies: position.plies ^ PASSED, ..*position }
    }

    fn cells(&self) -> usize {
        self.size * self.size
    }

    /// Returns the cell in the same column, mirrored top to bottom.
    fn upside_down(&self, cell: usize) -> usize {
        (self.size - 1 - cell / self.size) * self.size + cell % self.size
    }

    fn place(position: &mut Position, player: Player, cell: usize) {
        position.stones[player.index()].insert(cell);
        position.hash ^= stone_key(player, cell);
    }

    /// Returns true if the stone on `cell` completes a row. Only cells around the stone are inspected, since every
    /// other row was complete before.
    fn completes_row(&self, stones: &Cells, cell: usize) -> bool {
        DIRECTIONS.iter().any(|&(down, right)| {
            1 + self.stones_beside(stones, cell, down, right) + self.stones_beside(stones, cell, -down, -right) >= ROW
        })
    }

    /// Counts the stones without a gap next to `cell` in one direction, at most `ROW - 1`.
    fn stones_beside(&self, stones: &Cells, cell: usize, down: isize, right: isize) -> usize {
        let step = |(row, column): (usize, usize)| {
            let row = row.checked_add_signed(down).filter(|&row| row < self.size)?;
            let column = column.checked_add_signed(right).filter(|&column| column < self.size)?;
            Some((row, column))
        };
        let beside = std::iter::successors(step((cell / self.size, cell % self.size)), |&at| step(at));
        beside.take(ROW - 1).take_while(|&(row, column)| stones.contains(row * self.size + column)).count()
    }
}

impl Game for Gomoku {
    type Position = Position;

    spec_and_symmetries!();

    fn start(&self) -> Position {
        Position { stones: [Cells::EMPTY; 2], plies: 0, winner: None, hash: mix(1 << 32 | self.size as u64) }
    }

    fn to_move(&self, position: &Position) -> Player {
        let is_even = (position.plies & !PASSED).is_multiple_of(2);
        if is_even == (position.plies < PASSED) { Player::First } else { Player::Second }
    }

    fn legal_actions(&self, position: &Position, actions: &mut Vec<Action>) {
        actions.clear();
        if position.winner.is_none() {
            let empty = self.board.without(position.stones[0]).without(position.stones[1]);
            actions.extend(empty.iter().map(|cell| Action(narrow(cell))));
        }
    }

    fn is_legal(&self, position: &Position, action: Action) -> bool {
        action.index() < self.cells()
            && position.winner.is_none()
            && !position.stones.iter().any(|stones| stones.contains(action.index()))
    }

    fn play(&self, position: &mut Position, action: Action) -> f32 {
        debug_assert!(self.is_legal(position, action), "{action} is not legal");
        let mover = self.to_move(position);
        Self::place(position, mover, action.index());
        if self.completes_row(&position.stones[mover.index()], action.index()) {
            position.winner = Some(mover);
        }
        position.plies += 1;
        0.0
    }

    fn outcome(&self, position: &Position) -> Option<Outcome> {
        match position.winner {
            Some(winner) => Some(Outcome::Win(winner)),
            None => (usize::from(position.plies & !PASSED) == self.cells()).then_some(Outcome::Draw),
        }
    }

    fn observe(&self, position: &Position, planes: &mut [f32]) {
        let mover = self.to_move(position);
        let (stones, board) = planes.split_at_mut(2 * self.cells());
        for (plane, player) in stones.chunks_exact_mut(self.cells()).zip([mover, mover.opponent()]) {
            plane.fill(0.0);
            for cell in position.stones[player.index()].iter() {
                plane[cell] = 1.0;
            }
        }
        board.fill(1.0);
    }

    fn hash(&self, position: &Position) -> u64 {
        // Zero, unless a pass has exchanged the player to move.
        position.hash ^ u64::from(position.plies & PASSED)
    }

    fn image(&self, position: &Position, symmetry: usize) -> Position {
        let cells = &self.symmetries[symmetry].actions;
        let mut image = Position { plies: position.plies, winner: position.winner, ..self.start() };
        for player in [Player::First, Player::Second] {
            for cell in position.stones[player.index()].iter() {
                Self::place(&mut image, player, cells[cell].into());
            }
        }
        image
    }

    fn action_name(&self, _: &Position, action: Action) -> String {
        grid::cell_name(self.upside_down(action.index()), self.size)
    }

    fn parse_action(&self, _: &Position, text: &str) -> Result<Action, Error> {
        let cell = grid::parse_cell(text.trim(), self.size).ok_or_else(|| {
            let last = grid::cell_name(self.cells() - 1, self.size);
            Error::Notation { text: text.into(), expected: format!("a cell from a1 to {last}") }
        })?;
        Ok(Action(narrow(self.upside_down(cell))))
    }

    /// Renders the board; stones are `X` (first player) and `O` (second player).
    fn render(&self, position: &Position) -> String {
        grid::render(self.size, |row| self.size - row, |cell| grid::symbol(self.stone(position, cell)))
    }

    fn board(&self, position: &Position) -> Option<Board> {
        Some(grid::board_of_stones(self, position, Geometry::Points, |cell| self.stone(position, cell), |cell| cell))
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use reference_games::{InARow, compare, compare_moves};

    use super::*;

    fn gomoku(size: u8) -> Gomoku {
        Gomoku::new(Size::new(size).unwrap())
    }

    /// Returns the position after moves in notation, checked against the slow rules.
    fn after(game: &Gomoku, moves: &str) -> Position {
        compare_moves(game, &mut InARow::gomoku(game.size), moves)
    }

    /// Returns the outcome on a board of 7 after the first player has placed stones on the cells `own`, in order, and
    /// the second player one stone fewer, on `replies`.
    fn outcome(own: &str, replies: &str) -> Option<Outcome> {
        let moves: Vec<&str> =
            own.split_whitespace().zip(replies.split_whitespace()).flat_map(|(a, b)| [a, b]).collect();
        let last = own.split_whitespace().last().unwrap();
        let game = gomoku(7);
        game.outcome(&after(&game, &format!("{} {last}", moves.join(" "))))
    }

    #[test]
    fn a_pass_exchanges_the_player_to_move_and_two_passes_change_nothing() {
        let game = gomoku(7);
        let one = after(&game, "d4");
        let mut passed = game.passed(&one);
        assert_eq!((game.to_move(&one), game.to_move(&passed)), (Player::Second, Player::First));
        assert!(game.hash(&passed) != game.hash(&one) && game.passed(&passed) == one);
        for cell in [0, 2, 4, 6] {
            game.play(&mut passed, Action(cell));
            passed = game.passed(&passed);
        }
        assert_eq!((game.to_move(&passed), game.outcome(&passed)), (Player::First, None));
    }

    /// The random games include wins of both players, rows of more than five, and full boards without a row.
    #[test]
    fn random_episodes_agree_with_a_slow_implementation() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let (mut wins, mut overlines, mut draws) = ([0; 2], 0, 0);
        let game = gomoku(7);
        for _ in 0..150 {
            let mut slow = InARow::gomoku(7);
            let end = compare(&game, &mut slow, |legal| Some(rng.random_range(0..legal)));
            match game.outcome(&end) {
                Some(Outcome::Win(winner)) => {
                    wins[winner.index()] += 1;
                    overlines += usize::from(slow.longest_line(winner) > 5);
                }
                _ => draws += 1,
            }
        }
        assert!(wins.iter().all(|&count| count > 0) && overlines > 0 && draws > 0, "{wins:?}, {overlines}, {draws}");
    }

    #[test]
    fn five_in_a_row_win_in_every_direction_and_in_any_order() {
        let first = Some(Outcome::Win(Player::First));
        assert_eq!(outcome("a1 b1 d1 e1 c1", "a7 b7 d7 e7"), first, "across");
        assert_eq!(outcome("g3 g4 g5 g6 g7", "a7 b7 d7 e7"), first, "upright");
        assert_eq!(outcome("b2 f6 c3 e5 d4", "a7 b7 d7 e7"), first, "rising");
        assert_eq!(outcome("c7 d6 e5 f4 g3", "a7 b7 d7 e7"), first, "falling");
        let game = gomoku(7);
        let second = after(&game, "a7 a1 b7 b1 d7 c1 e7 e1 f5 d1");
        assert_eq!(game.outcome(&second), Some(Outcome::Win(Player::Second)));
    }

    #[test]
    fn four_in_a_row_do_not_win_and_more_than_five_do() {
        assert_eq!(outcome("a1 b1 c1 d1", "a7 b7 d7"), None);
        assert_eq!(outcome("a1 b1 c1 e1 f1 g1 d1", "a7 b7 d7 e7 a5 b5"), Some(Outcome::Win(Player::First)), "seven");
        assert_eq!(outcome("b2 c3 d4 f6 g7 e5", "a7 b7 d7 e7 a5"), Some(Outcome::Win(Player::First)), "six");
    }

    #[test]
    fn a_row_does_not_run_over_an_edge() {
        // The cells of each move list are one step apart in cell numbers.
        assert_eq!(outcome("e4 f4 g4 a3 b3", "a7 b7 d7 e7"), None, "across the right edge");
        assert_eq!(outcome("d6 e5 f4 g3 a1", "a7 b7 d7 e7"), None, "falling");
        assert_eq!(outcome("f3 g4 a4 b5 c6", "a7 b7 d7 e7"), None, "rising");
    }

    #[test]
    fn rows_are_counted_from_the_bottom_and_columns_from_the_left() {
        let game = gomoku(15);
        let start = game.start();
        assert_eq!(game.parse_action(&start, "h8"), Ok(Action(7 * 15 + 7)), "the centre");
        assert_eq!(game.parse_action(&start, "A15"), Ok(Action(0)), "the top left");
        assert_eq!(game.action_name(&start, Action(14 * 15 + 8)), "i1", "the letter i is a column");
        let message = game.parse_action(&start, "p1").unwrap_err().to_string();
        assert_eq!(message, "`p1` is not a move: expected a cell from a1 to o15");
    }

    #[test]
    fn the_board_is_drawn_with_the_names_of_rows_and_columns() {
        let game = gomoku(7);
        let board = [
            "   a b c d e f g",
            " 7 . . . . . . .",
            " 6 . . . . . . .",
            " 5 . . . . . . .",
            " 4 . . . X . . .",
            " 3 . . . . . . .",
            " 2 . . . . . . .",
            " 1 O . . . . . .",
        ];
        assert_eq!(game.render(&after(&game, "d4 a1")), board.join("\n"));
    }

    #[test]
    fn the_observation_shows_the_mover_first() {
        let game = gomoku(7);
        let mut planes = vec![f32::NAN; game.spec().observation.len()];
        game.observe(&after(&game, "a7 b7 c7"), &mut planes);
        let ones: Vec<usize> = (0..2 * 49).filter(|&index| planes[index] == 1.0).collect();
        assert_eq!(ones, [1, 49, 51]);
    }
}
