use std::fmt;

use crate::generator::Generator;

pub(super) const SIDE: usize = 4;
pub(super) const CELLS: usize = SIDE * SIDE;

/// The tiles of a 2048 board.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Board {
    /// Binary logarithms of the tiles, row by row from the top left; 0 for empty cells.
    exponents: [u8; CELLS],
}

/// The side to which tiles slide, in action order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the first row.
    Up,
    /// To the last column.
    Right,
    /// To the last row.
    Down,
    /// To the first column.
    Left,
}

/// A tile added by chance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spawn {
    /// The tile 2.
    Two,
    /// The tile 4.
    Four,
}

impl Direction {
    /// All directions, in action order.
    pub const ALL: [Self; 4] = [Self::Up, Self::Right, Self::Down, Self::Left];

    /// Returns the cell at `distance` from the side to which tiles slide, in one of the four lines.
    const fn cell(self, line: usize, distance: usize) -> usize {
        let last = SIDE - 1;
        match self {
            Self::Up => distance * SIDE + line,
            Self::Right => line * SIDE + last - distance,
            Self::Down => (last - distance) * SIDE + line,
            Self::Left => line * SIDE + distance,
        }
    }
}

impl Spawn {
    /// Both tiles, in ascending order.
    pub const ALL: [Self; 2] = [Self::Two, Self::Four];

    /// Returns the probability that this tile is added.
    #[must_use]
    pub const fn probability(self) -> f64 {
        match self {
            Self::Two => 0.9,
            Self::Four => 0.1,
        }
    }

    /// Draws a tile with the probabilities of [`probability`](Self::probability).
    pub(super) fn drawn(generator: &mut Generator) -> Self {
        if generator.below(10) == 0 { Self::Four } else { Self::Two }
    }

    const fn exponent(self) -> u8 {
        match self {
            Self::Two => 1,
            Self::Four => 2,
        }
    }
}

impl Board {
    pub(super) const EMPTY: Self = Self { exponents: [0; CELLS] };

    /// Returns the binary logarithms of the tiles, row by row from the top left; 0 for empty cells.
    #[must_use]
    pub const fn exponents(&self) -> [u8; CELLS] {
        self.exponents
    }

    /// Returns the number of empty cells.
    #[must_use]
    pub fn empty_cells(&self) -> usize {
        self.exponents.iter().filter(|&&exponent| exponent == 0).count()
    }

    /// Returns true if sliding in this direction moves a tile.
    #[must_use]
    pub fn slides(&self, direction: Direction) -> bool {
        (0..SIDE).any(|line| {
            let pairs = (1..SIDE).map(|distance| [distance - 1, distance].map(|d| self.at(direction, line, d)));
            pairs.into_iter().any(|[near, far]| far != 0 && (near == 0 || near == far))
        })
    }

    /// Returns true if no tile moves in any direction.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        // If there is an empty cell, some tile is next to one: most positions need no check of pairs.
        self.empty_cells() == 0 && !Direction::ALL.into_iter().any(|direction| self.slides(direction))
    }

    /// Slides all tiles in this direction; returns the sum of the merged tiles. Of three equal tiles, the two nearest
    /// to that side merge, and a merged tile does not merge again.
    pub fn slide(&mut self, direction: Direction) -> u32 {
        (0..SIDE).map(|line| self.slide_line(direction, line)).sum()
    }

    fn slide_line(&mut self, direction: Direction, line: usize) -> u32 {
        let mut slid = [0; SIDE];
        let (mut count, mut may_merge, mut merged) = (0, false, 0);
        for exponent in (0..SIDE).map(|distance| self.at(direction, line, distance)).filter(|&exponent| exponent != 0) {
            if may_merge && slid[count - 1] == exponent {
                slid[count - 1] += 1;
                merged += 1 << (exponent + 1);
                may_merge = false;
            } else {
                slid[count] = exponent;
                count += 1;
                may_merge = true;
            }
        }
        for (distance, exponent) in slid.into_iter().enumerate() {
            self.exponents[direction.cell(line, distance)] = exponent;
        }
        merged
    }

    /// Returns every board that chance can lead to, with the probability: the children of a chance node.
    pub fn spawns(&self) -> impl Iterator<Item = (Self, f64)> + '_ {
        let empty = self.empty_cells();
        (0..empty).flat_map(move |index| {
            Spawn::ALL.map(|tile| {
                let mut board = *self;
                board.add(index, tile);
                (board, tile.probability() / empty as f64)
            })
        })
    }

    /// Adds a tile to the empty cell with this index among the empty cells.
    pub(super) fn add(&mut self, index: usize, tile: Spawn) {
        let empty = self.exponents.iter_mut().filter(|exponent| **exponent == 0);
        *empty.into_iter().nth(index).expect("an empty cell") = tile.exponent();
    }

    /// Returns the exponents, one per byte.
    pub(super) fn words(&self) -> [u64; 2] {
        let (halves, _) = self.exponents.as_chunks::<8>();
        [halves[0], halves[1]].map(u64::from_le_bytes)
    }

    fn at(&self, direction: Direction, line: usize, distance: usize) -> u8 {
        self.exponents[direction.cell(line, distance)]
    }

    /// Returns the board with these binary logarithms of tiles.
    #[cfg(test)]
    pub(super) const fn of(exponents: [u8; CELLS]) -> Self {
        Self { exponents }
    }
}

/// Formats the board as four lines of numbers, with a dot for an empty cell.
impl fmt::Display for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (cell, &exponent) in self.exponents.iter().enumerate() {
            let tile = if exponent == 0 { ".".to_owned() } else { (1_u32 << exponent).to_string() };
            let separator = if cell > 0 && cell % SIDE == 0 { "\n" } else { "" };
            write!(f, "{separator}{tile:>6}")?;
        }
        Ok(())
    }
}
