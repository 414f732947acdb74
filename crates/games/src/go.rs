//! Go on a board of 5 to 19 cells a side, by the rules of Tromp and Taylor without suicide.
//!
//! - A stone is placed on an empty cell; chains of the opponent that then have no liberty are captured.
//! - A move may not recreate any earlier board of the game (positional superko). A pass is always legal.
//! - A move that leaves its own chain without a liberty is illegal. In the rules of Tromp and Taylor, the move
//!   captures the chain instead; GNU Go, and the servers for programs with Chinese rules, forbid it.
//! - Two passes in a row end the game, and so does a limit of plies. The player with the larger [`Area`] wins; White
//!   adds [`Komi`].
//!
//! A [`Go`] holds the rules, a [`Position`] the stones as bits and the earlier boards as hashes. Start with [`Go`].

mod area;
mod board;
mod komi;
mod setup;
#[cfg(test)]
mod tests;

use game::{Action, Error, Game, Geometry, ObservationShape, Outcome, Player, Spec, Symmetry, mix};

use crate::cells::{CELLS_MAX, Cells, stone_key};
use crate::entry::{Entry, Variants};
use crate::grid::{self, narrow, spec_and_symmetries};
use crate::past::Past;
use crate::side::Side;
pub use area::Area;
use board::Board;
pub use komi::Komi;
pub use setup::SetupError;

/// The registry entry of Go.
pub const ENTRY: Entry = Entry::new("go", Variants::Sizes(Size::sizes(9)), include_str!("../presets/go.toml"));

/// Number of cells along a side of the board, 5 to 19.
pub type Size = Side<5, 19>;

const _: () = assert!(Size::MAX.get() * Size::MAX.get() <= CELLS_MAX);

/// Number of planes in an observation.
const PLANES: usize = 10;

/// Keys for the words of the three hashed sets.
const WORD_KEYS: [u64; 3 * Cells::WORDS] = {
    let mut keys = [0; 3 * Cells::WORDS];
    let mut place = 0;
    while place < keys.len() {
        keys[place] = mix(place as u64);
        place += 1;
    }
    keys
};

/// Implements the rules of Go on one board size.
///
/// Action `row · size + column` places a stone, row 0 at the top; action `size²` is the pass. Black is the first
/// player. Cells are named as in the Go Text Protocol: `D4` is the fourth column, a letter without `I`, in the fourth
/// row from the bottom; the pass is `pass`.
///
/// Observation planes `[10, H, W]`, from the view of the player to move:
/// - stones of the player, and stones of the opponent;
/// - stones of either player in chains with one, two and three liberties, which a network of a few blocks could not
///   count along a chain (as in KataGo, Wu 2019);
/// - empty cells that superko forbids;
/// - the opponent's last stone, and all ones if the opponent has just passed, so that another pass ends the game;
/// - all ones if Black is to move, and all ones if White is, because White has komi. Together they mark the board:
///   zeros that convolutions read around it equal empty cells in the other planes (as in Leela Zero). There is no
///   plane of komi: a run has one komi for each board size.
///
/// AlphaZero observes 8 earlier boards, from which the network derives what superko forbids. Here superko has a
/// plane, and only the last move of the history is observed, so that one evaluation serves all transpositions.
#[derive(Debug, Clone)]
pub struct Go {
    spec: Spec,
    board: Board,
    komi: Komi,
    symmetries: Vec<Symmetry>,
    /// The frame of the image, by [frame](Position) and symmetry.
    frames: Vec<Vec<u8>>,
}

/// Holds a position of Go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    stones: [Cells; 2],
    /// Stones in chains with one, two and three liberties.
    liberties: [Cells; 3],
    /// Cells at which a stone of each player has been captured.
    captured: [Cells; 2],
    /// Empty cells at which a stone of the player to move would recreate an earlier board.
    forbidden: Cells,
    past: Past,
    /// Hash of the stones in the frame of this position.
    board_hash: u64,
    /// Index of the symmetry whose cell table maps this position to the position with the hashed boards. Positions
    /// reached by play have the identity: hashes of earlier boards have no images.
    frame: u8,
    newest: Option<FirstStone>,
    /// Cell of the last action; `None` after a pass.
    last: Option<u16>,
    plies: u16,
    passes: u8,
}

/// A stone at a cell where the same player had lost no stone before: no earlier board has a stone of this player
/// there, so none can be recreated while the stone stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FirstStone {
    cell: u16,
    /// Index of the first board with this stone.
    board: u16,
}

impl Go {
    /// Returns the rules for a board of `size` with the usual komi: 24 on 5x5, 4 on 6x6, 9 on 7x7, 10 on 8x8 and 7 on
    /// larger boards.
    #[must_use]
    pub fn new(size: Size) -> Self {
        Self::with_komi(size, Komi::usual(size.get()))
    }

