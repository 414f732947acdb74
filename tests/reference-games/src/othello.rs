use game::{Action, Outcome, Player};

use crate::{Reference, action, letter};

/// Directions along which discs are turned over: steps down and to the right.
const DIRECTIONS: [(isize, isize); 8] = [(-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1)];

/// Othello on a square board.
#[derive(Clone)]
pub(crate) struct Othello {
    size: usize,
    /// Owner of the disc on each cell, row by row from the top.
    cells: Vec<Option<Player>>,
    mover: Player,
}

impl Othello {
    pub(crate) fn new(size: usize) -> Self {
        let mut cells = vec![None; size * size];
        let (low, high) = (size / 2 - 1, size / 2);
        for (row, column, player) in [
            (low, low, Player::Second),
            (low, high, Player::First),
            (high, low, Player::First),
            (high, high, Player::Second),
        ] {
            cells[row * size + column] = Some(player);
        }
        Self { size, cells, mover: Player::First }
    }

    /// Returns the index of the cell some steps away, if it is on the board.
    fn cell_at(&self, cell: usize, (down, right): (isize, isize), steps: isize) -> Option<usize> {
        let row = (cell / self.size).checked_add_signed(down * steps)?;
        let column = (cell % self.size).checked_add_signed(right * steps)?;
        (row < self.size && column < self.size).then_some(row * self.size + column)
    }

    /// Returns the cells of the discs that a disc of `player` on this cell turns over; none if the cell is occupied.
    fn turned(&self, player: Player, cell: usize) -> Vec<usize> {
        let mut turned = Vec::new();
        if self.cells[cell].is_some() {
            return turned;
        }
        for direction in DIRECTIONS {
            let mut between = Vec::new();
            for steps in 1.. {
                let Some(next) = self.cell_at(cell, direction, steps) else { break };
                match self.cells[next] {
                    Some(owner) if owner != player => between.push(next),
                    Some(_) => {
                        turned.append(&mut between);
                        break;
                    }
                    None => break,
                }
            }
        }
        turned
    }

    fn placements(&self, player: Player) -> Vec<Action> {
        let cells = (0..self.cells.len()).filter(|&cell| !self.turned(player, cell).is_empty());
        cells.map(action).collect()
    }

    fn discs(&self, player: Player) -> usize {
        self.cells.iter().filter(|&&cell| cell == Some(player)).count()
    }
}

impl Reference for Othello {
    fn to_move(&self) -> Player {
        self.mover
    }

    fn legal_actions(&self) -> Vec<Action> {
        let own = self.placements(self.mover);
        let can_pass = own.is_empty() && !self.placements(self.mover.opponent()).is_empty();
        if can_pass { vec![action(self.cells.len())] } else { own }
    }

    fn play(&mut self, action: Action) {
        if action.index() < self.cells.len() {
            for cell in self.turned(self.mover, action.index()) {
                self.cells[cell] = Some(self.mover);
            }
            self.cells[action.index()] = Some(self.mover);
        }
        self.mover = self.mover.opponent();
    }

    fn outcome(&self) -> Option<Outcome> {
        let is_over = [Player::First, Player::Second].iter().all(|&player| self.placements(player).is_empty());
        if !is_over {
            return None;
        }
        let (first, second) = (self.discs(Player::First), self.discs(Player::Second));
        Some(if first > second {
            Outcome::Win(Player::First)
        } else if second > first {
            Outcome::Win(Player::Second)
        } else {
            Outcome::Draw
        })
    }

    fn stones(&self) -> String {
        self.cells.iter().copied().map(letter).collect()
    }

    fn copied(&self) -> Box<dyn Reference> {
        Box::new(self.clone())
    }
}
