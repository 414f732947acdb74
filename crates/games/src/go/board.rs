use crate::cells::Cells;

/// The adjacency of cells on a square board.
#[derive(Debug, Clone)]
pub(super) struct Board {
    size: usize,
    cells: Cells,
    /// Cells with a cell to the left.
    has_left: Cells,
    /// Cells with a cell to the right.
    has_right: Cells,
}

impl Board {
    /// Returns the board of `size` cells a side.
    pub(super) fn new(size: usize) -> Self {
        let columns = |range: std::ops::Range<usize>| -> Cells {
            (0..size).flat_map(|row| range.clone().map(move |column| row * size + column)).collect()
        };
        Self { size, cells: columns(0..size), has_left: columns(1..size), has_right: columns(0..size - 1) }
    }

    /// Returns the number of cells along a side.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Returns all cells.
    pub(super) fn cells(&self) -> Cells {
        self.cells
    }

    /// Iterates over the cells that share an edge with `cell`.
    pub(super) fn neighbours(&self, cell: usize) -> impl Iterator<Item = usize> {
        let size = self.size;
        let steps = [
            (cell >= size).then(|| cell - size),
            self.has_left.contains(cell).then(|| cell - 1),
            self.has_right.contains(cell).then_some(cell + 1),
            (cell + size < size * size).then_some(cell + size),
        ];
        steps.into_iter().flatten()
    }

    /// Returns the cells that share an edge with a cell in `cells`; may include cells of the set itself.
    pub(super) fn around(&self, cells: Cells) -> Cells {
        let across = (cells & self.has_left) >> 1 | (cells & self.has_right) << 1;
        (across | cells >> self.size | cells << self.size) & self.cells
    }

    /// Returns the cells of `within` connected with `from`, a subset of `within`, by paths inside `within`.
    pub(super) fn connected(&self, from: Cells, within: Cells) -> Cells {
        let mut reached = from;
        loop {
            let further = (reached | self.around(reached)) & within;
            if further == reached {
                return reached;
            }
            reached = further;
        }
    }
}