    /// Returns the rules for a board of `size` with this komi, which only affects the outcome.
    #[must_use]
    pub fn with_komi(size: Size, komi: Komi) -> Self {
        let size = size.get();
        // AlphaGo Zero's limit. Games between players that do not fill eyes of their own are much shorter; random
        // players would capture the area in turns for longer.
        Self::with_limit(size, komi, 2 * size * size)
    }

    /// Returns the rules for a board of any size up to the maximum.
    fn with_limit(size: usize, komi: Komi, max_plies: usize) -> Self {
        let cells = size * size;
        let observation = ObservationShape { planes: PLANES, height: size, width: size };
        let spec = Spec::board(ENTRY.name_of(size), cells + 1, observation, max_plies);
        let symmetries: Vec<Symmetry> = grid::square_symmetries(spec.observation, spec.actions).into();
        Self { board: Board::new(size), komi, frames: frames(&symmetries), symmetries, spec }
    }

    /// Returns the number of cells along a side.
    #[must_use]
    pub fn size(&self) -> usize {
        self.board.size()
    }

    /// Returns the points that White receives.
    #[must_use]
    pub fn komi(&self) -> Komi {
        self.komi
    }

    /// Returns the action of passing.
    #[must_use]
    pub fn pass(&self) -> Action {
        Action(narrow(self.cells()))
    }

    /// Returns the area of both players as the stones stand, even if the game is not over.
    #[must_use]
    pub fn area(&self, position: &Position) -> Area {
        let empty = self.empty(position);
        let [first, second] = position.stones.map(|stones| self.board.connected(stones, stones | empty));
        Area { owned: [first.without(second), second.without(first)] }
    }

    fn cells(&self) -> usize {
        self.size() * self.size()
    }

    fn is_over(&self, position: &Position) -> bool {
        position.passes >= 2 || usize::from(position.plies) >= self.spec.max_plies
    }

    fn empty(&self, position: &Position) -> Cells {
        let [first, second] = position.stones;
        self.board.cells().without(first | second)
    }

    /// Returns the empty cells at which a stone of `player` has a liberty after the captures.
    fn placeable(&self, position: &Position, player: Player) -> Cells {
        let empty = self.empty(position);
        let in_atari = position.liberties[0];
        let own = position.stones[player.index()];
        let opponent = position.stones[player.opponent().index()];
        // An empty neighbour is a liberty. A chain of the player in atari has only the cell itself as a liberty.
        self.board.around(empty | own.without(in_atari) | opponent & in_atari) & empty
    }

    fn legal(&self, position: &Position) -> Cells {
        if self.is_over(position) {
            return Cells::EMPTY;
        }
        self.placeable(position, self.to_move(position)).without(position.forbidden)
    }

    /// Returns the opposing stones that a stone of `player` at an empty cell captures.
    fn captures(&self, position: &Position, player: Player, cell: usize) -> Cells {
        let in_atari = position.stones[player.opponent().index()] & position.liberties[0];
        // A chain in atari has no other liberty.
        let touched: Cells = self.board.neighbours(cell).filter(|&neighbour| in_atari.contains(neighbour)).collect();
        if touched.is_empty() { touched } else { self.board.connected(touched, in_atari) }
    }

    fn place(&self, position: &mut Position, cell: usize) {
        let mover = self.to_move(position);
        let captured = self.captures(position, mover, cell);
        self.remove(position, mover.opponent(), captured);
        if !position.captured[mover.index()].contains(cell) {
            position.newest = Some(FirstStone { cell: narrow(cell), board: position.past.len() });
        }
        position.stones[mover.index()].insert(cell);
        position.board_hash ^= self.stone_key(position, mover, cell);
        position.past.push(position.board_hash);
        self.count_liberties(position, cell, captured);
    }

    fn remove(&self, position: &mut Position, player: Player, captured: Cells) {
        if captured.is_empty() {
            return;
        }
        position.board_hash ^= self.hash_of(position, player, captured);
        position.stones[player.index()] = position.stones[player.index()].without(captured);
        position.captured[player.index()] = position.captured[player.index()] | captured;
        position.liberties = position.liberties.map(|stones| stones.without(captured));
        position.newest = position.newest.filter(|newest| !captured.contains(newest.cell.into()));
    }

    /// Counts the liberties of the chains at the newest stone, including the stone's chain, and at the captured
    /// cells. Other chains have not changed.
    fn count_liberties(&self, position: &mut Position, cell: usize, captured: Cells) {
        let mut changed: Cells = self.board.neighbours(cell).chain([cell]).collect();
        if !captured.is_empty() {
            changed = changed | self.board.around(captured);
        }
        let empty = self.empty(position);
        for stones in position.stones {
            let mut uncounted = changed & stones;
            while let Some(stone) = uncounted.first() {
                let chain = self.board.connected(Cells::from_iter([stone]), stones);
                let liberties = (self.board.around(chain) & empty).len();
                for (count, chains) in (1..).zip(&mut position.liberties) {
                    *chains = if count == liberties { *chains | chain } else { chains.without(chain) };
                }
                uncounted = uncounted.without(chain);
            }
        }
    }

