//! A model whose latent states are kept by the host, as in implementations with an array for each node: the states in
//! which steps begin are copied to the device of another model, and those that it computes are copied from it.

use std::sync::Arc;

use inference::{Attributes, Batch, Error, LatentModel, LatentPredictions, Slot, Unroll};
use network_cpu::LatentEvaluator;
use network_torch::LibtorchLatent;

use super::traffic::Traffic;

/// A model whose latent states can be copied to and from the host.
pub(super) trait OwnStates: LatentModel {
    /// The numbers of a copied state.
    type Number: Copy + Default + Send;

    /// Returns the numbers of one state.
    fn state_len(&self) -> usize;

    /// Replaces `states` with the states in `slots`, one after another.
    fn read(&mut self, slots: &[Slot], states: &mut Vec<Self::Number>) -> Result<(), Error>;

    /// Replaces the states in `slots`.
    fn write(&mut self, slots: &[Slot], states: &[Self::Number]) -> Result<(), Error>;
}

impl OwnStates for LibtorchLatent {
    type Number = f32;

    fn state_len(&self) -> usize {
        self.state_size()
    }

    fn read(&mut self, slots: &[Slot], states: &mut Vec<f32>) -> Result<(), Error> {
        self.read_states(slots, states).map_err(|error| Error::Backend(error.to_string()))
    }

    fn write(&mut self, slots: &[Slot], states: &[f32]) -> Result<(), Error> {
        self.write_states(slots, states).map_err(|error| Error::Backend(error.to_string()))
    }
}

impl OwnStates for LatentEvaluator {
    type Number = u32;

    fn state_len(&self) -> usize {
        self.network().state_bytes() / size_of::<u32>()
    }

    fn read(&mut self, slots: &[Slot], states: &mut Vec<u32>) -> Result<(), Error> {
        states.clear();
        slots.iter().for_each(|slot| self.read_state(*slot, states));
        Ok(())
    }

    fn write(&mut self, slots: &[Slot], states: &[u32]) -> Result<(), Error> {
        slots
            .iter()
            .zip(states.chunks_exact(self.state_len()))
            .for_each(|(slot, state)| self.write_state(*slot, state));
        Ok(())
    }
}

/// Keeps latent states on the host and leaves the computations to `model`, whose pool only holds those of one call.
pub(super) struct HostLatents<M: OwnStates> {
    model: M,
    traffic: Arc<Traffic>,
    /// The states by slot.
    states: Vec<M::Number>,
    /// The states of a call.
    copied: Vec<M::Number>,
    /// The first slots of the pool.
    pool_slots: Vec<Slot>,
    pool_steps: Vec<Unroll>,
}

impl<M: OwnStates> HostLatents<M> {
    pub(super) fn new(model: M, traffic: Arc<Traffic>) -> Self {
        let (copied, pool_slots) = (Vec::new(), Vec::new());
        Self { model, traffic, states: Vec::new(), copied, pool_slots, pool_steps: Vec::new() }
    }

    fn allow(&mut self, slots: usize) -> Result<(), Error> {
        self.pool_slots.extend((self.pool_slots.len()..slots).map(slot));
        self.model.reserve(slots)
    }

    /// Copies the states in these slots of the pool to the host's slots `to`.
    fn take(&mut self, pool_slots: std::ops::Range<usize>, to: impl Iterator<Item = Slot>) -> Result<(), Error> {
        let len = self.model.state_len();
        self.model.read(&self.pool_slots[pool_slots], &mut self.copied)?;
        self.traffic.to_host(size_of_val(self.copied.as_slice()));
        for (state, to) in self.copied.chunks_exact(len).zip(to) {
            self.states[to.0 as usize * len..][..len].copy_from_slice(state);
        }
        Ok(())
    }
}

impl<M: OwnStates> LatentModel for HostLatents<M> {
    fn attributes(&self) -> Attributes {
        self.model.attributes()
    }

    fn reserve(&mut self, slots: usize) -> Result<(), Error> {
        let len = slots * self.model.state_len();
        if len > self.states.len() {
            self.states.resize(len, M::Number::default());
        }
        Ok(())
    }

    fn initial(&mut self, batch: &Batch, to: &[Slot], predictions: &mut LatentPredictions) -> Result<(), Error> {
        self.allow(to.len())?;
        self.model.initial(batch, &self.pool_slots[..to.len()], predictions)?;
        self.take(0..to.len(), to.iter().copied())
    }

    fn recurrent(&mut self, steps: &[Unroll], predictions: &mut LatentPredictions) -> Result<(), Error> {
        let (rows, len) = (steps.len(), self.model.state_len());
        self.allow(2 * rows)?;
        self.copied.clear();
        for step in steps {
            self.copied.extend_from_slice(&self.states[step.from.0 as usize * len..][..len]);
        }
        self.model.write(&self.pool_slots[..rows], &self.copied)?;
        self.traffic.to_device(size_of_val(self.copied.as_slice()));
        self.pool_steps.clear();
        let in_pool =
            |(row, step): (usize, &Unroll)| Unroll { from: slot(row), action: step.action, to: slot(rows + row) };
        self.pool_steps.extend(steps.iter().enumerate().map(in_pool));
        self.model.recurrent(&self.pool_steps, predictions)?;
        self.take(rows..2 * rows, steps.iter().map(|step| step.to))
    }
}

fn slot(index: usize) -> Slot {
    Slot(u32::try_from(index).expect("a batch is far smaller"))
}
