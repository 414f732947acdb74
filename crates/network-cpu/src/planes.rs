/// Activations of a few positions: per channel block, all pixels of all positions, one line per pixel.
///
/// `[channels / channels per line, lines of the layout]` with a zero margin before and after. Border pixels are zero
/// and stay zero; channels beyond the last are zero or have a zero weight.
#[derive(Debug, Clone)]
pub(crate) struct Planes {
    pub(crate) lines: Vec<Line>,
    pub(crate) layout: Layout,
    pub(crate) format: Format,
}

impl Planes {
    /// Creates zeros for `channels` channels.
    pub(crate) fn new(format: Format, layout: Layout, channels: usize) -> Self {
        let len = format.lines(channels) * layout.block_lines + 2 * layout.margin();
        Self { lines: vec![Line::default(); len], layout, format }
    }

    /// Returns the number of channel blocks.
    pub(crate) fn blocks(&self) -> usize {
        (self.lines.len() - 2 * self.layout.margin()) / self.layout.block_lines
    }

    /// Returns the line index of a pixel.
    #[inline(always)]
    pub(crate) fn index(&self, block: usize, position: usize, pixel: usize) -> usize {
        self.layout.index(block, position, pixel)
    }

    /// Iterates over the lines of a position's cells in a block of channels, row by row.
    #[inline(always)]
    pub(crate) fn cells(&self, block: usize, position: usize) -> impl Iterator<Item = usize> + use<> {
        let (board, together) = (self.layout.board, self.layout.together);
        let first = self.index(block, position, 0);
        (0..board.height).flat_map(move |row| {
            let first = first + row * board.down() * together;
            (0..board.width).map(move |column| first + column * board.right() * together)
        })
    }

    /// Returns the value of a channel at a cell.
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

/// Memory layout of a board's cells: line by line, one zero pixel after each line and a line of zero pixels after the
/// last. Lines are the rows of the board, or the columns if the board is turned.
///
/// Adjacent lines share a border, and so do adjacent positions, so a tap of a 3×3 convolution is the same memory
/// shifted by a constant. A position of L lines of N cells has `(L + 1) · (N + 1)` pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Board {
    pub(crate) height: usize,
    pub(crate) width: usize,
    /// True if columns are lines.
    pub(crate) turned: bool,
}

impl Board {
    /// Creates a board with rows as lines.
    pub(crate) const fn new(height: usize, width: usize) -> Self {
        Self { height, width, turned: false }
    }

    /// Returns the same board with columns as lines.
    pub(crate) fn turned(self) -> Self {
        Self { turned: true, ..self }
    }

    /// Returns the lines of a position.
    pub(crate) fn lines(self) -> usize {
        if self.turned { self.width } else { self.height }
    }

    /// Returns the cells per line.
    pub(crate) fn per_line(self) -> usize {
        if self.turned { self.height } else { self.width }
    }

    /// Returns the pixels between lines.
    pub(crate) fn pitch(self) -> usize {
        self.per_line() + 1
    }

    /// Returns the pixels from a cell to the next one down.
    pub(crate) fn down(self) -> usize {
        if self.turned { 1 } else { self.pitch() }
    }

    /// Returns the pixels from a cell to the next one on the right.
    pub(crate) fn right(self) -> usize {
        if self.turned { self.pitch() } else { 1 }
    }

    /// Returns the pixels of a position, border included.
    pub(crate) fn pixels(self) -> usize {
        (self.lines() + 1) * self.pitch()
    }

    /// Returns the cells of a position.
    pub(crate) fn cells(self) -> usize {
        self.height * self.width
    }

    /// Returns the pixel of a cell, with cells counted row by row.
    pub(crate) fn pixel(self, cell: usize) -> usize {
        cell / self.width * self.down() + cell % self.width * self.right()
    }

    /// Returns row and column of a pixel; a border pixel is beyond the board.
    pub(crate) fn place(self, pixel: usize) -> (usize, usize) {
        let (line, along) = (pixel / self.pitch(), pixel % self.pitch());
        if self.turned { (along, line) } else { (line, along) }
    }

    /// Returns whether a pixel is a cell.
    pub(crate) fn is_cell(self, pixel: usize) -> bool {
        let (row, column) = self.place(pixel);
        row < self.height && column < self.width
    }
}

/// Rows of a matrix tile.
pub(crate) const TILE_ROWS: usize = 16;
/// Lines that a matrix tile may read beyond the last cell.
const OVERREAD: usize = TILE_ROWS;

/// Memory layout of the pixels of a few positions in planes.
///
/// Positions follow one another. Alternatively, for tiles of adjacent lines that are the same cell of several
/// positions, the pixels are interleaved: `[positions / together, pixels, together]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) board: Board,
    /// A multiple of `together`.
    pub(crate) positions: usize,
    /// Positions with interleaved pixels; 1 if each position is contiguous.
    pub(crate) together: usize,
    /// Lines between channel blocks. Odd, so that the blocks of a pixel do not compete for the same cache sets.
    pub(crate) block_lines: usize,
}

