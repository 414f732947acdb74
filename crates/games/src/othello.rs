//! Othello on boards of 6 and 8 cells a side.
//!
//! A disc is placed so that it encloses opposing discs in a line, between itself and another disc of the same colour;
//! these are turned over. A player who cannot place a disc passes. The game ends when neither player can; the player
//! with more discs wins. Start with [`Othello`].

use game::{Action, Board, Error, Game, Geometry, ObservationShape, Outcome, Player, Spec, Symmetry, mix};

use crate::bitboard::{Layout, STRIDE};
use crate::entry::{Entry, Variants};
use crate::grid::{self, narrow, spec_and_symmetries};

/// The registry entry of Othello.
pub const ENTRY: Entry =
    Entry::new("othello", Variants::Named(&["othello-6", "othello-8"]), include_str!("../presets/othello.toml"));

/// Steps between neighbouring bits of a line, and the cells with discs that can be enclosed in that direction. Across
/// columns, discs in the first or last column cannot be enclosed, and a shift would move them to another row.
const LINES: [(usize, u64); 4] =
    [(1, INNER_COLUMNS), (STRIDE, u64::MAX), (STRIDE - 1, INNER_COLUMNS), (STRIDE + 1, INNER_COLUMNS)];
const INNER_COLUMNS: u64 = 0x7e7e_7e7e_7e7e_7e7e;
/// Maximum number of discs between two others in a line of 8.
const ENCLOSED_MAX: usize = 6;

/// Indices of the [symmetries of the square](grid::square_symmetries) that keep the colours at the start position:
/// identity, half turn and both diagonals.
const KEEPING_COLOURS: [usize; 4] = [0, 2, 6, 7];

/// Heuristic value of one legal action more than the opponent.
const MOBILITY: i32 = 10;

/// Number of cells along a side of the board: 6 or 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Size {
    /// `othello-6`: 6 cells.
    Six,
    /// `othello-8`: 8 cells, the usual board.
    Eight,
}

impl Size {
    /// Returns the size with this number.
    #[must_use]
    pub fn new(number: u8) -> Option<Self> {
        [Self::Six, Self::Eight].get(usize::from(number)).copied()
    }

    /// Returns the number of the size.
    #[must_use]
    pub const fn get(self) -> usize {
        self as usize
    }

    /// Returns the number of cells along a side.
    const fn side(self) -> usize {
        match self {
            Self::Six => 6,
            Self::Eight => 8,
        }
    }
}

/// Implements the rules of Othello on one board size.
///
/// The first player has the black discs. Action `row · size + column` places a disc on that cell, and action `size²`
/// passes, which is legal only if the player to move cannot place a disc and the opponent can. Cells are named by
/// column and row from the top, `a1` at the top left, and the pass is `pass`.
///
/// Observation planes: discs of the player to move, discs of the opponent, cells where the player to move can place a
/// disc, and all ones, which mark the board among the zeros that convolutions read around it. The legal cells depend
/// on lines over the whole board, which a few convolutions do not span, and the number of legal cells, the mobility,
/// matters most in the middle of a game (Rosenbloom 1982).
///
/// The rules commute with all eight symmetries of the square. Four exchange the colours of the start position and are
/// left out: an image is the position after the images of the actions from the start.
#[derive(Debug, Clone)]
pub struct Othello {
    spec: Spec,
    layout: Layout,
    symmetries: Vec<Symmetry>,
    /// Sets of cells, with the heuristic value of a disc per cell.
    regions: [(u64, i32); 4],
}

/// Holds a position of Othello.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// Discs of the player to move.
    own: u64,
    /// Discs of the opponent.
    opponent: u64,
    /// Cells where the player to move can place a disc.
    placements: u64,
    to_move: Player,
}

impl Othello {
    /// Returns the rules for a board of `size`.
    #[must_use]
    pub fn new(size: Size) -> Self {
        let layout = Layout::new(size.side());
        let cells = layout.cells();
        let observation = ObservationShape { planes: 4, height: layout.size(), width: layout.size() };
        // Every disc except the first four is placed once. The first action places a disc, and so does each action
        // after a pass: there are fewer passes than placed discs.
        let max_plies = 2 * (cells - 4) - 1;
        let spec = Spec::board(ENTRY.name_of(size.get()), cells + 1, observation, max_plies);
        let all = grid::square_symmetries(observation, spec.actions);
        let symmetries = KEEPING_COLOURS.map(|index| all[index].clone());
        Self { symmetries: symmetries.into(), regions: regions(layout), spec, layout }
    }

    /// Returns the action of passing.
    #[must_use]
    pub fn pass(&self) -> Action {
        Action(narrow(self.layout.cells()))
    }

