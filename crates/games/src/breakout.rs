//! MinAtar's Breakout: a paddle keeps a ball in play, which breaks three rows of bricks on a board of 10 × 10 cells.
//!
//! The rules are from MinAtar (Young and Tian 2019, `minatar/environments/breakout.py`); the system tests compare
//! every step. Breakout is the MinAtar game without increasing difficulty. Start with [`Breakout`].

use game::{Action, Board, Chance, Game, ObservationShape, Outcome};

use crate::entry::{Entry, Variants};
use crate::environment::{Constants, every_action_is_legal, hash, named_actions, one_player};
use crate::generator::Generator;
use crate::grid::{self, Object};

/// The registry entry of Breakout.
pub const ENTRY: Entry = Entry::new(
    "breakout",
    Variants::Named(&["breakout", "breakout-deterministic"]),
    include_str!("../presets/breakout.toml"),
);

const SIDE: u8 = 10;
const CELLS: usize = SIDE as usize * SIDE as usize;
/// First row of bricks; the other two are below it.
const BRICKS_TOP: u8 = 1;
/// All bricks: bit `i` is cell `i` of the three rows, row by row from the top left.
const WALL: u32 = (1 << (3 * SIDE)) - 1;
/// Probability that a step repeats the previous action; MinAtar's default.
const STICKY_PROBABILITY: f64 = 0.1;
/// Number of steps after which an episode is truncated. MinAtar has no limit, and a good player never loses.
const STEPS_MAX: usize = 2_500;
const ACTIONS: [&str; 3] = ["stay", "left", "right"];
const STAY: u8 = 0;
const LEFT: u8 = 1;
const RIGHT: u8 = 2;

/// Determines whether a step may repeat the previous action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StickyActions {
    /// With probability 0.1, as in MinAtar: the variant `breakout`.
    On,
    /// Never: the variant `breakout-deterministic`, where only the side of the first ball depends on the seed.
    Off,
}

impl StickyActions {
    /// Returns the option for the variant with this index.
    #[must_use]
    pub fn new(index: u8) -> Option<Self> {
        [Self::On, Self::Off].get(usize::from(index)).copied()
    }

    /// Returns the index of the variant.
    #[must_use]
    pub const fn get(self) -> usize {
        self as usize
    }
}

/// Implements Breakout.
///
/// The actions are MinAtar's minimal set: the paddle stays, or moves one column to the left or right. A broken brick
/// has reward 1, and a cleared wall is rebuilt. The episode ends when the ball passes the paddle. Observation
/// `[4, 10, 10]`: paddle, ball, previous cell of the ball, bricks.
#[derive(Debug, Clone)]
pub struct Breakout {
    constants: Constants,
    sticky: StickyActions,
}

/// Holds a position of Breakout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    ball: Cell,
    /// Cell of the ball before the last step.
    trail: Cell,
    direction: Direction,
    /// Column of the paddle.
    paddle: u8,
    bricks: u32,
    /// True if the ball broke a brick in the last step or has been among bricks since: it breaks no further brick.
    strike: bool,
    /// True if the ball has passed the paddle.
    lost: bool,
    last_action: u8,
    steps: u16,
    generator: Generator,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cell {
    row: u8,
    column: u8,
}

/// The direction of the ball, which moves along diagonals only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Direction {
    down: bool,
    right: bool,
}

impl Breakout {
    /// Returns the environment with or without sticky actions.
    #[must_use]
    pub fn new(sticky: StickyActions) -> Self {
        let observation = ObservationShape { planes: 4, height: SIDE.into(), width: SIDE.into() };
        let constants = Constants::new(ENTRY.name_of(sticky.get()), ACTIONS.len(), observation, STEPS_MAX);
        let constants = if sticky == StickyActions::On { constants.with_chance() } else { constants };
        Self { constants, sticky }
    }

    /// Returns the action that is taken for `action`: sometimes the last action, if actions are sticky.
    fn taken(&self, position: &mut Position, action: Action) -> u8 {
        if self.sticky == StickyActions::On && position.generator.unit() < STICKY_PROBABILITY {
            return position.last_action;
        }
        u8::try_from(action.0).expect("a legal action")
    }
}

