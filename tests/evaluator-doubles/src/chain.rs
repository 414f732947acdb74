//! A tiny environment for tests: three steps to the end of a chain.

use game::{
    Action, Dynamics, Error, Game, ObservationRange, ObservationShape, Outcome, Player, Players, Scoring, Spec,
    Symmetry,
};

/// A chain of three steps. Each step forward costs one half, except that the last pays [`Chain::prize`]; a step back
/// pays nothing. The episode is cut short after ten steps.
#[derive(Debug, Clone)]
pub struct Chain {
    spec: Spec,
    identity: [Symmetry; 1],
    last_pays_nan: bool,
}

/// The action that moves forward; action 1 moves back.
pub const FORWARD: Action = Action(0);

/// A place on the chain, with the number of steps so far.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    seed: u64,
    at: u8,
    steps: u8,
}

impl Default for Chain {
    fn default() -> Self {
        let spec = Spec {
            name: "chain".to_owned(),
            players: Players::One,
            actions: 2,
            observation: ObservationShape { planes: 3, height: 1, width: 1 },
            observation_range: ObservationRange::Finite,
            scoring: Scoring::Rewards,
            dynamics: Dynamics::Deterministic,
            recording: None,
            max_plies: 10,
        };
        let identity = [Symmetry::identity(spec.observation, spec.actions)];
        Self { spec, identity, last_pays_nan: false }
    }
}

impl Chain {
    /// Returns the reward of the last step, from 1 to 7.
    #[must_use]
    pub fn prize(seed: u64) -> f32 {
        (1 + seed % 7) as f32
    }

    /// Returns an environment in which the last reward is not a number.
    #[must_use]
    pub fn broken() -> Self {
        Self { last_pays_nan: true, ..Self::default() }
    }
}

impl Game for Chain {
    type Position = Place;

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn start(&self) -> Place {
        self.start_from(0)
    }

    fn start_from(&self, seed: u64) -> Place {
        Place { seed, at: 0, steps: 0 }
    }

    fn to_move(&self, _: &Place) -> Player {
        Player::First
    }

    fn legal_actions(&self, place: &Place, actions: &mut Vec<Action>) {
        actions.clear();
        if self.outcome(place).is_none() {
            actions.extend([FORWARD, Action(1)]);
        }
    }

    fn is_legal(&self, place: &Place, action: Action) -> bool {
        self.outcome(place).is_none() && action.index() < 2
    }

    fn play(&self, place: &mut Place, action: Action) -> f32 {
        place.steps += 1;
        if action != FORWARD {
            place.at = place.at.saturating_sub(1);
            return 0.0;
        }
        place.at += 1;
        match place.at {
            3 if self.last_pays_nan => f32::NAN,
            3 => Self::prize(place.seed),
            _ => -0.5,
        }
    }

    fn outcome(&self, place: &Place) -> Option<Outcome> {
        match place {
            Place { at: 3, .. } => Some(Outcome::Finished),
            Place { steps: 10.., .. } => Some(Outcome::Truncated),
            _ => None,
        }
    }

    fn observe(&self, place: &Place, planes: &mut [f32]) {
        planes.copy_from_slice(&[f32::from(place.at), f32::from(place.steps), Self::prize(place.seed)]);
    }

    fn hash(&self, place: &Place) -> u64 {
        game::mix(game::mix(place.seed) ^ u64::from(place.at) << 8 ^ u64::from(place.steps))
    }

    fn symmetries(&self) -> &[Symmetry] {
        &self.identity
    }

    fn image(&self, place: &Place, _: usize) -> Place {
        place.clone()
    }

    fn action_name(&self, _: &Place, action: Action) -> String {
        (if action == FORWARD { "forward" } else { "back" }).to_owned()
    }

    fn parse_action(&self, _: &Place, text: &str) -> Result<Action, Error> {
        match text {
            "forward" => Ok(FORWARD),
            "back" => Ok(Action(1)),
            _ => Err(Error::Notation { text: text.to_owned(), expected: "forward or back".to_owned() }),
        }
    }

    fn render(&self, place: &Place) -> String {
        format!("place {} of 3", place.at)
    }
}
