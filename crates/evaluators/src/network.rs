use game::{ObservationShape, Scoring, Spec};
use inference::{Attributes, Evaluator, LatentModel};
use weights::{Board, Manifest, Model, OtherGame};

/// A network built for one thread.
pub enum Network {
    /// An AlphaZero network, of outcomes or of returns, for searches by the rules.
    Evaluator(Box<dyn Evaluator>),
    /// A MuZero network, for searches in latent states.
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

/// The reason why weights do not suit a game.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsuitable {
    /// The weights are for another game, or for a board on which the network cannot be evaluated.
    #[error(transparent)]
    Game(#[from] OtherGame),
    /// The values of the AlphaZero network do not match the scoring of the game.
    #[error("the weights predict {predicted}, but {game} is scored by {scored_by}")]
    Values {
        /// Name of the game that the weights are checked against.
        game: String,
        /// Predicted values: `returns`, or `wins, draws and losses`.
        predicted: &'static str,
        /// Scoring of the game: `its rewards` or `its outcome`.
        scored_by: &'static str,
    },
}

/// Returns the manifest for the board of `spec`. This board may differ from the training board if no tensor depends on
/// the board.
///
/// # Errors
/// [`Unsuitable`] unless the network takes the game's observations and actions, and the values match the scoring: an
/// AlphaZero network predicts either wins, draws and losses or returns. The values of a MuZero network suit every game.
pub fn suited(manifest: &Manifest, spec: &Spec) -> Result<Manifest, Unsuitable> {
    let manifest = manifest.on(board(spec))?;
    let wrong = |predicted, scored_by| Err(Unsuitable::Values { game: spec.name.clone(), predicted, scored_by });
    match (manifest.architecture.model, spec.scoring) {
        (Model::Alphazero, Scoring::Rewards) => wrong("wins, draws and losses", "its rewards"),
        (Model::AlphazeroReturns { .. }, Scoring::Outcome) => wrong("returns", "its outcome"),
        _ => Ok(manifest),
    }
}

/// Returns the game, observation shape and number of actions, as a network sees them.
fn board(spec: &Spec) -> Board<'_> {
    let ObservationShape { planes, height, width } = spec.observation;
    Board { game: &spec.name, observation: [planes, height, width], actions: spec.actions }
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
