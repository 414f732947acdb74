//! What a game is: rules, positions, actions, outcomes, observations, symmetries.
//!
//! A game is playable with this crate alone. It knows nothing of search, tensors, evaluators or processes, and it
//! reads no clock and no entropy. Start with [`Game`]; every implementation runs [`conformance`].

mod action;
pub mod conformance;
mod mix;
mod outcome;
mod spec;
mod symmetry;

pub use action::Action;
pub use mix::mix;
pub use outcome::{Outcome, Player};
pub use spec::{ObservationShape, Players, Spec};
pub use symmetry::Symmetry;

/// The rules of one game, and the questions that a position answers under them.
///
/// A value of the implementing type holds what a run may choose (the board size, say); [`Game::Position`] holds one
/// position, with whatever history its observation needs. All methods are deterministic.
///
/// The contract, held by [`conformance::run`]:
/// - two positions with equal [`hash`](Game::hash) have equal observations, legal actions and player to move;
/// - an episode ends within [`Spec::max_plies`] actions;
/// - each [`Symmetry`] commutes with [`play`](Game::play), and [`image`](Game::image) is what it makes of a position.
pub trait Game: Clone + std::fmt::Debug + Send + Sync + 'static {
    /// One position, including the history its observation shows.
    type Position: Clone + PartialEq + std::fmt::Debug + Send + Sync + 'static;

    /// The constants of this game: name, players, number of actions, observation shape.
    fn spec(&self) -> &Spec;

    /// The position before the first action.
    fn start(&self) -> Self::Position;

    /// Who chooses the next action. Unspecified once the game is over.
    fn to_move(&self, position: &Self::Position) -> Player;

    /// Replaces `actions` with the legal actions in ascending order; empties it once the game is over.
    fn legal_actions(&self, position: &Self::Position, actions: &mut Vec<Action>);

    /// Whether `action` may be played here. False for every action once the game is over.
    fn is_legal(&self, position: &Self::Position, action: Action) -> bool;

    /// Plays a legal action and returns the reward of the player who chose it (0 in games that are scored by their
    /// outcome alone).
    ///
    /// Playing an illegal action is a bug of the caller; what comes from outside goes through [`Game::try_play`].
    fn play(&self, position: &mut Self::Position, action: Action) -> f32;

    /// How the game ended, or `None` while it goes on.
    fn outcome(&self, position: &Self::Position) -> Option<Outcome>;

    /// Writes the observation `[C, H, W]` of the player to move into `planes`, overwriting all of it.
    ///
    /// Values lie in `[0, 1]`. `planes.len()` is [`ObservationShape::len`].
    fn observe(&self, position: &Self::Position, planes: &mut [f32]);

    /// A hash of everything that decides the observation, the legal actions and the future of the position.
    fn hash(&self, position: &Self::Position) -> u64;

    /// The symmetries of the game; the first is the identity. At least one.
    fn symmetries(&self) -> &[Symmetry];

    /// The image of a position under the symmetry of this index: what playing the images of its actions leads to.
    fn image(&self, position: &Self::Position, symmetry: usize) -> Self::Position;

    /// The action in the notation players use.
    fn action_name(&self, position: &Self::Position, action: Action) -> String;

    /// Reads an action in the notation players use. Does not check that it is legal.
    ///
    /// # Errors
    /// [`Error::Notation`] names the text and what was expected.
    fn parse_action(&self, position: &Self::Position, text: &str) -> Result<Action, Error>;

    /// The board as a few lines of text for a terminal, without a trailing newline.
    fn render(&self, position: &Self::Position) -> String;

    /// Plays an action that came from outside.
    ///
    /// # Errors
    /// [`Error::Illegal`] if the action may not be played here; the position is then untouched.
    fn try_play(&self, position: &mut Self::Position, action: Action) -> Result<f32, Error> {
        if !self.is_legal(position, action) {
            return Err(Error::Illegal { game: self.spec().name.clone(), action });
        }
        Ok(self.play(position, action))
    }

    /// The position after `actions` from the start.
    ///
    /// # Errors
    /// [`Error::IllegalAt`] names the first ply that may not be played.
    fn replay(&self, actions: &[Action]) -> Result<Self::Position, Error> {
        let mut position = self.start();
        for (ply, &action) in actions.iter().enumerate() {
            if !self.is_legal(&position, action) {
                return Err(Error::IllegalAt { game: self.spec().name.clone(), ply, action });
            }
            self.play(&mut position, action);
        }
        Ok(position)
    }
}

/// What can be wrong with an action that came from outside.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The action may not be played in this position.
    #[error("{action} is not legal in this position of {game}")]
    Illegal {
        /// The game.
        game: String,
        /// The action.
        action: Action,
    },
    /// A list of actions breaks the rules.
    #[error("{action} is not legal at ply {ply} of {game}")]
    IllegalAt {
        /// The game.
        game: String,
        /// How many actions had been played before it.
        ply: usize,
        /// The action.
        action: Action,
    },
    /// The text is not an action.
    #[error("`{text}` is not a move: expected {expected}")]
    Notation {
        /// What was read.
        text: String,
        /// What would have been understood.
        expected: String,
    },
}
