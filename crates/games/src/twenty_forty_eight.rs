//! 2048: tiles slide on a board of 4 × 4 cells, and two equal tiles merge into the sum.
//!
//! The rules are from Cirulli 2014. A [`Board`] holds the tiles, and has the exact distribution of added tiles; a
//! [`Position`] also holds the generator of an episode. Start with [`TwentyFortyEight`].

mod board;

use game::{Action, Chance, Game, Geometry, Mark, ObservationShape, Outcome, Place};

use crate::entry::{Entry, Variants};
use crate::environment::{Constants, all_actions, hash, named_actions, one_player};
use crate::generator::Generator;
pub use board::{Board, Direction, Spawn};
use board::{CELLS, SIDE};

/// The registry entry of 2048.
pub const ENTRY: Entry = Entry::new("2048", Variants::One, include_str!("../presets/2048.toml"));

const ACTIONS: [&str; 4] = ["up", "right", "down", "left"];
/// Observation planes: tiles 2, 4, and so on to 65,536.
const PLANES: usize = 16;
/// Number of steps after which an episode is truncated.
const STEPS_MAX: usize = 32_000;
// Chance adds at most 4 in each step, and twice before the first, so that the sum of all tiles stays below 131,072,
// which has no plane.
const _: () = assert!(4 * (STEPS_MAX + 2) < 1 << (PLANES + 1));

/// Implements 2048.
///
/// An action slides all tiles to one side; it is legal if a tile moves. The reward is the sum of the merged tiles.
/// Chance then adds a tile to an empty cell, drawn uniformly: 2 with probability 0.9, else 4. The episode ends when
/// no tile can move. Observation `[16, 4, 4]`: plane k has ones at tiles 2^(k + 1).
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
    /// Returns the rules of 2048.
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

    /// Adds a random tile.
    fn spawn(&mut self) {
        let (index, tile) = self.draw();
        self.board.add(index, tile);
    }

    /// Draws an index among the empty cells, and the added tile.
    fn draw(&mut self) -> (usize, Spawn) {
        let index = self.generator.below(self.board.empty_cells());
        (index, Spawn::drawn(&mut self.generator))
    }
}

impl Game for TwentyFortyEight {
    type Position = Position;

