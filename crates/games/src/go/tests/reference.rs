//! A slow implementation of the rules of Go: a board of characters, recursion, and all earlier boards in a list.
//!
//! It shares nothing with the rules that it checks.

/// An empty cell, a stone of Black, a stone of White.
pub(super) const EMPTY: char = '.';
pub(super) const BLACK: char = 'X';
pub(super) const WHITE: char = 'O';

/// A position with its game.
#[derive(Clone)]
pub(super) struct Reference {
    /// The cells that touch each cell.
    neighbours: Vec<Vec<usize>>,
    /// The cells, row by row from the top.
    pub(super) board: Vec<char>,
    /// Every board of the game so far, this one included.
    boards: Vec<Vec<char>>,
    pub(super) mover: char,
    pub(super) passes: usize,
}

impl Reference {
    pub(super) fn new(size: usize) -> Self {
        Self::of(vec![EMPTY; size * size], BLACK)
    }

    /// A game that begins with this board.
    pub(super) fn of(board: Vec<char>, mover: char) -> Self {
        let size = board.len().isqrt();
        let touch =
            |one: usize, other: usize| (one / size).abs_diff(other / size) + (one % size).abs_diff(other % size) == 1;
        let cells = || 0..size * size;
        let neighbours = cells().map(|one| cells().filter(|&other| touch(one, other)).collect()).collect();
        Self { neighbours, boards: vec![board.clone()], board, mover, passes: 0 }
    }

    /// The legal actions, ascending; `size²` is the pass.
    pub(super) fn legal(&self) -> Vec<usize> {
        if self.passes == 2 {
            return Vec::new();
        }
        let cells = self.board.len();
        (0..cells).filter(|&cell| self.after(cell).is_some()).chain([cells]).collect()
    }

    /// Plays a legal action.
    pub(super) fn play(&mut self, action: usize) {
        if action == self.board.len() {
            self.passes += 1;
        } else {
            self.board = self.after(action).expect("the action is legal");
            self.boards.push(self.board.clone());
            self.passes = 0;
        }
        self.mover = other(self.mover);
    }

    /// The board after a stone on a cell, unless that is illegal.
    fn after(&self, cell: usize) -> Option<Vec<char>> {
        if self.board[cell] != EMPTY {
            return None;
        }
        let mut board = self.board.clone();
        board[cell] = self.mover;
        for &neighbour in &self.neighbours[cell] {
            if board[neighbour] == other(self.mover) && !self.has_liberty(&board, neighbour) {
                for stone in self.region(&board, neighbour) {
                    board[stone] = EMPTY;
                }
            }
        }
        (self.has_liberty(&board, cell) && !self.boards.contains(&board)).then_some(board)
    }

    /// The owner of each cell: the colour that it has, or that alone its empty cells lead to; else `EMPTY`.
    pub(super) fn owners(&self) -> Vec<char> {
        let owner = |cell: usize| {
            if self.board[cell] != EMPTY {
                return self.board[cell];
            }
            let region = self.region(&self.board, cell);
            let borders = |colour| {
                region.iter().any(|&empty| self.neighbours[empty].iter().any(|&cell| self.board[cell] == colour))
            };
            match (borders(BLACK), borders(WHITE)) {
                (true, false) => BLACK,
                (false, true) => WHITE,
                _ => EMPTY,
            }
        };
        (0..self.board.len()).map(owner).collect()
    }

    fn has_liberty(&self, board: &[char], cell: usize) -> bool {
        let is_empty = |&neighbour: &usize| board[neighbour] == EMPTY;
        self.region(board, cell).into_iter().any(|stone| self.neighbours[stone].iter().any(is_empty))
    }

    /// The cells of the colour of a cell that are connected with it.
    fn region(&self, board: &[char], cell: usize) -> Vec<usize> {
        let mut visited = vec![false; board.len()];
        self.visit(board, cell, &mut visited);
        (0..board.len()).filter(|&cell| visited[cell]).collect()
    }

    fn visit(&self, board: &[char], cell: usize, visited: &mut [bool]) {
        visited[cell] = true;
        for &neighbour in &self.neighbours[cell] {
            if board[neighbour] == board[cell] && !visited[neighbour] {
                self.visit(board, neighbour, visited);
            }
        }
    }
}

fn other(colour: char) -> char {
    if colour == BLACK { WHITE } else { BLACK }
}