    /// Returns the owner of the disc on a cell; cells are numbered like actions.
    #[must_use]
    pub fn disc(&self, position: &Position, cell: usize) -> Option<Player> {
        let (Position { own, opponent, to_move, .. }, cell) = (*position, self.layout.cell(cell));
        let is_own = own & cell != 0;
        (is_own || opponent & cell != 0).then_some(if is_own { to_move } else { to_move.opponent() })
    }

    fn position(&self, own: u64, opponent: u64, to_move: Player) -> Position {
        Position { own, opponent, placements: placements(own, opponent) & self.layout.board(), to_move }
    }

    /// Returns true if the opponent could place a disc after a pass.
    fn can_opponent_place(&self, position: &Position) -> bool {
        placements(position.opponent, position.own) & self.layout.board() != 0
    }

    fn is_pass_legal(&self, position: &Position) -> bool {
        position.placements == 0 && self.can_opponent_place(position)
    }
}

/// Returns the corners, the cells diagonally next to them, the other cells next to them, and the rest of the edge,
/// with the values of discs there.
///
/// A disc in a corner is never turned over. A disc next to an empty corner gives the corner to the opponent, most of
/// all diagonally. A disc on an edge is turned over only along the edge (Rosenbloom 1982; the weights have the
/// magnitude of those in Norvig 1992, chapter 18).
fn regions(layout: Layout) -> [(u64, i32); 4] {
    let last = layout.size() - 1;
    let crossing = |rows: [usize; 2], columns: [usize; 2]| {
        let [top, bottom] = rows.map(|row| layout.row(row));
        let [left, right] = columns.map(|column| layout.column(column));
        (top | bottom) & (left | right)
    };
    let (outer, inner) = ([0, last], [1, last - 1]);
    let corners = crossing(outer, outer);
    let diagonal = crossing(inner, inner);
    let beside = crossing(outer, inner) | crossing(inner, outer);
    let edge = layout.row(0) | layout.row(last) | layout.column(0) | layout.column(last);
    [(corners, 120), (diagonal, -40), (beside, -20), (edge & !corners & !beside, 10)]
}

/// Returns the cells of `through` in unbroken runs from `from`, by one shift per step.
fn runs(from: u64, through: u64, shift: impl Fn(u64) -> u64) -> u64 {
    let mut run = through & shift(from);
    for _ in 1..ENCLOSED_MAX {
        run |= through & shift(run);
    }
    run
}

/// Returns the empty cells where another disc of `own` encloses discs of `opponent`; includes cells beyond a smaller
/// board.
fn placements(own: u64, opponent: u64) -> u64 {
    let ends = LINES.into_iter().fold(0, |ends, (step, enclosed)| {
        let through = opponent & enclosed;
        let (up, down) = (|cells: u64| cells << step, |cells: u64| cells >> step);
        ends | up(runs(own, through, up)) | down(runs(own, through, down))
    });
    ends & !(own | opponent)
}

/// Returns the discs of `opponent` that a disc of `own` on `placed` turns over.
fn turned(placed: u64, own: u64, opponent: u64) -> u64 {
    let enclosed_by = |run: u64, end: u64| if end & own == 0 { 0 } else { run };
    LINES.into_iter().fold(0, |turned, (step, enclosed)| {
        let through = opponent & enclosed;
        let (up, down) = (|cells: u64| cells << step, |cells: u64| cells >> step);
        let (above, below) = (runs(placed, through, up), runs(placed, through, down));
        turned | enclosed_by(above, up(above)) | enclosed_by(below, down(below))
    })
}

fn count(cells: u64) -> i32 {
    cells.count_ones().cast_signed()
}

impl Game for Othello {
    type Position = Position;

    spec_and_symmetries!();

    fn start(&self) -> Position {
        let (low, high) = (self.layout.size() / 2 - 1, self.layout.size() / 2);
        let cell = |row, column| self.layout.row(row) & self.layout.column(column);
        self.position(cell(low, high) | cell(high, low), cell(low, low) | cell(high, high), Player::First)
    }

    fn to_move(&self, position: &Position) -> Player {
        position.to_move
    }

    fn legal_actions(&self, position: &Position, actions: &mut Vec<Action>) {
        actions.clear();
        actions.extend(self.layout.numbers(position.placements).map(|cell| Action(narrow(cell))));
        if self.is_pass_legal(position) {
            actions.push(self.pass());
        }
    }

    fn is_legal(&self, position: &Position, action: Action) -> bool {
        if action >= self.pass() {
            return action == self.pass() && self.is_pass_legal(position);
        }
        position.placements & self.layout.cell(action.index()) != 0
    }

    fn play(&self, position: &mut Position, action: Action) -> f32 {
        debug_assert!(self.is_legal(position, action), "{action} is not legal");
        let Position { mut own, mut opponent, to_move, .. } = *position;
        if action != self.pass() {
            let placed = self.layout.cell(action.index());
            let turned = turned(placed, own, opponent);
            own |= placed | turned;
            opponent &= !turned;
        }
        *position = self.position(opponent, own, to_move.opponent());
        0.0
    }

