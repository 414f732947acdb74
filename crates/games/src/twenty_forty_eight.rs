//! 2048: tiles slide over a board of 4 × 4 cells, and two equal ones merge to their sum.
//!
//! The rules are those of Cirulli 2014. A [`Board`] holds the tiles and the exact distribution of what chance adds to
//! them; a [`Position`] also holds the generator of an episode. Start with [`TwentyFortyEight`].

mod board;

use game::{Action, Error, Game, ObservationShape, Outcome};

use crate::entry::{Entry, Exhaustive, Variants};
use crate::environment::{Constants, all_actions, hash, one_player, parse_action};
use crate::generator::Generator;
pub use board::{Board, Direction, Spawn};
use board::{CELLS, SIDE};

/// The registry entry of 2048.
pub const ENTRY: Entry = Entry {
    name: "2048",
    variants: Variants::One,
    preset: include_str!("../presets/2048.toml"),
    solved: None,
    exhaustive: Exhaustive::Skip,
};

const ACTIONS: [&str; 4] = ["up", "right", "down", "left"];
/// The planes of the observation: tiles 2, 4, and so on to 65,536.
const PLANES: usize = 16;
/// The number of steps after which an episode is truncated.
const STEPS_MAX: usize = 32_000;
// Chance adds at most 4 in each step and twice before, so that the sum of all tiles stays below 131,072, for which there
// is no plane.
const _: () = assert!(4 * (STEPS_MAX + 2) < 1 << (PLANES + 1));

/// Implements 2048.
///
/// An action slides all tiles to one side; it is legal if a tile moves. The reward is the sum of the merged tiles. Chance
/// then adds a tile to one of the empty cells, all equally probable: 2 with probability 0.9, else 4. The episode ends
/// when no tile can move. Observation `[16, 4, 4]`: plane k has ones where tiles are 2^(k + 1).
#[derive(Debug, Clone)]
pub struct TwentyFortyEight {
    constants: Constants,
}

/// Holds a position of 2048.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    board: Board,
    steps: u16,
    generator: Generator,
}

impl TwentyFortyEight {
    /// Returns the rules.
    #[must_use]
    pub fn new() -> Self {
        let observation = ObservationShape { planes: PLANES, height: SIDE, width: SIDE };
        Self { constants: Constants::new(ENTRY.name.into(), ACTIONS.len(), observation, STEPS_MAX).with_chance() }
    }
}

impl Default for TwentyFortyEight {
    fn default() -> Self {
        Self::new()
    }
}

impl Position {
    /// Returns the tiles.
    #[must_use]
    pub const fn board(&self) -> &Board {
        &self.board
    }

    /// Adds a tile by chance.
    fn spawn(&mut self) {
        let index = self.generator.below(self.board.empty_cells());
        self.board.add(index, Spawn::drawn(&mut self.generator));
    }
}

impl Game for TwentyFortyEight {
    type Position = Position;

    one_player!();

    fn start_from(&self, seed: u64) -> Position {
        let mut position = Position { board: Board::EMPTY, steps: 0, generator: Generator::new(seed) };
        position.spawn();
        position.spawn();
        position
    }

    fn legal_actions(&self, position: &Position, actions: &mut Vec<Action>) {
        all_actions(ACTIONS.len(), actions);
        actions.retain(|&action| self.is_legal(position, action));
    }

    fn is_legal(&self, position: &Position, action: Action) -> bool {
        let direction = Direction::ALL.get(action.index());
        let is_over = self.constants.truncation(position.steps).is_some();
        !is_over && direction.is_some_and(|&direction| position.board.slides(direction))
    }

    fn play(&self, position: &mut Position, action: Action) -> f32 {
        debug_assert!(self.is_legal(position, action), "{action} is not legal");
        let merged = position.board.slide(Direction::ALL[action.index()]);
        position.spawn();
        position.steps += 1;
        // Exact: the sum of merged tiles is an even number below 2^18.
        merged as f32
    }

    fn outcome(&self, position: &Position) -> Option<Outcome> {
        let stuck = position.board.is_stuck().then_some(Outcome::Finished);
        stuck.or_else(|| self.constants.truncation(position.steps))
    }

    fn observe(&self, position: &Position, planes: &mut [f32]) {
        planes.fill(0.0);
        for (cell, exponent) in position.board.exponents().into_iter().enumerate() {
            if let Some(plane) = usize::from(exponent).checked_sub(1) {
                planes[plane * CELLS + cell] = 1.0;
            }
        }
    }

    fn hash(&self, position: &Position) -> u64 {
        let [top, bottom] = position.board.words();
        hash([top, bottom, position.steps.into(), position.generator.state()])
    }

    fn action_name(&self, _: &Position, action: Action) -> String {
        ACTIONS[action.index()].into()
    }

    fn parse_action(&self, _: &Position, text: &str) -> Result<Action, Error> {
        parse_action(&ACTIONS, text)
    }

    fn render(&self, position: &Position) -> String {
        position.board.to_string()
    }
}

#[cfg(test)]
mod tests;
