use crate::KernelVariant;
use crate::board::Board;
use crate::winograd::pieces::Pieces;
use crate::winograd::squares::Squares;

/// Fewer channels are not worth the transforms: they go with the channels, products with their square.
const CHANNELS_MIN: usize = 32;
/// The same along both sides, where transforms take more.
const SQUARE_CHANNELS_MIN: usize = 64;
/// Along two cells, four of six taps lie on the board: as many as there are points. Across two, runs are too short for
/// a tile.
pub(super) const SIDE_MIN: usize = 3;

/// A cut of the cells of a board.
#[derive(Debug, Clone)]
pub(crate) enum Cut {
    OneSide(Pieces),
    BothSides(Squares),
}

impl Cut {
    /// The cut that is fastest on a path; `None` where nine taps are, as measured with and without neighbours in a
    /// batch.
    pub(super) fn of(path: KernelVariant, board: Board, channels: usize) -> Option<Self> {
        if !path.is_float32() || channels < CHANNELS_MIN || board.height.min(board.width) < SIDE_MIN {
            return None;
        }
        let pieces = Pieces::of(path, board)?;
        // Transforms take a tenth more along both sides.
        let saves = |squares: &Squares| 10 * squares.cost().on(path) < 9 * pieces.cost().on(path);
        let squares = Squares::of(path, board).filter(|squares| channels >= SQUARE_CHANNELS_MIN && saves(squares));
        Some(squares.map_or(Self::OneSide(pieces), Self::BothSides))
    }

    pub(super) fn points(&self) -> usize {
        match self {
            Self::OneSide(pieces) => pieces.points(),
            Self::BothSides(squares) => squares.points(),
        }
    }
}
