//! Bits of a small Hex board, and the number of stones that a player needs to reach a cell.

/// Maximum number of cells along a side, so that a board takes at most 25 bits.
pub(super) const SIZE_MAX: usize = 5;

/// Maximum number of stones that a player has on the board.
pub(super) const STONES_MAX: usize = (SIZE_MAX * SIZE_MAX).div_ceil(2);

/// A set of cells, numbered row by row.
pub(super) type Cells = u32;

/// A player of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The player who connects the top with the bottom.
    Attacker,
    /// The player who connects the first column with the last.
    Defender,
}

impl Side {
    pub(super) fn opponent(self) -> Self {
        match self {
            Self::Attacker => Self::Defender,
            Self::Defender => Self::Attacker,
        }
    }
}

/// The geometry of a board.
#[derive(Debug, Clone)]
pub(super) struct Board {
    size: usize,
    /// All cells.
    full: Cells,
    /// Rows at the top and the bottom.
    rows: [Cells; 2],
    /// First and last column.
    columns: [Cells; 2],
    /// Cells from the centre outwards.
    outwards: Vec<usize>,
}

/// By number of stones: the cells that a player can reach from an edge with at most so many additional stones. A
/// reached empty cell counts as one of them.
pub(super) type Reach = [Cells; STONES_MAX + 1];

impl Board {
    pub(super) fn new(size: usize) -> Self {
        let cells = size * size;
        let full: Cells = (1 << cells) - 1;
        let column = |column: usize| (0..size).fold(0, |bits, row| bits | 1 << (row * size + column));
        let row = |row: usize| ((1 << size) - 1) << (row * size);
        let mut outwards: Vec<usize> = (0..cells).collect();
        let from_centre = |at: usize| (2 * at).abs_diff(size - 1);
        outwards.sort_by_key(|&cell| from_centre(cell / size) + from_centre(cell % size));
        Self { size, full, rows: [row(0), row(size - 1)], columns: [column(0), column(size - 1)], outwards }
    }

    /// Returns the two edges that a player connects.
    pub(super) fn edges(&self, side: Side) -> [Cells; 2] {
        match side {
            Side::Attacker => self.rows,
            Side::Defender => self.columns,
        }
    }

    /// Returns the cells of a set, from the centre outwards.
    pub(super) fn outwards(&self, cells: Cells) -> impl Iterator<Item = usize> {
        self.outwards.iter().copied().filter(move |cell| cells >> cell & 1 == 1)
    }

    /// Returns the most central cell of a set.
    pub(super) fn most_central(&self, cells: Cells) -> Option<usize> {
        self.outwards(cells).next()
    }

    /// Returns the cells without a stone.
    pub(super) fn empty(&self, attacker: Cells, defender: Cells) -> Cells {
        self.full & !(attacker | defender)
    }

    /// Returns the set mirrored across the main diagonal, which exchanges the players' edges.
    pub(super) fn mirrored(&self, cells: Cells) -> Cells {
        let mirrored = |cell: usize| cell % self.size * self.size + cell / self.size;
        self.outwards(cells).fold(0, |image, cell| image | 1 << mirrored(cell))
    }

    /// Returns the set turned by half a turn, which exchanges the two edges of each player.
    pub(super) fn turned(&self, cells: Cells) -> Cells {
        cells.reverse_bits() >> (Cells::BITS as usize - self.size * self.size)
    }

    /// Returns the cells that share an edge with a cell in `cells`; may include cells of the set itself.
    fn beside(&self, cells: Cells) -> Cells {
        let n = self.size;
        let (not_first, not_last) = (cells & !self.columns[0], cells & !self.columns[1]);
        let rows = cells << n | cells >> n;
        let columns = not_first >> 1 | not_last << 1;
        let diagonal = not_last >> (n - 1) | not_first << (n - 1);
        (rows | columns | diagonal) & self.full
    }

    /// Returns `from` and the cells of `through` that are connected to it.
    fn connected(&self, from: Cells, through: Cells) -> Cells {
        let mut reached = from;
        loop {
            let next = reached | self.beside(reached) & through;
            if next == reached {
                return reached;
            }
            reached = next;
        }
    }

    /// Returns the cells that a player reaches from each edge; see [`reach`](Self::reach).
    pub(super) fn reach_both(&self, side: Side, own: Cells, other: Cells, stones: usize) -> [Reach; 2] {
        self.edges(side).map(|edge| self.reach(edge, own, other, stones))
    }

    /// Returns the cells that a player with the stones `own` reaches from the cells `edge` with up to `stones`
    /// additional stones; entries for more stones repeat the last.
    pub(super) fn reach(&self, edge: Cells, own: Cells, other: Cells, stones: usize) -> Reach {
        let empty = self.empty(own, other);
        let mut reached = self.connected(edge & own, own);
        let mut reach = [reached; STONES_MAX + 1];
        for count in 1..=stones {
            let next = (self.beside(reached) | edge) & empty & !reached;
            if next == 0 {
                break;
            }
            reached = self.connected(reached | next, own);
            reach[count..].fill(reached);
        }
        reach
    }
}

/// Returns the minimum number of stones, from 1 to `stones_max`, that reaches the opposite edge.
pub(super) fn distance(reach: &Reach, opposite: Cells, stones_max: usize) -> Option<usize> {
    (1..=stones_max).find(|&stones| reach[stones] & opposite != 0)
}

/// Returns the empty cells on paths between both edges that need at most `stones` additional stones.
pub(super) fn on_paths(reach: &[Reach; 2], empty: Cells, stones: usize) -> Cells {
    // A cell that both counts contain is one stone.
    (1..=stones).fold(0, |cells, near| cells | reach[0][near] & reach[1][stones + 1 - near]) & empty
}
