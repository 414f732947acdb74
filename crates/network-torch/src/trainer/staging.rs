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
    /// Copies a batch to the device of `network`: all float32 numbers in one copy, all bytes in another, which an
    /// accelerator expands.
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
        let architecture = boards.get(batch.board)?;
        let (actions, positions) = (architecture.actions, batch.positions(architecture)?);
        let device = network.device();
        let TrainingBatch { board, observations, policies, legal, wdl, policy_weights, importance } = batch;
        let (bytes, floats) = numbers_of(observations);
        let pins = network.rules.pins_host_memory;
        let numbers: [&[f32]; 6] = [policies, wdl, policy_weights, importance, &learning_rates, floats];
        let mut numbers = Parts::upload(&numbers, device, pins)?;
        let mut bytes = Parts::upload(&[legal, bytes], device, pins)?;

        let by_action = [size(positions), size(actions)];
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
        Ok(Self { board: *board, positions, observations, targets, learning_rates })
    }

    fn of_unrolled(batch: &UnrolledBatch, network: &Network, learning_rates: [f32; 2]) -> Result<Self, Error> {
        let architecture = network.architecture();
        let positions = batch.positions(architecture)?;
        let device = network.device();
        let UnrolledBatch { unroll_steps, observations, actions, policies, .. } = batch;
        let UnrolledBatch { policy_weights, values, value_weights, rewards, importance, .. } = batch;
        let UnrolledBatch { next_observations, next_weights, chance_weights, .. } = batch;
        let needs_next = network.layers.consistency().is_some() || architecture.model.codes() > 0;
        if needs_next && !batch.has_next_observations() {
            let expected = observations.len() * unroll_steps;
            return Err(training::Error::Batch { field: "next_observations", expected, got: 0 }.into());
        }
        let (bytes, floats) = numbers_of(observations);
        let (next_bytes, next_floats): (&[u8], &[f32]) =
            if needs_next { numbers_of(next_observations) } else { (&[], &[]) };
        let [next_weights, chance_weights]: [&[f32]; 2] =
            if needs_next { [next_weights, chance_weights] } else { [&[], &[]] };
        let pins = network.rules.pins_host_memory;
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
        let mut numbers = Parts::upload(&numbers, device, pins)?;
        let [rows, steps] = [positions, *unroll_steps].map(size);
        let actions = numbers.next()?.f_view([rows, steps])?;
        let policies = numbers.next()?.f_view([rows, steps + 1, size(architecture.actions)])?;
        let policy_weights = numbers.next()?.f_view([rows, steps + 1])?;
        let values = numbers.next()?.f_view([rows, steps + 1])?;
        let value_weights = numbers.next()?.f_view([rows, steps + 1])?;
        let rewards = numbers.next()?.f_view([rows, steps])?;
        let (importance, learning_rates, floats) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let (next_weights, chance_weights, next_floats) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let (observations, next_observations) = if bytes.is_empty() && next_bytes.is_empty() {
            (floats, next_floats)
        } else {
            let mut parts = Parts::upload(&[bytes, next_bytes], device, pins)?;
            let (of_roots, of_next) = (parts.next()?, parts.next()?);
            let chosen = |bytes: Tensor, floats: Tensor| if bytes.numel() > 0 { bytes } else { floats };
            (chosen(of_roots, floats), chosen(of_next, next_floats))
        };
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
        Ok(Self { board: 0, positions, observations, targets: ModelTargets::Muzero(targets), learning_rates })
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

/// Slices copied to a device as one tensor, in order.
struct Parts {
    tensor: Tensor,
    lengths: std::vec::IntoIter<usize>,
    start: usize,
}

impl Parts {
    /// Copies the slices to `device` in one transfer. From pinned memory nothing waits for it: libtorch keeps that
    /// memory until the transfer has ended, and then reuses it for a later batch.
    fn upload<T: Element + Copy>(slices: &[&[T]], device: Device, pins: bool) -> Result<Self, Error> {
        let joined = Tensor::f_from_slice(&slices.concat())?;
        let tensor = match device {
            Device::Cpu => joined,
            // Where the system cannot pin memory, the copy is slower but equally correct.
            _ if pins => dispatcher::pinned(&joined).unwrap_or(joined).f_to_device_(device, T::KIND, true, false)?,
            _ => joined.f_to_device(device)?,
        };
        let lengths: Vec<usize> = slices.iter().map(|slice| slice.len()).collect();
        Ok(Self { tensor, lengths: lengths.into_iter(), start: 0 })
    }

    /// Returns the next slice, `[len]`.
    fn next(&mut self) -> Result<Tensor, Error> {
        let (start, len) = (self.start, self.lengths.next().expect("a length remains for each slice"));
        self.start += len;
        Ok(self.tensor.f_narrow(0, size(start), size(len))?)
    }
}
