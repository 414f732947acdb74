//! The trait [`Game`]: rules, positions, actions, outcomes, observations and symmetries of a board game or an
//! environment.
//!
//! A game has a [`Spec`] with its [`Players`] and [`ObservationShape`], is played in [`Action`]s by a [`Player`], ends
//! with an [`Outcome`], and has at least one [`Symmetry`]; [`Error`] rejects an action from outside. [`mix`] is for
//! hashes. [`Environments`] are many episodes that advance together, by rules or outside this process. The crate is
//! deliberately independent of search, tensors, evaluators and processes, and reads no clock and no entropy. Start with
//! [`Game`]; every implementation passes the conformance suite in `crates/games/tests`.

mod action;
mod chance;
mod environments;
mod mix;
mod outcome;
mod rules_environments;
mod spec;
mod symmetry;

pub use action::Action;
pub use chance::Chance;
pub use environments::{Environments, EnvironmentsError, Frame, Losses, Play, Start, Started, Taken};
pub use mix::mix;
pub use outcome::{Outcome, Player};
pub use rules_environments::{RulesEnvironments, stored_seed};
pub use spec::{Dynamics, ObservationRange, ObservationShape, Players, Recording, Scoring, Spec};
pub use symmetry::Symmetry;

/// The largest [heuristic value](Game::heuristic_value).
pub const HEURISTIC_MAX: i32 = 100_000;

