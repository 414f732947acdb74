//! Shared parts of one-player environments: constants, common methods of [`game::Game`], hashes and action names.

use game::{
    Action, Dynamics, Error, ObservationRange, ObservationShape, Outcome, Players, Scoring, Spec, Symmetry, mix,
};

use crate::grid::narrow;

/// The constants of an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Constants {
    pub(crate) spec: Spec,
    /// The identity alone: the seed of an episode has no image.
    pub(crate) symmetries: [Symmetry; 1],
}

impl Constants {
    /// Returns the constants of an environment with deterministic dynamics and an observation in `[0, 1]`.
    pub(crate) fn new(name: String, actions: usize, observation: ObservationShape, max_plies: usize) -> Self {
        let spec = Spec {
            name,
            players: Players::One,
            actions,
            observation,
            observation_range: ObservationRange::Unit,
            scoring: Scoring::Rewards,
            dynamics: Dynamics::Deterministic,
            recording: None,
            max_plies,
        };
        Self::of(spec)
    }

    /// Returns the constants for `spec`, with the identity as the only symmetry.
    pub(crate) fn of(spec: Spec) -> Self {
        let symmetries = [Symmetry::identity(spec.observation, spec.actions)];
        Self { spec, symmetries }
    }

    /// Returns the constants with observations of any finite values.
    pub(crate) fn with_finite_observation(mut self) -> Self {
        self.spec.observation_range = ObservationRange::Finite;
        self
    }

    /// Returns the constants with stochastic dynamics.
    pub(crate) fn with_chance(mut self) -> Self {
        self.spec.dynamics = Dynamics::Stochastic;
        self
    }

    /// Returns `Truncated` after [`Spec::max_plies`] steps.
    pub(crate) fn truncation(&self, steps: u16) -> Option<Outcome> {
        (usize::from(steps) >= self.spec.max_plies).then_some(Outcome::Truncated)
    }
}

/// Returns the shape of a vector of this length.
pub(crate) const fn vector(length: usize) -> ObservationShape {
    ObservationShape { planes: length, height: 1, width: 1 }
}

/// Implements the methods of [`game::Game`] that are equal for all environments with a field `constants: Constants`
/// and positions that are `Copy`.
macro_rules! one_player {
    () => {
        fn spec(&self) -> &game::Spec {
            &self.constants.spec
        }

        fn start(&self) -> Self::Position {
            self.start_from(0)
        }

        fn to_move(&self, _: &Self::Position) -> game::Player {
            game::Player::First
        }

        fn symmetries(&self) -> &[game::Symmetry] {
            &self.constants.symmetries
        }

        fn image(&self, position: &Self::Position, _: usize) -> Self::Position {
            *position
        }
    };
}

/// Implements the methods of [`game::Game`] for an environment with all actions legal until the end.
macro_rules! every_action_is_legal {
    () => {
        fn legal_actions(&self, position: &Self::Position, actions: &mut Vec<game::Action>) {
            let count = if self.outcome(position).is_some() { 0 } else { self.constants.spec.actions };
            $crate::environment::all_actions(count, actions);
        }

        fn is_legal(&self, position: &Self::Position, action: game::Action) -> bool {
            action.index() < self.constants.spec.actions && self.outcome(position).is_none()
        }
    };
}

/// Implements the methods of [`game::Game`] for actions with constant names: action `i` has the name `$names[i]`.
macro_rules! named_actions {
    ($names:ident) => {
        fn action_name(&self, _: &Self::Position, action: game::Action) -> String {
            $names[action.index()].into()
        }

        fn parse_action(&self, _: &Self::Position, text: &str) -> Result<game::Action, game::Error> {
            $crate::environment::parse_action(&$names, text)
        }
    };
}

pub(crate) use {every_action_is_legal, named_actions, one_player};

/// Hashes a position given as words.
pub(crate) fn hash(words: impl IntoIterator<Item = u64>) -> u64 {
    words.into_iter().fold(0, |hash, word| mix(hash ^ word))
}

/// Replaces `actions` with the actions below `count`.
pub(crate) fn all_actions(count: usize, actions: &mut Vec<Action>) {
    actions.clear();
    actions.extend((0..count).map(|action| Action(narrow(action))));
}

/// Parses an action name: action `i` has the name `names[i]`.
pub(crate) fn parse_action(names: &[&str], text: &str) -> Result<Action, Error> {
    let index = names.iter().position(|&name| name == text.trim());
    let error = || Error::Notation { text: text.into(), expected: names.join(" or ") };
    index.map(|index| Action(narrow(index))).ok_or_else(error)
}