impl Layout {
    /// Creates the layout of consecutive positions.
    pub(crate) fn apart(board: Board, positions: usize) -> Self {
        Self::new(board, positions, 1)
    }

    /// Creates the layout of interleaved positions.
    pub(crate) fn together(board: Board, positions: usize) -> Self {
        Self::new(board, positions, positions)
    }

    fn new(board: Board, positions: usize, together: usize) -> Self {
        Self { board, positions, together, block_lines: (positions * board.pixels()) | 1 }
    }

    /// Returns the bytes of planes with `blocks` blocks of channels.
    pub(crate) fn bytes(self, blocks: usize) -> usize {
        blocks * self.block_lines * size_of::<Line>()
    }

    /// Returns the line index of a pixel within a block.
    #[inline(always)]
    pub(crate) fn line(self, position: usize, pixel: usize) -> usize {
        let (group, member) = (position / self.together, position % self.together);
        (group * self.board.pixels() + pixel) * self.together + member
    }

    /// Returns the line index within planes.
    #[inline(always)]
    pub(crate) fn index(self, block: usize, position: usize, pixel: usize) -> usize {
        self.margin() + block * self.block_lines + self.line(position, pixel)
    }

    /// Returns the zero lines before the first position and after the last: lines that a tap reaches, and lines that
    /// a tile reads beyond the last cell.
    pub(crate) fn margin(self) -> usize {
        (self.board.pitch() + 1) * self.together + OVERREAD
    }

    /// Returns the lines from a pixel to the pixel `pixels` later and `blocks` blocks of channels further.
    #[inline(always)]
    pub(crate) fn offset(self, pixels: isize, blocks: usize) -> isize {
        pixels * self.together as isize + (blocks * self.block_lines) as isize
    }
}

/// 64 bytes: a cache line, a vector register, a row of a matrix tile.
///
/// The [`Format`] determines the content of the sixteen words: 16 float32 channels of a pixel, 32 bfloat16 channels, or
/// 64 integers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [u32; WORDS]);

/// Words per line, and lanes per group of outputs.
pub(crate) const WORDS: usize = 16;

/// Maximum floating-point channels of a line.
pub(crate) const CHANNELS_MAX: usize = 2 * WORDS;

/// Integers per line.
pub(crate) const INTEGERS: usize = 4 * WORDS;

/// Packing of channels into the words of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// One float32 per word.
    F32,
    /// Two bfloat16 per word, the even channel in the low half.
    Bf16,
    /// Four 8-bit integers per word, the first in the lowest bits: 0 to 255 as inputs, -127 to 127 as weights.
    I8,
}

impl Format {
    /// Returns the channels per word.
    pub(crate) fn per_word(self) -> usize {
        match self {
            Self::F32 => 1,
            Self::Bf16 => 2,
            Self::I8 => 4,
        }
    }

    /// Returns the format of product sums, once a bias has been added.
    pub(crate) fn of_outputs(self) -> Self {
        match self {
            Self::I8 => Self::F32,
            float => float,
        }
    }

    /// Returns the channels per line.
    pub(crate) fn per_line(self) -> usize {
        WORDS * self.per_word()
    }

    /// Returns the lines that `channels` of one pixel take.
    pub(crate) fn lines(self, channels: usize) -> usize {
        channels.div_ceil(self.per_line())
    }
}

/// Returns the bits of the nearest bfloat16, ties to even. NaN and infinity are preserved.
#[inline(always)]
pub(crate) fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7FFF + ((bits >> 16) & 1)) >> 16;
    // Rounding could carry a NaN's payload into the sign: it is truncated instead, and stays a NaN.
    (if value.is_nan() { (bits >> 16) | 0x40 } else { rounded }) as u16
}

/// Returns the float32 of the same value.
#[inline(always)]
pub(crate) fn from_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

impl Line {
    /// Returns the value of channel `index` in the line.
    #[cfg(test)]
    pub(crate) fn get(&self, format: Format, index: usize) -> f32 {
        match format {
            Format::F32 => f32::from_bits(self.0[index]),
            Format::Bf16 => from_bf16((self.0[index / 2] >> (16 * (index % 2))) as u16),
            Format::I8 => f32::from((self.0[index / 4] >> (8 * (index % 4))) as u8),
        }
    }

    /// Sets channel `index` of the line, rounded to the format.
    #[inline(always)]
    pub(crate) fn set(&mut self, format: Format, index: usize, value: f32) {
        match format {
            Format::F32 => self.0[index] = value.to_bits(),
            Format::Bf16 => {
                let shift = 16 * (index % 2);
                let word = &mut self.0[index / 2];
                *word = *word & !(0xFFFF << shift) | u32::from(to_bf16(value)) << shift;
            }
            Format::I8 => {
                let shift = 8 * (index % 4);
                let word = &mut self.0[index / 4];
                *word = *word & !(0xFF << shift) | (value.round_ties_even() as i32 as u32 & 0xFF) << shift;
            }
        }
    }