impl Position {
    /// Returns the action taken in the last step, which sticky actions may have repeated.
    #[must_use]
    pub fn last_action(&self) -> Action {
        Action(self.last_action.into())
    }

    /// Returns row and column of the ball, direction of the ball (0 up left, 1 up right, 2 down right, 3 down left),
    /// row and column of the trail, column of the paddle, 1 if the ball breaks no brick now, and the 30 bricks.
    pub fn numbers(&self) -> impl Iterator<Item = u8> {
        let direction = match (self.direction.down, self.direction.right) {
            (false, false) => 0,
            (false, true) => 1,
            (true, true) => 2,
            (true, false) => 3,
        };
        let Self { ball, trail, bricks, .. } = *self;
        let head = [ball.row, ball.column, direction, trail.row, trail.column, self.paddle, self.strike.into()];
        head.into_iter().chain((0..3 * SIDE).map(move |brick| u8::from(bricks >> brick & 1 == 1)))
    }

    /// Returns the bit of the brick in a cell; 0 if there is none.
    fn brick_at(&self, cell: Cell) -> u32 {
        match cell.row.checked_sub(BRICKS_TOP) {
            Some(row @ 0..3) => self.bricks & 1 << (row * SIDE + cell.column),
            _ => 0,
        }
    }

    fn object(&self, row: u8, column: u8) -> Option<Object> {
        match (Cell { row, column }) {
            cell if cell == self.ball => Some(("ball", 'o')),
            Cell { row, column } if row == SIDE - 1 && column == self.paddle => Some(("paddle", '=')),
            cell if cell == self.trail => Some(("trail", '\'')),
            cell => (self.brick_at(cell) != 0).then_some(("brick", '#')),
        }
    }

    /// Takes an action; returns the reward.
    fn take(&mut self, action: u8) -> f32 {
        self.last_action = action;
        self.steps += 1;
        self.move_paddle(action);
        if self.move_ball() { 1.0 } else { 0.0 }
    }

    fn move_paddle(&mut self, action: u8) {
        match action {
            LEFT => self.paddle = self.paddle.saturating_sub(1),
            RIGHT => self.paddle = (self.paddle + 1).min(SIDE - 1),
            _ => debug_assert_eq!(action, STAY),
        }
    }

    /// Returns the row or column after a step in a direction, and true if the ball bounced off the first or last one.
    fn next(index: u8, forward: bool) -> (u8, bool) {
        let next = if forward { Some(index + 1).filter(|&next| next < SIDE) } else { index.checked_sub(1) };
        (next.unwrap_or(index), next.is_none())
    }

    /// Moves the ball; returns true if it broke a brick.
    fn move_ball(&mut self) -> bool {
        let before = self.ball;
        self.trail = before;
        let (column, bounced) = Self::next(before.column, self.direction.right);
        self.direction.right ^= bounced;
        // The ball is never in the last row during an episode, so it bounces only off the top.
        let (row, at_the_top) = Self::next(before.row, self.direction.down);
        let mut next = Cell { row, column };
        let brick = if at_the_top { 0 } else { self.brick_at(next) };
        let breaks = brick != 0 && !self.strike;
        if at_the_top {
            self.direction.down = true;
        } else if breaks {
            self.bricks &= !brick;
            self.direction.down = !self.direction.down;
            next.row = before.row;
        } else if brick == 0 && next.row == SIDE - 1 {
            self.meet_paddle(before, &mut next);
        }
        self.strike = brick != 0;
        self.ball = next;
        breaks
    }

    /// Bounces the ball off the paddle if the paddle is below the ball or at the ball's next cell; otherwise the ball
    /// is lost.
    fn meet_paddle(&mut self, before: Cell, next: &mut Cell) {
        if self.bricks == 0 {
            self.bricks = WALL;
        }
        let is_below = before.column == self.paddle;
        if is_below || next.column == self.paddle {
            self.direction.down = false;
            self.direction.right ^= !is_below;
            next.row = before.row;
        } else {
            self.lost = true;
        }
    }
}

impl Game for Breakout {
    type Position = Position;

