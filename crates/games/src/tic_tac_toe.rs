//! Tic-tac-toe: three in a line on a 3 × 3 board.
//!
//! The game is small enough to be solved by brute force in tests and by the arena. Start with [`TicTacToe`].

use std::fmt::Write as _;

use game::{Action, Board, Error, Game, Geometry, ObservationShape, Outcome, Player, Spec, Symmetry, mix};

use crate::entry::{Entry, Exhaustive, Variants};
use crate::grid::{self, narrow, spec_and_symmetries};

/// The registry entry of tic-tac-toe.
pub const ENTRY: Entry = Entry {
    exhaustive: Exhaustive::Check,
    ..Entry::new("tic_tac_toe", Variants::One, include_str!("../presets/tic_tac_toe.toml"))
};

const SIDE: usize = 3;
const CELLS: usize = SIDE * SIDE;
const FULL: u16 = (1 << CELLS) - 1;
const LINES: [u16; 8] = [
    0b000_000_111,
    0b000_111_000,
    0b111_000_000,
    0b001_001_001,
    0b010_010_010,
    0b100_100_100,
    0b100_010_001,
    0b001_010_100,
];

/// Implements the rules of tic-tac-toe.
///
/// Action `i` fills cell `i`, row by row from the top left; in notation, cells are `1` to `9`. Observation planes:
/// stones of the player to move, then stones of the opponent.
#[derive(Debug, Clone)]
pub struct TicTacToe {
    spec: Spec,
    symmetries: Vec<Symmetry>,
}

/// Holds a position of tic-tac-toe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// Cells of each player; bit `i` is cell `i`.
    stones: [u16; 2],
}

impl TicTacToe {
    /// Returns the rules of tic-tac-toe.
    #[must_use]
    pub fn new() -> Self {
        let observation = ObservationShape { planes: 2, height: SIDE, width: SIDE };
        let spec = Spec::board(ENTRY.name.into(), CELLS, observation, CELLS);
        Self { spec, symmetries: grid::square_symmetries(observation, CELLS).into() }
    }

    /// Returns the empty cells; no cells once the game is over.
    fn legal(&self, position: &Position) -> u16 {
        if self.outcome(position).is_some() { 0 } else { FULL & !position.occupied() }
    }
}

impl Default for TicTacToe {
    fn default() -> Self {
        Self::new()
    }
}

impl Position {
    fn occupied(self) -> u16 {
        self.stones[0] | self.stones[1]
    }

    /// Returns the owner of the stone on a cell.
    fn stone(self, cell: usize) -> Option<Player> {
        [Player::First, Player::Second].into_iter().find(|player| self.stones[player.index()] >> cell & 1 == 1)
    }
}

impl Game for TicTacToe {
    type Position = Position;

    spec_and_symmetries!();

    fn start(&self) -> Position {
        Position { stones: [0; 2] }
    }

    fn to_move(&self, position: &Position) -> Player {
        if position.occupied().count_ones().is_multiple_of(2) { Player::First } else { Player::Second }
    }

    fn legal_actions(&self, position: &Position, actions: &mut Vec<Action>) {
        let legal = self.legal(position);
        actions.clear();
        actions.extend((0..CELLS).filter(|cell| legal & (1 << cell) != 0).map(|cell| Action(narrow(cell))));
    }

    fn is_legal(&self, position: &Position, action: Action) -> bool {
        action.index() < CELLS && self.legal(position) & (1 << action.0) != 0
    }

    fn play(&self, position: &mut Position, action: Action) -> f32 {
        debug_assert!(self.is_legal(position, action), "{action} is not legal");
        position.stones[self.to_move(position).index()] |= 1 << action.0;
        0.0
    }

    fn outcome(&self, position: &Position) -> Option<Outcome> {
        let last = self.to_move(position).opponent();
        let stones = position.stones[last.index()];
        if LINES.iter().any(|&line| line & !stones == 0) {
            return Some(Outcome::Win(last));
        }
        (position.occupied() == FULL).then_some(Outcome::Draw)
    }

    fn observe(&self, position: &Position, planes: &mut [f32]) {
        let mover = self.to_move(position);
        for (plane, player) in planes.chunks_exact_mut(CELLS).zip([mover, mover.opponent()]) {
            let stones = position.stones[player.index()];
            for (cell, value) in plane.iter_mut().enumerate() {
                *value = f32::from(stones >> cell & 1);
            }
        }
    }

    fn hash(&self, position: &Position) -> u64 {
        mix(u64::from(position.stones[0]) | u64::from(position.stones[1]) << CELLS)
    }

    fn image(&self, position: &Position, symmetry: usize) -> Position {
        let cells = &self.symmetries[symmetry].cells;
        let image = |stones: u16| (0..CELLS).fold(0, |image, cell| image | (stones >> cells[cell] & 1) << cell);
        Position { stones: position.stones.map(image) }
    }