/// Implements the rules of one game.
///
/// A value of the implementing type holds the options of a run, such as the board size; [`Game::Position`] holds one
/// position with the history that its observation needs. All methods are deterministic.
///
/// The contract, which the conformance suite checks:
/// - two positions with equal [`hash`](Game::hash) have equal observations, legal actions and player to move;
/// - an episode ends within [`Spec::max_plies`] actions;
/// - each [`Symmetry`] commutes with [`play`](Game::play), and [`image`](Game::image) applies it to a position;
/// - where the rules [know](Game::knows_chances) the distribution of chance, [`play`](Game::play) follows it.
///
/// Actions that name cells of a board have the order of [`Spec::actions`].
pub trait Game: Clone + std::fmt::Debug + Send + Sync + 'static {
    /// One position, including the history its observation shows.
    type Position: Clone + PartialEq + std::fmt::Debug + Send + Sync + 'static;

    /// Returns the constants of this game: name, players, number of actions, observation shape.
    fn spec(&self) -> &Spec;

    /// Returns the position before the first action; that of the episode with seed 0 where it depends on the seed.
    fn start(&self) -> Self::Position;

    /// Returns the position before the first action of the episode with this seed. All randomness of the episode
    /// follows from the seed: the position holds the state of its generator of random numbers, so that
    /// [`play`](Game::play) is deterministic. A game without randomness ignores the seed.
    fn start_from(&self, seed: u64) -> Self::Position {
        let _ = seed;
        self.start()
    }

    /// Returns the player who chooses the next action. Unspecified once the game is over.
    fn to_move(&self, position: &Self::Position) -> Player;

    /// Replaces `actions` with the legal actions in ascending order; empties it once the game is over.
    fn legal_actions(&self, position: &Self::Position, actions: &mut Vec<Action>);

    /// Returns true if `action` may be played in this position; false for every action once the game is over.
    fn is_legal(&self, position: &Self::Position, action: Action) -> bool;

    /// Plays a legal action and returns the reward of the player who chose it (0 in games that are scored by their
    /// outcome alone).
    ///
    /// Playing an illegal action is a bug of the caller; use [`Game::try_play`] for actions from outside.
    fn play(&self, position: &mut Self::Position, action: Action) -> f32;

    /// Returns true if the rules know the distribution of chance: a search may then see every result that an action may
    /// have, and not the one that it will have.
    fn knows_chances(&self) -> bool {
        false
    }

    /// Replaces `chances` with the outcomes of chance that a legal action may have, in ascending order; empties it
    /// where the action has one result, and in games that do not [know](Game::knows_chances) them.
    ///
    /// Their probabilities sum to one. [`play`](Game::play) has each result with its probability, over all states of
    /// the generator that the position may hold.
    fn chances(&self, position: &Self::Position, action: Action, chances: &mut Vec<Chance>) {
        let _ = (position, action);
        chances.clear();
    }

    /// Plays a legal action as if chance had this outcome, which is one of its [`chances`](Game::chances), and returns
    /// the reward. The generator draws as in [`play`](Game::play), so that the outcome which `play` has leads to the
    /// same position.
    ///
    /// # Panics
    /// In games that do not [know](Game::knows_chances) the outcomes, which is a bug of the caller.
    fn play_chance(&self, position: &mut Self::Position, action: Action, outcome: u16) -> f32 {
        let _ = (position, action, outcome);
        unreachable!("{} has no outcomes of chance", self.spec().name)
    }

    /// Returns the outcome of the game, or `None` while it is not over.
    fn outcome(&self, position: &Self::Position) -> Option<Outcome>;

    /// Writes the observation `[C, H, W]` of the player to move into `planes`, overwriting all of it.
    ///
    /// Values lie in the range of [`Spec::observation_range`]. `planes.len()` is [`ObservationShape::len`].
    fn observe(&self, position: &Self::Position, planes: &mut [f32]);

    /// Returns a hash of everything that affects the observation, the legal actions and the future of the position.
    fn hash(&self, position: &Self::Position) -> u64;

    /// Returns the symmetries of the game; the first is the identity.
    fn symmetries(&self) -> &[Symmetry];

    /// Returns the image of a position under the symmetry of this index: the position after the images of its actions.
    fn image(&self, position: &Self::Position, symmetry: usize) -> Self::Position;

    /// Returns a heuristic value of a position that is not over, for the player to move: a fast estimate of which
    /// player will win, for a search without a network. It is on a scale of the game's own, 0 for an even position, and
    /// at most [`HEURISTIC_MAX`] in absolute value; 0 everywhere in games without one. Images have the value of their
    /// position.
    fn heuristic_value(&self, position: &Self::Position) -> i32 {
        let _ = position;
        0
    }

    /// Returns the action in the notation of players.
    fn action_name(&self, position: &Self::Position, action: Action) -> String;

    /// Parses an action in the notation of players. Does not check that it is legal.
    ///
    /// # Errors
    /// [`Error::Notation`] names the text and what was expected.
    fn parse_action(&self, position: &Self::Position, text: &str) -> Result<Action, Error>;

    /// Returns the board as a few lines of text for a terminal, without a trailing newline.
    fn render(&self, position: &Self::Position) -> String;

    /// Plays an action from outside after checking it.
    ///
    /// # Errors
    /// [`Error::Illegal`] if the action is illegal in this position; the position is then unchanged.
    fn try_play(&self, position: &mut Self::Position, action: Action) -> Result<f32, Error> {
        if !self.is_legal(position, action) {
            return Err(Error::Illegal { game: self.spec().name.clone(), action });
        }
        Ok(self.play(position, action))
    }

    /// Returns the position after `actions` from the start.
    ///
    /// # Errors
    /// [`Error::IllegalAt`] names the first illegal ply.
    fn replay(&self, actions: &[Action]) -> Result<Self::Position, Error> {
        self.replay_from(0, actions)
    }

    /// Returns the position after `actions` from the start of the episode with this seed.
    ///
    /// # Errors
    /// [`Error::IllegalAt`] names the first illegal ply.
    fn replay_from(&self, seed: u64, actions: &[Action]) -> Result<Self::Position, Error> {
        let mut position = self.start_from(seed);
        for (ply, &action) in actions.iter().enumerate() {
            if !self.is_legal(&position, action) {
                return Err(Error::IllegalAt { game: self.spec().name.clone(), ply, action });
            }
            self.play(&mut position, action);
        }
        Ok(position)
    }
}

/// The error for a rejected action or text from outside.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The action is illegal in this position.
    #[error("{action} is not legal in this position of {game}")]
    Illegal {
        /// The name of the game.
        game: String,
        /// The rejected action.
        action: Action,
    },
    /// A list of actions contains an illegal one.
    #[error("{action} is not legal at ply {ply} of {game}")]
    IllegalAt {
        /// The name of the game.
        game: String,
        /// The number of actions before the illegal one.
        ply: usize,
        /// The illegal action.
        action: Action,
    },
    /// The text is not an action.
    #[error("`{text}` is not a move: expected {expected}")]
    Notation {
        /// The text that was read.
        text: String,
        /// A description of the accepted notation.
        expected: String,
    },
}
