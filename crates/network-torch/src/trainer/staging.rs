use tch::{Device, Kind, Tensor, kind::Element};
use weights::Architecture;

use crate::{
    Error, Network,
    consistency::NextStates,
    dispatcher,
    layers::size,
    losses::{self, Targets},
    unrolled::{self, UnrolledTargets},
};
use training::{Boards, Examples, Observations, TrainingBatch, UnrolledBatch};

/// Targets of either model.
#[derive(Debug)]
pub(super) enum ModelTargets {
    /// Targets of positions.
    Alphazero(Targets),
    /// Targets of positions and the steps after them.
    Muzero(UnrolledTargets),
}

impl ModelTargets {
    /// `[B]`; `None` if all rows have equal importance.
    pub(super) fn importance(&self) -> Option<&Tensor> {
        match self {
            Self::Alphazero(targets) => targets.importance.as_ref(),
            Self::Muzero(targets) => targets.importance.as_ref(),
        }
    }

    fn rows(&self, start: i64, len: i64) -> Result<Self, Error> {
        Ok(match self {
            Self::Alphazero(targets) => Self::Alphazero(targets.rows(start, len)?),
            Self::Muzero(targets) => Self::Muzero(targets.rows(start, len)?),
        })
    }
}

/// Shape of a batch: batches of one form are computed by the same operations.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Form {
    /// Board index.
    pub(super) board: usize,
    pub(super) positions: usize,
    /// `None` for targets of positions without steps after them.
    unroll_steps: Option<usize>,
    /// Lengths of the parts, numbers first and then bytes. A part that the batch lacks has length 0.
    lengths: [Vec<usize>; 2],
}

/// A batch as copied to the device: all float32 numbers in one tensor, all bytes in another.
#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) form: Form,
    numbers: Tensor,
    bytes: Tensor,
}

impl Inputs {
    /// Copies a batch to the device of `network`, with the learning rates of the step, if the previous step is applied
    /// and if it is refused.
    ///
    /// # Errors
    /// [`training::Error::Batch`] or [`training::Error::Action`] if the batch does not fit the network on the batch's
    /// board, [`training::Error::BoardIndex`] if there is no such board, [`training::Error::Network`] if it is for
    /// another model; [`Error::OutOfMemory`], [`Error::Libtorch`].
    pub(super) fn new(
        examples: &Examples,
        network: &Network,
        boards: &Boards,
        learning_rates: [f32; 2],
    ) -> Result<Self, Error> {
        let _guard = tch::no_grad_guard();
        match examples {
            Examples::Positions(batch) => {
                network.layers.alphazero()?;
                Self::of_positions(batch, network, boards, learning_rates)
            }
            Examples::Unrolled(batch) => {
                network.layers.muzero()?;
                Self::of_unrolled(batch, network, learning_rates)
            }
        }
    }

    fn of_positions(
        batch: &TrainingBatch,
        network: &Network,
        boards: &Boards,
        learning_rates: [f32; 2],
    ) -> Result<Self, Error> {
        let positions = batch.positions(boards.get(batch.board)?)?;
        let TrainingBatch { board, observations, policies, legal, wdl, policy_weights, importance } = batch;
        let (bytes, floats) = numbers_of(observations);
        let numbers: [&[f32]; 6] = [policies, wdl, policy_weights, importance, &learning_rates, floats];
        Self::uploaded(network, [*board, positions], None, &numbers, [legal, bytes])
    }

    fn of_unrolled(batch: &UnrolledBatch, network: &Network, learning_rates: [f32; 2]) -> Result<Self, Error> {
        let architecture = network.architecture();
        let positions = batch.positions(architecture)?;
        let UnrolledBatch { unroll_steps, observations, actions, policies, .. } = batch;
        let UnrolledBatch { policy_weights, values, value_weights, rewards, importance, .. } = batch;
        let UnrolledBatch { next_observations, next_weights, chance_weights, .. } = batch;
        let needs_next = needs_next(network);
        if needs_next && !batch.has_next_observations() {
            let expected = observations.len() * unroll_steps;
            return Err(training::Error::Batch { field: "next_observations", expected, got: 0 }.into());
        }
        let (bytes, floats) = numbers_of(observations);
        let (next_bytes, next_floats): (&[u8], &[f32]) =
            if needs_next { numbers_of(next_observations) } else { (&[], &[]) };
        let [next_weights, chance_weights]: [&[f32]; 2] =
            if needs_next { [next_weights, chance_weights] } else { [&[], &[]] };
        // float32 represents every action exactly, so that actions need no separate transfer.
        let actions: Vec<f32> = actions.iter().copied().map(f32::from).collect();
        let numbers: [&[f32]; 12] = [
            &actions,
            policies,
            policy_weights,
            values,
            value_weights,
            rewards,
            importance,
            &learning_rates,
            floats,
            next_weights,
            chance_weights,
            next_floats,
        ];
        Self::uploaded(network, [0, positions], Some(*unroll_steps), &numbers, [bytes, next_bytes])
    }

