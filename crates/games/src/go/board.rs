use crate::cells::Cells;

/// Holds which cells of a square board touch.
#[derive(Debug, Clone)]
pub(super) struct Board {
    size: usize,
    cells: Cells,
    /// The cells that have a cell to their left.
    has_left: Cells,
    /// The cells that have a cell to their right.
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

    /// Returns the cells that share an edge with a cell of the set, which may be cells of the set too.
    pub(super) fn around(&self, cells: Cells) -> Cells {
        let across = (cells & self.has_left) >> 1 | (cells & self.has_right) << 1;
        (across | cells >> self.size | cells << self.size) & self.cells
    }

    /// Returns the cells of `within` that a path inside `within` connects with one of `from`, a part of it.
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
