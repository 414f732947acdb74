use connect_four_ai::Solver;
use game::Game;
use games::{ConnectFour, connect_four};

use crate::{Oracle, planes};

/// Scores positions of Connect Four on the usual board by the crate `connect-four-ai`: an alpha-beta search to the
/// end with a transposition table.
pub struct ConnectFourOracle {
    game: ConnectFour,
    solver: Solver,
    stones_min: usize,
}

impl ConnectFourOracle {
    /// Minimum number of stones in a covered position by default: with fewer, the solver takes up to seconds.
    pub(crate) const STONES_MIN: usize = 12;

    /// Creates the oracle for positions with at least 12 stones.
    #[must_use]
    pub fn new(game: ConnectFour) -> Self {
        Self { game, solver: Solver::new(), stones_min: Self::STONES_MIN }
    }

    /// Covers positions with at least `stones_min` stones: with 8, a position takes up to minutes.
    #[must_use]
    pub fn covering(self, stones_min: usize) -> Self {
        Self { stones_min, ..self }
    }
}

impl Oracle for ConnectFourOracle {
    type Position = connect_four::Position;

    fn covers(&self, position: &connect_four::Position) -> bool {
        planes::count(&self.game, position) >= self.stones_min
    }

    fn scores(&mut self, position: &connect_four::Position) -> Vec<Option<i32>> {
        let [own, opponent] = planes::stones(&self.game, position);
        // Row by row from the top, as in the planes, with `x` for the player to move.
        let cell = |cell: usize| match [own, opponent].map(|stones| stones >> cell & 1) {
            [1, _] => 'x',
            [_, 1] => 'o',
            _ => '.',
        };
        let board: String = (0..self.game.spec().max_plies).map(cell).collect();
        let position = connect_four_ai::Position::from_board_string(&board).expect("the board has 42 cells");
        self.solver.get_all_move_scores(&position).map(|score| score.map(i32::from)).to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bundled scores come from two other solvers.
    #[test]
    fn late_positions_have_the_bundled_scores() {
        let game = ConnectFour::new();
        let mut oracle = ConnectFourOracle::new(game.clone());
        let lines = connect_four::ENTRY.solved.unwrap().csv.lines().filter(|line| line.contains(",late,"));
        let mut count = 0;
        for line in lines.skip(5).step_by(10) {
            let mut fields = line.split(',');
            let mut position = game.start();
            for text in fields.next().unwrap().split("").filter(|text| !text.is_empty()) {
                let action = game.parse_action(&position, text).unwrap();
                game.try_play(&mut position, action).unwrap();
            }
            let scores: Vec<Option<i32>> = fields.skip(1).map(|score| score.parse().ok()).collect();
            assert!(oracle.covers(&position));
            assert_eq!(oracle.scores(&position), scores, "{line}");
            count += 1;
        }
        assert!(count > 40, "{count} positions");
    }
}