    fn outcome(&self, position: &Position) -> Option<Outcome> {
        if position.placements != 0 || self.can_opponent_place(position) {
            return None;
        }
        let Position { own, opponent, to_move, .. } = *position;
        Some(match count(own).cmp(&count(opponent)) {
            std::cmp::Ordering::Greater => Outcome::Win(to_move),
            std::cmp::Ordering::Less => Outcome::Win(to_move.opponent()),
            std::cmp::Ordering::Equal => Outcome::Draw,
        })
    }

    fn observe(&self, position: &Position, planes: &mut [f32]) {
        let sets = [position.own, position.opponent, position.placements, self.layout.board()];
        for (plane, cells) in planes.chunks_exact_mut(self.layout.cells()).zip(sets) {
            self.layout.write_plane(cells, plane);
        }
    }

    fn hash(&self, position: &Position) -> u64 {
        // A pass exchanges the discs, so that the same discs occur with either player to move.
        mix(mix(mix(position.to_move.index() as u64) ^ position.own) ^ position.opponent)
    }

    fn image(&self, position: &Position, symmetry: usize) -> Position {
        let half_turn = |cells| self.layout.upside_down(self.layout.mirrored(cells));
        let image = |cells| match symmetry {
            0 => cells,
            1 => half_turn(cells),
            2 => self.layout.transposed(cells),
            _ => half_turn(self.layout.transposed(cells)),
        };
        Position {
            own: image(position.own),
            opponent: image(position.opponent),
            placements: image(position.placements),
            to_move: position.to_move,
        }
    }

    /// Values corners, edges and the cells next to corners, and the difference in mobility.
    fn heuristic_value(&self, position: &Position) -> i32 {
        let Position { own, opponent, placements: own_placements, .. } = *position;
        let discs = |(cells, value): (u64, i32)| value * (count(own & cells) - count(opponent & cells));
        let opponent_placements = placements(opponent, own) & self.layout.board();
        let mobility = count(own_placements) - count(opponent_placements);
        self.regions.into_iter().map(discs).sum::<i32>() + MOBILITY * mobility
    }

    fn action_name(&self, _: &Position, action: Action) -> String {
        if action == self.pass() { "pass".into() } else { grid::cell_name(action.index(), self.layout.size()) }
    }

    fn parse_action(&self, _: &Position, text: &str) -> Result<Action, Error> {
        let trimmed = text.trim();
        if trimmed.eq_ignore_ascii_case("pass") {
            return Ok(self.pass());
        }
        let cell = grid::parse_cell(trimmed, self.layout.size()).ok_or_else(|| {
            let last = grid::cell_name(self.layout.cells() - 1, self.layout.size());
            Error::Notation { text: text.into(), expected: format!("a cell from a1 to {last}, or pass") }
        })?;
        Ok(Action(narrow(cell)))
    }

    /// Renders the board; discs are `X` (first player, black) and `O` (second player, white).
    fn render(&self, position: &Position) -> String {
        grid::render(self.layout.size(), |row| row + 1, |cell| grid::symbol(self.disc(position, cell)))
    }

    fn board(&self, position: &Position) -> Option<Board> {
        Some(grid::board_of_stones(self, position, Geometry::Squares, |cell| self.disc(position, cell), |cell| cell))
    }
}

#[cfg(test)]
mod tests {
    use reference_games::{compare_moves, compare_tree, perft, reference};

    use super::*;

    /// Returns the position after moves in notation, checked against the slow rules.
    fn after(game: &Othello, moves: &str) -> Position {
        compare_moves(game, &mut *reference(&game.spec().name).unwrap(), moves)
    }

    fn legal(game: &Othello, position: &Position) -> String {
        let mut actions = Vec::new();
        game.legal_actions(position, &mut actions);
        let names: Vec<String> = actions.into_iter().map(|action| game.action_name(position, action)).collect();
        names.join(" ")
    }

    /// Counts of Bik 2009; the first passes are at ply 9.
    #[test]
    fn the_tree_of_8_cells_a_side_has_the_published_number_of_nodes() {
        let game = Othello::new(Size::Eight);
        let nodes: Vec<u64> = (1..=9).map(|depth| perft(&game, &game.start(), depth)).collect();
        assert_eq!(nodes, [4, 12, 56, 244, 1396, 8200, 55_092, 390_216, 3_005_288]);
    }

    #[test]
    fn all_games_agree_with_the_slow_rules_to_a_depth() {
        for (size, name) in [(Size::Six, "othello-6"), (Size::Eight, "othello-8")] {
            let game = Othello::new(size);
            let nodes = compare_tree(&game, &*reference(name).unwrap(), 5);
            assert_eq!(nodes, perft(&game, &game.start(), 5), "{name}");
        }
    }

