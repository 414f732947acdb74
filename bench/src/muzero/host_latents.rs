//! A model whose latent states are kept by the host, as in implementations with an array for each node: the states in
//! which steps begin are copied to the device of another model, and those that it computes are copied from it.

use std::ops::Range;
use std::sync::atomic::Ordering;

use inference::{Attributes, Batch, Error, LatentModel, LatentPredictions, Slot, Unroll};
use network_cpu::LatentEvaluator;
use network_torch::LibtorchLatent;

use super::engine::Traffic;

/// A model whose latent states can be copied to and from the host.
pub(super) trait OwnStates: LatentModel {
    /// The numbers of a copied state.
    type Number: Copy + Send;

    /// Replaces `states` with the states in `slots`, one after another.
    fn read(&self, slots: &[Slot], states: &mut Vec<Self::Number>) -> Result<(), Error>;

    /// Replaces the states in `slots`.
    fn write(&mut self, slots: &[Slot], states: &[Self::Number]) -> Result<(), Error>;
}

impl OwnStates for LibtorchLatent {
    type Number = f32;

    fn read(&self, slots: &[Slot], states: &mut Vec<f32>) -> Result<(), Error> {
        self.read_states(slots, states).map_err(|error| Error::Backend(error.to_string()))
    }

    fn write(&mut self, slots: &[Slot], states: &[f32]) -> Result<(), Error> {
        self.write_states(slots, states).map_err(|error| Error::Backend(error.to_string()))
    }
}

impl OwnStates for LatentEvaluator {
    type Number = u32;

    fn read(&self, slots: &[Slot], states: &mut Vec<u32>) -> Result<(), Error> {
        states.clear();
        slots.iter().for_each(|slot| self.read_state(*slot, states));
        Ok(())
    }

    fn write(&mut self, slots: &[Slot], states: &[u32]) -> Result<(), Error> {
        let states = states.chunks_exact(states.len() / slots.len());
        slots.iter().zip(states).for_each(|(slot, state)| self.write_state(*slot, state));
        Ok(())
    }
}

/// Keeps latent states on the host and leaves the computations to `model`, whose pool only holds those of one call.
pub(super) struct HostLatents<M: OwnStates> {
    model: M,
    traffic: Traffic,
    /// The states by slot.
    states: Vec<Vec<M::Number>>,
    /// The states of a call.
    copied: Vec<M::Number>,
}

impl<M: OwnStates> HostLatents<M> {
    pub(super) fn new(model: M, traffic: Traffic) -> Self {
        Self { model, traffic, states: Vec::new(), copied: Vec::new() }
    }

    /// Copies the states in these slots of the pool to the host's slots `to`.
    fn take(&mut self, pool_slots: Range<usize>, to: impl Iterator<Item = Slot>) -> Result<(), Error> {
        let rows = pool_slots.len();
        self.model.read(&slots(pool_slots), &mut self.copied)?;
        self.count_copied();
        for (state, to) in self.copied.chunks_exact(self.copied.len() / rows).zip(to) {
            let kept = &mut self.states[to.0 as usize];
            kept.clear();
            kept.extend_from_slice(state);
        }
        Ok(())
    }

    fn count_copied(&self) {
        self.traffic.fetch_add(size_of_val(self.copied.as_slice()) as u64, Ordering::Relaxed);
    }
}

impl<M: OwnStates> LatentModel for HostLatents<M> {
    fn attributes(&self) -> Attributes {
        self.model.attributes()
    }

    fn reserve(&mut self, slots: usize) -> Result<(), Error> {
        self.states.resize(self.states.len().max(slots), Vec::new());
        Ok(())
    }

    fn initial(&mut self, batch: &Batch, to: &[Slot], predictions: &mut LatentPredictions) -> Result<(), Error> {
        self.model.reserve(to.len())?;
        self.model.initial(batch, &slots(0..to.len()), predictions)?;
        self.take(0..to.len(), to.iter().copied())
    }

    fn recurrent(&mut self, steps: &[Unroll], predictions: &mut LatentPredictions) -> Result<(), Error> {
        let rows = steps.len();
        let (from, to) = (slots(0..rows), slots(rows..2 * rows));
        self.model.reserve(2 * rows)?;
        self.copied.clear();
        steps.iter().for_each(|step| self.copied.extend_from_slice(&self.states[step.from.0 as usize]));
        self.model.write(&from, &self.copied)?;
        self.count_copied();
        let in_pool = steps.iter().zip(from.iter().zip(&to));
        let in_pool = in_pool.map(|(step, (from, to))| Unroll { from: *from, action: step.action, to: *to });
        self.model.recurrent(&in_pool.collect::<Vec<_>>(), predictions)?;
        self.take(rows..2 * rows, steps.iter().map(|step| step.to))
    }
}

fn slots(indices: Range<usize>) -> Vec<Slot> {
    indices.map(|index| Slot(u32::try_from(index).expect("a batch is far smaller"))).collect()
}
