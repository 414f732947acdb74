//! Heuristic value of a position, for alpha-beta opponents.

use cozy_chess::{Board, Color, Piece, Square, get_bishop_moves, get_knight_moves, get_rook_moves};

/// Piece values, in hundredths of a pawn.
const PIECES: [(Piece, i32); 5] =
    [(Piece::Pawn, 100), (Piece::Knight, 320), (Piece::Bishop, 330), (Piece::Rook, 500), (Piece::Queen, 900)];

/// Values per reachable cell, regardless of the pieces there.
const MOBILITY: [(Piece, i32); 4] = [(Piece::Knight, 4), (Piece::Bishop, 4), (Piece::Rook, 2), (Piece::Queen, 1)];

/// Values the pieces of a player, reachable cells, and the squared advance of pawns.
pub(super) fn of(board: &Board, player: Color) -> i32 {
    let count = |squares: u32| squares.cast_signed();
    let material = PIECES.map(|(piece, value)| value * count(board.colored_pieces(player, piece).len()));
    let mobility = MOBILITY.map(|(piece, value)| {
        let reached = board.colored_pieces(player, piece).into_iter().map(|at| reached(board, piece, at));
        value * count(reached.sum())
    });
    let advance = board.colored_pieces(player, Piece::Pawn).into_iter().map(|pawn| {
        let rows = pawn.rank().relative_to(player) as i32 - 1;
        rows * rows
    });
    material.iter().chain(&mobility).sum::<i32>() + advance.sum::<i32>()
}

/// Returns the number of cells that a piece would reach from a square on the current board.
fn reached(board: &Board, piece: Piece, from: Square) -> u32 {
    let occupied = board.occupied();
    let reached = match piece {
        Piece::Knight => get_knight_moves(from),
        Piece::Bishop => get_bishop_moves(from, occupied),
        Piece::Rook => get_rook_moves(from, occupied),
        _ => get_bishop_moves(from, occupied) | get_rook_moves(from, occupied),
    };
    reached.len()
}
