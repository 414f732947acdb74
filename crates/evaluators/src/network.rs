use game::{ObservationShape, Scoring, Spec};
use inference::{Attributes, Evaluator, LatentModel};
use weights::{Board, Manifest, Model, OtherGame};

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

/// The reason why weights do not suit a game.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsuitable {
    /// They are of another game, or of a board on which the network cannot be evaluated.
    #[error(transparent)]
    Game(#[from] OtherGame),
    /// An AlphaZero network whose values are not what the game is scored by.
    #[error("the weights predict {predicted}, and {game} is scored by {scored_by}")]
    Values {
        /// The name of the game.
        game: String,
        /// What the network predicts.
        predicted: &'static str,
        /// What the game is scored by.
        scored_by: &'static str,
    },
}

/// Returns the manifest of weights on the board of a game, which may be another board than that of their training if no
/// tensor depends on it.
///
/// # Errors
/// [`Unsuitable`] unless the network takes the game's observations and actions, and predicts what the game is scored
/// by: an AlphaZero network predicts either wins, draws and losses or returns. The values of a MuZero network suit
/// every game.
pub fn suited(manifest: &Manifest, spec: &Spec) -> Result<Manifest, Unsuitable> {
    let manifest = manifest.on(board(spec))?;
    let wrong = |predicted, scored_by| Err(Unsuitable::Values { game: spec.name.clone(), predicted, scored_by });
    match (manifest.architecture.model, spec.scoring) {
        (Model::Alphazero, Scoring::Rewards) => wrong("wins, draws and losses", "its rewards"),
        (Model::AlphazeroReturns { .. }, Scoring::Outcome) => wrong("returns", "its outcome"),
        _ => Ok(manifest),
    }
}

/// Returns what a network sees of a game.
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
