//! A model that evaluates one observation or step in each call of another.

use inference::{Attributes, Batch, Error, LatentModel, LatentPredictions, Slot, Unroll};

/// Splits every batch into calls of one, as implementations without batches call the network.
pub(super) struct SingleCalls<M> {
    model: M,
    one: Option<Batch>,
    answer: LatentPredictions,
}

impl<M> SingleCalls<M> {
    pub(super) fn new(model: M) -> Self {
        Self { model, one: None, answer: LatentPredictions::default() }
    }
}

impl<M: LatentModel> LatentModel for SingleCalls<M> {
    fn attributes(&self) -> Attributes {
        self.model.attributes()
    }

    fn reserve(&mut self, slots: usize) -> Result<(), Error> {
        self.model.reserve(slots)
    }

    fn initial(&mut self, batch: &Batch, to: &[Slot], predictions: &mut LatentPredictions) -> Result<(), Error> {
        let Self { model, one, answer } = self;
        let one = one.get_or_insert_with(|| Batch::new(batch.shape()));
        for (i, to) in to.iter().enumerate() {
            one.clear();
            one.extend_from(batch, [i]);
            model.initial(one, std::slice::from_ref(to), answer)?;
            join(i, predictions, answer);
        }
        Ok(())
    }

    fn recurrent(&mut self, steps: &[Unroll], predictions: &mut LatentPredictions) -> Result<(), Error> {
        let Self { model, answer, .. } = self;
        for (i, step) in steps.iter().enumerate() {
            model.recurrent(std::slice::from_ref(step), answer)?;
            join(i, predictions, answer);
        }
        Ok(())
    }
}

/// Adds the answer to call `i`; the first replaces all answers of before.
fn join(i: usize, predictions: &mut LatentPredictions, answer: &mut LatentPredictions) {
    if i == 0 {
        std::mem::swap(predictions, answer);
    } else {
        predictions.extend_from(answer);
    }
}