    fn uploaded(
        network: &Network,
        [board, positions]: [usize; 2],
        unroll_steps: Option<usize>,
        numbers: &[&[f32]],
        bytes: [&[u8]; 2],
    ) -> Result<Self, Error> {
        let (device, pins) = (network.device(), network.rules.pins_host_memory);
        let lengths = [numbers.iter().map(|part| part.len()).collect(), bytes.iter().map(|part| part.len()).collect()];
        Ok(Self {
            form: Form { board, positions, unroll_steps, lengths },
            numbers: upload(numbers, device, pins)?,
            bytes: upload(&bytes, device, pins)?,
        })
    }

    /// Copies the batch over `other`, which has the same form.
    pub(super) fn copy_to(&self, other: &Self) -> Result<(), Error> {
        let _guard = tch::no_grad_guard();
        other.numbers.shallow_clone().f_copy_(&self.numbers)?;
        Ok(other.bytes.shallow_clone().f_copy_(&self.bytes)?)
    }

    /// Returns the same tensors.
    pub(super) fn shallow_clone(&self) -> Self {
        let Self { form, numbers, bytes } = self;
        Self { form: form.clone(), numbers: numbers.shallow_clone(), bytes: bytes.shallow_clone() }
    }

    /// Returns the device of the batch.
    pub(super) fn device(&self) -> Device {
        self.numbers.device()
    }
}

/// A batch, or a range of rows, on the device.
#[derive(Debug)]
pub(super) struct Staged {
    /// Board index.
    pub(super) board: usize,
    pub(super) positions: usize,
    /// `[B, C, H, W]`, channels last in memory, float32.
    pub(super) observations: Tensor,
    pub(super) targets: ModelTargets,
    /// `[2]`: learning rates of the step, if the previous step is applied and if it is refused.
    pub(super) learning_rates: Tensor,
}

impl Staged {
    /// Copies a batch to the device, like [`Inputs::new`], and returns the tensors.
    ///
    /// # Errors
    /// The same as these functions.
    pub(super) fn new(
        examples: &Examples,
        network: &Network,
        boards: &Boards,
        learning_rates: [f32; 2],
    ) -> Result<Self, Error> {
        Self::of(&Inputs::new(examples, network, boards, learning_rates)?, network, boards)
    }

    /// Returns the tensors of a batch: views of `inputs`, and bytes expanded by the device.
    ///
    /// # Errors
    /// [`training::Error::BoardIndex`] if there is no such board; [`Error::OutOfMemory`], [`Error::Libtorch`].
    pub(super) fn of(inputs: &Inputs, network: &Network, boards: &Boards) -> Result<Self, Error> {
        let _guard = tch::no_grad_guard();
        let architecture = boards.get(inputs.form.board)?;
        match inputs.form.unroll_steps {
            None => Self::of_positions(inputs, architecture),
            Some(unroll_steps) => Self::of_unrolled(inputs, unroll_steps, architecture, needs_next(network)),
        }
    }

    fn of_positions(inputs: &Inputs, architecture: &Architecture) -> Result<Self, Error> {
        let (board, positions) = (inputs.form.board, inputs.form.positions);
        let [mut numbers, mut bytes] = Parts::of(inputs);
        let by_action = [size(positions), size(architecture.actions)];
        let (policies, wdl, policy_weights) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let (importance, learning_rates, floats) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let (legal, bytes) = (bytes.next()?, bytes.next()?);
        let observations = if floats.numel() > 0 { floats } else { bytes };
        let observations = channels_last(&observations, architecture, positions)?;
        let targets = Targets {
            positions: size(positions),
            policy_weight: losses::policy_weight(&policy_weights)?,
            policies: policies.f_view(by_action)?,
            illegal: legal.f_view(by_action)?.f_eq(0)?,
            wdl: wdl.f_view([size(positions), 3])?,
            policy_weights,
            importance: (importance.numel() > 0).then_some(importance),
        };
        let targets = ModelTargets::Alphazero(targets);
        Ok(Self { board, positions, observations, targets, learning_rates })
    }

