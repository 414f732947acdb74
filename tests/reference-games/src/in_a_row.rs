use game::{Action, Outcome, Player};

use crate::stones::Stones;
use crate::{Reference, action};

/// A game with stones on any empty cell, won by a line of some length: Gomoku and tic-tac-toe.
#[derive(Clone)]
pub struct InARow {
    stones: Stones,
    line: usize,
    /// Text drawn at an empty cell, apart from digits.
    empty: &'static str,
    mover: Player,
}

impl InARow {
    /// Returns the start of Gomoku on a square board, with the free-style rules: five or more in a row win.
    #[must_use]
    pub fn gomoku(size: usize) -> Self {
        Self { stones: Stones::new(size, size), line: 5, empty: ".", mover: Player::First }
    }

    pub(crate) fn tic_tac_toe() -> Self {
        // The empty cells show numbers.
        Self { stones: Stones::new(3, 3), line: 3, empty: "", mover: Player::First }
    }

    /// Returns the length of a player's longest line.
    #[must_use]
    pub fn longest_line(&self, player: Player) -> usize {
        self.stones.longest_line(player)
    }
}

impl Reference for InARow {
    fn to_move(&self) -> Player {
        self.mover
    }

    fn legal_actions(&self) -> Vec<Action> {
        if self.outcome().is_some() {
            return Vec::new();
        }
        self.stones.empty().map(action).collect()
    }

    fn play(&mut self, action: Action) {
        self.stones.place(action.index(), self.mover);
        self.mover = self.mover.opponent();
    }

    fn outcome(&self) -> Option<Outcome> {
        let has_line = |&player: &Player| self.longest_line(player) >= self.line;
        let winner = [Player::First, Player::Second].into_iter().find(has_line);
        let is_full = self.stones.empty().next().is_none();
        winner.map(Outcome::Win).or(is_full.then_some(Outcome::Draw))
    }

    fn stones(&self) -> String {
        self.stones.letters().replace('.', self.empty)
    }

    fn copied(&self) -> Box<dyn Reference> {
        Box::new(self.clone())
    }
}
