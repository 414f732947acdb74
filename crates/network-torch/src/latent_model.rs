mod dense;
mod dense_stochastic;
mod heads;
mod residual;

use std::sync::{Mutex, MutexGuard, PoisonError};

use ::network::is_vector;
use game::ObservationShape;
use inference::{Attributes, Batch, LatentModel, LatentPredictions, Slot, Unroll};
use tch::{Device, Tensor};
use weights::{Architecture, WeightsVersion};

use self::dense::Dense;
use self::dense_stochastic::DenseStochastic;
use self::residual::Residual;
use crate::{
    DeviceRules, Error, Network, SubmittingThreads,
    batch_sizes::{CHUNK, CHUNK_ACCELERATED, MAX_BATCH, padded},
    layers::size,
    muzero::rescale,
    network, process,
    rules::device_name,
};
use inference::Precision;

/// Action of the steps that only fill a batch.
const ANY_ACTION: i64 = 0;

/// A MuZero network, or an AlphaZero network of returns, that libtorch evaluates, with a pool of latent states on the
/// device: batch norms folded, no gradients. Latent states are in the precision of the passes.
///
/// Belongs to one thread at a time. A call transfers observations, or slot and action indices, to the device, and
/// `[B, A + 2]` numbers from it: policy logits, values and, if the network has them, rewards. For afterstates the
/// numbers are `[B, M + 1]`: logits of the chance codes and values.
#[derive(Debug)]
pub struct LibtorchLatent {
    folded: Folded,
    device: Device,
    precision: Precision,
    attributes: Attributes,
    shape: ObservationShape,
    actions: usize,
    /// M: number of chance codes; 0 without chance.
    codes: usize,
    /// Whether the network takes steps; an AlphaZero network does not.
    has_dynamics: bool,
    /// Maximum rows run through the network at once.
    chunk: usize,
    /// Whether batches are filled up to a few sizes, for which kernels are set up once.
    pads: bool,
    /// Latent states, `[slots, N]`.
    pool: Tensor,
    slots: usize,
    /// `[B, A + 2]`, `[B, A + 1]` without rewards or, for afterstates, `[B, M + 1]` of the latest chunk.
    outputs: Vec<f32>,
}

/// Kinds of networks. Latent states are rows `[B, N]`.
#[derive(Debug)]
enum Folded {
    Dense(Dense),
    Residual(Box<Residual>),
    DenseStochastic(Box<DenseStochastic>),
}

impl Folded {
    /// Returns N, the size of a latent state.
    fn state_size(&self) -> usize {
        match self {
            Self::Dense(dense) => dense.state_size(),
            Self::Residual(residual) => residual.state_size(),
            Self::DenseStochastic(stochastic) => stochastic.state_size(),
        }
    }

    /// Maps observations `[B, C, H, W]` to latent states.
    fn represent(&self, observations: &Tensor) -> Result<Tensor, Error> {
        rescale(&match self {
            Self::Dense(dense) => dense.represent(observations)?,
            Self::Residual(residual) => residual.represent(observations)?,
            Self::DenseStochastic(stochastic) => return stochastic.represent(observations),
        })
    }

    /// Maps latent states and actions `[B]`, int64, or afterstates and chance codes, to the next latent states.
    fn next(&self, states: &Tensor, actions: &Tensor) -> Result<Tensor, Error> {
        rescale(&match self {
            Self::Dense(dense) => dense.next(states, actions)?,
            Self::Residual(residual) => residual.next(states, actions)?,
            Self::DenseStochastic(stochastic) => return stochastic.follow(states, actions),
        })
    }

    /// Maps latent states and actions `[B]`, int64, to afterstates.
    fn act(&self, states: &Tensor, actions: &Tensor) -> Result<Tensor, Error> {
        match self {
            Self::Dense(_) => Err(::network::Error::Model { expected: "stochastic_muzero" }.into()),
            Self::Residual(residual) => rescale(&residual.act(states, actions)?),
            Self::DenseStochastic(stochastic) => stochastic.act(states, actions),
        }
    }

