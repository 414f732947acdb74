mod dense;
mod dense_stochastic;
mod heads;
mod latent_network;
mod pool;
mod residual;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use ::network::is_vector;
use game::{Action, ObservationShape};
use inference::{Attributes, Batch, Caller, LatentModel, LatentPredictions, Precision, Slot, Unroll, Weights};
use tch::Device;
use weights::{Architecture, Model, WeightsVersion};

pub(crate) use self::latent_network::{LatentCall, LatentNetwork};
pub(crate) use self::pool::{Place, Pool};
use self::{latent_network::Layout, pool::INDICES};
use crate::{
    Error, Network,
    batch_sizes::{CHUNK, CHUNK_ACCELERATED, MAX_BATCH, padded},
    evaluator::{Accelerator, Prepared, Staging},
    layers::size,
    network, process,
    rules::device_name,
};

/// Result of a call.
type Answered = Result<(), inference::Error>;

/// A MuZero network, or an AlphaZero network of returns, that libtorch evaluates, with latent states on the device.
///
/// Belongs to one thread at a time, and computes in that thread; on MPS no other thread may use the device meanwhile.
/// If [`Libtorch`](crate::Libtorch) has built the model on an accelerator, the engine of the device computes, merges
/// the calls of several threads and keeps the states of all threads in one pool. A call transfers observations and
/// indices to the device, and `[B, A + 2]` numbers from it: policy logits, values and, if the network has them,
/// rewards. For afterstates the numbers are `[B, M + 1]`: logits of the chance codes and values.
#[derive(Debug)]
pub struct LibtorchLatent {
    attributes: Attributes,
    shape: ObservationShape,
    actions: usize,
    model: Model,
    // Fields are dropped in this order: the slots after all calls that use them.
    means: Means,
    /// Reserved slots.
    place: Arc<Place>,
}

/// Where a model computes.
#[derive(Debug)]
enum Means {
    /// In the calling thread.
    Own {
        network: LatentNetwork,
        pool: Pool,
        host: Staging,
        /// Answers of the latest chunk.
        answers: Vec<f32>,
        /// Maximum rows run through the network at once.
        chunk: usize,
        /// Whether batches are filled up to a few sizes, for which kernels are set up once.
        pads: bool,
    },
    /// On an engine.
    Merged { callers: [Caller<Accelerator>; LatentCall::ALL.len()], weights: Weights<Accelerator> },
}

/// Arguments of a call.
#[derive(Debug, Clone, Copy)]
struct Input<'a> {
    call: LatentCall,
    /// Observations of an initial call.
    batch: Option<&'a Batch>,
    /// Steps; the state of an observation has the choice 0.
    steps: &'a [Unroll],
}

/// Sizes of a call.
#[derive(Debug, Clone, Copy)]
struct Widths {
    /// Number of logits in an answer.
    logits: usize,
    /// Number of logits, values and rewards in an answer.
    answer: usize,
}

impl<'a> Input<'a> {
    fn steps(call: LatentCall, steps: &'a [Unroll]) -> Self {
        Self { call, batch: None, steps }
    }

    /// Writes rows as [`Pool::compute`] takes them, then zeros.
    fn write(&self, rows: Range<usize>, place: Place, numbers: &mut [f32]) {
        let observed = self.batch.map_or(0, |batch| batch.shape().len());
        let mut numbers = numbers.chunks_exact_mut(observed + INDICES);
        for (row, numbers) in rows.zip(&mut numbers) {
            let (observation, indices) = numbers.split_at_mut(observed);
            if let Some(batch) = self.batch {
                observation.copy_from_slice(batch.observation(row));
            }
            let Unroll { from, action, to } = self.steps[row];
            let at = |Slot(slot): Slot| (place.start + slot as usize) as f32;
            indices.copy_from_slice(&[at(from), f32::from(action.0), at(to)]);
        }
        numbers.for_each(|padding| padding.fill(0.0));
    }

    /// Sends the call to an engine, unless it is empty or under way.
    fn send(&self, caller: &mut Caller<Accelerator>, place: Place, widths: Widths) {
        let (rows, observed) = (self.steps.len(), self.batch.map_or(0, |batch| batch.shape().len()));
        if rows > 0 && !caller.is_waiting() {
            caller.send(rows, [observed + INDICES, widths.answer], |numbers| self.write(0..rows, place, numbers));
        }
    }

