use game::{Action, Outcome, Player};

use crate::stones::Stones;
use crate::{Reference, action};

/// Connect Four on a board of columns and rows.
#[derive(Clone)]
pub(crate) struct ConnectFour {
    columns: usize,
    rows: usize,
    stones: Stones,
    mover: Player,
}

impl ConnectFour {
    pub(crate) fn new(columns: usize, rows: usize) -> Self {
        Self { columns, rows, stones: Stones::new(columns, rows), mover: Player::First }
    }

    /// Returns the cell on which a stone in this column comes to rest, unless the column is full.
    fn landing(&self, column: usize) -> Option<usize> {
        let from_below = (0..self.rows).rev().map(|row| row * self.columns + column);
        from_below.into_iter().find(|&cell| self.stones.is_empty(cell))
    }
}

impl Reference for ConnectFour {
    fn to_move(&self) -> Player {
        self.mover
    }

    fn legal_actions(&self) -> Vec<Action> {
        if self.outcome().is_some() {
            return Vec::new();
        }
        (0..self.columns).filter(|&column| self.landing(column).is_some()).map(action).collect()
    }

    fn play(&mut self, action: Action) {
        let cell = self.landing(action.index()).expect("the action is legal");
        self.stones.place(cell, self.mover);
        self.mover = self.mover.opponent();
    }

    fn outcome(&self) -> Option<Outcome> {
        let has_four = |&player: &Player| self.stones.longest_line(player) >= 4;
        let winner = [Player::First, Player::Second].into_iter().find(has_four);
        let is_full = self.stones.empty().next().is_none();
        winner.map(Outcome::Win).or(is_full.then_some(Outcome::Draw))
    }

    fn stones(&self) -> String {
        self.stones.letters()
    }

    fn copied(&self) -> Box<dyn Reference> {
        Box::new(self.clone())
    }
}
