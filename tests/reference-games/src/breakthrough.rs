use game::{Action, Outcome, Player};

use crate::{Reference, action, letter};

/// Breakthrough on a square board.
#[derive(Clone)]
pub(crate) struct Breakthrough {
    size: usize,
    /// Owner of the piece on each cell: rows from the side of the first player, columns from the left.
    rows: Vec<Vec<Option<Player>>>,
    mover: Player,
}

/// A step of a piece, with cells as row and column on the board.
struct Step {
    from: (usize, usize),
    to: (usize, usize),
}

impl Breakthrough {
    pub(crate) fn new(size: usize) -> Self {
        let owner = |row: usize| match row {
            0 | 1 => Some(Player::First),
            _ if row + 2 >= size => Some(Player::Second),
            _ => None,
        };
        let rows = (0..size).map(|row| vec![owner(row); size]).collect();
        Self { size, rows, mover: Player::First }
    }

    /// Returns the row at a distance from the top, as seen by the player to move, who moves towards the top.
    fn row(&self, from_top: usize) -> usize {
        match self.mover {
            Player::First => self.size - 1 - from_top,
            Player::Second => from_top,
        }
    }

    /// Returns the step of an action, if it stays on the board. Actions are numbered by row from the top, then by
    /// column and by direction (left, straight, right).
    fn step(&self, action: Action) -> Option<Step> {
        let (cell, direction) = (action.index() / 3, action.index() % 3);
        let (from_top, column) = (cell / self.size, cell % self.size);
        let to_column = (column + direction).checked_sub(1).filter(|&column| column < self.size)?;
        let to_row = self.row(from_top.checked_sub(1)?);
        Some(Step { from: (self.row(from_top), column), to: (to_row, to_column) })
    }

    fn is_legal(&self, action: Action) -> bool {
        let Some(Step { from, to }) = self.step(action) else { return false };
        let target = self.rows[to.0][to.1];
        let is_free = if from.1 == to.1 { target.is_none() } else { target != Some(self.mover) };
        self.rows[from.0][from.1] == Some(self.mover) && is_free
    }
}

impl Reference for Breakthrough {
    fn to_move(&self) -> Player {
        self.mover
    }

    fn legal_actions(&self) -> Vec<Action> {
        if self.outcome().is_some() {
            return Vec::new();
        }
        (0..3 * self.size * self.size).map(action).filter(|&action| self.is_legal(action)).collect()
    }

    fn play(&mut self, action: Action) {
        let Step { from, to } = self.step(action).expect("the action is legal");
        self.rows[from.0][from.1] = None;
        self.rows[to.0][to.1] = Some(self.mover);
        self.mover = self.mover.opponent();
    }

    fn outcome(&self) -> Option<Outcome> {
        let (nearest, farthest) = (&self.rows[0], &self.rows[self.size - 1]);
        let is_without = |player| self.rows.iter().flatten().all(|&cell| cell != Some(player));
        if farthest.contains(&Some(Player::First)) || is_without(Player::Second) {
            Some(Outcome::Win(Player::First))
        } else if nearest.contains(&Some(Player::Second)) || is_without(Player::First) {
            Some(Outcome::Win(Player::Second))
        } else {
            None
        }
    }

    fn stones(&self) -> String {
        self.rows.iter().rev().flatten().copied().map(letter).collect()
    }

    fn copied(&self) -> Box<dyn Reference> {
        Box::new(self.clone())
    }
}
