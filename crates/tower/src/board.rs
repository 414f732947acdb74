/// How the cells of a board lie in memory: row by row, one zero pixel after each row and a row of zero pixels after the
/// last.
///
/// The border of a row serves the next row, and the border of a position serves the next position, so a tap of a 3×3
/// convolution is the same memory shifted by a constant. A position has `(H + 1) · (W + 1)` pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Board {
    pub(crate) height: usize,
    pub(crate) width: usize,
}

impl Board {
    /// Pixels from a cell to the one below it.
    pub(crate) fn pitch(self) -> usize {
        self.width + 1
    }

    /// Pixels of a position, its border with it.
    pub(crate) fn pixels(self) -> usize {
        (self.height + 1) * self.pitch()
    }

    /// Cells of a position.
    pub(crate) fn cells(self) -> usize {
        self.height * self.width
    }

    /// The pixel of a cell, cells counted row by row.
    pub(crate) fn pixel(self, cell: usize) -> usize {
        cell / self.width * self.pitch() + cell % self.width
    }

    /// Whether a pixel is a cell.
    pub(crate) fn is_cell(self, pixel: usize) -> bool {
        pixel % self.pitch() < self.width && pixel / self.pitch() < self.height
    }
}

#[cfg(test)]
mod tests;