    /// Maps afterstates to logits of the chance codes and values, `[B, M + 1]`, float32.
    fn predict_afterstates(&self, afterstates: &Tensor) -> Result<Tensor, Error> {
        match self {
            Self::Dense(_) => Err(::network::Error::Model { expected: "stochastic_muzero" }.into()),
            Self::Residual(residual) => residual.predict_afterstates(afterstates),
            Self::DenseStochastic(stochastic) => stochastic.predict_afterstates(afterstates),
        }
    }

    /// Maps latent states to policy logits, values and rewards, `[B, A + 2]`, float32.
    fn predict(&self, states: &Tensor) -> Result<Tensor, Error> {
        match self {
            Self::Dense(dense) => dense.predict(states),
            Self::Residual(residual) => residual.predict(states),
            Self::DenseStochastic(stochastic) => stochastic.predict(states),
        }
    }
}

impl LibtorchLatent {
    /// Builds the network of `architecture` from the bytes of a published version.
    ///
    /// # Errors
    /// Fails if the bytes do not match the architecture exactly, if it is no MuZero architecture, or if the device
    /// fails; the error names the tensor.
    pub fn new(
        architecture: &Architecture,
        version: WeightsVersion,
        bytes: &[u8],
        device: Device,
        precision: Precision,
    ) -> Result<Self, Error> {
        process::apply();
        let _alone = alone_on(device);
        Self::from_network(&Network::from_safetensors(architecture, bytes, device)?, version, precision)
    }

    /// Copies the current weights of `network`.
    ///
    /// # Errors
    /// [`training::Error::Network`] for an AlphaZero network of wins, draws and losses, [`Error::Libtorch`] if the
    /// device fails.
    pub fn from_network(network: &Network, version: WeightsVersion, precision: Precision) -> Result<Self, Error> {
        let _guard = tch::no_grad_guard();
        let (device, architecture) = (network.device(), network.architecture());
        let &Architecture { planes, height, width, actions, .. } = architecture;
        let is_vector = is_vector(architecture);
        let folded = if !is_vector {
            Folded::Residual(Box::new(Residual::new(network, precision)?))
        } else if architecture.model.codes() > 0 {
            Folded::DenseStochastic(Box::new(DenseStochastic::new(network, precision)?))
        } else {
            Folded::Dense(Dense::new(network, precision)?)
        };
        let is_on_cpu = device == Device::Cpu;
        let chunk = if is_on_cpu && !is_vector { CHUNK } else { CHUNK_ACCELERATED };
        Ok(Self {
            device,
            precision,
            attributes: Attributes {
                name: format!("libtorch {} {precision}", device_name(device)).into(),
                weights_version: version.0,
                preferred_batch: chunk,
                max_batch: MAX_BATCH,
            },
            shape: ObservationShape { planes, height, width },
            actions,
            codes: architecture.model.codes(),
            has_dynamics: architecture.model.has_dynamics(),
            chunk,
            // Plain matrices on a CPU need no set-up.
            pads: !(is_on_cpu && is_vector),
            pool: Tensor::f_zeros([0, size(folded.state_size())], (crate::rules::kind(precision), device))?,
            slots: 0,
            outputs: Vec::new(),
            folded,
        })
    }

    /// Returns N, the numbers of a latent state.
    #[must_use]
    pub fn state_size(&self) -> usize {
        self.folded.state_size()
    }

    /// Returns the indices of reserved slots on the device.
    fn indices(&self, slots: &[Slot]) -> Result<Tensor, Error> {
        slots.iter().for_each(|slot| self.check(*slot));
        let numbers: Vec<i64> = slots.iter().map(|slot| i64::from(slot.0)).collect();
        Ok(Tensor::f_from_slice(&numbers)?.f_to_device(self.device)?)
    }

