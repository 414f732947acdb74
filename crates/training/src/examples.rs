use crate::{TrainingBatch, UnrolledBatch};

/// The examples of a training step: positions for AlphaZero, positions with subsequent steps for MuZero.
#[derive(Debug, Clone, PartialEq)]
pub enum Examples {
    /// Positions, for a network that predicts policy, win, draw and loss.
    Positions(TrainingBatch),
    /// Positions with K subsequent steps, for a network with learned dynamics or an AlphaZero network that predicts
    /// returns.
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

    /// Returns the index of the board, as added to the trainer.
    #[must_use]
    pub fn board(&self) -> usize {
        match self {
            Self::Positions(batch) => batch.board,
            Self::Unrolled(_) => 0,
        }
    }

    /// Returns the weight of each position in all losses, `[B]`; empty for uniform sampling.
    #[must_use]
    pub fn importance(&self) -> &[f32] {
        match self {
            Self::Positions(batch) => &batch.importance,
            Self::Unrolled(batch) => &batch.importance,
        }
    }
}