    /// Returns the cells at which a stone of the player to move would recreate an earlier board.
    ///
    /// The earlier board has a stone of the player there, captured since: most positions have few such cells.
    fn recreating(&self, position: &Position) -> Cells {
        let mover = self.to_move(position);
        let emptied = position.captured[mover.index()];
        if emptied.is_empty() || self.is_over(position) {
            return Cells::EMPTY;
        }
        let cells = emptied & self.placeable(position, mover);
        cells.iter().filter(|&cell| self.recreates(position, mover, cell)).collect()
    }

    fn recreates(&self, position: &Position, mover: Player, cell: usize) -> bool {
        let captured = self.captures(position, mover, cell);
        let added = self.stone_key(position, mover, cell) ^ self.hash_of(position, mover.opponent(), captured);
        let standing = position.newest.filter(|newest| !captured.contains(newest.cell.into()));
        position.past.contains_since(standing.map_or(0, |newest| newest.board), position.board_hash ^ added)
    }

    /// Returns the hash key of a stone for a cell in the frame of the position.
    fn stone_key(&self, position: &Position, player: Player, cell: usize) -> u64 {
        let cell = match position.frame {
            0 => cell,
            frame => self.symmetries[usize::from(frame)].cells[cell].into(),
        };
        stone_key(player, cell)
    }

    fn hash_of(&self, position: &Position, player: Player, stones: Cells) -> u64 {
        stones.iter().fold(0, |hash, cell| hash ^ self.stone_key(position, player, cell))
    }
}

/// Returns, by frame and symmetry, the index of the symmetry with the composed cell table.
fn frames(symmetries: &[Symmetry]) -> Vec<Vec<u8>> {
    let composed = |frame: &Symmetry, symmetry: &Symmetry| {
        let cells: Vec<u16> = symmetry.cells.iter().map(|&cell| frame.cells[usize::from(cell)]).collect();
        let index = (0..).zip(symmetries).find(|(_, other)| other.cells == cells).map(|(index, _)| index);
        index.expect("the symmetries of a square are closed")
    };
    let of_frame = |frame| symmetries.iter().map(|symmetry| composed(frame, symmetry)).collect();
    symmetries.iter().map(of_frame).collect()
}

impl Game for Go {
    type Position = Position;

    spec_and_symmetries!();

    fn start(&self) -> Position {
        Position {
            stones: [Cells::EMPTY; 2],
            liberties: [Cells::EMPTY; 3],
            captured: [Cells::EMPTY; 2],
            forbidden: Cells::EMPTY,
            past: Past::EMPTY,
            board_hash: 0,
            frame: 0,
            newest: None,
            last: None,
            plies: 0,
            passes: 0,
        }
    }

    fn to_move(&self, position: &Position) -> Player {
        if position.plies.is_multiple_of(2) { Player::First } else { Player::Second }
    }

    fn legal_actions(&self, position: &Position, actions: &mut Vec<Action>) {
        actions.clear();
        if self.is_over(position) {
            return;
        }
        actions.extend(self.legal(position).iter().map(|cell| Action(narrow(cell))));
        actions.push(self.pass());
    }

    fn is_legal(&self, position: &Position, action: Action) -> bool {
        if action >= self.pass() {
            return action == self.pass() && !self.is_over(position);
        }
        self.legal(position).contains(action.index())
    }

    fn play(&self, position: &mut Position, action: Action) -> f32 {
        debug_assert!(self.is_legal(position, action), "{action} is not legal");
        if action == self.pass() {
            position.passes += 1;
            position.last = None;
        } else {
            self.place(position, action.index());
            position.passes = 0;
            position.last = Some(action.0);
        }
        position.plies += 1;
        position.forbidden = self.recreating(position);
        0.0
    }

    fn outcome(&self, position: &Position) -> Option<Outcome> {
        if !self.is_over(position) {
            return None;
        }
        let area = self.area(position);
        let [black, white] = [Player::First, Player::Second].map(|player| i32::from(narrow(area.points(player))));
        Some(match (2 * (black - white)).cmp(&self.komi.half_points()) {
            std::cmp::Ordering::Greater => Outcome::Win(Player::First),
            std::cmp::Ordering::Equal => Outcome::Draw,
            std::cmp::Ordering::Less => Outcome::Win(Player::Second),
        })
    }

