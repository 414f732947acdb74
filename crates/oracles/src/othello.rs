use game::{Action, Game};
use games::{Othello, othello};

use crate::{Oracle, planes};

/// Maximum number of empty cells: with more, one move takes seconds.
const EMPTY_MAX: usize = 12;

/// Number of empty cells from which ordering the actions pays off.
const ORDERED_MIN: usize = 4;

/// Scores positions of Othello with at most 12 empty cells: the disc difference at the end, from the view of the
/// player to move, by an alpha-beta search.
///
/// As in tournaments, the winner owns the empty cells of a game that ends before the board is full.
pub struct OthelloOracle {
    game: Othello,
}

impl OthelloOracle {
    /// Creates the oracle for the rules of one board size.
    #[must_use]
    pub fn new(game: Othello) -> Self {
        Self { game }
    }

    fn cells(&self) -> usize {
        let shape = self.game.spec().observation;
        shape.height * shape.width
    }

    fn empty(&self, position: &othello::Position) -> usize {
        self.cells() - planes::count(&self.game, position)
    }

    /// Returns the difference of discs after perfect play, if it lies between `low` and `high`; otherwise a bound on
    /// it, beyond the limit that it crosses.
    fn difference(&self, position: &othello::Position, empty: usize, low: i32, high: i32) -> i32 {
        let mut legal = Vec::new();
        self.game.legal_actions(position, &mut legal);
        if legal.is_empty() {
            return self.final_difference(position);
        }
        let mut best = i32::MIN;
        for next in self.in_order(position, &legal, empty) {
            // A pass fills no cell.
            let empty = if legal[0] == self.game.pass() { empty } else { empty - 1 };
            best = best.max(-self.difference(&next, empty, -high, -low.max(best)));
            if best >= high {
                break;
            }
        }
        best
    }

    /// Returns the positions after the actions; if many plies follow, positions with the fewest replies come first.
    fn in_order(&self, position: &othello::Position, legal: &[Action], empty: usize) -> Vec<othello::Position> {
        let after = |&action: &Action| {
            let mut next = *position;
            self.game.play(&mut next, action);
            next
        };
        let mut positions: Vec<othello::Position> = legal.iter().map(after).collect();
        if empty >= ORDERED_MIN {
            let mut replies = Vec::new();
            positions.sort_by_cached_key(|next| {
                self.game.legal_actions(next, &mut replies);
                replies.len()
            });
        }
        positions
    }

    /// Returns the difference of discs in a finished game.
    fn final_difference(&self, position: &othello::Position) -> i32 {
        let [own, opponent] = planes::stones(&self.game, position).map(|discs| discs.count_ones().cast_signed());
        let empty = self.cells() as i32 - own - opponent;
        let difference = own - opponent;
        difference + difference.signum() * empty
    }
}

impl Oracle for OthelloOracle {
    type Position = othello::Position;

    fn covers(&self, position: &othello::Position) -> bool {
        self.empty(position) <= EMPTY_MAX
    }

    fn scores(&mut self, position: &othello::Position) -> Vec<Option<i32>> {
        let mut legal = Vec::new();
        self.game.legal_actions(position, &mut legal);
        let all = self.cells() as i32;
        let mut scores = vec![None; self.game.spec().actions];
        for action in legal {
            let mut next = *position;
            self.game.play(&mut next, action);
            scores[action.index()] = Some(-self.difference(&next, self.empty(&next), -all, all));
        }
        scores
    }
}

#[cfg(test)]
mod tests {
    use games::Generator;
    use games::othello::Size;

    use super::*;

    /// Returns the difference of discs by definition: every line to the end, with the board read from the observation.
    fn minimax(game: &Othello, position: &othello::Position) -> i32 {
        let mut legal = Vec::new();
        game.legal_actions(position, &mut legal);
        let after = |action: Action| {
            let mut next = *position;
            game.play(&mut next, action);
            -minimax(game, &next)
        };
        legal.into_iter().map(after).max().unwrap_or_else(|| {
            let mut planes = vec![0.0; game.spec().observation.len()];
            game.observe(position, &mut planes);
            let cells = planes.len() / game.spec().observation.planes;
            let discs = |plane: usize| planes[plane * cells..][..cells].iter().sum::<f32>() as i32;
            match discs(0) - discs(1) {
                0 => 0,
                difference if difference > 0 => cells as i32 - 2 * discs(1),
                _ => 2 * discs(0) - cells as i32,
            }
        })
    }

    /// Random positions with at most 7 empty cells; some games end before the board is full.
    #[test]
    fn late_positions_have_the_scores_of_plain_minimax() {
        let mut random = Generator::new(9);
        for size in [Size::Six, Size::Eight] {
            let game = Othello::new(size);
            let mut oracle = OthelloOracle::new(game.clone());
            let (mut count, mut legal) = (0, Vec::new());
            while count < 40 {
                let mut position = game.start();
                let empty_max = 1 + random.below(7);
                loop {
                    game.legal_actions(&position, &mut legal);
                    if legal.is_empty() || oracle.empty(&position) <= empty_max {
                        break;
                    }
                    game.play(&mut position, legal[random.below(legal.len())]);
                }
                if legal.is_empty() {
                    continue;
                }
                let mut expected = vec![None; game.spec().actions];
                for &action in &legal {
                    let mut next = position;
                    game.play(&mut next, action);
                    expected[action.index()] = Some(-minimax(&game, &next));
                }
                assert_eq!(oracle.scores(&position), expected, "\n{}", game.render(&position));
                count += 1;
            }
        }
    }
}
