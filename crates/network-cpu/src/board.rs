/// The memory layout of a board's cells: line by line, one zero pixel after each line and a line of zero pixels after
/// the last. Lines are the rows of the board, or its columns where the board is turned.
///
/// The border of a line serves the next line, and the border of a position serves the next position, so a tap of a 3×3
/// convolution is the same memory shifted by a constant. A position of L lines of N cells has `(L + 1) · (N + 1)`
/// pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Board {
    pub(crate) height: usize,
    pub(crate) width: usize,
    /// True if columns are lines.
    pub(crate) turned: bool,
}

impl Board {
    /// A board whose rows are lines.
    pub(crate) const fn new(height: usize, width: usize) -> Self {
        Self { height, width, turned: false }
    }

    /// The same board with its columns as lines.
    pub(crate) fn turned(self) -> Self {
        Self { turned: true, ..self }
    }

    /// Lines of a position.
    pub(crate) fn lines(self) -> usize {
        if self.turned { self.width } else { self.height }
    }

    /// Cells of a line.
    pub(crate) fn per_line(self) -> usize {
        if self.turned { self.height } else { self.width }
    }

    /// Pixels from a line to the next.
    pub(crate) fn pitch(self) -> usize {
        self.per_line() + 1
    }

    /// Pixels from a cell to the one below it.
    pub(crate) fn down(self) -> usize {
        if self.turned { 1 } else { self.pitch() }
    }

    /// Pixels from a cell to the one on its right.
    pub(crate) fn right(self) -> usize {
        if self.turned { self.pitch() } else { 1 }
    }

    /// Pixels of a position, its border with it.
    pub(crate) fn pixels(self) -> usize {
        (self.lines() + 1) * self.pitch()
    }

    /// Cells of a position.
    pub(crate) fn cells(self) -> usize {
        self.height * self.width
    }

    /// The pixel of a cell, cells counted row by row.
    pub(crate) fn pixel(self, cell: usize) -> usize {
        cell / self.width * self.down() + cell % self.width * self.right()
    }

    /// Row and column of a pixel; of one in the border, those that lie beyond the board.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KernelVariant;

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
                // Pixels before the first or after the last belong to a neighbouring position's border, or the margin.
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

    #[test]
    fn a_board_is_turned_where_its_columns_make_fewer_tiles_and_never_for_matrix_tiles() {
        // Six rows in a tile: seven columns of six cells, or six rows of which each takes two.
        let turns = |path: KernelVariant, board: Board| path.turn(board).turned;
        assert!(!turns(KernelVariant::Avx512F32, Board::new(6, 7)));
        assert!(turns(KernelVariant::Avx512F32, Board::new(15, 3)) || !cfg!(target_arch = "x86_64"));
        assert!(turns(KernelVariant::Avx2F32, Board::new(6, 7)) || !cfg!(target_arch = "x86_64"));
        for path in [KernelVariant::AmxBf16, KernelVariant::AmxI8] {
            assert!(!turns(path, Board::new(15, 3)), "{path}");
        }
    }
}
