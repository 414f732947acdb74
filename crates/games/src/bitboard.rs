//! Sets of cells on square boards of at most 8 cells a side, as 64 bits.

/// Bits from one row to the next, on boards of any size.
pub(crate) const STRIDE: usize = 8;

/// The layout of a square board in a word: the cell in row `r` from the top and column `c` from the left is bit
/// `8 · r + c`. The bits outside a smaller board stay clear.
///
/// Shifts then mean the same steps on every size. Cells are numbered row by row, like actions and planes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    size: usize,
}

impl Layout {
    /// Returns the layout of a board with `size` cells along a side.
    ///
    /// # Panics
    /// If `size` is 0 or exceeds 8.
    pub(crate) fn new(size: usize) -> Self {
        assert!((1..=STRIDE).contains(&size), "a board of {size} cells a side does not fit 64 bits");
        Self { size }
    }

    /// Returns the number of cells along a side.
    pub(crate) const fn size(self) -> usize {
        self.size
    }

    /// Returns the number of cells.
    pub(crate) const fn cells(self) -> usize {
        self.size * self.size
    }

    /// Returns the set of a single cell, given by number.
    pub(crate) const fn cell(self, cell: usize) -> u64 {
        1 << (cell / self.size * STRIDE + cell % self.size)
    }

    /// Returns the cells of a row.
    pub(crate) const fn row(self, row: usize) -> u64 {
        (u64::MAX >> (64 - self.size)) << (row * STRIDE)
    }

    /// Returns the cells of a column.
    pub(crate) fn column(self, column: usize) -> u64 {
        (0..self.size).fold(0, |cells, row| cells | 1 << (row * STRIDE + column))
    }

    /// Returns all cells.
    pub(crate) fn board(self) -> u64 {
        (0..self.size).fold(0, |cells, row| cells | self.row(row))
    }

    /// Iterates over the cell numbers in a set, in ascending order.
    pub(crate) fn numbers(self, cells: u64) -> impl Iterator<Item = usize> {
        self.numbered(cells).map(|(number, _)| number)
    }

    /// Iterates over the cell numbers in a set, in ascending order, each with the set of that cell alone.
    pub(crate) fn numbered(self, cells: u64) -> impl Iterator<Item = (usize, u64)> {
        std::iter::successors(Some(cells), |rest| Some(rest & rest.wrapping_sub(1))).take_while(|&rest| rest != 0).map(
            move |rest| {
                let bit = rest.trailing_zeros() as usize;
                (bit / STRIDE * self.size + bit % STRIDE, rest & rest.wrapping_neg())
            },
        )
    }

    /// Writes one plane `[H, W]` of zeros and ones.
    pub(crate) fn write_plane(self, cells: u64, plane: &mut [f32]) {
        for (row, values) in plane.chunks_exact_mut(self.size).enumerate() {
            let bits = cells >> (row * STRIDE);
            for (column, value) in values.iter_mut().enumerate() {
                *value = if bits >> column & 1 == 1 { 1.0 } else { 0.0 };
            }
        }
    }

    /// Reverses the order of the rows.
    pub(crate) const fn upside_down(self, cells: u64) -> u64 {
        cells.swap_bytes() >> (STRIDE * (STRIDE - self.size))
    }

    /// Reverses the order of the columns.
    pub(crate) const fn mirrored(self, cells: u64) -> u64 {
        // Reversing all bits reverses rows and columns; the byte swap restores the rows.
        cells.reverse_bits().swap_bytes() >> (STRIDE - self.size)
    }

    /// Exchanges rows and columns.
    pub(crate) const fn transposed(self, cells: u64) -> u64 {
        // Blocks of 4, 2 and 1 cells are exchanged across the main diagonal (Warren, "Hacker's Delight", 7-3).
        let mut cells = cells;
        let mut moved = (cells ^ (cells >> 28)) & 0x0000_0000_f0f0_f0f0;
        cells ^= moved ^ (moved << 28);
        moved = (cells ^ (cells >> 14)) & 0x0000_cccc_0000_cccc;
        cells ^= moved ^ (moved << 14);
        moved = (cells ^ (cells >> 7)) & 0x00aa_00aa_00aa_00aa;
        cells ^ moved ^ (moved << 7)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Maps each cell in a set by row and column.
    fn mapped(layout: Layout, cells: u64, map: impl Fn(usize, usize) -> (usize, usize)) -> u64 {
        let image = |number| {
            let (row, column) = map(number / layout.size(), number % layout.size());
            layout.cell(row * layout.size() + column)
        };
        layout.numbers(cells).map(image).fold(0, |image, cell| image | cell)
    }

    #[test]
    fn images_of_boards_are_those_of_their_cells() {
        for layout in (1..=STRIDE).map(Layout::new) {
            let last = layout.size() - 1;
            for cells in (0..50).map(|seed| game::mix(seed) & layout.board()) {
                assert_eq!(layout.upside_down(cells), mapped(layout, cells, |row, column| (last - row, column)));
                assert_eq!(layout.mirrored(cells), mapped(layout, cells, |row, column| (row, last - column)));
                assert_eq!(layout.transposed(cells), mapped(layout, cells, |row, column| (column, row)));
            }
        }
    }

    #[test]
    fn a_board_consists_of_its_rows_and_of_its_columns() {
        for layout in (1..=STRIDE).map(Layout::new) {
            let columns = (0..layout.size()).fold(0, |cells, column| cells | layout.column(column));
            assert_eq!(columns, layout.board());
            assert_eq!(layout.board().count_ones() as usize, layout.cells());
            assert!(layout.numbers(layout.board()).eq(0..layout.cells()));
        }
    }

    #[test]
    fn a_plane_has_ones_on_the_cells_of_the_set() {
        let layout = Layout::new(6);
        let mut plane = [f32::NAN; 36];
        layout.write_plane(layout.cell(3) | layout.cell(35), &mut plane);
        let ones: Vec<usize> = (0..36).filter(|&cell| plane[cell] == 1.0).collect();
        assert_eq!(ones, [3, 35]);
        assert_eq!(plane.iter().sum::<f32>(), 2.0);
    }
}
