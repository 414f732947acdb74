use game::{Action, Outcome, Player};

use crate::{Reference, action, letter};

/// Steps to the neighbours of a cell: down and to the right.
const NEIGHBOURS: [(isize, isize); 6] = [(-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0)];

/// Hex on a rhombus with the swap rule. The first player connects top and bottom, the second left and right.
#[derive(Clone)]
pub(crate) struct Hex {
    size: usize,
    /// Owner of the stone on each cell, rows from the top.
    rows: Vec<Vec<Option<Player>>>,
    mover: Player,
    plies: usize,
}

impl Hex {
    pub(crate) fn new(size: usize) -> Self {
        Self { size, rows: vec![vec![None; size]; size], mover: Player::First, plies: 0 }
    }

    /// Returns row and column of the cell that an action names: the second player counts rows as columns.
    fn cell(&self, action: Action) -> (usize, usize) {
        let (row, column) = (action.index() / self.size, action.index() % self.size);
        match self.mover {
            Player::First => (row, column),
            Player::Second => (column, row),
        }
    }

    fn swap(&self) -> Action {
        action(self.size * self.size)
    }

    /// Exchanges the first player's stone for a stone of the second player in the mirrored cell.
    fn play_swap(&mut self) {
        let cells = (0..self.size).flat_map(|row| (0..self.size).map(move |column| (row, column)));
        let (row, column) =
            cells.into_iter().find(|&(row, column)| self.rows[row][column].is_some()).expect("there is a stone");
        self.rows[row][column] = None;
        self.rows[column][row] = Some(Player::Second);
    }

    /// Returns true if a path of stones joins both edges of a player.
    fn connects(&self, player: Player) -> bool {
        let mut reached = vec![vec![false; self.size]; self.size];
        for along in 0..self.size {
            let (row, column) = if player == Player::First { (0, along) } else { (along, 0) };
            self.flood(player, (row, column), &mut reached);
        }
        let last = self.size - 1;
        (0..self.size).any(|along| if player == Player::First { reached[last][along] } else { reached[along][last] })
    }

    /// Marks the stones of a player that are connected with a cell, including the cell itself.
    fn flood(&self, player: Player, (row, column): (usize, usize), reached: &mut [Vec<bool>]) {
        if self.rows[row][column] != Some(player) || reached[row][column] {
            return;
        }
        reached[row][column] = true;
        for (down, right) in NEIGHBOURS {
            let beside = row.checked_add_signed(down).zip(column.checked_add_signed(right));
            if let Some((row, column)) = beside.filter(|&(row, column)| row < self.size && column < self.size) {
                self.flood(player, (row, column), reached);
            }
        }
    }
}

impl Reference for Hex {
    fn to_move(&self) -> Player {
        self.mover
    }

    fn legal_actions(&self) -> Vec<Action> {
        if self.outcome().is_some() {
            return Vec::new();
        }
        let is_empty = |&action: &Action| {
            let (row, column) = self.cell(action);
            self.rows[row][column].is_none()
        };
        let placements = (0..self.size * self.size).map(action).filter(is_empty);
        placements.chain((self.plies == 1).then(|| self.swap())).collect()
    }

    fn play(&mut self, action: Action) {
        if action == self.swap() {
            self.play_swap();
        } else {
            let (row, column) = self.cell(action);
            self.rows[row][column] = Some(self.mover);
        }
        self.mover = self.mover.opponent();
        self.plies += 1;
    }

    fn outcome(&self) -> Option<Outcome> {
        [Player::First, Player::Second].into_iter().find(|&player| self.connects(player)).map(Outcome::Win)
    }

    fn stones(&self) -> String {
        self.rows.iter().flatten().copied().map(letter).collect()
    }

    fn copied(&self) -> Box<dyn Reference> {
        Box::new(self.clone())
    }
}
