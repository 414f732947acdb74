//! Chess by the laws of FIDE; draws that a player could claim are declared at once.
//!
//! The crate `cozy-chess` has the rules of moves: decision 0078. This module has actions, observations and, besides
//! mate and stalemate, the ends of a game: the third occurrence of a position, fifty moves by each player without a
//! capture or a pawn step, too few pieces for mate, and a limit of plies. Start with [`Chess`].

mod moves;
mod notation;
#[cfg(test)]
mod tests;
mod value;

use cozy_chess::{BitBoard, Board, Color, Move, Piece, Rank, Square};
use game::{Action, Error, Game, Geometry, Mark, ObservationShape, Outcome, Place, Player, Spec, Symmetry, mix};

use crate::bitboard::Layout;
use crate::entry::{Entry, Variants};
use crate::grid::{self, spec_and_symmetries};
use crate::past::Past;
use moves::{Step, cell_of, square_of};

/// The registry entry of chess.
pub const ENTRY: Entry = Entry::new("chess", Variants::One, include_str!("../presets/chess.toml"));

/// Number of cells along a side of the board.
const SIDE: usize = 8;
const CELLS: usize = SIDE * SIDE;

/// Number of planes in an observation.
const PLANES: usize = 20;

/// Number of plies after which a game is drawn; AlphaZero's limit.
const PLIES_MAX: u16 = 512;

/// Number of plies without a capture or a pawn step after which a game is drawn: fifty moves of each player.
const QUIET_PLIES_MAX: u8 = 100;

/// Implements the rules of chess.
///
/// Actions and observations are in the frame of the player to move, whose pawns step towards the top: the ranks are
/// reversed for Black. A network then learns one game instead of two. White is the first player.
///
/// Action `cell · 73 + way` moves the piece on that cell of the frame, row by row from the top left, in one of the
/// ways of Silver et al. 2018:
/// - ways 0 to 55 are queen moves, `direction · 7 + distance - 1`, with directions clockwise from the top; a pawn
///   that reaches the last row becomes a queen; castling is a king move by two cells;
/// - ways 56 to 63 are knight moves, clockwise from two rows up and one column to the right;
/// - ways 64 to 72 are underpromotions, `64 + piece · 3 + direction`: a pawn that reaches the last row to the left,
///   straight ahead or to the right becomes a knight, a bishop or a rook.
///
/// Moves are written in UCI notation: `e2e4`, `e1g1`, `e7e8q`. Standard algebraic notation is also read.
///
/// Observation planes `[20, 8, 8]`:
/// - pawns, knights, bishops, rooks, queens and king of the player to move, then of the opponent;
/// - all ones if the position has occurred before, so that the next occurrence is a draw;
/// - all ones for each castling right: kingside and queenside of the player to move, then of the opponent;
/// - the cell on which a pawn can be captured en passant;
/// - the number of plies without a capture or a pawn step, divided by 100;
/// - ones, which mark the board against the zeros that convolutions read around it.
///
/// AlphaZero and Leela Chess Zero observe the last 8 positions. The rules need them only for repetitions, which have
/// a plane; without them, one evaluation serves all transpositions. There is no plane for the colour: in the frame of
/// the player to move, White and Black have the same game.
#[derive(Debug, Clone)]
pub struct Chess {
    spec: Spec,
    symmetries: [Symmetry; 1],
}

/// Holds a position of chess.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    board: Board,
    /// Cell on which a pawn can be captured en passant, if such a move is legal.
    en_passant: Option<Square>,
    /// Hash of everything that repeats with a position: pieces, player to move, castling rights, en passant.
    key: u64,
    /// Keys of earlier positions since the last capture or pawn step; a second occurrence has the mixed key.
    past: Past,
    /// Number of earlier occurrences of the position, at most 2.
    occurrences: u8,
    plies: u16,
    outcome: Option<Outcome>,
}

impl Chess {
    /// Returns the rules of chess.
    #[must_use]
    pub fn new() -> Self {
        let observation = ObservationShape { planes: PLANES, height: SIDE, width: SIDE };
        let spec = Spec::board(ENTRY.name.into(), CELLS * moves::WAYS, observation, PLIES_MAX.into());
        // Castling distinguishes left from right.
        Self { symmetries: [Symmetry::identity(observation, spec.actions)], spec }
    }
}