    fn grow(&mut self, slots: usize) -> Result<(), Error> {
        process::apply();
        let _guard = tch::no_grad_guard();
        let grown = Tensor::f_zeros(
            [size(slots), size(self.folded.state_size())],
            (crate::rules::kind(self.precision), self.device),
        )?;
        grown.f_narrow(0, 0, size(self.slots))?.f_copy_(&self.pool)?;
        (self.pool, self.slots) = (grown, slots);
        Ok(())
    }

    /// Returns the number of rows to compute for a chunk of `rows`.
    fn filled(&self, rows: usize) -> usize {
        if self.pads { padded(rows) } else { rows }
    }

    /// Copies observations `[B, C, H, W]` to the device and writes the states to the slots in `to`.
    fn compute_initial(&mut self, observations: &[f32], to: &[Slot]) -> Result<(), Error> {
        let _guard = tch::no_grad_guard();
        let ObservationShape { planes, height, width } = self.shape;
        let rows = self.filled(to.len());
        let mut observations = Tensor::f_from_slice(observations)?;
        if rows > to.len() {
            observations = observations.f_constant_pad_nd([0, size((rows - to.len()) * self.shape.len())])?;
        }
        let shape = [rows, planes, height, width].map(size);
        let observations =
            observations.f_view(shape)?.f_to_device(self.device)?.f_to_kind(crate::rules::kind(self.precision))?;
        let states = self.folded.represent(&observations)?;
        let to = self.indices(to)?;
        // The reward of an observation is not read.
        let answers = self.folded.predict(&states)?;
        self.keep(&states, &answers, &to)
    }

    /// Takes steps between slots, to states or to afterstates.
    fn compute_steps(&mut self, steps: &[Unroll], kind: Step) -> Result<(), Error> {
        let _guard = tch::no_grad_guard();
        let (rows, any) = (self.filled(steps.len()), steps[0].from);
        let filling = rows - steps.len();
        let number = |slot: Slot| i64::from(slot.0);
        let from = steps.iter().map(|step| number(step.from)).chain(std::iter::repeat_n(number(any), filling));
        let actions = steps.iter().map(|step| i64::from(step.action.0)).chain(std::iter::repeat_n(ANY_ACTION, filling));
        let to = steps.iter().map(|step| number(step.to));
        // One copy transfers all indices.
        let indices: Vec<i64> = from.chain(actions).chain(to).collect();
        let indices = Tensor::f_from_slice(&indices)?.f_to_device(self.device)?;
        let part = |start: usize, len: usize| indices.f_narrow(0, size(start), size(len));
        let states = self.pool.f_index_select(0, &part(0, rows)?)?;
        let (choices, to) = (part(rows, rows)?, part(2 * rows, steps.len())?);
        if let Step::ToAfterstate = kind {
            let afterstates = self.folded.act(&states, &choices)?;
            let answers = self.folded.predict_afterstates(&afterstates)?;
            return self.keep(&afterstates, &answers, &to);
        }
        let states = self.folded.next(&states, &choices)?;
        let answers = self.folded.predict(&states)?;
        self.keep(&states, &answers, &to)
    }

    /// Writes states or afterstates `[rows, N]` to the slots `to` `[B]`, and reads the answers `[rows, A + 2]`,
    /// `[rows, A + 1]` without rewards, or `[rows, M + 1]`; rows from B on only fill the batch.
    fn keep(&mut self, states: &Tensor, answers: &Tensor, to: &Tensor) -> Result<(), Error> {
        let len = to.size()[0];
        let outputs = answers.f_narrow(0, 0, len)?;
        let _ = self.pool.f_index_copy_(0, to, &states.f_narrow(0, 0, len)?)?;
        self.outputs.resize(outputs.numel(), 0.0);
        network::read(&outputs, &mut self.outputs)
    }

    /// Asserts that the slots of steps were reserved, and that choices are below `choices`.
    fn check_steps(&self, steps: &[Unroll], choices: usize) {
        for &Unroll { from, action, to } in steps {
            self.check(from);
            self.check(to);
            assert!(action.index() < choices, "choice {} of {choices}", action.index());
        }
    }

