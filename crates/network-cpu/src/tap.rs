use crate::board::Board;

/// The neighbour of a cell that an input lies in: 0 to 8, row by row, 4 being the cell itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tap(u8);

impl Tap {
    /// The cell itself.
    pub(crate) const HERE: Self = Self(4);

    /// The cell and its neighbours left and right.
    pub(crate) const BESIDE: [Self; 3] = [Self(3), Self(4), Self(5)];

    /// All, in the order of a convolution's weights.
    pub(crate) fn all() -> Vec<Self> {
        (0..9).map(Self).collect()
    }

    /// Rows down, -1 to 1.
    fn down(self) -> isize {
        isize::from(self.0) / 3 - 1
    }

    /// Columns to the right, -1 to 1.
    fn right(self) -> isize {
        isize::from(self.0) % 3 - 1
    }

    /// Pixels from a cell to the neighbour.
    pub(crate) fn pixels(self, board: Board) -> isize {
        self.down() * board.down() as isize + self.right() * board.right() as isize
    }

    /// Returns whether the neighbour of a pixel lies outside the board.
    fn leaves(self, board: Board, pixel: usize) -> bool {
        let (row, column) = board.place(pixel);
        let (row, column) = (row as isize + self.down(), column as isize + self.right());
        !(0..board.height as isize).contains(&row) || !(0..board.width as isize).contains(&column)
    }
}

/// A set of taps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Taps(u16);

impl Taps {
    const LEFT: Self = Self(0b001_001_001);
    const RIGHT: Self = Self(0b100_100_100);
    const ABOVE: Self = Self(0b000_000_111);
    const BELOW: Self = Self(0b111_000_000);

    /// Those that leave a line of the board from its first cell, and from its last.
    pub(crate) fn beyond_line(board: Board) -> (Self, Self) {
        if board.turned { (Self::ABOVE, Self::BELOW) } else { (Self::LEFT, Self::RIGHT) }
    }

    /// Those that leave the board from each of some pixels.
    pub(crate) fn hidden(board: Board, pixels: impl Iterator<Item = usize> + Clone) -> Self {
        let hidden = |tap: &Tap| pixels.clone().all(|pixel| tap.leaves(board, pixel));
        Self(Tap::all().into_iter().filter(hidden).fold(0, |set, tap| set | 1 << tap.0))
    }

    /// Returns whether a tap is one of them.
    #[inline(always)]
    pub(crate) fn contain(self, tap: Tap) -> bool {
        self.0 >> tap.0 & 1 != 0
    }

    /// The place of a cell with these hidden on a walk around the board and then inside, so that those which come one
    /// after the other have many in common.
    pub(crate) fn around(self) -> usize {
        let [above, below, left, right] = [Self::ABOVE, Self::BELOW, Self::LEFT, Self::RIGHT].map(|taps| taps.0);
        let walk = [above | left, above, above | right, right, below | right, below, below | left, left];
        walk.iter().position(|&hidden| hidden == self.0).unwrap_or(walk.len())
    }

    /// Those of both.
    #[inline(always)]
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOARD: Board = Board::new(3, 4);

    fn hidden(cells: &[usize]) -> Vec<u8> {
        let hidden = Taps::hidden(BOARD, cells.iter().map(|&cell| BOARD.pixel(cell)));
        Tap::all().into_iter().filter(|&tap| hidden.contain(tap)).map(|tap| tap.0).collect()
    }

    #[test]
    fn taps_are_hidden_where_every_cell_has_the_border() {
        assert_eq!(hidden(&[0]), [0, 1, 2, 3, 6]);
        assert_eq!(hidden(&[1]), [0, 1, 2]);
        assert!(hidden(&[5]).is_empty());
        assert_eq!(hidden(&[11]), [2, 5, 6, 7, 8]);
        assert_eq!(hidden(&[0, 1]), [0, 1, 2]);
        assert_eq!(hidden(&[0, 4]), [0, 3, 6]);
        assert_eq!(hidden(&[0, 11]), [2, 6]);
    }

    #[test]
    fn pixels_of_a_tap_lead_to_the_neighbour() {
        let offsets: Vec<isize> = Tap::all().into_iter().map(|tap| tap.pixels(BOARD)).collect();
        assert_eq!(offsets, [-6, -5, -4, -1, 0, 1, 4, 5, 6]);
        assert_eq!(Tap::HERE.pixels(BOARD), 0);
    }

    #[test]
    fn a_walk_around_the_board_meets_cells_with_the_same_edges_together() {
        let board = Board::new(6, 7);
        let mut cells: Vec<Taps> =
            (0..board.cells()).map(|cell| Taps::hidden(board, std::iter::once(board.pixel(cell)))).collect();
        cells.sort_by_key(|hidden| hidden.around());
        let computed: usize = cells
            .chunks(3)
            .map(|three| {
                let common = three.iter().copied().reduce(Taps::and).unwrap_or_default();
                Tap::all().into_iter().filter(|&tap| !common.contain(tap)).count() * three.len()
            })
            .sum();
        // 304 taps lie on the board; 378 are there in all.
        assert_eq!(computed, 315);
    }
}
