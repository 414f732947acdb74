//! Environments outside this program, such as Gymnasium's: everything that can be computed without running them.
//!
//! Observations and rewards come from elsewhere and are stored. A [`Position`] is therefore the known part of a
//! state: the number of earlier steps and the observation, if recorded. The rules in [`Recorded`] are the numbers of
//! actions and steps. Start with [`Recorded`].

use std::sync::Arc;

use game::{Action, Dynamics, Error, Game, ObservationRange, ObservationShape, Outcome, Players, Scoring, Spec};

use crate::entry::{Entry, Variants};
use crate::environment::{Constants, every_action_is_legal, hash};

/// Prefix of Gymnasium environment names: `gym:LunarLander-v3`.
pub const PREFIX: &str = "gym:";

/// The registry entry of all environments outside this program.
pub const ENTRY: Entry = Entry::new("gym:NAME", Variants::One, include_str!("../presets/gymnasium.toml"));

/// Implements the known part of an environment outside this program.
///
/// Every action is legal, rewards are 0, and an episode is over after [`Spec::max_plies`] steps: everything else is
/// recorded where the environment runs. These rules cannot be searched, since the results of actions are unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    constants: Arc<Constants>,
}

/// The known part of an environment state.
#[derive(Debug, Clone, PartialEq)]
pub struct Position {
    /// Number of earlier steps.
    steps: usize,
    /// The observation `[C, H, W]`; `None` if it was not recorded.
    observation: Option<Arc<[f32]>>,
}

impl Position {
    /// Returns a state within an episode, with this observation `[C, H, W]`.
    #[must_use]
    pub fn observed(observation: Arc<[f32]>) -> Self {
        Self { steps: 0, observation: Some(observation) }
    }
}

impl Recorded {
    /// Creates the environment with the constants `spec`; `None` unless these describe an environment with recorded
    /// observations: for one player, scored by rewards, with at least one action and step and a stack that divides
    /// the planes.
    #[must_use]
    pub fn new(spec: Spec) -> Option<Self> {
        let ObservationShape { planes, .. } = spec.observation;
        let stack = spec.recording?.stack;
        let is_environment = spec.players == Players::One
            && spec.scoring == Scoring::Rewards
            && spec.dynamics == Dynamics::Stochastic
            && (1..=usize::from(u16::MAX)).contains(&spec.actions)
            && spec.max_plies > 0
            && spec.observation.len() > 0
            && stack > 0
            && planes.is_multiple_of(stack)
            && spec.name.starts_with(PREFIX);
        is_environment.then(|| Self { constants: Arc::new(Constants::of(spec)) })
    }
}

impl Game for Recorded {
    type Position = Position;

    fn spec(&self) -> &Spec {
        &self.constants.spec
    }

    fn start(&self) -> Position {
        Position { steps: 0, observation: None }
    }

    fn to_move(&self, _: &Position) -> game::Player {
        game::Player::First
    }

    every_action_is_legal!();

    /// Takes a step with unknown reward and observation.
    fn play(&self, position: &mut Position, _: Action) -> f32 {
        *position = Position { steps: position.steps + 1, observation: None };
        0.0
    }

    fn outcome(&self, position: &Position) -> Option<Outcome> {
        (position.steps >= self.spec().max_plies).then_some(Outcome::Truncated)
    }

    /// Writes the recorded observation; zeros if there is none.
    fn observe(&self, position: &Position, planes: &mut [f32]) {
        match &position.observation {
            Some(observation) if observation.len() == planes.len() => planes.copy_from_slice(observation),
            _ => planes.fill(0.0),
        }
    }

    fn hash(&self, position: &Position) -> u64 {
        let observation = position.observation.iter().flat_map(|values| values.iter());
        hash([position.steps as u64].into_iter().chain(observation.map(|value| u64::from(value.to_bits()))))
    }

    fn symmetries(&self) -> &[game::Symmetry] {
        &self.constants.symmetries
    }

    fn image(&self, position: &Position, _: usize) -> Position {
        position.clone()
    }

    fn action_name(&self, _: &Position, action: Action) -> String {
        action.0.to_string()
    }

    fn parse_action(&self, _: &Position, text: &str) -> Result<Action, Error> {
        let expected = format!("a number below {}", self.spec().actions);
        text.trim().parse().map(Action).map_err(|_| Error::Notation { text: text.into(), expected })
    }

    fn render(&self, position: &Position) -> String {
        format!("{} after {} steps", self.spec().name, position.steps)
    }
}

/// The constants of an environment, as known to a process that does not run it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// Name: `gym:LunarLander-v3`.
    pub name: String,
    /// A, the number of actions.
    pub actions: usize,
    /// Shape of one frame, `[C, H, W]`.
    pub frame: ObservationShape,
    /// Number of frames in an observation.
    pub stack: usize,
    /// Range of the observed values.
    pub range: ObservationRange,
    /// Maximum number of steps per episode.
    pub steps_max: usize,
}

impl Described {
    /// Returns the environment; `None` in the cases of [`Recorded::new`], and if an observation has too many values
    /// to count.
    #[must_use]
    pub fn environment(self) -> Option<Recorded> {
        let Self { name, actions, frame, stack, range, steps_max } = self;
        let planes = frame.planes.checked_mul(stack)?;
        planes.checked_mul(frame.height)?.checked_mul(frame.width)?;
        Recorded::new(Spec {
            name,
            players: Players::One,
            actions,
            observation: ObservationShape { planes, ..frame },
            observation_range: range,
            scoring: Scoring::Rewards,
            dynamics: Dynamics::Stochastic,
            recording: Some(game::Recording { stack }),
            max_plies: steps_max,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described() -> Described {
        let frame = ObservationShape { planes: 1, height: 2, width: 1 };
        let (name, range) = ("gym:Any-v0".to_owned(), ObservationRange::Unit);
        Described { name, actions: 3, frame, stack: 2, range, steps_max: 4 }
    }

    #[test]
    fn a_position_shows_the_observation_that_was_recorded_until_a_step_is_taken() {
        let game = described().environment().unwrap();
        let mut position = Position::observed([0.5, 0.25, 1.0, 0.0].into());
        let observation = |position: &Position| {
            let mut planes = [7.0; 4];
            game.observe(position, &mut planes);
            planes
        };
        assert_eq!(observation(&position), [0.5, 0.25, 1.0, 0.0]);
        let before = game.hash(&position);
        assert_eq!(game.try_play(&mut position, Action(2)), Ok(0.0));
        assert_eq!(observation(&position), [0.0; 4]);
        assert_ne!(game.hash(&position), before);
        assert!(game.try_play(&mut position, Action(3)).is_err());
    }

    #[test]
    fn an_episode_is_over_after_the_limit_of_steps() {
        let game = described().environment().unwrap();
        let end = game.replay(&[Action(0), Action(1), Action(2), Action(0)]).unwrap();
        assert_eq!(game.outcome(&end), Some(Outcome::Truncated));
        assert!(game.replay(&[Action(0); 5]).is_err());
    }

    #[test]
    fn constants_that_no_environment_has_are_refused() {
        let shape = |planes, height, width| ObservationShape { planes, height, width };
        for described in [
            Described { actions: 0, ..described() },
            Described { actions: 65_536, ..described() },
            Described { steps_max: 0, ..described() },
            Described { stack: 0, ..described() },
            Described { frame: shape(0, 1, 1), ..described() },
            Described { frame: shape(usize::MAX, 1, 1), ..described() },
            Described { name: "catch".into(), ..described() },
        ] {
            assert_eq!(described.clone().environment(), None, "{described:?}");
        }
    }
}
