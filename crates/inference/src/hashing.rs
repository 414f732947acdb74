use game::{ObservationShape, mix};

use crate::{Attributes, Batch, Error, Evaluator, Predictions, Wdl};

/// Maximum batch size.
const MAX_BATCH: usize = 4096;

/// An evaluator with pseudo-random priors and values that depend only on the observation, the legal actions and a seed.
///
/// It replaces a trained network: the priors are as uneven, and the results are the same on every machine.
#[derive(Debug, Clone)]
pub struct Hashing {
    shape: ObservationShape,
    seed: u64,
    priors: Vec<f32>,
}

impl Hashing {
    /// Returns an evaluator for observations of `shape`; the seed stands in for the weights and is the weights version.
    #[must_use]
    pub fn new(shape: ObservationShape, seed: u64) -> Self {
        Self { shape, seed, priors: Vec::new() }
    }
}

impl Evaluator for Hashing {
    fn attributes(&self) -> Attributes {
        let (name, weights_version) = ("hashing".into(), self.seed);
        Attributes { name, weights_version, preferred_batch: 64, max_batch: MAX_BATCH }
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), Error> {
        batch.check(self.shape, usize::MAX, MAX_BATCH)?;
        predictions.clear();
        for i in 0..batch.len() {
            let hash = batch.observation(i).iter().fold(mix(self.seed), |hash, x| mix(hash ^ u64::from(x.to_bits())));
            self.priors.clear();
            // Squaring spreads the priors, so that some actions have many times the prior of others.
            self.priors.extend(batch.legal(i).iter().map(|action| {
                let liking = 0.1 + unit(mix(hash ^ u64::from(action.0) << 32));
                liking * liking
            }));
            let sum: f32 = self.priors.iter().sum();
            self.priors.iter_mut().for_each(|prior| *prior /= sum);
            let (win, draw, loss) =
                (0.01 + unit(mix(hash ^ 1)), 0.01 + unit(mix(hash ^ 2)), 0.01 + unit(mix(hash ^ 3)));
            let sum = win + draw + loss;
            predictions.push(&self.priors, Wdl { win: win / sum, draw: draw / sum, loss: loss / sum });
        }
        Ok(())
    }
}

/// Converts the top 24 bits to a number in `[0, 1)`, exact in f32.
fn unit(hash: u64) -> f32 {
    (hash >> 40) as f32 / (1u64 << 24) as f32
}

#[cfg(test)]
mod tests {
    use game::Action;

    use super::*;

    const SHAPE: ObservationShape = ObservationShape { planes: 3, height: 4, width: 5 };

    #[test]
    fn hashing_predictions_depend_on_the_seed_and_the_position() {
        let mut batch = Batch::new(SHAPE);
        batch.push(&[Action(0), Action(7)], |planes| planes[3] = 1.0);
        batch.push(&[Action(0), Action(7)], |planes| planes[4] = 1.0);
        let answers = |seed| {
            let mut predictions = Predictions::new();
            Hashing::new(SHAPE, seed).evaluate(&batch, &mut predictions).unwrap();
            (predictions.priors(0).to_vec(), predictions.value(0), predictions.value(1))
        };
        assert_eq!(answers(1), answers(1));
        assert_ne!(answers(1), answers(2));
        assert_ne!(answers(1).1, answers(1).2);
    }
}
