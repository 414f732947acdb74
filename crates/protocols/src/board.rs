//! Board geometry: [`Size`], [`Cell`], [`Stone`].

use crate::Color;

/// The size of a rectangular board: 1 to 52 cells a side, the limit of SGF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Size {
    width: u8,
    height: u8,
}

impl Size {
    /// Maximum number of cells along a side.
    pub const SIDE_MAX: usize = 52;

    /// Returns a size; `None` if a side is out of range.
    #[must_use]
    pub fn new(width: usize, height: usize) -> Option<Self> {
        let side = |cells: usize| u8::try_from(cells).ok().filter(|_| (1..=Self::SIDE_MAX).contains(&cells));
        Some(Self { width: side(width)?, height: side(height)? })
    }

    /// Returns a square size; `None` if the side is out of range.
    #[must_use]
    pub fn square(side: usize) -> Option<Self> {
        Self::new(side, side)
    }

    /// Returns the number of columns.
    #[must_use]
    pub const fn width(self) -> usize {
        self.width as usize
    }

    /// Returns the number of rows.
    #[must_use]
    pub const fn height(self) -> usize {
        self.height as usize
    }

    /// Returns true if the numbers of rows and columns are equal.
    #[must_use]
    pub const fn is_square(self) -> bool {
        self.width == self.height
    }

    /// Returns the number of cells.
    #[must_use]
    pub const fn len(self) -> usize {
        self.width() * self.height()
    }

    /// Returns false: every board has at least one cell.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        false
    }

    /// Returns true if the cell lies on the board.
    #[must_use]
    pub const fn contains(self, cell: Cell) -> bool {
        cell.column < self.width && cell.row < self.height
    }

    /// Returns the cell in this column and row; `None` outside the board.
    #[must_use]
    pub fn cell(self, column: usize, row: usize) -> Option<Cell> {
        let cell = Cell { column: u8::try_from(column).ok()?, row: u8::try_from(row).ok()? };
        self.contains(cell).then_some(cell)
    }

    /// Returns the index of a cell on the board: row-major, from the top left.
    #[must_use]
    pub const fn index(self, cell: Cell) -> usize {
        cell.row as usize * self.width() + cell.column as usize
    }

    /// Returns all cells, row by row from the top left.
    pub fn cells(self) -> impl Iterator<Item = Cell> {
        (0..self.height).flat_map(move |row| (0..self.width).map(move |column| Cell { column, row }))
    }
}

/// A cell of a board (in Go, a point).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cell {
    /// Column, 0 at the left.
    pub column: u8,
    /// Row, 0 at the top.
    pub row: u8,
}

/// A stone that is on the board before the first move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stone {
    /// Owner of the stone.
    pub color: Color,
    /// Cell of the stone.
    pub cell: Cell,
}
