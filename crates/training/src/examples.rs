use crate::{TrainingBatch, UnrolledBatch};

/// Training examples of one step: positions for AlphaZero, positions with the steps after them for MuZero.
#[derive(Debug, Clone, PartialEq)]
pub enum Examples {
    /// For a network of priors and values.
    Positions(TrainingBatch),
    /// For a network with learned dynamics.
    Unrolled(UnrolledBatch),
}

impl From<TrainingBatch> for Examples {
    fn from(batch: TrainingBatch) -> Self {
        Self::Positions(batch)
    }
}

impl From<UnrolledBatch> for Examples {
    fn from(batch: UnrolledBatch) -> Self {
        Self::Unrolled(batch)
    }
}

impl Examples {
    /// Returns B, the number of positions.
    #[must_use]
    pub fn positions(&self) -> usize {
        match self {
            Self::Positions(batch) => batch.policy_weights.len(),
            Self::Unrolled(batch) => batch.policy_weights.len() / (batch.unroll_steps + 1),
        }
    }

    /// Returns the board index within the boards of the trainer.
    #[must_use]
    pub fn board(&self) -> usize {
        match self {
            Self::Positions(batch) => batch.board,
            Self::Unrolled(_) => 0,
        }
    }

    /// Returns the weight of each position in all losses, `[B]`; empty under uniform sampling.
    #[must_use]
    pub fn importance(&self) -> &[f32] {
        match self {
            Self::Positions(batch) => &batch.importance,
            Self::Unrolled(batch) => &batch.importance,
        }
    }
}
