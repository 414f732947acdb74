use crate::{Attributes, Batch, Error, Evaluator, LatentModel, LatentPredictions, Predictions, Slot};

/// Evaluates positions by the representation and the prediction of a [`LatentModel`]: priors, and returns as values.
///
/// It makes an AlphaZero network of returns, which is such a model without dynamics, the [`Evaluator`] of a search by
/// the rules. The latent states are not used again.
pub struct ReturnEvaluator {
    model: Box<dyn LatentModel>,
    /// The slot of each position of a batch.
    slots: Vec<Slot>,
    answers: LatentPredictions,
}

impl ReturnEvaluator {
    /// Evaluates with `model`.
    #[must_use]
    pub fn new(model: Box<dyn LatentModel>) -> Self {
        Self { model, slots: Vec::new(), answers: LatentPredictions::default() }
    }
}

impl std::fmt::Debug for ReturnEvaluator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReturnEvaluator").field("attributes", &self.attributes()).finish_non_exhaustive()
    }
}

impl Evaluator for ReturnEvaluator {
    fn attributes(&self) -> Attributes {
        self.model.attributes()
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
        let Self { model, slots, answers } = self;
        if slots.len() < batch.len() {
            model.reserve(batch.len())?;
            slots.extend((slots.len()..batch.len()).filter_map(|slot| u32::try_from(slot).ok()).map(Slot));
        }
        predictions.clear();
        if batch.is_empty() {
            return Ok(());
        }
        model.initial(batch, &slots[..batch.len()], answers)?;
        for i in 0..batch.len() {
            let priors = answers.priors(i);
            predictions.push_return(batch.legal(i).iter().map(|action| priors[action.index()]), answers.value(i));
        }
        Ok(())
    }
}
