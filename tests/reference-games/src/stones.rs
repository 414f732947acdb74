use game::Player;

use crate::letter;

/// Stones on a board, row by row from the top left.
#[derive(Clone)]
pub(crate) struct Stones {
    columns: usize,
    cells: Vec<Option<Player>>,
}

impl Stones {
    pub(crate) fn new(columns: usize, rows: usize) -> Self {
        Self { columns, cells: vec![None; columns * rows] }
    }

    pub(crate) fn place(&mut self, cell: usize, player: Player) {
        let before = self.cells[cell].replace(player);
        assert_eq!(before, None, "a stone is placed on a stone");
    }

    pub(crate) fn is_empty(&self, cell: usize) -> bool {
        self.cells[cell].is_none()
    }

    /// Returns the empty cells, ascending.
    pub(crate) fn empty(&self) -> impl Iterator<Item = usize> {
        (0..self.cells.len()).filter(|&cell| self.is_empty(cell))
    }

    /// Returns the length of a player's longest line: across, upright or diagonal.
    pub(crate) fn longest_line(&self, player: Player) -> usize {
        let mut longest = 0;
        for start in 0..self.cells.len() {
            for (down, right) in [(0, 1), (1, 0), (1, 1), (1, -1)] {
                let line = (0..).take_while(|&steps| self.at(start, down * steps, right * steps) == Some(player));
                longest = longest.max(line.count());
            }
        }
        longest
    }

    /// Returns the owner of the stone at a distance from a cell; `None` also beyond an edge.
    fn at(&self, cell: usize, down: isize, right: isize) -> Option<Player> {
        let row = (cell / self.columns).checked_add_signed(down)?;
        let column = (cell % self.columns).checked_add_signed(right).filter(|&column| column < self.columns)?;
        *self.cells.get(row * self.columns + column)?
    }

    /// Returns the letters of all cells.
    pub(crate) fn letters(&self) -> String {
        self.cells.iter().copied().map(letter).collect()
    }
}
