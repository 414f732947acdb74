use std::cmp::Ordering;
use std::collections::HashSet;

use game::{Action, Outcome, Player};

use crate::{Reference, action, letter};

/// Go on a square board, with the rules of Tromp and Taylor without suicide: a board of letters, recursion, and all
/// earlier boards in a set.
#[derive(Clone)]
pub struct Go {
    /// Cells that touch each cell.
    neighbours: Vec<Vec<usize>>,
    /// Letters of the cells, row by row from the top.
    board: String,
    /// Every board of the game so far, including this one.
    boards: HashSet<String>,
    komi_half_points: i32,
    plies_max: usize,
    plies: usize,
    passes: usize,
}

impl Go {
    /// Returns the start of a game with the usual komi for this board size and at most two plies per cell.
    pub(crate) fn usual(size: usize) -> Self {
        let points = match size {
            5 => 24,
            6 => 4,
            8 => 10,
            7 => 9,
            _ => 7,
        };
        Self::new(size, 2 * points, 2 * size * size)
    }

    /// Returns the start of a game in which White receives this komi, and which ends after `plies_max` plies.
    #[must_use]
    pub fn new(size: usize, komi_half_points: i32, plies_max: usize) -> Self {
        let board = ".".repeat(size * size);
        let touch =
            |one: usize, other: usize| (one / size).abs_diff(other / size) + (one % size).abs_diff(other % size) == 1;
        let cells = || 0..size * size;
        let neighbours = cells().map(|one| cells().filter(|&other| touch(one, other)).collect()).collect();
        let boards = HashSet::from([board.clone()]);
        Self { neighbours, board, boards, komi_half_points, plies_max, plies: 0, passes: 0 }
    }

    /// Returns the game with these stones at the start instead, row by row from the top; `to_move` plays first.
    #[must_use]
    pub fn with_stones(self, stones: String, to_move: Player) -> Self {
        Self { boards: HashSet::from([stones.clone()]), board: stones, plies: to_move.index(), ..self }
    }

    /// Returns the owner of each cell: the player whose stone it holds, or whose stones alone surround the empty
    /// region.
    #[must_use]
    pub fn owners(&self) -> Vec<Option<Player>> {
        let board = self.board.as_bytes();
        let owner = |cell: usize| {
            let owns = |player| {
                let borders = |&empty: &usize| self.neighbours[empty].iter().any(|&beside| board[beside] == of(player));
                board[cell] == of(player) || board[cell] == b'.' && self.region(board, cell).iter().any(borders)
            };
            match [Player::First, Player::Second].map(owns) {
                [true, false] => Some(Player::First),
                [false, true] => Some(Player::Second),
                _ => None,
            }
        };
        (0..board.len()).map(owner).collect()
    }

    fn pass(&self) -> Action {
        action(self.board.len())
    }

    fn is_over(&self) -> bool {
        self.passes == 2 || self.plies >= self.plies_max
    }

    /// Returns the board after a stone on a cell, unless that is illegal.
    fn board_after(&self, cell: usize) -> Option<String> {
        let mut board = self.board.clone().into_bytes();
        if board[cell] != b'.' {
            return None;
        }
        board[cell] = of(self.to_move());
        for &beside in &self.neighbours[cell] {
            if board[beside] == of(self.to_move().opponent()) && !self.has_liberty(&board, beside) {
                for stone in self.region(&board, beside) {
                    board[stone] = b'.';
                }
            }
        }
        let has_liberty = self.has_liberty(&board, cell);
        let board = String::from_utf8(board).expect("boards consist of letters");
        (has_liberty && !self.boards.contains(&board)).then_some(board)
    }

    fn has_liberty(&self, board: &[u8], cell: usize) -> bool {
        let touches_empty = |stone: usize| self.neighbours[stone].iter().any(|&beside| board[beside] == b'.');
        touches_empty(cell) || self.region(board, cell).into_iter().any(touches_empty)
    }

    /// Returns the connected cells of the same kind as a cell.
    fn region(&self, board: &[u8], cell: usize) -> Vec<usize> {
        let mut visited = vec![false; board.len()];
        self.visit(board, cell, &mut visited);
        (0..board.len()).filter(|&cell| visited[cell]).collect()
    }

    fn visit(&self, board: &[u8], cell: usize, visited: &mut [bool]) {
        visited[cell] = true;
        for &beside in &self.neighbours[cell] {
            if board[beside] == board[cell] && !visited[beside] {
                self.visit(board, beside, visited);
            }
        }
    }
}

/// Returns the letter of a player's stones.
fn of(player: Player) -> u8 {
    letter(Some(player)) as u8
}

impl Reference for Go {
    fn to_move(&self) -> Player {
        if self.plies.is_multiple_of(2) { Player::First } else { Player::Second }
    }

    fn legal_actions(&self) -> Vec<Action> {
        if self.is_over() {
            return Vec::new();
        }
        let cells = (0..self.board.len()).filter(|&cell| self.board_after(cell).is_some());
        cells.map(action).chain([self.pass()]).collect()
    }

    fn play(&mut self, action: Action) {
        if action == self.pass() {
            self.passes += 1;
        } else {
            self.board = self.board_after(action.index()).expect("the action is legal");
            self.boards.insert(self.board.clone());
            self.passes = 0;
        }
        self.plies += 1;
    }

    fn outcome(&self) -> Option<Outcome> {
        if !self.is_over() {
            return None;
        }
        let owners = self.owners();
        let points = |player| owners.iter().map(|&owner| i32::from(owner == Some(player))).sum::<i32>();
        let half_points = 2 * (points(Player::First) - points(Player::Second));
        Some(match half_points.cmp(&self.komi_half_points) {
            Ordering::Greater => Outcome::Win(Player::First),
            Ordering::Equal => Outcome::Draw,
            Ordering::Less => Outcome::Win(Player::Second),
        })
    }

    fn stones(&self) -> String {
        self.board.clone()
    }

    fn copied(&self) -> Box<dyn Reference> {
        Box::new(self.clone())
    }
}
