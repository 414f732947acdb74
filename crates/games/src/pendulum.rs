//! Pendulum: a motor swings up a pendulum that it cannot lift at once, and keeps it upright.
//!
//! The dynamics are from Gymnasium (`classic_control/pendulum.py`, environment `Pendulum-v1`); the system tests
//! compare every step. The torque is one of a few values. Start with [`Pendulum`].

use std::f64::consts::{PI, TAU};

use game::{Action, Error, Game, Outcome};

use crate::entry::{Entry, Variants};
use crate::environment::{Constants, every_action_is_legal, hash, one_player, vector};
use crate::generator::Generator;
use crate::grid::narrow;
use crate::side::Side;

/// The registry entry of Pendulum; the size is the number of torques.
pub const ENTRY: Entry =
    Entry::new("pendulum", Variants::Sizes(Torques::sizes(9)), include_str!("../presets/pendulum.toml"));

/// Acceleration of gravity, in m/s².
const GRAVITY: f64 = 10.0;
/// Mass of the pendulum, in kg.
const MASS: f64 = 1.0;
/// Length of the pendulum, in m.
const LENGTH: f64 = 1.0;
/// Duration of a step, in s.
const STEP_SECONDS: f64 = 0.05;
/// Maximum angular velocity, in radians/s.
const VELOCITY_MAX: f64 = 8.0;
/// Maximum torque, in N·m.
const TORQUE_MAX: f64 = 2.0;
/// Number of steps after which an episode is truncated.
const STEPS_MAX: usize = 200;
/// Bound on the absolute angular velocity at the start, in radians/s.
const START_VELOCITY_MAX: f64 = 1.0;

/// Number of torques, 5 to 11.
pub type Torques = Side<5, 11>;

/// Implements Pendulum.
///
/// Action `i` of n is the torque −2 + 4 i / (n − 1) N·m. The reward of a step is −(θ² + 0.1 ω² + 0.001 u²), with the
/// angle θ from upright in `[−π, π)` and the angular velocity ω before the step, and the torque u. An episode ends
/// only by truncation, after 200 steps. Observation `[3, 1, 1]`: cos θ, sin θ, ω.
#[derive(Debug, Clone)]
pub struct Pendulum {
    constants: Constants,
}

/// Holds a position of Pendulum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Position {
    /// θ, in radians; not reduced to one turn.
    angle: f64,
    /// ω, in radians/s.
    velocity: f64,
    steps: u16,
}

impl Pendulum {
    /// Returns the environment with this number of torques.
    #[must_use]
    pub fn new(torques: Torques) -> Self {
        let name = ENTRY.name_of(torques.get());
        Self { constants: Constants::new(name, torques.get(), vector(3), STEPS_MAX).with_finite_observation() }
    }

    /// Returns the torque of an action, in N·m.
    #[must_use]
    pub fn torque(&self, action: Action) -> f64 {
        let intervals = narrow(self.constants.spec.actions - 1);
        -TORQUE_MAX + 2.0 * TORQUE_MAX * f64::from(action.0) / f64::from(intervals)
    }
}

impl Position {
    /// Returns the angle from upright in radians, not reduced to one turn, and the angular velocity in radians/s.
    #[must_use]
    pub const fn numbers(&self) -> [f64; 2] {
        [self.angle, self.velocity]
    }
}

impl Game for Pendulum {
    type Position = Position;

    one_player!();
    every_action_is_legal!();

    fn start_from(&self, seed: u64) -> Position {
        let mut generator = Generator::new(seed);
        Position { angle: generator.within(PI), velocity: generator.within(START_VELOCITY_MAX), steps: 0 }
    }

    fn play(&self, position: &mut Position, action: Action) -> f32 {
        debug_assert!(self.is_legal(position, action), "{action} is not legal");
        let Position { angle, velocity, .. } = *position;
        let torque = self.torque(action);
        let from_upright = (angle + PI).rem_euclid(TAU) - PI;
        let cost = from_upright * from_upright + 0.1 * (velocity * velocity) + 0.001 * (torque * torque);
        let acceleration = 3.0 * GRAVITY / (2.0 * LENGTH) * libm::sin(angle) + 3.0 / (MASS * LENGTH * LENGTH) * torque;
        position.velocity = (velocity + acceleration * STEP_SECONDS).clamp(-VELOCITY_MAX, VELOCITY_MAX);
        position.angle += position.velocity * STEP_SECONDS;
        position.steps += 1;
        -cost as f32
    }

    fn outcome(&self, position: &Position) -> Option<Outcome> {
        self.constants.truncation(position.steps)
    }

    fn observe(&self, position: &Position, planes: &mut [f32]) {
        let numbers = [libm::cos(position.angle), libm::sin(position.angle), position.velocity];
        planes.copy_from_slice(&numbers.map(|number| number as f32));
    }

    fn hash(&self, position: &Position) -> u64 {
        hash([position.angle.to_bits(), position.velocity.to_bits(), position.steps.into()])
    }

    /// Returns the torque in N·m: `-2.00`, `+0.40`.
    fn action_name(&self, _: &Position, action: Action) -> String {
        format!("{:+.2}", self.torque(action))
    }

    fn parse_action(&self, position: &Position, text: &str) -> Result<Action, Error> {
        let mut actions = (0..self.constants.spec.actions).map(|action| Action(narrow(action)));
        let error = || Error::Notation { text: text.into(), expected: "a torque, such as -2.00".into() };
        actions.find(|&action| self.action_name(position, action) == text.trim()).ok_or_else(error)
    }

    fn render(&self, position: &Position) -> String {
        let Position { angle, velocity, steps } = position;
        let degrees = ((angle + PI).rem_euclid(TAU) - PI).to_degrees();
        format!("step {steps}: {degrees:+.1}° from upright, {velocity:+.2} radians/s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn game(torques: u8) -> Pendulum {
        Pendulum::new(Torques::new(torques).unwrap())
    }

    #[test]
    fn torques_are_evenly_spaced_and_named() {
        let game = game(5);
        let names: Vec<String> = (0..5).map(|action| game.action_name(&game.start(), Action(action))).collect();
        assert_eq!(names, ["-2.00", "-1.00", "+0.00", "+1.00", "+2.00"]);
    }

    #[test]
    fn an_upright_pendulum_without_a_torque_stays_and_a_hanging_one_costs_pi_squared() {
        let game = game(5);
        let mut upright = Position { angle: 0.0, velocity: 0.0, steps: 0 };
        assert!(game.play(&mut upright, Action(2)).abs() < 1e-9);
        assert!(upright.angle.abs() < 1e-12, "{upright:?}");
        let mut hanging = Position { angle: 3.0 * PI, velocity: 0.0, steps: 0 };
        let reward = game.play(&mut hanging, Action(2));
        assert!((f64::from(reward) + PI * PI).abs() < 1e-5, "{reward}");
    }

    #[test]
    fn an_episode_is_truncated_after_200_steps() {
        let game = game(9);
        let mut position = game.start_from(4);
        for _ in 0..200 {
            assert_eq!(game.outcome(&position), None);
            game.play(&mut position, Action(8));
        }
        assert_eq!(game.outcome(&position), Some(Outcome::Truncated));
    }
}
