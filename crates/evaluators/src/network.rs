use game::{Scoring, Spec};
use inference::{Attributes, Evaluator, LatentModel};
use weights::{Manifest, Model};

/// A network that was built for one thread.
pub enum Network {
    /// An AlphaZero network, of outcomes or of returns, which evaluates positions for a search by the rules.
    Evaluator(Box<dyn Evaluator>),
    /// A MuZero network, in whose latent states a search moves.
    Latent(Box<dyn LatentModel>),
}

impl Network {
    /// Returns the attributes of the evaluator or model.
    #[must_use]
    pub fn attributes(&self) -> Attributes {
        match self {
            Self::Evaluator(evaluator) => evaluator.attributes(),
            Self::Latent(model) => model.attributes(),
        }
    }
}

/// An AlphaZero network whose values are not what the game is scored by.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the weights predict {predicted}, and {game} is scored by {scored_by}")]
pub struct WrongValues {
    /// The name of the game.
    pub game: String,
    /// What the network predicts.
    pub predicted: &'static str,
    /// What the game is scored by.
    pub scored_by: &'static str,
}

/// Checks that weights predict what the game is scored by: an AlphaZero network predicts either wins, draws and losses
/// or returns. A MuZero network suits every game.
///
/// # Errors
/// [`WrongValues`] if they do not.
pub fn check_values(spec: &Spec, manifest: &Manifest) -> Result<(), WrongValues> {
    let wrong = |predicted, scored_by| Err(WrongValues { game: spec.name.clone(), predicted, scored_by });
    match (manifest.architecture.model, spec.scoring) {
        (Model::Alphazero, Scoring::Rewards) => wrong("wins, draws and losses", "its rewards"),
        (Model::AlphazeroReturns { .. }, Scoring::Outcome) => wrong("returns", "its outcome"),
        _ => Ok(()),
    }
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self {
            Self::Evaluator(_) => "Evaluator",
            Self::Latent(_) => "Latent",
        };
        f.debug_tuple(kind).field(&self.attributes()).finish()
    }
}