    /// Adds answers to the predictions.
    fn read(&self, widths: Widths, answers: &[f32], predictions: &mut LatentPredictions, version: u64) -> Answered {
        for row in answers.chunks_exact(widths.answer) {
            let (policy, scalars) = row.split_at(widths.logits);
            let legal = self.batch.map(|batch| batch.legal(predictions.len()));
            // The reward of an observation is not read.
            let reward = if self.call == LatentCall::Recurrent { scalars[1] } else { 0.0 };
            if !predictions.push_logits(policy, legal, scalars[0], reward) {
                return Err(inference::Error::NotFinite { weights_version: version });
            }
        }
        Ok(())
    }
}

/// Returns the steps that stand for observations.
fn of_observations(to: &[Slot]) -> Vec<Unroll> {
    to.iter().map(|&slot| Unroll { from: slot, action: Action(0), to: slot }).collect()
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
        Self::from_network(&Network::from_safetensors(architecture, bytes, device)?, version, precision)
    }

    /// Copies the current weights of `network`.
    ///
    /// # Errors
    /// [`training::Error::Network`] for an AlphaZero network of wins, draws and losses, [`Error::Libtorch`] if the
    /// device fails.
    pub fn from_network(network: &Network, version: WeightsVersion, precision: Precision) -> Result<Self, Error> {
        let (device, architecture) = (network.device(), network.architecture());
        let (is_on_cpu, is_vector) = (device == Device::Cpu, is_vector(architecture));
        let chunk = if is_on_cpu && !is_vector { CHUNK } else { CHUNK_ACCELERATED };
        let attributes = Attributes {
            name: format!("libtorch {} {precision}", device_name(device)).into(),
            weights_version: version.0,
            preferred_batch: chunk,
            max_batch: MAX_BATCH,
        };
        let means = Means::Own {
            network: LatentNetwork::new(network, precision)?,
            pool: Pool::new(device),
            host: Staging::new(device),
            answers: Vec::new(),
            chunk,
            // Plain matrices on a CPU need no set-up.
            pads: !(is_on_cpu && is_vector),
        };
        Ok(Self::of(architecture, precision, attributes, means))
    }

    /// Creates the model of one thread with weights on an engine.
    pub(crate) fn merged(
        architecture: &Architecture,
        precision: Precision,
        attributes: Attributes,
        weights: Weights<Accelerator>,
    ) -> Self {
        let callers = LatentCall::ALL.map(|call| weights.caller(call as usize));
        Self::of(architecture, precision, attributes, Means::Merged { callers, weights })
    }

    fn of(architecture: &Architecture, precision: Precision, attributes: Attributes, means: Means) -> Self {
        let &Architecture { planes, height, width, actions, model, .. } = architecture;
        let place = Arc::new(Place { layout: Layout::new(architecture, precision), start: 0, slots: 0 });
        Self { attributes, shape: ObservationShape { planes, height, width }, actions, model, means, place }
    }

    /// Checks a call and returns the sizes.
    ///
    /// # Panics
    /// If a slot was not reserved or a choice is out of range.
    fn checked(&self, Input { call, batch, steps }: Input<'_>) -> Result<Widths, inference::Error> {
        let (actions, codes, has_dynamics) = (self.actions, self.model.codes(), self.model.has_dynamics());
        let refused = |reason: &str| Err(inference::Error::Backend(reason.to_owned()));
        let (choices, logits, scalars) = match call {
            LatentCall::Initial => (1, actions, 1 + usize::from(has_dynamics)),
            LatentCall::Recurrent if codes > 0 => (codes, actions, 2),
            LatentCall::Recurrent if has_dynamics => (actions, actions, 2),
            LatentCall::Act if codes > 0 => (actions, codes, 1),
            LatentCall::Recurrent => return refused("the network has no dynamics"),
            LatentCall::Act => return refused("the network has no afterstates"),
        };
        if let Some(batch) = batch {
            batch.check(self.shape, actions, MAX_BATCH)?;
            assert_eq!(batch.len(), steps.len(), "every observation has a slot");
        }
        let slots = self.place.slots;
        for &Unroll { from, action, to } in steps {
            for Slot(slot) in [from, to] {
                assert!((slot as usize) < slots, "slot {slot} of {slots} was not reserved");
            }
            assert!(action.index() < choices, "choice {} of {choices}", action.index());
        }
        Ok(Widths { logits, answer: logits + scalars })
    }

    /// Makes a call, or waits for the answers if it was started. After an error no call is under way.
    fn call(&mut self, input: Input<'_>, predictions: &mut LatentPredictions) -> Answered {
        let answered = self.answer(input, predictions);
        if answered.is_err() {
            self.settle();
        }
        answered
    }

    fn answer(&mut self, input: Input<'_>, predictions: &mut LatentPredictions) -> Answered {
        let (place, version, widths) = (*self.place, self.attributes.weights_version, self.checked(input)?);
        predictions.clear(widths.logits);
        match &mut self.means {
            Means::Own { network, pool, host, answers, chunk, pads } => {
                process::apply();
                for first in (0..input.steps.len()).step_by(*chunk) {
                    let rows = first..input.steps.len().min(first + *chunk);
                    let filled = if *pads { padded(rows.len()) } else { rows.len() };
                    let stage = &mut |numbers: &mut [f32]| input.write(rows.clone(), place, numbers);
                    let computed = pool.compute(network, (input.call, filled), host, stage)?;
                    answers.resize(filled * widths.answer, 0.0);
                    network::read(&computed, answers)?;
                    input.read(widths, &answers[..rows.len() * widths.answer], predictions, version)?;
                }
                Ok(())
            }
            Means::Merged { callers, .. } => {
                let caller = &mut callers[input.call as usize];
                input.send(caller, place, widths);
                let answers = if caller.is_waiting() { caller.receive()? } else { &[] };
                input.read(widths, answers, predictions, version)
            }
        }
    }

    /// Waits until no call is under way.
    fn settle(&mut self) {
        if let Means::Merged { callers, .. } = &mut self.means {
            // The caller of the model has withdrawn these calls.
            callers.iter_mut().filter(|caller| caller.is_waiting()).for_each(|caller| drop(caller.receive()));
        }
    }
}

