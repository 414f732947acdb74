//! Hex on a rhombus of 3 to 19 cells a side, with the swap rule.
//!
//! The first player connects the top edge with the bottom edge, the second player the left edge with the right edge;
//! exactly one player succeeds. A [`Hex`] holds the rules, a [`Position`] only bits. Start with [`Hex`].

use game::{Action, Board, Error, Game, Geometry, ObservationShape, Outcome, Player, Spec, Symmetry, mix};

use crate::cells::{self, CELLS_MAX, Cells, stone_key};
use crate::entry::{Entry, Variants};
use crate::grid::{self, Cell, narrow, spec_and_symmetries};
use crate::side::Side;

/// The registry entry of Hex.
pub const ENTRY: Entry = Entry::new("hex", Variants::Sizes(Size::sizes(11)), include_str!("../presets/hex.toml"));

/// Number of cells along a side of the board, 3 to 19.
pub type Size = Side<3, 19>;

/// Implements the rules of Hex on one board size.
///
/// Actions and observations are in the frame of the player to move, whose edges are always the top and the bottom: for
/// the second player the board is mirrored across the main diagonal. A network then learns one game instead of two.
///
/// - Action `row · size + column` places a stone on that cell of the frame.
/// - Action `size²` is the swap, legal only as the second player's first action. It replaces the first player's stone
///   by a stone of the second player, mirrored across the main diagonal. In the players' frames, the stone stays on
///   the same cell and changes the owner; colours and edges stay with the players.
///
/// Cells are named by column and row, `a1` at the top left of the rendered board, and the swap is `swap`. Observation
/// planes: stones of the player to move, stones of the opponent, all ones if the swap is legal, and all ones, which
/// mark the board among the zeros that convolutions read around it.
#[derive(Debug, Clone)]
pub struct Hex {
    spec: Spec,
    size: usize,
    symmetries: Vec<Symmetry>,
}

/// Holds a position of Hex, in the frame of the rendered board.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    stones: [Cells; 2],
    plies: u16,
    winner: Option<Player>,
    /// Hash of the stones, updated incrementally.
    hash: u64,
}

impl Hex {
    /// Returns the rules for a board of `size`.
    #[must_use]
    pub fn new(size: Size) -> Self {
        let size = size.get();
        let name = ENTRY.name_of(size);
        let cells = size * size;
        let observation = ObservationShape { planes: 4, height: size, width: size };
        // The swap adds a ply without adding a stone.
        let spec = Spec::board(name, cells + 1, observation, cells + 1);
        let half_turn = grid::symmetry(
            observation,
            spec.actions,
            |cell| Cell { row: size - 1 - cell.row, column: size - 1 - cell.column },
            |action| if action.index() == cells { action } else { Action(narrow(cells - 1) - action.0) },
        );
        let symmetries = vec![Symmetry::identity(observation, spec.actions), half_turn];
        Self { spec, size, symmetries }
    }

    /// Returns the number of cells along a side.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the action of swapping.
    #[must_use]
    pub fn swap(&self) -> Action {
        Action(narrow(self.cells()))
    }

    /// Returns the owner of the stone on a cell of the rendered board, numbered row by row from the top.
    #[must_use]
    pub fn stone(&self, position: &Position, cell: usize) -> Option<Player> {
        cells::owner(&position.stones, cell)
    }

    /// Returns an unfinished position with the opponent to move, as after a pass, which the rules do not have, and
    /// without the swap. Set-up positions need it.
    #[must_use]
    pub fn passed(&self, position: &Position) -> Position {
        // The parity changes and the ply of the swap is left out. Further passes do not add up.
        let (plies, key) = match position.plies {
            few @ 0..3 => (few + 3, mix(u64::MAX - u64::from(few + 3))),
            many => (many ^ 1, 0),
        };
        Position { plies, hash: position.hash ^ SECOND_TO_MOVE ^ key, ..*position }
    }

    fn cells(&self) -> usize {
        self.size * self.size
    }

    /// Returns the cell mirrored across the main diagonal.
    fn mirrored(&self, cell: usize) -> usize {
        cell % self.size * self.size + cell / self.size
    }

    /// Converts a cell from the rendered board to the frame of `player`, or back.
    fn framed(&self, cell: usize, player: Player) -> usize {
        match player {
            Player::First => cell,
            Player::Second => self.mirrored(cell),
        }
    }

    fn is_swap_legal(&self, position: &Position) -> bool {
        position.plies == 1
    }

