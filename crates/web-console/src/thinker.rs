//! The interface to networks that search positions. The console loads no network: the program that starts it implements
//! [`Thinker`].

use std::fmt;
use std::ops::ControlFlow;

use game::Action;
use games::GameKind;
use selfplay::Analysis;
use weights::WeightsVersion;

/// A position to search, reached by legal actions from the start position.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The game, on a board that the network fits.
    pub game: GameKind,
    /// The seed of the episode, from which the rules compute the start position; 0 in games without randomness.
    pub seed: u64,
    /// The actions from the start position.
    pub actions: Vec<Action>,
    /// The weights; the latest kept version without one.
    pub version: Option<WeightsVersion>,
    /// Simulations; 0 evaluates the network alone.
    pub simulations: u32,
}

/// The opinion of weights on a position.
#[derive(Debug, Clone)]
pub struct Opinion {
    /// The search result.
    pub analysis: Analysis,
    /// The weights that evaluated.
    pub version: WeightsVersion,
}

/// Searches positions with the weights of a run. The same question to the same weights has the same opinion.
pub trait Thinker: Send + Sync + fmt::Debug {
    /// Searches, and blocks the thread. `progress` receives the search so far a few times a second; `Break` ends the
    /// search early.
    ///
    /// # Errors
    /// An action is illegal, the game is over at the position, the run does not keep the weights, or the evaluation
    /// fails. The error is a sentence for visitors.
    fn think(
        &self,
        question: &Question,
        progress: &mut dyn FnMut(&Analysis) -> ControlFlow<()>,
    ) -> anyhow::Result<Opinion>;

    /// Returns true if an inference server chooses the weights, so that a question with a version is refused.
    fn is_remote(&self) -> bool {
        false
    }
}
