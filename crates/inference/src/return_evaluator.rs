use crate::{Attributes, Batch, Error, Evaluator, LatentModel, LatentPredictions, Predictions, Slot};

/// Evaluates positions by the representation and prediction of a [`LatentModel`]: priors, and returns as values.
///
/// Turns an AlphaZero network of returns, which is such a model without dynamics, into the [`Evaluator`] for a search
/// by the rules. The latent states are not used again.
pub struct ReturnEvaluator {
    model: Box<dyn LatentModel>,
    /// Slots for the positions of a batch.
    slots: Vec<Slot>,
    answers: LatentPredictions,
}

impl ReturnEvaluator {
    /// Creates an evaluator that uses `model`.
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

#[cfg(test)]
mod tests {
    use game::{Action, ObservationShape};

    use super::*;
    use crate::Unroll;

    /// Reads a number from the observation: the logit of action 2, and a tenth of the value.
    struct Echo {
        reserved: usize,
    }

    impl LatentModel for Echo {
        fn attributes(&self) -> Attributes {
            Attributes { name: "echo".into(), weights_version: 4, preferred_batch: 8, max_batch: 8 }
        }

        fn reserve(&mut self, slots: usize) -> Result<(), Error> {
            self.reserved = self.reserved.max(slots);
            Ok(())
        }

        fn initial(&mut self, batch: &Batch, to: &[Slot], predictions: &mut LatentPredictions) -> Result<(), Error> {
            predictions.clear(3);
            for (i, slot) in to.iter().enumerate() {
                assert!((slot.0 as usize) < self.reserved);
                let number = batch.observation(i)[0];
                if !predictions.push_logits(&[0.0, 0.0, number], Some(batch.legal(i)), 10.0 * number, 0.0) {
                    return Err(Error::NotFinite { weights_version: 4 });
                }
            }
            Ok(())
        }

        fn recurrent(&mut self, _: &[Unroll], _: &mut LatentPredictions) -> Result<(), Error> {
            Err(Error::Backend("no step is needed".to_owned()))
        }
    }

    fn batch(numbers: &[f32], legal: &[u16]) -> Batch {
        let legal: Vec<Action> = legal.iter().copied().map(Action).collect();
        let mut batch = Batch::new(ObservationShape { planes: 1, height: 1, width: 1 });
        numbers.iter().for_each(|&number| batch.push(&legal, |planes| planes[0] = number));
        batch
    }

    #[test]
    fn answers_are_the_priors_of_legal_actions_and_returns_of_batches_of_any_size() {
        let mut evaluator = ReturnEvaluator::new(Box::new(Echo { reserved: 0 }));
        let mut predictions = Predictions::new();
        for numbers in [&[1.5][..], &[-2.0, 0.0, 7.0], &[], &[3.0]] {
            evaluator.evaluate(&batch(numbers, &[1, 2]), &mut predictions).unwrap();
            assert_eq!((predictions.len(), predictions.wdl()), (numbers.len(), &[][..]));
            for (i, number) in numbers.iter().enumerate() {
                assert_eq!(predictions.value(i), 10.0 * number);
                let of_second = number.exp() / (1.0 + number.exp());
                let [first, second] = predictions.priors(i) else { panic!("two actions are legal") };
                assert!((second - of_second).abs() < 1e-6 && (first + second - 1.0).abs() < 1e-6);
            }
        }
        assert_eq!(evaluator.attributes().weights_version, 4);
    }

    #[test]
    fn an_answer_that_is_not_finite_is_an_error() {
        let mut evaluator = ReturnEvaluator::new(Box::new(Echo { reserved: 0 }));
        let refused = evaluator.evaluate(&batch(&[f32::NAN], &[0]), &mut Predictions::new());
        assert!(matches!(refused, Err(Error::NotFinite { weights_version: 4 })), "{refused:?}");
    }
}