impl LatentModel for LibtorchLatent {
    fn attributes(&self) -> Attributes {
        self.attributes.clone()
    }

    fn reserve(&mut self, slots: usize) -> Answered {
        if slots <= self.place.slots {
            return Ok(());
        }
        self.settle();
        let before = *self.place;
        self.place = match &mut self.means {
            Means::Own { pool, .. } => {
                process::apply();
                pool.reserve(before, slots)?
            }
            Means::Merged { weights, .. } => {
                let place = Arc::<OnceLock<Arc<Place>>>::default();
                let wanted = Prepared::Slots { before, slots, place: Arc::clone(&place) };
                weights.load(wanted).map_err(|error| match error {
                    inference::Error::Backend(reason) => Error::of_message(reason).into(),
                    error => error,
                })?;
                Arc::clone(place.get().expect("loaded slots have a place"))
            }
        };
        Ok(())
    }

    fn start(&mut self, batch: &Batch, to: &[Slot], acts: &[Unroll], steps: &[Unroll]) {
        if matches!(self.means, Means::Own { .. }) {
            return;
        }
        self.settle();
        let initial = Input { call: LatentCall::Initial, batch: Some(batch), steps: &of_observations(to) };
        let further = [Input::steps(LatentCall::Act, acts), Input::steps(LatentCall::Recurrent, steps)];
        for input in [initial].into_iter().chain(further) {
            // A refused call gives the reason itself.
            if let (Ok(widths), Means::Merged { callers, .. }) = (self.checked(input), &mut self.means) {
                input.send(&mut callers[input.call as usize], *self.place, widths);
            }
        }
    }

    fn initial(&mut self, batch: &Batch, to: &[Slot], predictions: &mut LatentPredictions) -> Answered {
        let steps = of_observations(to);
        self.call(Input { call: LatentCall::Initial, batch: Some(batch), steps: &steps }, predictions)
    }

    fn recurrent(&mut self, steps: &[Unroll], predictions: &mut LatentPredictions) -> Answered {
        self.call(Input::steps(LatentCall::Recurrent, steps), predictions)
    }

    fn codes(&self) -> usize {
        self.model.codes()
    }

    fn act(&mut self, steps: &[Unroll], predictions: &mut LatentPredictions) -> Answered {
        self.call(Input::steps(LatentCall::Act, steps), predictions)
    }
}

#[cfg(test)]
mod tests;