    fn observe(&self, position: &Position, planes: &mut [f32]) {
        let mover = self.to_move(position);
        let [own, opponent] = [mover, mover.opponent()].map(|player| position.stones[player.index()]);
        let [one, two, three] = position.liberties;
        let last = position.last.into_iter().map(usize::from).collect();
        let sets = [own, opponent, one, two, three, position.forbidden, last];
        let constants = [position.passes > 0, mover == Player::First, mover == Player::Second];
        debug_assert_eq!(sets.len() + constants.len(), PLANES);
        let mut planes = planes.chunks_exact_mut(self.cells());
        for (cells, plane) in sets.into_iter().zip(&mut planes) {
            plane.fill(0.0);
            cells.iter().for_each(|cell| plane[cell] = 1.0);
        }
        for (is_one, plane) in constants.into_iter().zip(planes) {
            plane.fill(if is_one { 1.0 } else { 0.0 });
        }
    }

    /// Hashes the observed state, the number of plies and the legal actions.
    ///
    /// Earlier boards count only if they forbid a move now. Two positions with equal hashes may still differ in moves
    /// that superko forbids later, in positions with different hashes. With all earlier boards in the hash, no two
    /// transpositions would have equal hashes or share an evaluation.
    fn hash(&self, position: &Position) -> u64 {
        let [first, second] = position.stones;
        let sets = [first, second, position.forbidden];
        // A cell is below 2¹⁶ − 1, which represents a pass.
        let last = u64::from(position.last.unwrap_or(u16::MAX));
        let rest = mix(self.size() as u64) ^ (u64::from(position.plies) << 24 | last << 8 | u64::from(position.passes));
        // A sum of mixed words, each with a key by index, has no chain of multiplications.
        let words = sets.iter().flat_map(Cells::words).zip(WORD_KEYS);
        words.fold(mix(rest), |hash, (word, key)| hash.wrapping_add(mix(word ^ key)))
    }

    fn image(&self, position: &Position, symmetry: usize) -> Position {
        let mut image = position.clone();
        if symmetry == 0 {
            return image;
        }
        let actions = &self.symmetries[symmetry].actions;
        let turned = |cells: Cells| -> Cells { cells.iter().map(|cell| usize::from(actions[cell])).collect() };
        image.stones = position.stones.map(turned);
        image.liberties = position.liberties.map(turned);
        image.captured = position.captured.map(turned);
        image.forbidden = turned(position.forbidden);
        image.frame = self.frames[usize::from(position.frame)][symmetry];
        image.newest = position.newest.map(|newest| FirstStone { cell: actions[usize::from(newest.cell)], ..newest });
        image.last = position.last.map(|cell| actions[usize::from(cell)]);
        image
    }

    fn action_name(&self, _: &Position, action: Action) -> String {
        if action == self.pass() {
            return "pass".into();
        }
        let (row, column) = (action.index() / self.size(), action.index() % self.size());
        format!("{}{}", column_letter(column), self.size() - row)
    }

    fn parse_action(&self, _: &Position, text: &str) -> Result<Action, Error> {
        let trimmed = text.trim();
        if trimmed.eq_ignore_ascii_case("pass") {
            return Ok(self.pass());
        }
        let cell = parse_vertex(trimmed, self.size()).ok_or_else(|| {
            let last = format!("{}{}", column_letter(self.size() - 1), self.size());
            Error::Notation { text: text.into(), expected: format!("a vertex from A1 to {last}, or pass") }
        })?;
        Ok(Action(narrow(cell)))
    }

    /// Renders the board; stones are `X` (Black) and `O` (White).
    fn render(&self, position: &Position) -> String {
        let letters: String = (0..self.size()).flat_map(|column| [' ', column_letter(column)]).collect();
        let rows = (0..self.size()).map(|row| {
            let cells = (0..self.size()).map(|column| row * self.size() + column);
            let stones = cells.flat_map(|cell| [' ', grid::symbol(self.stone(position, cell))]);
            let number = self.size() - row;
            format!("{number:>2}{}\n", stones.collect::<String>())
        });
        rows.collect::<String>() + "  " + &letters
    }

    fn board(&self, position: &Position) -> Option<game::Board> {
        Some(grid::board_of_stones(self, position, Geometry::Points, |cell| self.stone(position, cell), |cell| cell))
    }
}

/// Returns the letter of a column; there is no `I`.
fn column_letter(column: usize) -> char {
    ('A'..='Z').filter(|&letter| letter != 'I').nth(column).expect("boards have at most 19 columns")
}

/// Parses `D4`, a vertex of the Go Text Protocol: a letter for the column, a number from the bottom for the row.
fn parse_vertex(text: &str, size: usize) -> Option<usize> {
    let mut characters = text.chars();
    let letter = characters.next()?.to_ascii_uppercase();
    let column = (0..size).find(|&column| column_letter(column) == letter)?;
    let digits = characters.as_str();
    let number: usize = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
    (1..=size).contains(&number).then(|| (size - number) * size + column)
}
