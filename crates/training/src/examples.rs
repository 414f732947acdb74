use crate::{TrainingBatch, UnrolledBatch};

/// What a training step learns from: positions for AlphaZero, or positions with the steps that follow for MuZero.
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
    /// B: the number of positions.
    #[must_use]
    pub fn positions(&self) -> usize {
        match self {
            Self::Positions(batch) => batch.policy_weights.len(),
            Self::Unrolled(batch) => batch.policy_weights.len() / (batch.unroll_steps + 1),
        }
    }

    /// The index of their board among those of the trainer.
    #[must_use]
    pub fn board(&self) -> usize {
        match self {
            Self::Positions(batch) => batch.board,
            Self::Unrolled(_) => 0,
        }
    }

    /// The weight of each position in all losses, `[B]`; empty under uniform sampling.
    #[must_use]
    pub fn importance(&self) -> &[f32] {
        match self {
            Self::Positions(batch) => &batch.importance,
            Self::Unrolled(batch) => &batch.importance,
        }
    }
}
