//! Catch: a ball falls down a board of 10 rows and 5 columns, and a paddle in the last row moves below it.
//!
//! The rules are from bsuite (Osband et al. 2020, `bsuite/environments/catch.py`); the system tests compare every
//! step. Start with [`Catch`].

use game::{Action, Board, Game, ObservationShape, Outcome};

use crate::entry::{Entry, Variants};
use crate::environment::{Constants, every_action_is_legal, hash, named_actions, one_player};
use crate::generator::Generator;
use crate::grid::{self, Object};

/// The registry entry of Catch.
pub const ENTRY: Entry = Entry::new("catch", Variants::One, include_str!("../presets/catch.toml"));

const ROWS: u8 = 10;
const COLUMNS: u8 = 5;
const ACTIONS: [&str; 3] = ["left", "stay", "right"];

/// Implements the rules of Catch.
///
/// The ball starts in a column of the first row that depends on the seed, the paddle in the middle. The actions move
/// the paddle one column to the left, not at all, or to the right, and the ball falls by one row. The episode ends
/// when the ball reaches the last row, with reward 1 if the paddle is below and −1 otherwise. Observation
/// `[1, 10, 5]`: ones for ball and paddle.
#[derive(Debug, Clone)]
pub struct Catch {
    constants: Constants,
}

/// Holds a position of Catch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    ball_row: u8,
    ball_column: u8,
    paddle: u8,
}

impl Catch {
    /// Returns the rules of Catch.
    #[must_use]
    pub fn new() -> Self {
        let observation = ObservationShape { planes: 1, height: ROWS.into(), width: COLUMNS.into() };
        Self { constants: Constants::new(ENTRY.name.into(), ACTIONS.len(), observation, usize::from(ROWS) - 1) }
    }
}

impl Default for Catch {
    fn default() -> Self {
        Self::new()
    }
}

impl Position {
    /// Returns row and column of the ball, and column of the paddle, from 0 at the top left.
    #[must_use]
    pub const fn coordinates(&self) -> [u8; 3] {
        [self.ball_row, self.ball_column, self.paddle]
    }

    fn is_over(self) -> bool {
        self.ball_row == ROWS - 1
    }

    fn object(self, row: u8, column: u8) -> Option<Object> {
        let is_ball = (row, column) == (self.ball_row, self.ball_column);
        let is_paddle = (row, column) == (ROWS - 1, self.paddle);
        match (is_ball, is_paddle) {
            (true, true) => Some(("caught ball", '@')),
            (true, false) => Some(("ball", 'o')),
            (false, true) => Some(("paddle", '=')),
            (false, false) => None,
        }
    }
}

impl Game for Catch {
    type Position = Position;

    one_player!();
    every_action_is_legal!();
    named_actions!(ACTIONS);

    fn start_from(&self, seed: u64) -> Position {
        let column = Generator::new(seed).below(usize::from(COLUMNS));
        Position { ball_row: 0, ball_column: u8::try_from(column).expect("five columns"), paddle: COLUMNS / 2 }
    }

    fn play(&self, position: &mut Position, action: Action) -> f32 {
        debug_assert!(self.is_legal(position, action), "{action} is not legal");
        position.paddle = match action.0 {
            0 => position.paddle.saturating_sub(1),
            1 => position.paddle,
            _ => (position.paddle + 1).min(COLUMNS - 1),
        };
        position.ball_row += 1;
        match position.is_over() {
            false => 0.0,
            true if position.paddle == position.ball_column => 1.0,
            true => -1.0,
        }
    }

    fn outcome(&self, position: &Position) -> Option<Outcome> {
        position.is_over().then_some(Outcome::Finished)
    }

    fn observe(&self, position: &Position, planes: &mut [f32]) {
        planes.fill(0.0);
        for (row, column) in [(position.ball_row, position.ball_column), (ROWS - 1, position.paddle)] {
            planes[usize::from(row * COLUMNS + column)] = 1.0;
        }
    }

    fn hash(&self, position: &Position) -> u64 {
        hash(position.coordinates().map(u64::from))
    }

    /// Renders the board: `o` is the ball and `=` the paddle, `@` the ball on the paddle.
    fn render(&self, position: &Position) -> String {
        grid::render_objects((ROWS, COLUMNS), |row, column| position.object(row, column))
    }

    fn board(&self, position: &Position) -> Option<Board> {
        Some(grid::board_of_objects(self, position, (ROWS, COLUMNS), |row, column| position.object(row, column)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays an episode by a policy from ball and paddle columns to an action; returns the sum of rewards.
    fn total_reward(seed: u64, policy: impl Fn(u8, u8) -> u16) -> f32 {
        let game = Catch::new();
        let mut position = game.start_from(seed);
        let mut sum = 0.0;
        while game.outcome(&position).is_none() {
            let action = Action(policy(position.ball_column, position.paddle));
            sum += game.play(&mut position, action);
        }
        sum
    }

    #[test]
    fn a_paddle_that_follows_the_ball_catches_it_from_every_column() {
        let follow = |ball: u8, paddle: u8| if ball < paddle { 0 } else { 1 + u16::from(ball > paddle) };
        for seed in 0..100 {
            assert!(total_reward(seed, follow).to_bits() == 1.0_f32.to_bits(), "seed {seed}");
        }
    }

    #[test]
    fn a_paddle_that_stays_catches_one_ball_in_five() {
        let caught = (0..5000).filter(|&seed| total_reward(seed, |_, _| 1) > 0.0).count();
        // Six standard deviations of a binomial count with probability 1/5.
        assert!(caught.abs_diff(1000) < 170, "{caught} of 5000");
    }

    #[test]
    fn the_board_is_drawn() {
        let game = Catch::new();
        let position = Position { ball_row: 1, ball_column: 4, paddle: 2 };
        assert_eq!(game.render(&position).lines().nth(1), Some("....o"));
        assert_eq!(game.render(&position).lines().last(), Some("..=.."));
    }
}
