//! CartPole: a cart on a track balances a pole.
//!
//! The dynamics are from Barto, Sutton and Anderson 1983, as in Gymnasium (`classic_control/cartpole.py`,
//! environments `CartPole-v0` and `CartPole-v1`); the system tests compare every step. Start with [`CartPole`].

use std::f64::consts::PI;

use game::{Action, Game, Outcome};

use crate::entry::{Entry, Variants};
use crate::environment::{Constants, every_action_is_legal, hash, named_actions, one_player, vector};
use crate::generator::Generator;

/// The registry entry of CartPole.
pub const ENTRY: Entry =
    Entry::new("cartpole", Variants::Named(&["cartpole-v0", "cartpole-v1"]), include_str!("../presets/cartpole.toml"));

/// Acceleration of gravity, in m/s².
const GRAVITY: f64 = 9.8;
/// Mass of the cart, in kg.
const CART_MASS: f64 = 1.0;
/// Mass of the pole, in kg.
const POLE_MASS: f64 = 0.1;
const TOTAL_MASS: f64 = POLE_MASS + CART_MASS;
/// Half the length of the pole, in m.
const HALF_LENGTH: f64 = 0.5;
const POLE_MASS_LENGTH: f64 = POLE_MASS * HALF_LENGTH;
/// Force of an action, in N.
const FORCE: f64 = 10.0;
/// Duration of a step, in s.
const STEP_SECONDS: f64 = 0.02;
/// The episode ends beyond this distance of the cart from the middle, in m.
const POSITION_MAX: f64 = 2.4;
/// The episode ends beyond this angle of the pole from the vertical, in radians.
const ANGLE_MAX: f64 = 12.0 * 2.0 * PI / 360.0;
/// Bound on the absolute value of each state variable at the start.
const START_MAX: f64 = 0.05;

const ACTIONS: [&str; 2] = ["left", "right"];

/// The versions of CartPole, with different episode lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// `cartpole-v0`: truncated after 200 steps.
    V0,
    /// `cartpole-v1`: truncated after 500 steps.
    V1,
}

impl Version {
    /// Returns the version with this number.
    #[must_use]
    pub fn new(number: u8) -> Option<Self> {
        [Self::V0, Self::V1].get(usize::from(number)).copied()
    }

    /// Returns the number of the version.
    #[must_use]
    pub const fn get(self) -> usize {
        self as usize
    }

    /// Returns the number of steps after which an episode is truncated.
    const fn steps_max(self) -> usize {
        match self {
            Self::V0 => 200,
            Self::V1 => 500,
        }
    }
}

/// Implements CartPole.
///
/// The actions push the cart to the left or to the right. Every step has reward 1, including the last. The episode
/// ends when the cart leaves the track or the pole falls, and is truncated at the limit of the [`Version`].
/// Observation `[4, 1, 1]`: the [`State`] variables, in field order and units.
#[derive(Debug, Clone)]
pub struct CartPole {
    constants: Constants,
}

/// The mechanical state of cart and pole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct State {
    /// Distance of the cart from the middle, positive to the right, in m.
    pub position: f64,
    /// Velocity of the cart, in m/s.
    pub velocity: f64,
    /// Angle of the pole from the vertical, clockwise, in radians.
    pub angle: f64,
    /// Angular velocity of the pole, in radians/s.
    pub angular_velocity: f64,
}

/// Holds a position of CartPole: the state and the number of steps so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Position {
    state: State,
    steps: u16,
}

impl CartPole {
    /// Returns the environment in this version.
    #[must_use]
    pub fn new(version: Version) -> Self {
        let name = ENTRY.name_of(version.get());
        let constants = Constants::new(name, ACTIONS.len(), vector(4), version.steps_max());
        Self { constants: constants.with_finite_observation() }
    }
}

impl State {
    /// Returns the state after one Euler step under a force on the cart, in N.
    fn after(self, force: f64) -> Self {
        // The order of operations equals Gymnasium's, so that results differ at most in the last bits.
        let (sin, cos) = (libm::sin(self.angle), libm::cos(self.angle));
        let temp = (force + POLE_MASS_LENGTH * (self.angular_velocity * self.angular_velocity) * sin) / TOTAL_MASS;
        let angular_acceleration =
            (GRAVITY * sin - cos * temp) / (HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * (cos * cos) / TOTAL_MASS));
        let acceleration = temp - POLE_MASS_LENGTH * angular_acceleration * cos / TOTAL_MASS;
        Self {
            position: self.position + STEP_SECONDS * self.velocity,
            velocity: self.velocity + STEP_SECONDS * acceleration,
            angle: self.angle + STEP_SECONDS * self.angular_velocity,
            angular_velocity: self.angular_velocity + STEP_SECONDS * angular_acceleration,
        }
    }

    /// Returns true if the cart is off the track or the pole has fallen.
    fn is_over(self) -> bool {
        self.position.abs() > POSITION_MAX || self.angle.abs() > ANGLE_MAX
    }

    /// Returns the four state variables in field order.
    #[must_use]
    pub const fn numbers(self) -> [f64; 4] {
        [self.position, self.velocity, self.angle, self.angular_velocity]
    }
}

