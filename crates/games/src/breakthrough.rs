//! Breakthrough (Troyka 2000) on boards of 5 to 8 cells a side.
//!
//! Each player begins with two rows of pieces. A piece steps one row forward: straight or diagonally to an empty cell,
//! or diagonally to a cell of the opponent, whose piece it captures. A player wins with a piece in the last row, or by
//! capturing all pieces; there are no draws. Start with [`Breakthrough`].

use game::{Action, Error, Game, ObservationShape, Outcome, Player, Spec, Symmetry, mix};

use crate::bitboard::{Layout, STRIDE};
use crate::entry::{Entry, Exhaustive, Variants};
use crate::grid::{self, Cell, narrow};
use crate::side::Side;

/// The registry entry of Breakthrough.
pub const ENTRY: Entry = Entry {
    name: "breakthrough",
    variants: Variants::Sizes(Size::sizes(8)),
    preset: include_str!("../presets/breakthrough.toml"),
    solved: None,
    exhaustive: Exhaustive::Skip,
};

/// The heuristic value of a piece, apart from its row.
const MATERIAL: i32 = 10;

/// The number of planes of an observation.
const PLANES: usize = 3;

/// The number of cells along a side of the board, 5 to 8: on 5, one empty row lies between the players.
pub type Size = Side<5, 8>;

/// Implements the rules of Breakthrough on one board size.
///
/// Both actions and observations are in the frame of the player to move, whose pieces step towards the top: for the
/// second player the order of the rows is reversed. A network then learns one game instead of two.
///
/// Action `(row · size + column) · 3 + direction` moves the piece on that cell of the frame to the left (direction 0),
/// straight ahead (1) or to the right (2). Players write the cells of a step, with rows counted from the side of the
/// first player: `a2-a3`, and `a2xb3` for a capture. Observation planes: the pieces of the player to move, those of
/// the opponent, and all ones, which mark the board among the zeros that convolutions read around it.
#[derive(Debug, Clone)]
pub struct Breakthrough {
    spec: Spec,
    layout: Layout,
    symmetries: Vec<Symmetry>,
}