    one_player!();
    every_action_is_legal!();
    named_actions!(ACTIONS);

    fn start_from(&self, seed: u64) -> Position {
        let mut generator = Generator::new(seed);
        let from_left = generator.below(2) == 0;
        let ball = Cell { row: 3, column: if from_left { 0 } else { SIDE - 1 } };
        Position {
            ball,
            trail: ball,
            direction: Direction { down: true, right: from_left },
            paddle: 4,
            bricks: WALL,
            strike: false,
            lost: false,
            last_action: STAY,
            steps: 0,
            generator,
        }
    }

    fn play(&self, position: &mut Position, action: Action) -> f32 {
        debug_assert!(self.is_legal(position, action), "{action} is not legal");
        let action = self.taken(position, action);
        position.take(action)
    }

    fn knows_chances(&self) -> bool {
        self.sticky == StickyActions::On
    }

    /// Outcome 0 takes the action, outcome 1 repeats the last action.
    fn chances(&self, position: &Position, action: Action, chances: &mut Vec<Chance>) {
        chances.clear();
        if self.sticky == StickyActions::On && position.last_action() != action {
            let of = |outcome, probability: f64| Chance { outcome, probability: probability as f32 };
            chances.extend([of(0, 1.0 - STICKY_PROBABILITY), of(1, STICKY_PROBABILITY)]);
        }
    }

    fn play_chance(&self, position: &mut Position, action: Action, outcome: u16) -> f32 {
        self.taken(position, action);
        let action = if outcome == 0 { action } else { position.last_action() };
        position.take(u8::try_from(action.0).expect("a legal action"))
    }

    fn outcome(&self, position: &Position) -> Option<Outcome> {
        let lost = position.lost.then_some(Outcome::Finished);
        lost.or_else(|| self.constants.truncation(position.steps))
    }

    fn observe(&self, position: &Position, planes: &mut [f32]) {
        planes.fill(0.0);
        let index = |cell: Cell| usize::from(cell.row) * usize::from(SIDE) + usize::from(cell.column);
        planes[index(Cell { row: SIDE - 1, column: position.paddle })] = 1.0;
        planes[CELLS + index(position.ball)] = 1.0;
        planes[2 * CELLS + index(position.trail)] = 1.0;
        let bricks = &mut planes[3 * CELLS + usize::from(BRICKS_TOP * SIDE)..][..usize::from(3 * SIDE)];
        for (brick, value) in bricks.iter_mut().enumerate() {
            *value = (position.bricks >> brick & 1) as f32;
        }
    }

    fn hash(&self, position: &Position) -> u64 {
        let [ball, trail] =
            [position.ball, position.trail].map(|cell| u64::from(cell.row) << 8 | u64::from(cell.column));
        let Direction { down, right } = position.direction;
        let bits = [down, right, position.strike, position.lost];
        let bits = bits.iter().fold(0, |bits, &bit| bits << 1 | u64::from(bit));
        let small = [ball, trail, position.paddle.into(), position.last_action.into(), bits];
        let small = small.into_iter().fold(0, |word, part| word << 12 | part & 0xfff);
        hash([small, position.bricks.into(), position.steps.into(), position.generator.state()])
    }

    /// Renders the board: `o` is the ball, `'` the trail, `#` a brick and `=` the paddle.
    fn render(&self, position: &Position) -> String {
        grid::render_objects((SIDE, SIDE), |row, column| position.object(row, column))
    }