    fn place(&self, position: &mut Position, player: Player, cell: usize) {
        position.stones[player.index()].insert(cell);
        position.hash ^= stone_key(player, cell);
    }

    fn take(&self, position: &mut Position, player: Player, cell: usize) {
        position.stones[player.index()].remove(cell);
        position.hash ^= stone_key(player, cell);
    }

    fn play_swap(&self, position: &mut Position) {
        let cell = position.stones[Player::First.index()].first().expect("the first player has one stone");
        self.take(position, Player::First, cell);
        self.place(position, Player::Second, self.mirrored(cell));
    }

    fn is_occupied(&self, position: &Position, cell: usize) -> bool {
        position.stones.iter().any(|stones| stones.contains(cell))
    }
}

/// Hash key for the second player to move: the same stones occur with and without a swap.
const SECOND_TO_MOVE: u64 = mix(u64::MAX);

/// Returns true if the group of the stone on `cell` connects both edges of `player`.
///
/// Floods from the newest stone, the only stone that can complete a connection.
fn connects(stones: &Cells, size: usize, player: Player, cell: usize) -> bool {
    let mut unseen = *stones;
    unseen.remove(cell);
    let mut to_visit = [0_u16; CELLS_MAX];
    to_visit[0] = narrow(cell);
    let mut waiting = 1;
    let mut reached = [false; 2];
    while waiting > 0 {
        waiting -= 1;
        let cell = to_visit[waiting] as usize;
        let distance = match player {
            Player::First => cell / size,
            Player::Second => cell % size,
        };
        reached[0] |= distance == 0;
        reached[1] |= distance == size - 1;
        if reached == [true; 2] {
            return true;
        }
        for neighbour in neighbours(cell, size) {
            if unseen.contains(neighbour) {
                unseen.remove(neighbour);
                to_visit[waiting] = narrow(neighbour);
                waiting += 1;
            }
        }
    }
    false
}

/// Iterates over the two to six cells that share an edge with `cell`.
fn neighbours(cell: usize, size: usize) -> impl Iterator<Item = usize> {
    let (row, column) = (cell / size, cell % size);
    let steps = [
        (row > 0).then(|| cell - size),
        (row > 0 && column + 1 < size).then(|| cell + 1 - size),
        (column > 0).then(|| cell - 1),
        (column + 1 < size).then(|| cell + 1),
        (row + 1 < size && column > 0).then(|| cell + size - 1),
        (row + 1 < size).then(|| cell + size),
    ];
    steps.into_iter().flatten()
}

impl Game for Hex {
    type Position = Position;

    spec_and_symmetries!();

    fn start(&self) -> Position {
        Position { stones: [Cells::EMPTY; 2], plies: 0, winner: None, hash: mix(1 << 32 | self.size as u64) }
    }

    fn to_move(&self, position: &Position) -> Player {
        if position.plies.is_multiple_of(2) { Player::First } else { Player::Second }
    }

    fn legal_actions(&self, position: &Position, actions: &mut Vec<Action>) {
        actions.clear();
        if position.winner.is_some() {
            return;
        }
        // Strides on the rendered board: to the next cell of a row in the mover's frame, and to the next row.
        let (along, on) = match self.to_move(position) {
            Player::First => (1, self.size),
            Player::Second => (self.size, 1),
        };
        for row in 0..self.size {
            let first = narrow(row * self.size);
            let cells = (row * on..).step_by(along).take(self.size).zip(first..);
            actions
                .extend(cells.filter(|&(cell, _)| !self.is_occupied(position, cell)).map(|(_, action)| Action(action)));
        }
        if self.is_swap_legal(position) {
            actions.push(self.swap());
        }
    }

    fn is_legal(&self, position: &Position, action: Action) -> bool {
        if position.winner.is_some() || action > self.swap() {
            return false;
        }
        if action == self.swap() {
            return self.is_swap_legal(position);
        }
        !self.is_occupied(position, self.framed(action.index(), self.to_move(position)))
    }

    fn play(&self, position: &mut Position, action: Action) -> f32 {
        debug_assert!(self.is_legal(position, action), "{action} is not legal");
        if action == self.swap() {
            self.play_swap(position);
        } else {
            let mover = self.to_move(position);
            let cell = self.framed(action.index(), mover);
            self.place(position, mover, cell);
            if connects(&position.stones[mover.index()], self.size, mover, cell) {
                position.winner = Some(mover);
            }
        }
        position.plies += 1;
        position.hash ^= SECOND_TO_MOVE;
        0.0
    }

    fn outcome(&self, position: &Position) -> Option<Outcome> {
        position.winner.map(Outcome::Win)
    }

