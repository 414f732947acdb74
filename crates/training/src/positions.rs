use game::Outcome;
use weights::Architecture;

use crate::{Error, Observations};

/// A training batch of B positions on one board with A actions, as plain numbers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrainingBatch {
    /// Index of the board, as added to the trainer; 0 is the board of the network's architecture.
    pub board: usize,
    /// Observations, `[B, C, H, W]`.
    pub observations: Observations,
    /// Search policies, `[B, A]`: 0 for illegal actions. Rows with a policy weight sum to 1.
    pub policies: Vec<f32>,
    /// Legal actions, `[B, A]`: 1 for a legal action, otherwise 0.
    pub legal: Vec<u8>,
    /// Value targets, `[B, 3]`: probabilities of win, draw and loss for the player to move, with the sum 1.
    pub wdl: Vec<f32>,
    /// Weight of each policy target, `[B]`; 0 without a policy target.
    pub policy_weights: Vec<f32>,
    /// Importance weight of each row in both losses, `[B]`, above 0 and at most 1 (Schaul et al. 2016, section 3.4).
    /// Empty for uniform sampling.
    pub importance: Vec<f32>,
}

impl TrainingBatch {
    /// Returns B, after checking that every field has the right length for B and `architecture`, the network on this
    /// board.
    ///
    /// # Errors
    /// [`Error::Batch`] names the field with a wrong length.
    pub fn positions(&self, architecture: &Architecture) -> Result<usize, Error> {
        let positions = self.policy_weights.len();
        let observation = architecture.planes * architecture.height * architecture.width;
        let lengths = [
            ("policy_weights", positions, positions.max(1)),
            ("observations", self.observations.len(), positions * observation),
            ("policies", self.policies.len(), positions * architecture.actions),
            ("legal", self.legal.len(), positions * architecture.actions),
            ("wdl", self.wdl.len(), positions * Outcome::RESULTS),
            ("importance", self.importance.len(), if self.importance.is_empty() { 0 } else { positions }),
        ];
        match lengths.into_iter().find(|(_, got, expected)| got != expected) {
            Some((field, got, expected)) => Err(Error::Batch { field, expected, got }),
            None => Ok(positions),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use weights::Architecture;

    use super::TrainingBatch;
    use crate::Error;

    pub(crate) fn tiny() -> Architecture {
        Architecture::plain("tiny", [2, 3, 4], 5, [8, 1])
    }

    fn batch() -> TrainingBatch {
        TrainingBatch {
            board: 0,
            observations: [0.0; 3 * 24].into_iter().collect(),
            policies: [1.0, 0.0, 0.0, 0.0, 0.0].repeat(3),
            legal: vec![1; 3 * 5],
            wdl: [1.0, 0.0, 0.0].repeat(3),
            policy_weights: vec![1.0; 3],
            importance: Vec::new(),
        }
    }

    #[test]
    fn a_batch_that_does_not_fit_is_refused_by_field() {
        let spoilt = |spoil: fn(&mut TrainingBatch)| {
            let mut batch = batch();
            spoil(&mut batch);
            match batch.positions(&tiny()) {
                Err(Error::Batch { field, .. }) => field,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(spoilt(|batch| batch.observations.push(&[1.0])), "observations");
        assert_eq!(spoilt(|batch| batch.policies.push(0.0)), "policies");
        assert_eq!(spoilt(|batch| batch.legal.clear()), "legal");
        assert_eq!(spoilt(|batch| batch.wdl.push(0.0)), "wdl");
        assert_eq!(spoilt(|batch| batch.importance.push(1.0)), "importance");
        assert_eq!(spoilt(|batch| *batch = TrainingBatch::default()), "policy_weights");
    }
}
