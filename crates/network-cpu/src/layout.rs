use crate::board::Board;
use crate::line::Line;

/// Rows of a matrix tile.
pub(crate) const TILE_ROWS: usize = 16;
/// Lines that a matrix tile may read beyond its last cell.
const OVERREAD: usize = TILE_ROWS;

/// The memory layout of the pixels of a few positions in planes.
///
/// Whole positions one after the other, or, where a tile of neighbouring lines should be the same cell of several
/// positions, their pixels side by side: `[positions / together, pixels, together]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) board: Board,
    /// A multiple of `together`.
    pub(crate) positions: usize,
    /// Positions whose pixels lie side by side; one where each position lies by itself.
    pub(crate) together: usize,
    /// Lines from one block of channels to the next. Odd, so that the blocks of a pixel do not compete for the same
    /// places of a cache.
    pub(crate) block_lines: usize,
}

impl Layout {
    /// Positions one after the other.
    pub(crate) fn apart(board: Board, positions: usize) -> Self {
        Self::new(board, positions, 1)
    }

    /// Positions side by side.
    pub(crate) fn together(board: Board, positions: usize) -> Self {
        Self::new(board, positions, positions)
    }

    fn new(board: Board, positions: usize, together: usize) -> Self {
        Self { board, positions, together, block_lines: (positions * board.pixels()) | 1 }
    }

    /// Bytes of planes of so many blocks.
    pub(crate) fn bytes(self, blocks: usize) -> usize {
        blocks * self.block_lines * size_of::<Line>()
    }

    /// The index of the line of a pixel in a block.
    #[inline(always)]
    pub(crate) fn line(self, position: usize, pixel: usize) -> usize {
        let (group, member) = (position / self.together, position % self.together);
        (group * self.board.pixels() + pixel) * self.together + member
    }

    /// The index of the line in planes.
    #[inline(always)]
    pub(crate) fn index(self, block: usize, position: usize, pixel: usize) -> usize {
        self.margin() + block * self.block_lines + self.line(position, pixel)
    }

    /// Zero lines before the first position and after the last: what a tap reaches, and what a tile reads too much.
    pub(crate) fn margin(self) -> usize {
        (self.board.pitch() + 1) * self.together + OVERREAD
    }

    /// Lines from a pixel to the one `pixels` after it, `blocks` of channels on.
    #[inline(always)]
    pub(crate) fn offset(self, pixels: isize, blocks: usize) -> isize {
        pixels * self.together as isize + (blocks * self.block_lines) as isize
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_pixel_of_every_position_has_a_line_of_its_own() {
        let board = Board::new(3, 4);
        for layout in [Layout::apart(board, 5), Layout::together(board, 16)] {
            let lines: HashSet<usize> = (0..layout.positions)
                .flat_map(|position| (0..board.pixels()).map(move |pixel| layout.line(position, pixel)))
                .collect();
            assert_eq!(lines.len(), layout.positions * board.pixels());
            assert!(lines.into_iter().all(|line| line < layout.block_lines));
        }
    }

    #[test]
    fn an_offset_leads_to_another_pixel_of_the_same_position() {
        let board = Board::new(3, 4);
        for layout in [Layout::apart(board, 5), Layout::together(board, 16)] {
            let from = layout.line(2, board.pixel(5)) as isize;
            let to = layout.line(2, board.pixel(10)) as isize;
            let pixels = (board.pixel(10) - board.pixel(5)) as isize;
            assert_eq!(from + layout.offset(pixels, 0), to);
            assert_eq!(from + layout.offset(pixels, 3), to + 3 * layout.block_lines as isize);
        }
    }
}
