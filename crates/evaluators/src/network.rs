use inference::{Attributes, Evaluator, LatentModel};

/// A network that was built for one thread.
pub enum Network {
    /// An AlphaZero network, which evaluates positions for a search by the rules.
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

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self {
            Self::Evaluator(_) => "Evaluator",
            Self::Latent(_) => "Latent",
        };
        f.debug_tuple(kind).field(&self.attributes()).finish()
    }
}