    one_player!();
    named_actions!(ACTIONS);

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
        // Exact: the sum of merged tiles is an even integer below 2^18.
        merged as f32
    }

    fn knows_chances(&self) -> bool {
        true
    }

    /// Outcome `2 i + t` adds the tile [`Spawn::ALL`]`[t]` to the empty cell with index `i`.
    fn chances(&self, position: &Position, action: Action, chances: &mut Vec<Chance>) {
        let mut board = position.board;
        board.slide(Direction::ALL[action.index()]);
        chances.clear();
        let probabilities = board.spawns().map(|(_, probability)| probability as f32);
        chances.extend((0..).zip(probabilities).map(|(outcome, probability)| Chance { outcome, probability }));
    }

    fn play_chance(&self, position: &mut Position, action: Action, outcome: u16) -> f32 {
        let merged = position.board.slide(Direction::ALL[action.index()]);
        position.draw();
        position.board.add(usize::from(outcome / 2), Spawn::ALL[usize::from(outcome % 2)]);
        position.steps += 1;
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

    fn render(&self, position: &Position) -> String {
        position.board.to_string()
    }

    fn board(&self, position: &Position) -> Option<game::Board> {
        let exponents = position.board.exponents();
        let mark = |cell: usize| {
            let label = (exponents[cell] > 0).then(|| (1_u32 << exponents[cell]).to_string())?;
            Some(Mark { owner: None, kind: "tile", label })
        };
        let board = game::Board::new(Geometry::Squares, SIDE, SIDE, mark);
        Some(board.with_moves(self, position, |_| Place::Nowhere))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// A slow implementation without code of the rules: a row slides to the left by removing the gaps, repeatedly
    /// merging the first equal unmarked pair into a marked tile, and filling up.
    fn slide_left(row: &[u32]) -> (Vec<u32>, u32) {
        let mut tiles: Vec<(u32, bool)> = row.iter().filter(|&&tile| tile != 0).map(|&tile| (tile, false)).collect();
        let mut reward = 0;
        let is_pair = |pair: &[(u32, bool)]| pair[0].0 == pair[1].0 && !pair[0].1 && !pair[1].1;
        while let Some(index) = tiles.windows(2).position(is_pair) {
            tiles.remove(index + 1);
            tiles[index] = (2 * tiles[index].0, true);
            reward += tiles[index].0;
        }
        let mut row: Vec<u32> = tiles.into_iter().map(|(tile, _)| tile).collect();
        row.resize(4, 0);
        (row, reward)
    }

    /// Slides the tiles up, right, down or left by turning the board.
    fn slide(board: &[Vec<u32>], direction: usize) -> (Vec<Vec<u32>>, u32) {
        let turned = |board: &[Vec<u32>]| -> Vec<Vec<u32>> {
            (0..4).map(|row| (0..4).map(|column| board[column][3 - row]).collect()).collect()
        };
        // A turn to the left moves the upper side to the left.
        let turns = [1, 2, 3, 0][direction];
        let mut board = board.to_vec();
        (0..turns).for_each(|_| board = turned(&board));
        let rows: Vec<(Vec<u32>, u32)> = board.iter().map(|row| slide_left(row)).collect();
        let reward = rows.iter().map(|(_, reward)| reward).sum();
        let mut board: Vec<Vec<u32>> = rows.into_iter().map(|(row, _)| row).collect();
        (turns..4).for_each(|_| board = turned(&board));
        (board, reward)
    }

    fn tiles(board: &Board) -> Vec<Vec<u32>> {
        let tile = |&exponent: &u8| if exponent == 0 { 0 } else { 1_u32 << exponent };
        board.exponents().chunks(4).map(|row| row.iter().map(tile).collect()).collect()
    }

    /// Checks all four directions against the slow implementation.
    fn check(board: Board) {
        for (index, direction) in Direction::ALL.into_iter().enumerate() {
            let (expected, reward) = slide(&tiles(&board), index);
            let mut slid = board;
            let merged = slid.slide(direction);
            assert_eq!((tiles(&slid), merged), (expected, reward), "{direction:?} of\n{board}");
            assert_eq!(board.slides(direction), slid != board, "{direction:?} of\n{board}");
        }
    }

    #[test]
    fn every_line_slides_as_in_a_slow_implementation() {
        for row in 0..7_usize.pow(4) {
            let line: [u8; 4] = std::array::from_fn(|cell| (row / 7_usize.pow(cell as u32) % 7) as u8);
            // The same line in every row, reversed in the last.
            let mut exponents: [u8; CELLS] = std::array::from_fn(|cell| line[cell % 4]);
            exponents[12..].reverse();
            check(Board::of(exponents));
        }
    }

    #[test]
    fn boards_of_random_episodes_slide_as_in_a_slow_implementation_until_no_tile_moves() {
        let game = TwentyFortyEight::new();
        let mut legal = Vec::new();
        for seed in 0..20 {
            let mut position = game.start_from(seed);
            let mut choice = Generator::new(1000 + seed);
            while game.outcome(&position).is_none() {
                check(position.board);
                game.legal_actions(&position, &mut legal);
                let action = legal[choice.below(legal.len())];
                let (_, expected) = slide(&tiles(&position.board), action.index());
                assert_eq!(game.play(&mut position, action), expected as f32);
            }
            assert_eq!(game.outcome(&position), Some(Outcome::Finished));
        }
    }

    #[test]
    fn chance_adds_a_tile_with_the_probabilities_that_a_board_names() {
        let game = TwentyFortyEight::new();
        let board = Board::of([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 0, 0, 0]);
        let expected: HashMap<Board, f64> = board.spawns().collect();
        assert_eq!(expected.len(), 6, "three empty cells and two tiles");
        assert!((expected.values().sum::<f64>() - 1.0).abs() < 1e-12);
        const DRAWS: u32 = 60_000;
        let mut counts: HashMap<Board, u32> = HashMap::new();
        for seed in 0..DRAWS {
            let mut position = Position { board, ..game.start_from(seed.into()) };
            position.spawn();
            *counts.entry(position.board).or_default() += 1;
        }
        for (board, probability) in expected {
            let share = f64::from(counts.remove(&board).unwrap_or_default()) / f64::from(DRAWS);
            // Six standard errors of a share.
            let tolerance = 6.0 * (probability * (1.0 - probability) / f64::from(DRAWS)).sqrt();
            assert!((share - probability).abs() < tolerance, "{share} instead of {probability} of\n{board}");
        }
        assert!(counts.is_empty(), "{counts:?}");
    }

    #[test]
    fn the_sum_of_all_tiles_has_the_mean_and_the_variance_of_what_chance_added() {
        const EPISODES: u32 = 4000;
        const STEPS: u32 = 12;
        let game = TwentyFortyEight::new();
        let mut legal = Vec::new();
        let sums: Vec<f64> = (0..EPISODES)
            .map(|seed| {
                let mut position = game.start_from(seed.into());
                for _ in 0..STEPS {
                    game.legal_actions(&position, &mut legal);
                    game.play(&mut position, legal[0]);
                }
                tiles(&position.board).iter().flatten().map(|&tile| f64::from(tile)).sum()
            })
            .collect();
        // Sliding keeps the sum, and 14 tiles were added, each with mean 0.9 · 2 + 0.1 · 4 and variance 0.36.
        let added = f64::from(STEPS + 2);
        let mean = sums.iter().sum::<f64>() / f64::from(EPISODES);
        let variance = sums.iter().map(|sum| (sum - mean).powi(2)).sum::<f64>() / f64::from(EPISODES);
        let expected = 0.36 * added;
        assert!((mean - 2.2 * added).abs() < 6.0 * (expected / f64::from(EPISODES)).sqrt(), "{mean}");
        // The kurtosis of a tile is (1 − 3 · 0.09) / 0.09 ≈ 8.1; 14 added tiles have about 3.4: six standard errors.
        assert!((variance - expected).abs() < 6.0 * expected * (2.4 / f64::from(EPISODES)).sqrt(), "{variance}");
    }

    #[test]
    fn the_observation_shows_a_tile_in_its_plane_and_no_tile_in_none() {
        let game = TwentyFortyEight::new();
        let position = Position { board: Board::of([0, 1, 16, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), ..game.start() };
        let mut planes = [f32::NAN; PLANES * CELLS];
        game.observe(&position, &mut planes);
        let ones: Vec<usize> = (0..planes.len()).filter(|&index| planes[index] == 1.0).collect();
        assert_eq!(ones, [1, CELLS + 4, 15 * CELLS + 2]);
        assert_eq!(planes.iter().filter(|&&value| value == 0.0).count(), PLANES * CELLS - 3);
        assert!(game.render(&position).starts_with("     .     2 65536     .\n     4"));
    }

    /// Returns the mean return of a policy over 400 episodes.
    fn mean_return(mut choose: impl FnMut(&TwentyFortyEight, &Position, &[Action]) -> Action) -> f32 {
        let (game, mut legal) = (TwentyFortyEight::new(), Vec::new());
        let mut sum = 0.0;
        for seed in 0..400 {
            let mut position = game.start_from(seed);
            while game.outcome(&position).is_none() {
                game.legal_actions(&position, &mut legal);
                let action = choose(&game, &position, &legal);
                sum += game.play(&mut position, action);
            }
        }
        sum / 400.0
    }

    /// Reference policies for runs: docs/muzero.md quotes the returns.
    #[test]
    fn simple_heuristics_have_two_and_three_times_the_return_of_random_play() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let random = mean_return(|_, _, legal| legal[rng.random_range(0..legal.len())]);
        let first_of = |legal: &[Action]| {
            let order = ["left", "down", "right", "up"].map(|name| ACTIONS.iter().position(|action| *action == name));
            order.into_iter().flatten().map(|index| Action(index as u16)).find(|action| legal.contains(action))
        };
        let corner = mean_return(|_, _, legal| first_of(legal).unwrap());
        let merging = mean_return(|game, position, legal| {
            let reward = |action: &Action| game.play(&mut position.clone(), *action);
            *legal.iter().max_by(|a, b| reward(a).total_cmp(&reward(b))).unwrap()
        });
        assert_eq!([random, corner, merging].map(f32::round), [1_135.0, 2_348.0, 3_230.0]);
    }
}