/// Holds a position of Breakthrough, in the frame of the player to move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// The pieces of the player to move.
    own: u64,
    /// The pieces of the opponent.
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

    /// Returns the direction from a column to another one, if they are at most one apart.
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
        // Every action moves a piece one row. Unless it wins, a piece of the first row makes at most size − 2 steps,
        // one of the second row size − 3, and there are `size` of each kind for either player; one more step ends the
        // game.
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

    /// Returns the cell that a step leads to, if it is on the board.
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
        // No piece is in the first row: it would have ended the game.
        let Position { own, opponent, .. } = *position;
        let (inside, blocked) = match direction {
            Direction::Left => (!self.layout.column(0), own),
            Direction::Straight => (u64::MAX, own | opponent),
            Direction::Right => (!self.layout.column(self.layout.size() - 1), own),
        };
        own & inside & !(blocked << direction.shift())
    }

    /// Returns whether the last action won: with a piece in the last row, or by capturing the last piece.
    fn is_over(&self, position: &Position) -> bool {
        position.own == 0 || position.opponent & self.layout.row(self.layout.size() - 1) != 0
    }

    /// Converts the number of a cell from the frame of `player` to rows counted from the side of the first player, or
    /// back.
    fn for_first(&self, cell: usize, player: Player) -> usize {
        let size = self.layout.size();
        match player {
            Player::First => (size - 1 - cell / size) * size + cell % size,
            Player::Second => cell,
        }
    }

    /// Returns the pieces of the first and of the second player, in the frame of the first.
    fn by_player(&self, position: &Position) -> [u64; 2] {
        let Position { own, opponent, to_move } = *position;
        match to_move {
            Player::First => [own, opponent],
            Player::Second => [opponent, own].map(|pieces| self.layout.upside_down(pieces)),
        }
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

    fn spec(&self) -> &Spec {
        &self.spec
    }

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
        // The loop is branchless because it is unpredictable which steps are blocked.
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
        // The same position in the frame of either player has the same observation, and another player to move.
        mix(mix(mix(position.to_move.index() as u64) ^ position.own) ^ position.opponent)
    }

    fn symmetries(&self) -> &[Symmetry] {
        &self.symmetries
    }

    fn image(&self, position: &Position, symmetry: usize) -> Position {
        let image = |pieces| if symmetry == 0 { pieces } else { self.layout.mirrored(pieces) };
        Position { own: image(position.own), opponent: image(position.opponent), to_move: position.to_move }
    }

    /// Values pieces, and more so the further they have advanced: by the triangular numbers, as in most columns of the
    /// table of Lorentz and Horey 2013.
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
        let [first, second] = self.by_player(position);
        let size = self.layout.size();
        grid::render(
            size,
            |row| size - row,
            |cell| match self.layout.cell(cell) {
                cell if first & cell != 0 => 'X',
                cell if second & cell != 0 => 'O',
                _ => '.',
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use reference_games::{compare_moves, compare_position, compare_tree, perft, reference};

    use super::*;

    fn breakthrough(size: u8) -> Breakthrough {
        Breakthrough::new(Size::new(size).unwrap())
    }

    /// The position after moves in notation, by the slow rules as well.
    fn after(game: &Breakthrough, moves: &str) -> Position {
        compare_moves(game, &mut *reference(&game.spec().name).unwrap(), moves)
    }

    /// Returns whether the player to move may play this.
    fn may(game: &Breakthrough, position: &Position, text: &str) -> bool {
        game.is_legal(position, game.parse_action(position, text).unwrap())
    }

    /// The position with these pieces, named in the notation of players.
    fn position(game: &Breakthrough, first: &str, second: &str, to_move: Player) -> Position {
        let size = game.layout.size();
        let pieces = |text: &str| {
            let cells = text.split_whitespace().map(|name| grid::parse_cell(name, size).unwrap());
            cells.fold(0, |pieces, cell| pieces | game.layout.cell(game.for_first(cell, to_move)))
        };
        let (own, opponent) = match to_move {
            Player::First => (first, second),
            Player::Second => (second, first),
        };
        Position { own: pieces(own), opponent: pieces(opponent), to_move }
    }

    #[test]
    fn the_tree_has_the_known_number_of_nodes() {
        let game = breakthrough(8);
        let nodes: Vec<u64> = (1..=4).map(|depth| perft(&game, &game.start(), depth)).collect();
        assert_eq!(nodes, [22, 484, 11_132, 256_036]);
    }

    #[test]
    fn all_games_agree_with_the_slow_rules_to_a_depth() {
        for (size, depth) in [(5, 4), (6, 3), (7, 3), (8, 2)] {
            let game = breakthrough(size);
            let nodes = compare_tree(&game, &*reference(&game.spec().name).unwrap(), depth);
            assert_eq!(nodes, perft(&game, &game.start(), depth), "{size}");
        }
    }

    #[test]
    fn a_piece_captures_diagonally_and_is_blocked_straight_ahead() {
        let game = breakthrough(5);
        let blocked = position(&game, "b3 a2", "b4 c4", Player::First);
        assert!(!may(&game, &blocked, "b3-b4"), "an enemy piece blocks the step");
        assert!(may(&game, &blocked, "b3xc4") && may(&game, &blocked, "b3-a4"));
        assert!(!may(&game, &blocked, "a2xb3"), "a piece of one's own is not captured");
        assert!(may(&game, &position(&game, "b3", "b4 a4", Player::Second), "a4xb3"), "the second player steps down");
    }

    #[test]
    fn a_capture_is_written_with_a_cross_and_read_in_both_forms() {
        let game = breakthrough(5);
        let position = position(&game, "b3", "c4 e5", Player::First);
        let capture = game.parse_action(&position, "b3xc4").unwrap();
        assert_eq!(game.parse_action(&position, "B3-C4"), Ok(capture));
        assert_eq!(game.action_name(&position, capture), "b3xc4");
        assert_eq!(game.action_name(&position, game.parse_action(&position, "b3xa4").unwrap()), "b3-a4");
    }

    #[test]
    fn the_last_row_wins_also_by_a_capture() {
        let game = breakthrough(5);
        for (moves, first, second) in [("c4-c5", "c4 a1", "e5"), ("c4xd5", "c4 a1", "d5 e5")] {
            let mut position = position(&game, first, second, Player::First);
            assert_eq!(game.outcome(&position), None);
            let action = game.parse_action(&position, moves).unwrap();
            game.try_play(&mut position, action).unwrap();
            assert_eq!(game.outcome(&position), Some(Outcome::Win(Player::First)), "{moves}");
        }
        let second = position(&game, "c5", "a4", Player::Second);
        assert_eq!(game.outcome(&second), Some(Outcome::Win(Player::First)), "the second player to move has lost");
    }

    #[test]
    fn the_capture_of_the_last_piece_wins() {
        let game = breakthrough(5);
        let mut position = position(&game, "b2", "c3", Player::Second);
        let action = game.parse_action(&position, "c3xb2").unwrap();
        game.play(&mut position, action);
        assert_eq!(game.outcome(&position), Some(Outcome::Win(Player::Second)));
    }

    /// Both players capture where they can, and else keep out of the last row.
    #[test]
    fn games_in_which_the_last_piece_is_captured_end_as_by_the_slow_rules() {
        let game = breakthrough(5);
        let mut choice = crate::Generator::new(1);
        let mut wins = [0; 2];
        for _ in 0..100 {
            let (mut position, mut slow) = (game.start(), reference(&game.spec().name).unwrap());
            loop {
                let mut legal = compare_position(&game, &position, &*slow, &[]);
                let is_capture = |action| game.action_name(&position, action).contains('x');
                let rank = |&action: &Action| (!is_capture(action), step(action).1 / 5 == 1);
                let Some(best) = legal.iter().map(rank).min() else { break };
                legal.retain(|action| rank(action) == best);
                let action = legal[choice.below(legal.len())];
                game.play(&mut position, action);
                slow.play(action);
            }
            wins[position.to_move.opponent().index()] += u32::from(position.own == 0);
        }
        assert!(wins[0] > 0 && wins[1] > 0, "{wins:?}");
    }

    #[test]
    fn the_second_player_sees_the_board_upside_down() {
        let game = breakthrough(6);
        let first = position(&game, "a2 c3", "b5 f6", Player::First);
        let second = position(&game, "b2 f1", "a5 c4", Player::Second);
        let observe = |position: &Position| {
            let mut planes = vec![f32::NAN; game.spec().observation.len()];
            game.observe(position, &mut planes);
            planes
        };
        assert_eq!(observe(&first), observe(&second));
        let cell = |row: usize, column: usize| row * 6 + column;
        let planes = observe(&first);
        let ones: Vec<usize> = (0..2 * 36).filter(|&index| planes[index] == 1.0).collect();
        assert_eq!(ones, [cell(3, 2), cell(4, 0), 36 + cell(0, 5), 36 + cell(1, 1)], "the goal is the topmost row");
        assert_eq!(game.parse_action(&first, "c3-b4"), game.parse_action(&second, "c4-b3"));
        assert_ne!(game.hash(&first), game.hash(&second), "another player is to move");
    }

    #[test]
    fn the_error_for_an_invalid_move_names_the_range_of_the_board() {
        let game = breakthrough(5);
        for text in ["a2", "a2-a4", "a2-c3", "a3-a2", "a2-f3", "a2+a3"] {
            let message = game.parse_action(&game.start(), text).unwrap_err().to_string();
            let expected = "a step forward between cells from a1 to e5, such as a2-a3 or the capture a2xb3";
            assert_eq!(message, format!("`{text}` is not a move: expected {expected}"));
        }
    }

    #[test]
    fn the_heuristic_value_grows_with_pieces_and_their_advance() {
        let game = breakthrough(5);
        let value = |first, second, to_move| game.heuristic_value(&position(&game, first, second, to_move));
        assert_eq!(game.heuristic_value(&game.start()), 0);
        assert_eq!(value("a1 b2 c4", "", Player::First), 3 * MATERIAL + 1 + 3 + 10);
        assert_eq!(value("c4", "c2", Player::First), 0, "either piece is one step from its goal");
        for (first, second) in [("c3", "c5"), ("a1 b2", "d4"), ("e4", "a5 b5 c3")] {
            assert_eq!(value(first, second, Player::First), -value(first, second, Player::Second));
        }
    }

    #[test]
    fn the_board_is_drawn_with_the_first_player_at_the_bottom() {
        let game = breakthrough(5);
        let board = ["   a b c d e", " 5 O O O O O", " 4 O . O O O", " 3 . . . . .", " 2 X X X X X", " 1 . . X X X"];
        assert_eq!(game.render(&after(&game, "a2-a3 b4xa3 b1-a2 a3xb2 a1xb2")), board.join("\n"));
    }
}