    /// Asserts that a slot was reserved.
    fn check(&self, slot: Slot) {
        assert!((slot.0 as usize) < self.slots, "slot {} of {} was not reserved", slot.0, self.slots);
    }

    fn not_finite(&self) -> inference::Error {
        inference::Error::NotFinite { weights_version: self.attributes.weights_version }
    }
}

impl LatentModel for LibtorchLatent {
    fn attributes(&self) -> Attributes {
        self.attributes.clone()
    }

    fn reserve(&mut self, slots: usize) -> Result<(), inference::Error> {
        if slots <= self.slots {
            return Ok(());
        }
        let _alone = alone_on(self.device);
        Ok(self.grow(slots)?)
    }

    fn initial(
        &mut self,
        batch: &Batch,
        to: &[Slot],
        predictions: &mut LatentPredictions,
    ) -> Result<(), inference::Error> {
        predictions.clear(self.actions);
        batch.check(self.shape, self.actions, MAX_BATCH)?;
        assert_eq!(batch.len(), to.len(), "every observation has a slot");
        process::apply();
        let _alone = alone_on(self.device);
        let mut done = 0;
        for to in to.chunks(self.chunk) {
            let observations = &batch.observations()[done * self.shape.len()..][..to.len() * self.shape.len()];
            self.compute_initial(observations, to)?;
            for (i, row) in self.outputs.chunks_exact(self.outputs.len() / to.len()).enumerate() {
                let (policy, value) = (&row[..self.actions], row[self.actions]);
                if !predictions.push_logits(policy, Some(batch.legal(done + i)), value, 0.0) {
                    return Err(self.not_finite());
                }
            }
            done += to.len();
        }
        Ok(())
    }

    fn recurrent(&mut self, steps: &[Unroll], predictions: &mut LatentPredictions) -> Result<(), inference::Error> {
        predictions.clear(self.actions);
        if !self.has_dynamics {
            return Err(inference::Error::Backend("the network has no dynamics".to_owned()));
        }
        self.check_steps(steps, if self.codes > 0 { self.codes } else { self.actions });
        process::apply();
        let _alone = alone_on(self.device);
        for steps in steps.chunks(self.chunk) {
            self.compute_steps(steps, Step::ToState)?;
            for row in self.outputs.chunks_exact(self.actions + 2) {
                let (policy, [value, reward]) = (&row[..self.actions], [0, 1].map(|i| row[self.actions + i]));
                if !predictions.push_logits(policy, None, value, reward) {
                    return Err(self.not_finite());
                }
            }
        }
        Ok(())
    }

    fn codes(&self) -> usize {
        self.codes
    }

    fn act(&mut self, steps: &[Unroll], predictions: &mut LatentPredictions) -> Result<(), inference::Error> {
        predictions.clear(self.codes);
        self.check_steps(steps, self.actions);
        process::apply();
        let _alone = alone_on(self.device);
        for steps in steps.chunks(self.chunk) {
            self.compute_steps(steps, Step::ToAfterstate)?;
            for row in self.outputs.chunks_exact(self.codes + 1) {
                if !predictions.push_logits(&row[..self.codes], None, row[self.codes], 0.0) {
                    return Err(self.not_finite());
                }
            }
        }
        Ok(())
    }
}

/// Result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// A latent state: by an action, or by a chance code from an afterstate.
    ToState,
    /// An afterstate, by an action.
    ToAfterstate,
}

/// Locks a device that takes work of one thread at a time, until the results have been read.
fn alone_on(device: Device) -> Option<MutexGuard<'static, ()>> {
    static BUSY: Mutex<()> = Mutex::new(());
    let is_exclusive = DeviceRules::of(device).submitting_threads == SubmittingThreads::One;
    is_exclusive.then(|| BUSY.lock().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests;