impl Default for Chess {
    fn default() -> Self {
        Self::new()
    }
}

impl Position {
    /// Returns the position with this board at the start of a game.
    fn at_start(board: Board) -> Self {
        let mut position =
            Self { board, en_passant: None, key: 0, past: Past::EMPTY, occurrences: 0, plies: 0, outcome: None };
        position.derive();
        position
    }

    fn advance(&mut self, chosen: Move) {
        let key = if self.occurrences == 0 { self.key } else { mix(self.key) };
        self.board.play_unchecked(chosen);
        self.plies += 1;
        if self.board.halfmove_clock() == 0 {
            self.past = Past::EMPTY;
        } else {
            self.past.push(key);
        }
        self.derive();
    }

    /// Computes the fields that follow from the board and the past.
    fn derive(&mut self) {
        self.en_passant = capturable_en_passant(&self.board);
        let en_passant = self.en_passant.map_or(0, |square| mix(square as u64));
        self.key = self.board.hash_without_ep() ^ en_passant;
        self.occurrences = match [self.key, mix(self.key)].map(|key| self.past.contains_since(0, key)) {
            [false, _] => 0,
            [true, false] => 1,
            [true, true] => 2,
        };
        self.outcome = self.end();
    }

    fn end(&self) -> Option<Outcome> {
        let has_move = self.board.generate_moves(|_| true);
        if !has_move && !self.board.checkers().is_empty() {
            return Some(Outcome::Win(player(self.board.side_to_move()).opponent()));
        }
        let is_drawn = !has_move
            || self.occurrences >= 2
            || self.board.halfmove_clock() >= QUIET_PLIES_MAX
            || self.plies >= PLIES_MAX
            || is_insufficient(&self.board);
        is_drawn.then_some(Outcome::Draw)
    }
}

/// Returns the cell on which a pawn of the player to move can capture en passant. A board has it after every double
/// step, but a position differs only if the capture is legal.
fn capturable_en_passant(board: &Board) -> Option<Square> {
    let mover = board.side_to_move();
    let to = Square::new(board.en_passant()?, Rank::Sixth.relative_to(mover));
    let from = cozy_chess::get_pawn_attacks(to, !mover) & board.colored_pieces(mover, Piece::Pawn);
    from.into_iter().any(|from| board.is_legal(Move { from, to, promotion: None })).then_some(to)
}

/// Returns true if no sequence of moves can mate either player: one minor piece besides the kings, or bishops that
/// all stand on cells of one colour.
fn is_insufficient(board: &Board) -> bool {
    let [knights, bishops, kings] = [Piece::Knight, Piece::Bishop, Piece::King].map(|piece| board.pieces(piece));
    let minor = knights | bishops;
    if board.occupied() != minor | kings {
        return false;
    }
    let on_one_colour = bishops.is_subset(BitBoard::DARK_SQUARES) || bishops.is_subset(BitBoard::LIGHT_SQUARES);
    minor.len() <= 1 || knights.is_empty() && on_one_colour
}

/// Returns the piece on a cell of the rendered board. White's label is a capital letter.
fn mark(board: &Board, cell: usize) -> Option<Mark> {
    let square = square_of(cell, Color::White);
    let (piece, color) = (board.piece_on(square)?, board.color_on(square)?);
    let kind = match piece {
        Piece::Pawn => "pawn",
        Piece::Knight => "knight",
        Piece::Bishop => "bishop",
        Piece::Rook => "rook",
        Piece::Queen => "queen",
        Piece::King => "king",
    };
    let letter = char::from(piece);
    let letter = if color == Color::White { letter.to_ascii_uppercase() } else { letter };
    Some(Mark { owner: Some(player(color)), kind, label: letter.into() })
}

fn player(color: Color) -> Player {
    match color {
        Color::White => Player::First,
        Color::Black => Player::Second,
    }
}

impl Game for Chess {
    type Position = Position;

    spec_and_symmetries!();

    fn start(&self) -> Position {
        Position::at_start(Board::default())
    }

    fn to_move(&self, position: &Position) -> Player {
        player(position.board.side_to_move())
    }