    /// Returns all channels of a floating-point format; float32 leaves the upper half zero.
    #[inline(always)]
    pub(crate) fn unpack(&self, format: Format) -> [f32; CHANNELS_MAX] {
        let mut values = [0.0; CHANNELS_MAX];
        match format {
            Format::F32 => (0..WORDS).for_each(|word| values[word] = f32::from_bits(self.0[word])),
            Format::Bf16 => {
                for (word, values) in self.0.iter().zip(values.as_chunks_mut::<2>().0) {
                    *values = [from_bf16(*word as u16), from_bf16((*word >> 16) as u16)];
                }
            }
            Format::I8 => unreachable!("int8 values are only multiplied"),
        }
        values
    }

    /// Sets all channels, rounded to a floating-point format; the inverse of [`unpack`](Self::unpack).
    #[inline(always)]
    pub(crate) fn pack(&mut self, format: Format, values: &[f32; CHANNELS_MAX]) {
        match format {
            Format::F32 => (0..WORDS).for_each(|word| self.0[word] = values[word].to_bits()),
            Format::Bf16 => {
                for (word, [even, odd]) in self.0.iter_mut().zip(values.as_chunks::<2>().0) {
                    *word = u32::from(to_bf16(*even)) | u32::from(to_bf16(*odd)) << 16;
                }
            }
            Format::I8 => unreachable!("int8 values are only multiplied"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::KernelVariant;

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

    #[test]
    fn every_neighbour_of_a_cell_is_a_cell_of_the_board_or_a_border_pixel() {
        let board = Board::new(6, 7);
        for (board, cell) in
            [board, board.turned()].into_iter().flat_map(|board| (0..42).map(move |cell| (board, cell)))
        {
            let (row, column) = ((cell / 7) as isize, (cell % 7) as isize);
            assert_eq!(board.place(board.pixel(cell)), (row as usize, column as usize));
            for (dy, dx) in (-1..=1).flat_map(|dy| (-1..=1).map(move |dx| (dy, dx))) {
                let inside = (0..6).contains(&(row + dy)) && (0..7).contains(&(column + dx));
                let pixel = board.pixel(cell) as isize + dy * board.down() as isize + dx * board.right() as isize;
                // Pixels before the first or after the last belong to an adjacent position's border, or the margin.
                let wrapped = pixel.rem_euclid(board.pixels() as isize) as usize;
                assert_eq!(board.is_cell(wrapped), inside, "cell {cell}, tap {dy}, {dx}");
            }
        }
    }

    #[test]
    fn cells_and_pixels_match() {
        for board in [Board::new(3, 5), Board::new(3, 5).turned()] {
            let cells: Vec<usize> = (0..board.pixels()).filter(|&pixel| board.is_cell(pixel)).collect();
            let mut pixels: Vec<usize> = (0..board.cells()).map(|cell| board.pixel(cell)).collect();
            pixels.sort_unstable();
            assert_eq!(cells, pixels);
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_board_is_turned_where_its_columns_make_fewer_tiles_and_never_for_matrix_tiles() {
        // With six rows per tile, seven columns of six cells make seven tiles, and six rows of seven cells make two
        // tiles each.
        let turns = |path: KernelVariant, board: Board| path.turn(board).turned;
        assert!(!turns(KernelVariant::Avx512F32, Board::new(6, 7)));
        assert!(turns(KernelVariant::Avx512F32, Board::new(15, 3)));
        assert!(turns(KernelVariant::Avx2F32, Board::new(6, 7)));
        for path in [KernelVariant::AmxBf16, KernelVariant::AmxI8] {
            assert!(!turns(path, Board::new(15, 3)), "{path}");
        }
    }

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

    #[test]
    fn bfloat16_rounds_to_nearest_ties_to_even() {
        for bits in (0..=u32::MAX).step_by(65_521) {
            let value = f32::from_bits(bits);
            if value.is_finite() {
                assert_eq!(to_bf16(value), half::bf16::from_f32(value).to_bits(), "{value}");
            }
        }
        assert_eq!(from_bf16(to_bf16(1.0 + 1.0 / 256.0)), 1.0);
        assert_eq!(from_bf16(to_bf16(1.0 + 3.0 / 256.0)), 1.0 + 4.0 / 256.0);
    }

    #[test]
    fn non_finite_and_overflowing_values_are_not_finite_in_bfloat16() {
        for value in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::from_bits(0x7F80_0001)] {
            assert!(!from_bf16(to_bf16(value)).is_finite(), "{value}");
        }
    }

    #[test]
    fn a_channel_is_read_as_it_was_set_and_its_neighbours_stay() {
        for format in [Format::F32, Format::Bf16] {
            let mut line = Line::default();
            for index in 0..format.per_line() {
                line.set(format, index, index as f32 - 7.5);
            }
            for index in 0..format.per_line() {
                assert_eq!(line.get(format, index), index as f32 - 7.5);
            }
        }
    }
}