impl Position {
    /// Returns the mechanical state.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }
}

impl Game for CartPole {
    type Position = Position;

    one_player!();
    every_action_is_legal!();
    named_actions!(ACTIONS);

    fn start_from(&self, seed: u64) -> Position {
        let mut generator = Generator::new(seed);
        let [position, velocity, angle, angular_velocity] = std::array::from_fn(|_| generator.within(START_MAX));
        Position { state: State { position, velocity, angle, angular_velocity }, steps: 0 }
    }

    fn play(&self, position: &mut Position, action: Action) -> f32 {
        debug_assert!(self.is_legal(position, action), "{action} is not legal");
        position.state = position.state.after(if action.0 == 1 { FORCE } else { -FORCE });
        position.steps += 1;
        1.0
    }

    fn outcome(&self, position: &Position) -> Option<Outcome> {
        let is_over = position.state.is_over().then_some(Outcome::Finished);
        is_over.or_else(|| self.constants.truncation(position.steps))
    }

    fn observe(&self, position: &Position, planes: &mut [f32]) {
        for (value, number) in planes.iter_mut().zip(position.state.numbers()) {
            *value = number as f32;
        }
    }

    fn hash(&self, position: &Position) -> u64 {
        let numbers = position.state.numbers().map(f64::to_bits);
        hash(numbers.into_iter().chain([u64::from(position.steps)]))
    }

    fn render(&self, position: &Position) -> String {
        let State { position: cart, velocity, angle, angular_velocity } = position.state;
        format!(
            "step {}: cart at {cart:+.3} m, {velocity:+.3} m/s; pole at {:+.2}°, {:+.2}°/s",
            position.steps,
            angle.to_degrees(),
            angular_velocity.to_degrees(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays an episode by a policy; returns the last position and the sum of rewards.
    fn play(game: &CartPole, seed: u64, policy: impl Fn(State) -> bool) -> (Position, f32) {
        let mut position = game.start_from(seed);
        let mut sum = 0.0;
        while game.outcome(&position).is_none() {
            let action = Action(u16::from(policy(position.state)));
            sum += game.play(&mut position, action);
        }
        (position, sum)
    }

    /// Balances the pole and returns the cart to the middle, by linear feedback.
    fn balance(state: State) -> bool {
        state.position + 1.5 * state.velocity + 20.0 * state.angle + 3.0 * state.angular_velocity > 0.0
    }

    #[test]
    fn a_balanced_episode_is_truncated_at_the_limit_of_its_version() {
        for (version, steps) in [(Version::V0, 200), (Version::V1, 500)] {
            let game = CartPole::new(version);
            for seed in 0..20 {
                let (position, sum) = play(&game, seed, balance);
                assert_eq!((game.outcome(&position), sum), (Some(Outcome::Truncated), steps as f32), "seed {seed}");
            }
        }
    }

    #[test]
    fn a_cart_that_is_pushed_to_one_side_lets_the_pole_fall_to_the_other_with_a_reward_for_the_last_step() {
        let game = CartPole::new(Version::V1);
        let (position, sum) = play(&game, 3, |_| true);
        assert_eq!(game.outcome(&position), Some(Outcome::Finished));
        assert!(position.state.angle < -ANGLE_MAX, "{position:?}");
        assert_eq!(sum, f32::from(position.steps));
    }

    #[test]
    fn a_pole_that_falls_in_the_last_step_ends_the_episode_instead_of_truncating_it() {
        let game = CartPole::new(Version::V0);
        let fallen = State { position: 0.0, velocity: 0.0, angle: 0.3, angular_velocity: 0.0 };
        assert_eq!(game.outcome(&Position { state: fallen, steps: 200 }), Some(Outcome::Finished));
    }

    #[test]
    fn starts_are_uniform_in_the_published_range() {
        let game = CartPole::new(Version::V1);
        let starts: Vec<[f64; 4]> = (0..4000).map(|seed| game.start_from(seed).state.numbers()).collect();
        for index in 0..4 {
            let numbers = starts.iter().map(|start| start[index]);
            assert!(numbers.clone().all(|number| number.abs() <= START_MAX));
            // Six standard errors: the variance of a number is START_MAX² / 3.
            let mean = numbers.clone().sum::<f64>() / 4000.0;
            assert!(mean.abs() < 6.0 * START_MAX / (3.0_f64 * 4000.0).sqrt(), "number {index}: {mean}");
            let extreme = numbers.fold(0.0, |extreme: f64, number| extreme.max(number.abs()));
            assert!(extreme > 0.99 * START_MAX, "number {index}: {extreme}");
        }
    }
}
