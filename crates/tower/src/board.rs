/// How the cells of a board lie in memory: line by line, one zero pixel after each line and a line of zero pixels after the
/// last. Lines are the rows of the board, or its columns where the board is turned.
///
/// The border of a line serves the next line, and the border of a position serves the next position, so a tap of a 3×3
/// convolution is the same memory shifted by a constant. A position of L lines of N cells has `(L + 1) · (N + 1)` pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Board {
    pub(crate) height: usize,
    pub(crate) width: usize,
    /// Whether columns are lines.
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

    /// Whether a pixel is a cell.
    pub(crate) fn is_cell(self, pixel: usize) -> bool {
        let (row, column) = self.place(pixel);
        row < self.height && column < self.width
    }
}

#[cfg(test)]
mod tests;
