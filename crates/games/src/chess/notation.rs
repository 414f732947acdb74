//! Move notations: UCI, and standard algebraic notation, which is read only.

use cozy_chess::{Board, File, Move, Piece, Rank, Square};
use game::Action;

use super::SIDE;
use super::moves::{self, Step, cell_of, square_of};

/// Returns an action in UCI notation; `None` if the step leaves the board.
pub(super) fn name(board: &Board, action: Action) -> Option<String> {
    let step = Step::of(action)?;
    let mover = board.side_to_move();
    let [from, to] = [step.from, step.to].map(|cell| square_of(cell, mover));
    let is_promotion = board.piece_on(from) == Some(Piece::Pawn) && step.to < SIDE;
    let promotion = step.underpromotion.or(is_promotion.then_some(Piece::Queen));
    Some(format!("{from}{to}{}", promotion.map(char::from).map(String::from).unwrap_or_default()))
}

/// Parses a move in either notation; in standard algebraic notation it has to be legal.
pub(super) fn parse(board: &Board, text: &str) -> Option<Action> {
    if !text.is_ascii() {
        return None;
    }
    parse_uci(board, text).or_else(|| parse_san(board, text))
}

/// Parses `e2e4` or `e7e8q`. A pawn that reaches the last row requires a piece letter; other moves have none.
fn parse_uci(board: &Board, text: &str) -> Option<Action> {
    let (from, to) = (text.get(..2)?.parse().ok()?, text.get(2..4)?.parse().ok()?);
    let promotion = match &text[4..] {
        "" => None,
        letter => Some(piece_of(letter)?),
    };
    let mover = board.side_to_move();
    let [from_cell, to_cell] = [from, to].map(|square| cell_of(square, mover));
    let is_promotion = board.piece_on(from) == Some(Piece::Pawn) && to_cell < SIDE;
    if is_promotion != promotion.is_some() || promotion == Some(Piece::Pawn) || promotion == Some(Piece::King) {
        return None;
    }
    let underpromotion = promotion.filter(|&piece| piece != Piece::Queen);
    Step { from: from_cell, to: to_cell, underpromotion }.action()
}

/// A move as described in standard algebraic notation.
struct Description {
    piece: Piece,
    file: Option<File>,
    rank: Option<Rank>,
    to: Square,
    promotion: Option<Piece>,
}

/// Parses `Nf3`, `exd5`, `R1e2`, `e8=Q` or `O-O`, if exactly one legal move is described.
fn parse_san(board: &Board, text: &str) -> Option<Action> {
    let text = text.trim_end_matches(['+', '#', '!', '?']);
    let is_described: &dyn Fn(Move) -> bool = match text {
        "O-O" | "0-0" => &|legal| moves::is_castling(board, legal) && legal.to.file() > legal.from.file(),
        "O-O-O" | "0-0-0" => &|legal| moves::is_castling(board, legal) && legal.to.file() < legal.from.file(),
        _ => {
            let description = Description::parse(text)?;
            &move |legal| !moves::is_castling(board, legal) && description.fits(board, legal)
        }
    };
    let mut described = Vec::new();
    board.generate_moves(|of_piece| {
        described.extend(of_piece.into_iter().filter(|&legal| is_described(legal)));
        false
    });
    match described[..] {
        [legal] => Some(moves::action_of(board, legal)),
        _ => None,
    }
}

impl Description {
    fn parse(text: &str) -> Option<Self> {
        let (text, promotion) = match text.split_once('=') {
            Some((text, letter)) => (text, Some(capital_piece_of(letter)?)),
            None => (text, None),
        };
        let (text, to) = text.split_at_checked(text.len().checked_sub(2)?)?;
        let text = text.strip_suffix('x').unwrap_or(text);
        let (piece, text) = match text.get(..1).and_then(capital_piece_of) {
            Some(piece) => (piece, &text[1..]),
            None => (Piece::Pawn, text),
        };
        let (file, rank) = match text.len() {
            0 => (None, None),
            1 => (text.parse().ok(), text.parse().ok()),
            2 => (Some(text[..1].parse().ok()?), Some(text[1..].parse().ok()?)),
            _ => return None,
        };
        let is_read = text.is_empty() || file.is_some() || rank.is_some();
        is_read.then_some(Self { piece, file, rank, to: to.parse().ok()?, promotion })
    }

    fn fits(&self, board: &Board, legal: Move) -> bool {
        board.piece_on(legal.from) == Some(self.piece)
            && legal.to == self.to
            && legal.promotion == self.promotion
            && self.file.is_none_or(|file| legal.from.file() == file)
            && self.rank.is_none_or(|rank| legal.from.rank() == rank)
    }
}

/// Returns the piece of a lower-case letter, as in UCI notation.
fn piece_of(letter: &str) -> Option<Piece> {
    letter.parse().ok()
}

/// Returns the piece of a capital letter; pawns have none.
fn capital_piece_of(letter: &str) -> Option<Piece> {
    let is_capital = letter.bytes().all(|byte| byte.is_ascii_uppercase());
    piece_of(&letter.to_ascii_lowercase()).filter(|&piece| is_capital && piece != Piece::Pawn)
}