    fn action_name(&self, _: &Position, action: Action) -> String {
        (action.0 + 1).to_string()
    }

    fn parse_action(&self, _: &Position, text: &str) -> Result<Action, Error> {
        match text.trim().as_bytes() {
            [digit @ b'1'..=b'9'] => Ok(Action(u16::from(digit - b'1'))),
            _ => Err(Error::Notation { text: text.into(), expected: "a cell from 1 to 9".into() }),
        }
    }

    /// Renders the board; stones are `X` (first player) and `O` (second player), and an empty cell shows the cell
    /// number.
    fn render(&self, position: &Position) -> String {
        let mut text = String::new();
        for cell in 0..CELLS {
            let separator = if cell == 0 {
                ""
            } else if cell % SIDE == 0 {
                "\n"
            } else {
                " "
            };
            let stone = match position.stone(cell) {
                None => char::from(b'1' + u8::try_from(cell).expect("nine cells")),
                owner => grid::symbol(owner),
            };
            write!(text, "{separator}{stone}").expect("a string takes all text");
        }
        text
    }

    fn board(&self, position: &Position) -> Option<Board> {
        Some(grid::board_of_stones(self, position, Geometry::Squares, |cell| position.stone(cell), |cell| cell))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(moves: &str) -> Position {
        let game = TicTacToe::new();
        let actions: Vec<Action> =
            moves.chars().map(|text| game.parse_action(&game.start(), &text.to_string()).unwrap()).collect();
        game.replay(&actions).unwrap()
    }

    /// Counts tree nodes, and finished games, by depth.
    fn count(game: &TicTacToe, position: &Position, depth: usize, nodes: &mut [u64], ends: &mut [u64]) {
        nodes[depth] += 1;
        let mut actions = Vec::new();
        game.legal_actions(position, &mut actions);
        ends[depth] += u64::from(actions.is_empty());
        for action in actions {
            let mut next = *position;
            game.play(&mut next, action);
            count(game, &next, depth + 1, nodes, ends);
        }
    }

    /// Returns the value for the player to move under perfect play.
    fn minimax(game: &TicTacToe, position: &Position) -> i32 {
        match game.outcome(position) {
            Some(Outcome::Win(_)) => return -1,
            Some(_) => return 0,
            None => {}
        }
        let mut actions = Vec::new();
        game.legal_actions(position, &mut actions);
        let values = actions.into_iter().map(|action| {
            let mut next = *position;
            game.play(&mut next, action);
            -minimax(game, &next)
        });
        values.max().unwrap()
    }

    #[test]
    fn the_tree_has_the_known_number_of_nodes_and_games() {
        let game = TicTacToe::new();
        let (mut nodes, mut ends) = ([0; 10], [0; 10]);
        count(&game, &game.start(), 0, &mut nodes, &mut ends);
        assert_eq!(nodes, [1, 9, 72, 504, 3024, 15120, 54720, 148_176, 200_448, 127_872]);
        assert_eq!(ends, [0, 0, 0, 0, 0, 1440, 5328, 47_952, 72_576, 127_872]);
        assert_eq!(ends.iter().sum::<u64>(), 255_168);
    }

    #[test]
    fn perfect_play_is_a_draw() {
        let game = TicTacToe::new();
        assert_eq!(minimax(&game, &game.start()), 0);
    }

    #[test]
    fn each_line_wins_for_the_player_who_fills_it() {
        let lines = ["123", "456", "789", "147", "258", "369", "159", "357"];
        for line in lines {
            let others: Vec<char> = ('1'..='9').filter(|&cell| !line.contains(cell)).collect();
            let moves: String = line.chars().zip(&others).flat_map(|(own, &other)| [own, other]).take(5).collect();
            assert_eq!(TicTacToe::new().outcome(&position(&moves)), Some(Outcome::Win(Player::First)), "{moves}");
        }
    }

    #[test]
    fn the_second_player_wins_with_the_last_of_three() {
        assert_eq!(TicTacToe::new().outcome(&position("14253")), Some(Outcome::Win(Player::First)));
        assert_eq!(TicTacToe::new().outcome(&position("142596")), Some(Outcome::Win(Player::Second)));
    }

    #[test]
    fn the_board_is_drawn_with_the_numbers_of_its_empty_cells() {
        assert_eq!(TicTacToe::new().render(&position("519")), "O 2 3\n4 X 6\n7 8 X");
    }

    #[test]
    fn the_observation_shows_the_mover_first() {
        let game = TicTacToe::new();
        let mut planes = [f32::NAN; 18];
        game.observe(&position("519"), &mut planes);
        assert_eq!(planes[..9], [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], "the second player's stone");
        assert_eq!(planes[9..], [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0], "the first player's stones");
    }
}