    fn observe(&self, position: &Position, planes: &mut [f32]) {
        let (stones, constants) = planes.split_at_mut(2 * self.cells());
        let (swap, board) = constants.split_at_mut(self.cells());
        let mover = self.to_move(position);
        for (plane, player) in stones.chunks_exact_mut(self.cells()).zip([mover, mover.opponent()]) {
            plane.fill(0.0);
            for cell in position.stones[player.index()].iter() {
                plane[self.framed(cell, mover)] = 1.0;
            }
        }
        swap.fill(if self.is_swap_legal(position) { 1.0 } else { 0.0 });
        board.fill(1.0);
    }

    fn hash(&self, position: &Position) -> u64 {
        position.hash
    }

    fn image(&self, position: &Position, symmetry: usize) -> Position {
        if symmetry == 0 {
            return *position;
        }
        let mut image = Position { stones: [Cells::EMPTY; 2], ..*position };
        for player in [Player::First, Player::Second] {
            for cell in position.stones[player.index()].iter() {
                image.hash ^= stone_key(player, cell);
                self.place(&mut image, player, self.cells() - 1 - cell);
            }
        }
        image
    }

    fn action_name(&self, position: &Position, action: Action) -> String {
        if action == self.swap() {
            return "swap".into();
        }
        grid::cell_name(self.framed(action.index(), self.to_move(position)), self.size)
    }

    fn parse_action(&self, position: &Position, text: &str) -> Result<Action, Error> {
        let trimmed = text.trim();
        if trimmed.eq_ignore_ascii_case("swap") {
            return Ok(self.swap());
        }
        let cell = grid::parse_cell(trimmed, self.size).ok_or_else(|| {
            let last = grid::cell_name(self.cells() - 1, self.size);
            Error::Notation { text: text.into(), expected: format!("a cell from a1 to {last}, or swap") }
        })?;
        Ok(Action(narrow(self.framed(cell, self.to_move(position)))))
    }

    /// Renders the board; stones are `X` (first player, top to bottom) and `O` (second player, left to right).
    fn render(&self, position: &Position) -> String {
        let label = |row: usize| format!("{:row$}{:>2} ", "", row + 1);
        grid::render(self.size, label, |cell| grid::symbol(self.stone(position, cell)))
    }

    fn board(&self, position: &Position) -> Option<Board> {
        let (owner, mover) = (|cell| self.stone(position, cell), self.to_move(position));
        Some(grid::board_of_stones(self, position, Geometry::Hexagons, owner, |cell| self.framed(cell, mover)))
    }
}

#[cfg(test)]
mod tests {
    use reference_games::{compare_moves, compare_tree, perft, reference};

    use super::*;

    fn hex(size: u8) -> Hex {
        Hex::new(Size::new(size).unwrap())
    }

    /// Returns the position after moves in notation, checked against the slow rules.
    fn after(game: &Hex, moves: &str) -> Position {
        compare_moves(game, &mut *reference(&game.spec().name).unwrap(), moves)
    }

    #[test]
    fn all_games_agree_with_the_slow_rules_to_a_depth() {
        for (size, depth) in [(3, 5), (4, 4), (11, 2)] {
            let game = hex(size);
            let nodes = compare_tree(&game, &*reference(&game.spec().name).unwrap(), depth);
            assert_eq!(nodes, perft(&game, &game.start(), depth), "{size}");
        }
    }

    #[test]
    fn each_player_connects_their_own_edges() {
        let game = hex(3);
        assert_eq!(game.outcome(&after(&game, "b1 a1 b2 a2 b3")), Some(Outcome::Win(Player::First)), "top to bottom");
        assert_eq!(
            game.outcome(&after(&game, "a1 a2 b1 b2 a3 c2")),
            Some(Outcome::Win(Player::Second)),
            "left to right"
        );
        assert_eq!(game.outcome(&after(&game, "a2 a1 b2 b1 c2")), None, "the first player does not win left to right");
    }

    #[test]
    fn cells_touch_along_the_short_diagonal_only() {
        let game = hex(3);
        assert_eq!(game.outcome(&after(&game, "c1 a1 b2 a2 a3")), Some(Outcome::Win(Player::First)), "short diagonal");
        assert_eq!(game.outcome(&after(&game, "a1 c1 b2 a2 c3")), None, "long diagonal");
    }

    #[test]
    fn the_swap_gives_the_second_player_the_mirrored_stone() {
        let game = hex(4);
        let position = after(&game, "b4 swap");
        assert_eq!(game.render(&position), "   a b c d\n 1  . . . .\n  2  . . . O\n   3  . . . .\n    4  . . . .");
        assert_eq!(game.to_move(&position), Player::First);
    }