    fn board(&self, position: &Position) -> Option<Board> {
        Some(grid::board_of_objects(self, position, (SIDE, SIDE), |row, column| position.object(row, column)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moves the paddle below the ball's current or next column: either keeps the ball in play, and each sends it to
    /// another side. A random choice leaves no cycle.
    fn follow(position: &Position, choice: &mut Generator) -> Action {
        let (next, _) = Position::next(position.ball.column, position.direction.right);
        let column = [position.ball.column, next][choice.below(2)];
        Action(match position.paddle.cmp(&column) {
            std::cmp::Ordering::Less => RIGHT.into(),
            std::cmp::Ordering::Equal => STAY.into(),
            std::cmp::Ordering::Greater => LEFT.into(),
        })
    }

    /// Plays one episode; returns the sum of rewards and the outcome.
    fn episode(game: &Breakout, seed: u64, mut choose: impl FnMut(&Position) -> Action) -> (f32, Outcome) {
        let (mut position, mut sum) = (game.start_from(seed), 0.0);
        loop {
            if let Some(outcome) = game.outcome(&position) {
                return (sum, outcome);
            }
            let action = choose(&position);
            sum += game.play(&mut position, action);
        }
    }

    #[test]
    fn a_paddle_that_follows_the_ball_plays_until_the_episode_is_truncated_and_clears_several_walls() {
        let game = Breakout::new(StickyActions::Off);
        for seed in 0..4 {
            let mut choice = Generator::new(seed);
            let (sum, outcome) = episode(&game, seed, |position| follow(position, &mut choice));
            assert_eq!(outcome, Outcome::Truncated, "seed {seed}");
            assert!(sum > 60.0, "seed {seed}: {sum}");
        }
    }

    /// Reference policies for runs: docs/muzero.md quotes the returns.
    #[test]
    fn a_paddle_that_follows_the_ball_has_over_20_times_the_return_of_random_play_with_sticky_actions() {
        let game = Breakout::new(StickyActions::On);
        let mean = |choose: fn(&Position, &mut Generator) -> Action| {
            let mut choice = Generator::new(1);
            let sum: f32 = (0..400).map(|seed| episode(&game, seed, |position| choose(position, &mut choice)).0).sum();
            (sum / 40.0).round() / 10.0
        };
        let random = mean(|_, choice| Action(choice.below(ACTIONS.len()) as u16));
        assert_eq!([random, mean(follow)], [0.4, 10.1]);
    }

    #[test]
    fn the_board_has_the_objects_of_the_planes() {
        let (game, mut choice) = (Breakout::new(StickyActions::On), Generator::new(3));
        let mut planes = [0.0; 4 * CELLS];
        for seed in 0..20 {
            let mut position = game.start_from(seed);
            while game.outcome(&position).is_none() {
                game.observe(&position, &mut planes);
                let board = game.board(&position).unwrap();
                for (cell, mark) in board.marks.iter().enumerate() {
                    // The planes from the front to the back.
                    let shown = [(1, "ball"), (0, "paddle"), (2, "trail"), (3, "brick")];
                    let first = shown.into_iter().find(|(plane, _)| planes[plane * CELLS + cell] > 0.0);
                    assert_eq!(mark.as_ref().map(|mark| mark.kind), first.map(|(_, kind)| kind), "cell {cell}");
                }
                let action = follow(&position, &mut choice);
                game.play(&mut position, if choice.below(8) == 0 { Action(STAY.into()) } else { action });
            }
        }
    }

    #[test]
    fn one_step_in_ten_repeats_the_action_before_it() {
        let game = Breakout::new(StickyActions::On);
        let (mut steps, mut repeated) = (0_u32, 0_u32);
        for seed in 0..500 {
            let mut position = game.start_from(seed);
            for step in 0..30 {
                if game.outcome(&position).is_some() {
                    break;
                }
                let action = if step % 2 == 0 { LEFT } else { RIGHT };
                game.play(&mut position, Action(action.into()));
                steps += 1;
                repeated += u32::from(position.last_action != action);
            }
        }
        // A repetition is visible unless the last action was itself repeated: the probability is p = 0.1 (1 − p), so
        // 1/11.
        let (share, n) = (f64::from(repeated) / f64::from(steps), f64::from(steps));
        let expected = 1.0 / 11.0;
        // Six standard errors; the dependence between neighbours makes the true error smaller.
        assert!((share - expected).abs() < 6.0 * (expected * (1.0 - expected) / n).sqrt(), "{share} of {n}");
    }

    #[test]
    fn the_side_of_the_first_ball_depends_on_the_seed() {
        let game = Breakout::new(StickyActions::Off);
        let left = (0..1000).filter(|&seed| game.start_from(seed).ball.column == 0).count();
        // Six standard deviations of a binomial count.
        assert!(left.abs_diff(500) < 95, "{left} of 1000");
    }
}