    fn of_unrolled(
        inputs: &Inputs,
        unroll_steps: usize,
        architecture: &Architecture,
        needs_next: bool,
    ) -> Result<Self, Error> {
        let (board, positions) = (inputs.form.board, inputs.form.positions);
        let [mut numbers, mut bytes] = Parts::of(inputs);
        let [rows, steps] = [positions, unroll_steps].map(size);
        let actions = numbers.next()?.f_view([rows, steps])?;
        let policies = numbers.next()?.f_view([rows, steps + 1, size(architecture.actions)])?;
        let policy_weights = numbers.next()?.f_view([rows, steps + 1])?;
        let values = numbers.next()?.f_view([rows, steps + 1])?;
        let value_weights = numbers.next()?.f_view([rows, steps + 1])?;
        let rewards = numbers.next()?.f_view([rows, steps])?;
        let (importance, learning_rates, floats) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let (next_weights, chance_weights, next_floats) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let (of_roots, of_next) = (bytes.next()?, bytes.next()?);
        let chosen = |bytes: Tensor, floats: Tensor| if bytes.numel() > 0 { bytes } else { floats };
        let (observations, next_observations) = (chosen(of_roots, floats), chosen(of_next, next_floats));
        let next_states = match needs_next {
            true => {
                let by_row = channels_last(&next_observations, architecture, positions * unroll_steps)?;
                Some(NextStates {
                    observations: by_row.f_unflatten(0, [rows, steps])?,
                    weights: next_weights.f_view([rows, steps])?,
                    chance_weights: chance_weights.f_view([rows, steps])?,
                })
            }
            false => None,
        };
        let targets = UnrolledTargets {
            positions: rows,
            policy_weight: unrolled::policy_weight(&policy_weights)?,
            actions,
            policies,
            policy_weights,
            values,
            value_weights,
            rewards,
            next_states,
            importance: (importance.numel() > 0).then_some(importance),
        };
        let observations = channels_last(&observations, architecture, positions)?;
        Ok(Self { board, positions, observations, targets: ModelTargets::Muzero(targets), learning_rates })
    }

    /// Returns the rows `start..start + len` as a part of the same batch.
    pub(super) fn rows(&self, start: usize, len: usize) -> Result<Self, Error> {
        Ok(Self {
            board: self.board,
            positions: len,
            observations: self.observations.f_narrow(0, size(start), size(len))?,
            targets: self.targets.rows(size(start), size(len))?,
            learning_rates: self.learning_rates.shallow_clone(),
        })
    }
}

/// Returns observations as bytes and as float32; one of the two is empty.
fn numbers_of(observations: &Observations) -> (&[u8], &[f32]) {
    match observations {
        Observations::Bytes(bytes) => (bytes, &[]),
        Observations::Floats(floats) => (&[], floats),
    }
}

/// Converts observations `[B · C · H · W]` to `[B, C, H, W]` in float32, channels last in memory.
fn channels_last(observations: &Tensor, architecture: &Architecture, positions: usize) -> Result<Tensor, Error> {
    let &Architecture { planes, height, width, .. } = architecture;
    let [rows, planes, height, width] = [positions, planes, height, width].map(size);
    // Bytes are reordered before they are expanded, at a quarter of the memory.
    let by_cell = observations.f_view([rows, planes, height, width])?.f_permute([0, 2, 3, 1])?.f_reshape([-1])?;
    let observations = by_cell.f_to_kind(Kind::Float)?.f_view([rows, height, width, planes])?;
    Ok(observations.f_permute([0, 3, 1, 2])?)
}

/// Returns whether batches have the observations after each action.
fn needs_next(network: &Network) -> bool {
    network.layers.consistency().is_some() || network.architecture().model.codes() > 0
}

/// Copies slices to `device` as one tensor, in one transfer. From pinned memory nothing waits for it: libtorch keeps
/// that memory until the transfer has ended, and then reuses it for a later batch.
fn upload<T: Element + Copy>(slices: &[&[T]], device: Device, pins: bool) -> Result<Tensor, Error> {
    let joined = Tensor::f_from_slice(&slices.concat())?;
    Ok(match device {
        Device::Cpu => joined,
        // Where the system cannot pin memory, the copy is slower but equally correct.
        _ if pins && joined.numel() > 0 => {
            dispatcher::pinned(&joined).unwrap_or(joined).f_to_device_(device, T::KIND, true, false)?
        }
        _ => joined.f_to_device(device)?,
    })
}

/// Parts of a tensor, in order.
struct Parts<'a> {
    tensor: &'a Tensor,
    lengths: std::slice::Iter<'a, usize>,
    start: usize,
}

impl<'a> Parts<'a> {
    /// Returns the parts of the numbers and the parts of the bytes.
    fn of(Inputs { form, numbers, bytes }: &'a Inputs) -> [Self; 2] {
        let [of_numbers, of_bytes] = &form.lengths;
        let parts = |tensor, lengths: &'a [usize]| Self { tensor, lengths: lengths.iter(), start: 0 };
        [parts(numbers, of_numbers), parts(bytes, of_bytes)]
    }

    /// Returns the next part, `[len]`.
    fn next(&mut self) -> Result<Tensor, Error> {
        let (start, len) = (self.start, *self.lengths.next().expect("a length remains for each part"));
        self.start += len;
        Ok(self.tensor.f_narrow(0, size(start), size(len))?)
    }
}