    #[test]
    fn a_pass_exchanges_the_player_to_move_and_ends_the_swap() {
        let game = hex(4);
        let one = after(&game, "b4");
        let once = game.passed(&one);
        let twice = game.passed(&once);
        assert_eq!([&once, &twice].map(|position| game.to_move(position)), [Player::First, Player::Second]);
        assert!(game.is_legal(&one, game.swap()) && !game.is_legal(&twice, game.swap()));
        assert!(game.render(&twice) == game.render(&one) && game.hash(&twice) != game.hash(&one));
        let many = (0..70_000).fold(one, |position, _| game.passed(&position));
        assert!(game.to_move(&many) == Player::Second && !game.is_legal(&many, game.swap()));
        let mut second_first = game.passed(&game.start());
        game.play(&mut second_first, Action(0));
        assert_eq!((game.stone(&second_first, 0), game.to_move(&second_first)), (Some(Player::Second), Player::First));
    }

    #[test]
    fn a_swapped_stone_on_the_diagonal_keeps_its_cell_and_connects_for_the_second_player() {
        let game = hex(3);
        let position = after(&game, "b2 swap a1 a2 b1 c2");
        assert_eq!(game.render(&position), "   a b c\n 1  X X .\n  2  O O O\n   3  . . .");
        assert_eq!(game.outcome(&position), Some(Outcome::Win(Player::Second)));
    }

    #[test]
    fn the_swap_is_legal_only_as_the_second_players_first_action() {
        let game = hex(3);
        let swap = game.swap();
        assert!(!game.is_legal(&game.start(), swap));
        assert!(game.is_legal(&after(&game, "b2"), swap));
        assert!(!game.is_legal(&after(&game, "b2 a1"), swap));
        assert!(!game.is_legal(&after(&game, "b2 swap"), swap));
        assert!(!game.is_legal(&after(&game, "b2 swap a1"), swap));
    }

    /// The Hex theorem: on a full board, exactly one player connects the edges (Gale 1979).
    #[test]
    fn full_boards_have_exactly_one_winner() {
        const SIZE: usize = 3;
        let wins = |cells: u32, player| {
            let stones: Cells = (0..SIZE * SIZE).filter(|cell| cells >> cell & 1 == 1).collect();
            stones.iter().any(|cell| connects(&stones, SIZE, player, cell))
        };
        for first in 0..1_u32 << (SIZE * SIZE) {
            let second = !first & ((1 << (SIZE * SIZE)) - 1);
            assert_ne!(wins(first, Player::First), wins(second, Player::Second), "first player on cells {first:#011b}");
        }
    }

    /// The mover's edges are always the top and the bottom of the observation.
    #[test]
    fn the_observation_of_own_stones_is_the_same_with_the_players_exchanged() {
        let game = hex(4);
        let observe = |moves: &str| {
            let mut planes = vec![f32::NAN; game.spec().observation.len()];
            game.observe(&after(&game, moves), &mut planes);
            planes
        };
        let first_sees = observe("a1 d4 b3 c1");
        let second_sees = observe("d4 a1 a3 c2 b4");
        assert_eq!(first_sees, observe("b3 c1 a1 d4"), "the order of stones does not matter");
        let (own, rest) = second_sees.split_at(16);
        assert_eq!(own.iter().sum::<f32>(), 2.0);
        // The second player's stones a1 and c2 are observed mirrored: at a1 and at b3.
        assert_eq!(own, &first_sees[..16]);
        assert_eq!(rest[..16].iter().sum::<f32>(), 3.0);
    }

    #[test]
    fn the_board_is_drawn_as_a_rhombus() {
        let game = hex(3);
        assert_eq!(game.render(&after(&game, "b1 c3")), "   a b c\n 1  . X .\n  2  . . .\n   3  . . O");
    }

    #[test]
    fn the_error_for_an_invalid_move_names_the_range_of_the_board() {
        let game = hex(11);
        let message = game.parse_action(&game.start(), "m3").unwrap_err().to_string();
        assert_eq!(message, "`m3` is not a move: expected a cell from a1 to k11, or swap");
    }

    #[test]
    fn a_size_lies_between_3_and_19() {
        let sizes: Vec<u8> = (0..=u8::MAX).filter(|&cells| Size::new(cells).is_some()).collect();
        assert_eq!(sizes, (3..=19).collect::<Vec<u8>>());
    }
}
