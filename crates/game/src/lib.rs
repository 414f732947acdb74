//! The trait [`Game`]: rules, positions, actions, outcomes, observations and symmetries of a board game or an
//! environment.
//!
//! A game has a [`Spec`] with [`Players`] and [`ObservationShape`], is played in [`Action`]s by a [`Player`], ends
//! with an [`Outcome`], and has at least one [`Symmetry`]; [`Error`] rejects an action from outside. User interfaces
//! draw a [`Board`], and [`mix`] is for hashes. [`Environments`] are many episodes that advance together, by rules or
//! outside this process. The crate is deliberately independent of search, tensors, evaluators and processes, and reads
//! no clock and no entropy. Start with [`Game`]; every implementation passes the conformance suite in
//! `crates/games/tests`.

mod action;
mod board;
mod chance;
mod environments;
mod mix;
mod outcome;
mod rules_environments;
mod spec;
mod symmetry;

pub use action::Action;
pub use board::{Board, Geometry, Mark, Place};
pub use chance::Chance;
pub use environments::{Environments, EnvironmentsError, Frame, Losses, Play, Start, Started, Taken};
pub use mix::mix;
pub use outcome::{Outcome, Player};
pub use rules_environments::{RulesEnvironments, stored_seed};
pub use spec::{Dynamics, ObservationRange, ObservationShape, Players, Recording, Scoring, Spec};
pub use symmetry::Symmetry;

/// Maximum absolute [heuristic value](Game::heuristic_value).
pub const HEURISTIC_MAX: i32 = 100_000;

/// Implements the rules of one game.
///
/// A value of the implementing type holds the options of a run, such as the board size; [`Game::Position`] holds one
/// position with the history that observations need. All methods are deterministic.
///
/// The contract, which the conformance suite checks:
/// - two positions with equal [`hash`](Game::hash) have equal observations, legal actions and player to move;
/// - an episode ends within [`Spec::max_plies`] actions;
/// - each [`Symmetry`] commutes with [`play`](Game::play), and [`image`](Game::image) applies it to a position;
/// - if the rules [know](Game::knows_chances) the distribution of chance, [`play`](Game::play) follows it.
///
/// Actions that name board cells have the order in [`Spec::actions`].
pub trait Game: Clone + std::fmt::Debug + Send + Sync + 'static {
    /// One position, including the history shown by the observation.
    type Position: Clone + PartialEq + std::fmt::Debug + Send + Sync + 'static;

    /// Returns the constants of this game: name, players, number of actions, observation shape.
    fn spec(&self) -> &Spec;

    /// Returns the position before the first action; for games that depend on the seed, with seed 0.
    fn start(&self) -> Self::Position;

    /// Returns the position before the first action of the episode with this seed. The seed determines all randomness
    /// of the episode: the position holds the state of the random generator, so that [`play`](Game::play) is
    /// deterministic. A game without randomness ignores the seed.
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

    /// Plays a legal action and returns the reward for the player who chose it (0 in games scored by the outcome
    /// alone).
    ///
    /// Playing an illegal action is a bug of the caller; use [`Game::try_play`] for actions from outside.
    fn play(&self, position: &mut Self::Position, action: Action) -> f32;

    /// Returns true if the rules know the distribution of chance: a search may then see all possible results of an
    /// action, instead of the result to come.
    fn knows_chances(&self) -> bool {
        false
    }

    /// Replaces `chances` with the possible chance outcomes of a legal action, in ascending order; empties it if the
    /// action has one result, and in games that do not [know](Game::knows_chances) the outcomes.
    ///
    /// The probabilities sum to one. Over all possible generator states of the position, [`play`](Game::play) has
    /// each result with the listed probability.
    fn chances(&self, position: &Self::Position, action: Action, chances: &mut Vec<Chance>) {
        let _ = (position, action);
        chances.clear();
    }

    /// Plays a legal action with a chosen chance outcome, one of the [`chances`](Game::chances), and returns the
    /// reward. The generator draws as in [`play`](Game::play), so that the outcome of `play` leads to the same
    /// position.
    ///
    /// # Panics
    /// In games that do not [know](Game::knows_chances) the outcomes, a bug of the caller.
    fn play_chance(&self, position: &mut Self::Position, action: Action, outcome: u16) -> f32 {
        let _ = (position, action, outcome);
        unreachable!("{} has no outcomes of chance", self.spec().name)
    }

    /// Returns the outcome of the game; `None` while it is not over.
    fn outcome(&self, position: &Self::Position) -> Option<Outcome>;

    /// Writes the observation `[C, H, W]` of the player to move into `planes`, overwriting all of it.
    ///
    /// Values lie within [`Spec::observation_range`]. `planes.len()` is [`ObservationShape::len`].
    fn observe(&self, position: &Self::Position, planes: &mut [f32]);

    /// Returns a hash of everything that affects the observation, the legal actions and the future of the position.
    fn hash(&self, position: &Self::Position) -> u64;

    /// Returns the symmetries of the game; the first is the identity.
    fn symmetries(&self) -> &[Symmetry];

    /// Returns the image of a position under the symmetry with this index: the position after the images of all
    /// actions.
    fn image(&self, position: &Self::Position, symmetry: usize) -> Self::Position;

    /// Returns a heuristic value of a position that is not over, for the player to move: a fast estimate of the
    /// winner, for a search without a network. The scale is specific to the game, 0 for an even position and at most
    /// [`HEURISTIC_MAX`] in absolute value; games without a heuristic return 0. Images have the same value as the
    /// original position.
    fn heuristic_value(&self, position: &Self::Position) -> i32 {
        let _ = position;
        0
    }

    /// Returns the action in player notation.
    fn action_name(&self, position: &Self::Position, action: Action) -> String;

    /// Parses an action in player notation, without checking that it is legal.
    ///
    /// # Errors
    /// [`Error::Notation`] names the text and the expected notation.
    fn parse_action(&self, position: &Self::Position, text: &str) -> Result<Action, Error>;

    /// Returns the board as a few lines of text for a terminal, without a trailing newline.
    fn render(&self, position: &Self::Position) -> String;

    /// Returns the board with the cells of every legal action; `None` for a game without a board. Marks and size are
    /// as in [`render`](Game::render).
    fn board(&self, position: &Self::Position) -> Option<Board> {
        let _ = position;
        None
    }

    /// Plays an action from outside after checking that it is legal.
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
        /// Name of the game.
        game: String,
        /// The rejected action.
        action: Action,
    },
    /// A list of actions contains an illegal action.
    #[error("{action} is not legal at ply {ply} of {game}")]
    IllegalAt {
        /// Name of the game.
        game: String,
        /// Number of actions before the illegal action.
        ply: usize,
        /// The illegal action.
        action: Action,
    },
    /// The text is not an action.
    #[error("`{text}` is not a move: expected {expected}")]
    Notation {
        /// The text to parse.
        text: String,
        /// A description of the accepted notation.
        expected: String,
    },
}