    fn legal_actions(&self, position: &Position, actions: &mut Vec<Action>) {
        actions.clear();
        if position.outcome.is_some() {
            return;
        }
        position.board.generate_moves(|of_piece| {
            actions.extend(of_piece.into_iter().map(|legal| moves::action_of(&position.board, legal)));
            false
        });
        actions.sort_unstable();
    }

    fn is_legal(&self, position: &Position, action: Action) -> bool {
        position.outcome.is_none()
            && moves::move_of(&position.board, action).is_some_and(|chosen| position.board.is_legal(chosen))
    }

    fn play(&self, position: &mut Position, action: Action) -> f32 {
        debug_assert!(self.is_legal(position, action), "{action} is not legal");
        position.advance(moves::move_of(&position.board, action).expect("a legal action is a move"));
        0.0
    }

    fn outcome(&self, position: &Position) -> Option<Outcome> {
        position.outcome
    }

    fn observe(&self, position: &Position, planes: &mut [f32]) {
        let board = &position.board;
        let mover = board.side_to_move();
        let mut planes = planes.chunks_exact_mut(CELLS);
        let mut next = || planes.next().expect("an observation has all planes");
        let layout = Layout::new(SIDE);
        for color in [mover, !mover] {
            for piece in Piece::ALL {
                layout.write_plane(moves::in_frame(board.colored_pieces(color, piece), mover), next());
            }
        }
        next().fill(if position.occurrences > 0 { 1.0 } else { 0.0 });
        for color in [mover, !mover] {
            let rights = board.castle_rights(color);
            for right in [rights.short, rights.long] {
                next().fill(if right.is_some() { 1.0 } else { 0.0 });
            }
        }
        layout.write_plane(position.en_passant.map_or(0, |square| 1 << cell_of(square, mover)), next());
        next().fill(f32::from(board.halfmove_clock().min(QUIET_PLIES_MAX)) / f32::from(QUIET_PLIES_MAX));
        next().fill(1.0);
    }

    /// Hashes the observed state, the player to move and the number of plies. Earlier positions count only as
    /// occurrences of this position: with all of them in the hash, no two transpositions would have equal hashes or
    /// share an evaluation.
    fn hash(&self, position: &Position) -> u64 {
        let quiet_plies = u64::from(position.board.halfmove_clock());
        let rest = u64::from(position.plies) << 16 | quiet_plies << 8 | u64::from(position.occurrences);
        mix(mix(position.key) ^ rest)
    }

    fn image(&self, position: &Position, symmetry: usize) -> Position {
        debug_assert_eq!(symmetry, 0, "the identity is the only symmetry");
        position.clone()
    }

    fn heuristic_value(&self, position: &Position) -> i32 {
        let mover = position.board.side_to_move();
        value::of(&position.board, mover) - value::of(&position.board, !mover)
    }

    fn action_name(&self, position: &Position, action: Action) -> String {
        notation::name(&position.board, action).unwrap_or_else(|| action.to_string())
    }

    fn parse_action(&self, position: &Position, text: &str) -> Result<Action, Error> {
        notation::parse(&position.board, text.trim()).ok_or_else(|| Error::Notation {
            text: text.into(),
            expected: "a move between cells, such as e2e4, e1g1 or e7e8q, or algebraic notation, such as Nf3 or O-O"
                .into(),
        })
    }

    /// Renders the board with White at the bottom; White's pieces are capital letters.
    fn render(&self, position: &Position) -> String {
        let letter = |cell| mark(&position.board, cell).and_then(|mark| mark.label.chars().next());
        grid::render(SIDE, |row| SIDE - row, |cell| letter(cell).unwrap_or('.'))
    }

    fn board(&self, position: &Position) -> Option<game::Board> {
        let mover = position.board.side_to_move();
        let rendered = |cell| cell_of(square_of(cell, mover), Color::White);
        let place = |action| {
            let step = Step::of(action);
            step.map_or(Place::Nowhere, |Step { from, to, .. }| Place::Step { from: rendered(from), to: rendered(to) })
        };
        let board = game::Board::new(Geometry::Squares, SIDE, SIDE, |cell| mark(&position.board, cell));
        Some(board.with_moves(self, position, place))
    }
}
