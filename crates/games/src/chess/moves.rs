//! AlphaZero's actions: 73 ways in which a piece may leave a cell (Silver et al. 2018).

use cozy_chess::{BitBoard, Board, Color, File, Move, Piece, Square};
use game::Action;

use super::{CELLS, SIDE};
use crate::grid::narrow;

/// Number of ways to leave a cell.
pub(super) const WAYS: usize = FIRST_UNDERPROMOTION + UNDERPROMOTIONS.len() * 3;

const DISTANCES: usize = SIDE - 1;
const FIRST_JUMP: usize = LINES.len() * DISTANCES;
const FIRST_UNDERPROMOTION: usize = FIRST_JUMP + JUMPS.len();

/// Rows down and columns to the right.
type Offset = (isize, isize);

/// Directions of a queen, clockwise from the top.
const LINES: [Offset; 8] = [(-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1)];

/// Moves of a knight, clockwise.
const JUMPS: [Offset; 8] = [(-2, 1), (-1, 2), (1, 2), (2, 1), (2, -1), (1, -2), (-1, -2), (-2, -1)];

/// Promotion pieces other than the queen.
const UNDERPROMOTIONS: [Piece; 3] = [Piece::Knight, Piece::Bishop, Piece::Rook];

/// Row before the last, from the frame of the player to move.
const ROW_BEFORE_LAST: usize = 1;

/// A move between cells in the frame of the player to move, row by row from the top left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) underpromotion: Option<Piece>,
}

impl Step {
    /// Returns the step of an action; `None` if there is no such action or the step leaves the board.
    pub(super) fn of(action: Action) -> Option<Self> {
        let (from, way) = (action.index() / WAYS, action.index() % WAYS);
        if from >= CELLS {
            return None;
        }
        let (offset, underpromotion) = match way {
            ..FIRST_JUMP => {
                let (rows, columns) = LINES[way / DISTANCES];
                let distance = (way % DISTANCES + 1).cast_signed();
                ((rows * distance, columns * distance), None)
            }
            FIRST_JUMP..FIRST_UNDERPROMOTION => (JUMPS[way - FIRST_JUMP], None),
            _ => {
                let underpromotion = way - FIRST_UNDERPROMOTION;
                let columns = (underpromotion % 3).cast_signed() - 1;
                ((-1, columns), Some(UNDERPROMOTIONS[underpromotion / 3]))
            }
        };
        if underpromotion.is_some() && from / SIDE != ROW_BEFORE_LAST {
            return None;
        }
        let moved = |at: usize, by| at.checked_add_signed(by).filter(|&at| at < SIDE);
        let (row, column) = (moved(from / SIDE, offset.0)?, moved(from % SIDE, offset.1)?);
        Some(Self { from, to: row * SIDE + column, underpromotion })
    }

    /// Returns the action of a step, if there is one.
    pub(super) fn action(self) -> Option<Action> {
        let distance = |of: fn(usize) -> usize| of(self.to).cast_signed() - of(self.from).cast_signed();
        let offset = (distance(|cell| cell / SIDE), distance(|cell| cell % SIDE));
        let way = match self.underpromotion {
            None => way_of(offset)?,
            Some(piece) => {
                let piece = UNDERPROMOTIONS.iter().position(|&other| other == piece)?;
                let direction = usize::try_from(offset.1 + 1).ok().filter(|&direction| direction < 3)?;
                if offset.0 != -1 || self.from / SIDE != ROW_BEFORE_LAST {
                    return None;
                }
                FIRST_UNDERPROMOTION + piece * 3 + direction
            }
        };
        Some(Action(narrow(self.from * WAYS + way)))
    }
}

/// Returns the way with this offset, of a queen or a knight.
fn way_of(offset: Offset) -> Option<usize> {
    if let Some(jump) = JUMPS.iter().position(|&jump| jump == offset) {
        return Some(FIRST_JUMP + jump);
    }
    let (rows, columns) = offset;
    let is_line = rows == 0 || columns == 0 || rows.abs() == columns.abs();
    let direction = LINES.iter().position(|&line| is_line && line == (rows.signum(), columns.signum()))?;
    Some(direction * DISTANCES + rows.unsigned_abs().max(columns.unsigned_abs()) - 1)
}

/// Returns the cell of a square in the frame of a player.
pub(super) fn cell_of(square: Square, frame: Color) -> usize {
    // Squares are numbered from a1, White's cells from a8.
    square.flip_rank().relative_to(frame) as usize
}

/// Returns the square of a cell (below [`CELLS`]) in the frame of a player.
pub(super) fn square_of(cell: usize, frame: Color) -> Square {
    Square::index(cell).relative_to(frame).flip_rank()
}

/// Returns a set of squares as cell bits in the frame of a player.
pub(super) fn in_frame(squares: BitBoard, frame: Color) -> u64 {
    match frame {
        Color::White => squares.flip_ranks().0,
        Color::Black => squares.0,
    }
}

/// Returns the move of an action, which may be illegal; `None` if no position with this piece on the cell allows it.
pub(super) fn move_of(board: &Board, action: Action) -> Option<Move> {
    let step = Step::of(action)?;
    let mover = board.side_to_move();
    let [from, to] = [step.from, step.to].map(|cell| square_of(cell, mover));
    let piece = board.piece_on(from)?;
    match piece {
        Piece::Pawn => {
            let promotion = (step.to < SIDE).then(|| step.underpromotion.unwrap_or(Piece::Queen));
            Some(Move { from, to, promotion })
        }
        _ if step.underpromotion.is_some() => None,
        Piece::King => Some(Move { from, to: target_of_king(board, from, to)?, promotion: None }),
        _ => Some(Move { from, to, promotion: None }),
    }
}

/// Returns the target square of a king move in `cozy-chess`: for castling, the square of the rook.
fn target_of_king(board: &Board, from: Square, to: Square) -> Option<Square> {
    let columns = (to.file() as usize).abs_diff(from.file() as usize);
    let rows = (to.rank() as usize).abs_diff(from.rank() as usize);
    match (rows, columns) {
        (..=1, ..=1) => Some(to),
        (0, 2) => {
            let rights = board.castle_rights(board.side_to_move());
            let rook = if to.file() > from.file() { rights.short } else { rights.long };
            rook.map(|file| Square::new(file, from.rank()))
        }
        _ => None,
    }
}

/// Returns true if a legal move is castling, which `cozy-chess` writes with the square of the rook.
pub(super) fn is_castling(board: &Board, legal: Move) -> bool {
    board.colors(board.side_to_move()).has(legal.to)
}

/// Returns the action of a legal move.
pub(super) fn action_of(board: &Board, legal: Move) -> Action {
    let mover = board.side_to_move();
    let to = if is_castling(board, legal) {
        let file = if legal.to.file() > legal.from.file() { File::G } else { File::C };
        Square::new(file, legal.to.rank())
    } else {
        legal.to
    };
    let underpromotion = legal.promotion.filter(|&piece| piece != Piece::Queen);
    let step = Step { from: cell_of(legal.from, mover), to: cell_of(to, mover), underpromotion };
    step.action().expect("every legal move has an action")
}
