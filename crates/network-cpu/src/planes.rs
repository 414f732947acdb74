use crate::layout::Layout;
use crate::line::{Format, Line};

/// Activations of a few positions: for each block of channels, all pixels of all positions, one line per pixel.
///
/// `[channels / channels per line, lines of the layout]` with a zero margin before and after. Border pixels are zero
/// and stay so; channels beyond the last are zero or carry a zero weight.
#[derive(Debug, Clone)]
pub(crate) struct Planes {
    pub(crate) lines: Vec<Line>,
    pub(crate) layout: Layout,
    pub(crate) format: Format,
}

impl Planes {
    /// Zeros for `channels` channels.
    pub(crate) fn new(format: Format, layout: Layout, channels: usize) -> Self {
        let len = format.lines(channels) * layout.block_lines + 2 * layout.margin();
        Self { lines: vec![Line::default(); len], layout, format }
    }

    /// Blocks of channels.
    pub(crate) fn blocks(&self) -> usize {
        (self.lines.len() - 2 * self.layout.margin()) / self.layout.block_lines
    }

    /// The index of the line of a pixel.
    #[inline(always)]
    pub(crate) fn index(&self, block: usize, position: usize, pixel: usize) -> usize {
        self.layout.index(block, position, pixel)
    }

    /// The lines of a position's cells in a block of channels, row by row.
    #[inline(always)]
    pub(crate) fn cells(&self, block: usize, position: usize) -> impl Iterator<Item = usize> + use<> {
        let (board, together) = (self.layout.board, self.layout.together);
        let first = self.index(block, position, 0);
        (0..board.height).flat_map(move |row| {
            let first = first + row * board.down() * together;
            (0..board.width).map(move |column| first + column * board.right() * together)
        })
    }

    /// The value of a channel at a cell.
    #[cfg(test)]
    pub(crate) fn get(&self, position: usize, cell: usize, channel: usize) -> f32 {
        let per_line = self.format.per_line();
        let line = self.index(channel / per_line, position, self.layout.board.pixel(cell));
        self.lines[line].get(self.format, channel % per_line)
    }

    /// Replaces a position by an observation `[C, H, W]`.
    pub(crate) fn observe(&mut self, position: usize, observation: &[f32]) {
        let (cells, format) = (self.layout.board.cells(), self.format);
        for (block, planes) in observation.chunks(cells * format.per_line()).enumerate() {
            for (cell, line) in self.cells(block, position).enumerate() {
                let line = &mut self.lines[line];
                for (channel, plane) in planes.chunks_exact(cells).enumerate() {
                    line.set(format, channel, plane[cell]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::Board;

    #[test]
    fn an_observation_is_read_back_and_its_border_is_zero() {
        let board = Board::new(3, 4);
        let layouts = [Layout::apart(board, 3), Layout::together(board, 3)];
        for (format, layout) in
            [Format::F32, Format::Bf16].into_iter().flat_map(|format| layouts.map(|to| (format, to)))
        {
            let mut planes = Planes::new(format, layout, 37);
            let observation: Vec<f32> = (0..37 * 12).map(|i| (i % 100) as f32).collect();
            planes.observe(1, &observation);
            for channel in 0..37 {
                for cell in 0..12 {
                    assert_eq!(planes.get(1, cell, channel), observation[channel * 12 + cell]);
                    assert_eq!(planes.get(0, cell, channel), 0.0);
                }
            }
            let borders = (0..board.pixels()).filter(|&pixel| !board.is_cell(pixel));
            for (pixel, block) in borders.flat_map(|pixel| (0..format.lines(37)).map(move |block| (pixel, block))) {
                assert_eq!(planes.lines[planes.index(block, 1, pixel)], Line::default());
            }
        }
    }
}