    #[test]
    fn black_begins_on_the_four_cells_that_enclose_a_white_disc() {
        let game = Othello::new(Size::Eight);
        assert_eq!(legal(&game, &game.start()), "d3 c4 f5 e6");
        assert_eq!(game.to_move(&game.start()), Player::First);
    }

    #[test]
    fn a_pass_is_legal_only_where_no_disc_can_be_placed() {
        for (size, moves) in [(Size::Six, "c2 b2 a2 a1 d5 c5 c6 a3"), (Size::Eight, "f5 f6 f7 c5 b5 b6 c3 a5 a7 c7")] {
            let game = Othello::new(size);
            let blocked = after(&game, moves);
            assert_eq!((legal(&game, &blocked).as_str(), game.outcome(&blocked)), ("pass", None));
            assert!(!game.is_legal(&game.start(), game.pass()));
            let mut passed = blocked;
            game.play(&mut passed, game.pass());
            assert_ne!(game.to_move(&passed), game.to_move(&blocked));
            assert_eq!(game.render(&passed), game.render(&blocked), "a pass changes no disc");
            assert!(!game.is_legal(&passed, game.pass()), "the opponent of the player who passed can place a disc");
        }
    }

    #[test]
    fn the_game_ends_before_the_board_is_full_where_neither_player_can_place_a_disc() {
        let game = Othello::new(Size::Six);
        let position = after(&game, "e4 c5 b2 e2 b6 c6 d2 e3 f2 c2 c1 a6");
        assert_eq!(legal(&game, &position), "");
        let (own, opponent) = (count(position.own), count(position.opponent));
        assert!(own > 0 && opponent > 0 && own + opponent == 16, "{}", game.render(&position));
        let winner = if own > opponent { position.to_move } else { position.to_move.opponent() };
        assert_eq!(game.outcome(&position), Some(Outcome::Win(winner)));
    }

    /// The shortest game: all discs are black after nine plies.
    #[test]
    fn a_player_without_discs_has_lost() {
        let game = Othello::new(Size::Eight);
        let position = after(&game, "e6 f4 e3 f6 g5 d6 e7 f5 c5");
        assert_eq!((count(position.own), count(position.opponent)), (0, 13));
        assert_eq!(game.outcome(&position), Some(Outcome::Win(Player::First)));
    }

    #[test]
    fn equal_numbers_of_discs_are_a_draw() {
        let game = Othello::new(Size::Six);
        let moves = "d5 e3 f2 d6 c2 b3 a3 d2 c1 b2 a2 b1 b4 a1 e6 e1 c6 a5 e2 c5 b5 a4 e5 f5 f6 d1 b6 e4 f1 f3 f4 a6";
        assert_eq!(game.outcome(&after(&game, moves)), Some(Outcome::Draw));
    }

    #[test]
    fn the_observation_shows_the_mover_first_and_where_a_disc_can_be_placed() {
        let game = Othello::new(Size::Six);
        let mut planes = [f32::NAN; 4 * 36];
        let position = after(&game, "c2");
        game.observe(&position, &mut planes);
        let cells = |plane: usize| {
            let ones = (0..36).filter(|cell| planes[plane * 36 + cell] == 1.0);
            ones.map(|cell| grid::cell_name(cell, 6)).collect::<Vec<_>>().join(" ")
        };
        assert_eq!([0, 1, 2].map(cells), ["d4", "c2 c3 d3 c4", "b2 d2 b4"].map(str::to_owned));
    }

    #[test]
    fn the_heuristic_value_changes_its_sign_with_the_colours() {
        let game = Othello::new(Size::Eight);
        for moves in ["d3", "f5 f6 f7 c5 b5 b6", "e6 f4 e3 f6 g5 d6"] {
            let Position { own, opponent, to_move, .. } = after(&game, moves);
            let value = |own, opponent| game.heuristic_value(&game.position(own, opponent, to_move));
            assert_eq!(value(own, opponent), -value(opponent, own), "{moves}");
        }
        let corner = game.layout.cell(0);
        assert_eq!(game.heuristic_value(&game.position(corner, 0, Player::First)), 120);
    }

    #[test]
    fn the_board_is_drawn_with_black_discs_as_crosses() {
        let game = Othello::new(Size::Six);
        let board = [
            "   a b c d e f",
            " 1 . . . . . .",
            " 2 . . X . . .",
            " 3 . . X X . .",
            " 4 . . X O . .",
            " 5 . . . . . .",
            " 6 . . . . . .",
        ];
        assert_eq!(game.render(&after(&game, "c2")), board.join("\n"));
    }
}
