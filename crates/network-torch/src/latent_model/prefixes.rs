use network::{MEMORY_UNITS, PREFIX_HORIZON};
use tch::{Device, Kind, Tensor};

use super::size;
use crate::{Error, Network, folded, layers::Affine, value_prefix::Memory};
use inference::Precision;

/// Numbers of a memory in a pool: h, c, the prefix, and the number of steps in the prefix.
const NUMBERS: usize = 2 * MEMORY_UNITS + 2;
/// Index of the prefix.
const PREFIX: i64 = 2 * MEMORY_UNITS as i64;
/// Index of the number of steps.
const STEPS: i64 = PREFIX + 1;

/// Memories of the latent states in a pool. They give the reward of the next step: the prefix after the step minus
/// the prefix before it.
///
/// The memory of an observation is all zeros, and so is the memory of a state [`PREFIX_HORIZON`] steps later: the
/// next step starts a new sum.
#[derive(Debug)]
pub(super) struct Prefixes {
    gates: Affine,
    /// Kind of the matrix; memories are float32.
    kind: Kind,
    /// `[slots, NUMBERS]`.
    memories: Tensor,
}

/// One step from the memories of a batch of states.
#[derive(Debug)]
pub(super) struct Step<'a> {
    prefixes: &'a Prefixes,
    /// `[B, NUMBERS]`.
    before: Tensor,
    after: Option<Memory>,
}

impl Prefixes {
    /// Copies the gates of a network; `None` if the reward head predicts rewards.
    pub(super) fn of(network: &Network, precision: Precision, device: Device) -> Result<Option<Self>, Error> {
        let dynamics = network.layers.muzero()?.dynamics.as_ref();
        let Some(memory) = dynamics.and_then(|dynamics| dynamics.memory.as_ref()) else { return Ok(None) };
        let (kind, memories) =
            (crate::rules::kind(precision), Tensor::f_zeros([0, size(NUMBERS)], (Kind::Float, device))?);
        Ok(Some(Self { gates: folded::linear(network, memory)?.cast(kind)?, kind, memories }))
    }

    /// Makes room for slots below `slots`; existing memories are kept.
    pub(super) fn grow(&mut self, slots: usize) -> Result<(), Error> {
        let (before, numbers) = self.memories.size2()?;
        let grown = Tensor::f_zeros([size(slots), numbers], (Kind::Float, self.memories.device()))?;
        grown.f_narrow(0, 0, before)?.f_copy_(&self.memories)?;
        self.memories = grown;
        Ok(())
    }

    /// Empties the memories in the slots `to` `[B]`.
    pub(super) fn empty(&mut self, to: &Tensor) -> Result<(), Error> {
        let _ = self.memories.f_index_fill_(0, to, 0.0)?;
        Ok(())
    }

    /// Starts a step from the slots `from` `[B]`.
    pub(super) fn step(&self, from: &Tensor) -> Result<Step<'_>, Error> {
        Ok(Step { prefixes: self, before: self.memories.f_index_select(0, from)?, after: None })
    }

    /// Writes memories `[B, NUMBERS]` to the slots `to` `[B]`.
    pub(super) fn keep(&mut self, memories: &Tensor, to: &Tensor) -> Result<(), Error> {
        let _ = self.memories.f_index_copy_(0, to, memories)?;
        Ok(())
    }
}

impl Step<'_> {
    /// Maps the hidden units of the reward head `[B, 64]` to the inputs of the output layer.
    pub(super) fn remember(&mut self, hidden: &Tensor) -> Result<Tensor, Error> {
        let units = size(MEMORY_UNITS);
        let before =
            Memory { output: self.before.f_narrow(1, 0, units)?, cell: self.before.f_narrow(1, units, units)? };
        let after = before.next(&self.prefixes.gates, &hidden.f_to_kind(Kind::Float)?, self.prefixes.kind)?;
        let output = after.output.f_to_kind(hidden.f_kind()?)?;
        self.after = Some(after);
        Ok(output)
    }

    /// Returns the answers `[B, A + 2]` with the prefixes in the last column replaced by rewards, and the memories of
    /// the next states, `[B, NUMBERS]`.
    pub(super) fn end(self, answers: &Tensor) -> Result<(Tensor, Tensor), Error> {
        let Memory { output, cell } = self.after.expect("the answers come from the remembered units");
        let (_, columns) = answers.size2()?;
        let prefix = answers.f_narrow(1, columns - 1, 1)?;
        let reward = prefix.f_sub(&self.before.f_narrow(1, PREFIX, 1)?)?;
        let steps = self.before.f_narrow(1, STEPS, 1)?.f_add_scalar(1.0)?;
        let goes_on = steps.f_lt(PREFIX_HORIZON as f64)?;
        let memories = Tensor::f_cat(&[&output, &cell, &prefix, &steps], 1)?.f_mul(&goes_on)?;
        Ok((Tensor::f_cat(&[&answers.f_narrow(1, 0, columns - 1)?, &reward], 1)?, memories))
    }
}
