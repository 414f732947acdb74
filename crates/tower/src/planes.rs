use crate::board::Board;
use crate::line::{Format, Line};

/// Activations of a few positions: for each block of channels, all pixels of all positions, one line per pixel.
///
/// `[channels / channels per line, positions, pixels]` lines with a zero margin before and after. Border pixels are zero
/// and stay so; channels beyond the last are zero or carry a zero weight.
#[derive(Debug, Clone)]
pub(crate) struct Planes {
    pub(crate) lines: Vec<Line>,
    pub(crate) board: Board,
    /// Lines from one block of channels to the next.
    pub(crate) block_lines: usize,
    pub(crate) format: Format,
}

impl Planes {
    /// Zeros for `positions` positions of `channels` channels.
    pub(crate) fn new(format: Format, board: Board, channels: usize, positions: usize) -> Self {
        let block_lines = Self::block_lines(board, positions);
        let len = format.lines(channels) * block_lines + 2 * board.margin();
        Self { lines: vec![Line::default(); len], board, block_lines, format }
    }

    /// Lines from one block of channels to the next. Odd, so that the blocks of a pixel do not compete for the same places
    /// of a cache.
    pub(crate) fn block_lines(board: Board, positions: usize) -> usize {
        (positions * board.pixels()) | 1
    }

    /// Blocks of channels.
    pub(crate) fn blocks(&self) -> usize {
        (self.lines.len() - 2 * self.board.margin()) / self.block_lines
    }

    /// Where the line of a pixel lies.
    #[inline(always)]
    pub(crate) fn index(&self, block: usize, position: usize, pixel: usize) -> usize {
        self.board.margin() + block * self.block_lines + position * self.board.pixels() + pixel
    }

    /// The value of a channel at a cell.
    #[cfg(test)]
    pub(crate) fn get(&self, position: usize, cell: usize, channel: usize) -> f32 {
        let per_line = self.format.per_line();
        let line = self.index(channel / per_line, position, self.board.pixel(cell));
        self.lines[line].get(self.format, channel % per_line)
    }

    /// Replaces a position by an observation `[C, H, W]`.
    pub(crate) fn observe(&mut self, position: usize, observation: &[f32]) {
        let (cells, per_line, format) = (self.board.cells(), self.format.per_line(), self.format);
        for (block, planes) in observation.chunks(cells * per_line).enumerate() {
            for row in 0..self.board.height {
                let first = self.index(block, position, row * self.board.pitch());
                for (column, line) in self.lines[first..][..self.board.width].iter_mut().enumerate() {
                    let cell = row * self.board.width + column;
                    for (channel, plane) in planes.chunks_exact(cells).enumerate() {
                        line.set(format, channel, plane[cell]);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
