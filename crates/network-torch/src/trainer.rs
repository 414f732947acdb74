mod contribution;
mod graphs;
mod layer_check;
mod measured;
mod snapshot;
mod staging;

use std::collections::{BTreeMap, VecDeque};

use tch::{Device, Kind, Tensor};
use training::checkpoint::State;
use training::{
    Boards, Contents, Contributed, Contribution, Examples, Group, LOSSES, Laps, LossScale, Losses, Memory,
    MixedPrecision, Placed, Recompute, StepTimes, Trained, Trainer as _, TrainerSettings,
};
use weights::Architecture;

pub use self::contribution::DeviceContribution;
use self::graphs::Graphs;
use self::measured::{Measured, Read};
use self::snapshot::Snapshot;
use self::staging::{Inputs, ModelTargets, Staged};
use crate::{
    Error, Network, Purpose,
    gpu::Completion,
    loss_scale::{ScaleOnDevice, scale_of, scaled},
    losses::{self, LossTensors},
    memory,
    moments::{self, Moment},
    muzero::{self, LatentTower},
    network,
    optimiser::{self, StepSettings},
    process,
    recompute::Segments,
    rules::{self, device_name},
    tower::{self, Mode},
    unrolled::{self, DYNAMICS_GRADIENT},
};

/// A network in training: weights, running average, optimiser state, and position in the schedule.
///
/// The device decides by itself whether a step is applied. The next step, which may be queued already, is computed as
/// if a refused one had not been taken.
///
/// Steps use no random numbers: on a CPU the same batches give the same weights, bit for bit for the same number of
/// threads.
#[derive(Debug)]
pub struct Trainer {
    settings: TrainerSettings,
    boards: Boards,
    network: Network,
    /// All parameters, grouped by step rule.
    groups: Vec<Group>,
    /// The network with weights in the precision of the passes, if that is not float32.
    lowered: Option<Network>,
    /// `[P]` and `[S]`: published averages of the parameters and of the running statistics. A step writes to all
    /// tensors of the state in place, so that a recorded step stays valid.
    average_parameters: Tensor,
    average_statistics: Tensor,
    /// One `[P]` per moment of the optimiser.
    moments: Vec<Moment>,
    /// Number of the next step to apply, from 1: `[1]`, float32, on the device. Exact up to 2²⁴ steps.
    next_step: Tensor,
    /// Whether the device applies the latest queued step: `[1]`, bool.
    last_applied: Tensor,
    /// Steps applied and collected.
    step: u64,
    progress: f64,
    /// Steps before the equally weighted average started.
    averaged_since: Option<u64>,
    /// Loss scale in float16, and the loss scale of the latest collected step.
    loss_scale: Option<ScaleOnDevice>,
    collected_scale: Option<f32>,
    /// The same as in [`MixedPrecision`].
    float32_layers: BTreeMap<String, f64>,
    queued: VecDeque<Queued>,
    graphs: Graphs,
    /// Points of collected steps, for later steps: an event of CUDA is not created for each step.
    idle: Vec<Completion>,
    /// Whether the next step keeps a copy of the gradient, and the copy, `[P]`.
    keeps_gradient: bool,
    kept_gradient: Option<Tensor>,
    /// Device of the observations in the last batch.
    batch_device: Option<Device>,
    /// Maximum positions in one pass by board index, for boards with a split batch so far.
    split_boards: BTreeMap<usize, usize>,
    micro_batches: usize,
    /// Faults with which a test lets the CPU stand in for an accelerator.
    #[cfg(any(test, feature = "doubles"))]
    stand_in: crate::stand_in::TrainingDevice,
}

/// A step submitted to the device.
#[derive(Debug)]
struct Queued {
    measured: Measured,
    times: StepTimes,
}

/// Losses of a batch and the gradient `[P]`, on the device.
struct Pass {
    losses: LossTensors,
    gradient: Tensor,
}

/// Pass of a batch that has updated the running statistics.
struct Computed {
    pass: Pass,
    /// The same as in [`Staged`].
    learning_rates: Tensor,
    /// Running statistics before the batch, `[S]`.
    statistics: Tensor,
    times: StepTimes,
}

impl Trainer {
    /// Creates a trainer of `network`; the average starts as a copy of the weights.
    ///
    /// # Errors
    /// [`training::Error::Setting`] names a setting outside the accepted range, or a consistency loss for a network
    /// without the heads; [`Error::Device`] names a precision in which the device does not train.
    pub fn new(network: Network, settings: TrainerSettings) -> Result<Self, Error> {
        settings.check(&network.layers)?;
        network.rules.check(network.device(), settings.precision, Purpose::Training)?;
        if settings.recompute == Recompute::Blocks && network.layers.alphazero().is_err() {
            return Err(Error::Recompute);
        }
        let _guard = tch::no_grad_guard();
        let zeros = |&kind| {
            moments::zeros(kind, settings.moments, network.flat_parameters.numel(), network.flat_parameters.device())
        };
        let moments = settings.optimiser.moment_kinds().iter().map(zeros).collect::<Result<_, _>>()?;
        Ok(Self {
            average_parameters: network.flat_parameters.f_detach_copy()?,
            average_statistics: network.flat_statistics.f_detach_copy()?,
            moments,
            groups: network.layout.groups(settings.optimiser),
            averaged_since: None,
            next_step: network::upload(&[1.0], network.device())?,
            last_applied: Tensor::f_ones([1_i64], (Kind::Bool, network.device()))?,
            graphs: Graphs::new(network.device()),
            split_boards: BTreeMap::new(),
            micro_batches: 1,
            lowered: network.lowered(settings.precision, Default::default())?,
            loss_scale: scale_of(settings.precision, None, network.device())?,
            collected_scale: None,
            float32_layers: BTreeMap::new(),
            settings,
            boards: Boards::new(network.architecture().clone()),
            network,
            step: 0,
            progress: 0.0,
            queued: VecDeque::new(),
            idle: Vec::new(),
            keeps_gradient: false,
            kept_gradient: None,
            batch_device: None,
            #[cfg(any(test, feature = "doubles"))]
            stand_in: crate::stand_in::of_process(),
        })
    }

    /// Creates a trainer with the state of a checkpoint.
    ///
    /// The given settings apply: a run may continue with another learning rate, but not with another optimiser.
    ///
    /// # Errors
    /// The same as [`new`](Self::new) and [`load`](training::Trainer::load).
    pub fn restore(
        architecture: &Architecture,
        settings: TrainerSettings,
        device: Device,
        files: &[(String, Vec<u8>)],
    ) -> Result<Self, Error> {
        // The seed does not matter: every number is replaced.
        let mut trainer = Self::new(Network::to_train(architecture, &settings, device, 0)?, settings)?;
        trainer.load(files)?;
        Ok(trainer)
    }

    /// Returns the network as trained so far, without averaging.
    #[must_use]
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Copies examples to the device and counts a step without computing it.
    fn stage_alone(&mut self, examples: &Examples, laps: &mut Laps<'_>) -> Result<(), Error> {
        let _guard = tch::no_grad_guard();
        let staged = Staged::new(examples, &self.network, &self.boards, [0.0; 2])?;
        let times = StepTimes { stage: laps.lap(), ..StepTimes::default() };
        let device = self.network.device();
        let errors = staged.targets.importance().map(Tensor::f_zeros_like).transpose()?;
        let scalars = network::upload(&[0.0; LOSSES], device)?;
        let numbers = measured::joined(&scalars, errors.as_ref())?;
        let measured = Measured::new(&numbers, LOSSES, &mut self.idle)?;
        let _ = self.last_applied.f_fill_(1_i64)?;
        let _ = self.next_step.f_add_scalar_(1.0)?;
        self.queued.push_back(Queued { measured, times });
        Ok(())
    }

    fn queue_in_laps(&mut self, examples: &Examples, laps: &mut Laps<'_>) -> Result<(), Error> {
        self.check_layers_if_due(examples)?;
        let inputs = self.inputs(examples)?;
        self.choose_average();
        let (numbers, mut times) = match self.by_graph(&inputs, laps) {
            Some(stepped) => stepped,
            None => self.eagerly(&inputs, laps)?,
        };
        let scalars = LOSSES + usize::from(self.loss_scale.is_some());
        let measured = Measured::new(&numbers, scalars, &mut self.idle)?;
        times.optimiser += laps.lap();
        self.queued.push_back(Queued { measured, times });
        Ok(())
    }

    /// Copies a batch to the device.
    fn inputs(&mut self, examples: &Examples) -> Result<Inputs, Error> {
        process::apply();
        let inputs = Inputs::new(examples, &self.network, &self.boards, self.learning_rates())?;
        self.batch_device = Some(inputs.device());
        Ok(inputs)
    }

    /// Submits the operations of a step one after the other. Returns the numbers of [`measured::joined`].
    fn eagerly(&mut self, inputs: &Inputs, laps: &mut Laps<'_>) -> Result<(Tensor, StepTimes), Error> {
        let Computed { pass: Pass { losses, gradient }, learning_rates, statistics, mut times } =
            self.compute(inputs, laps)?;
        let _guard = tch::no_grad_guard();
        let scalars = self.scalars(&losses.scalars, &gradient)?;
        times.backward += laps.lap();
        self.keep_if_asked(&gradient)?;
        self.update(gradient, &scalars, &learning_rates, &statistics)?;
        Ok((measured::joined(&scalars, losses.value_errors.as_ref())?, times))
    }

    /// Computes the gradient of a batch, and updates the running statistics.
    fn compute(&mut self, inputs: &Inputs, laps: &mut Laps<'_>) -> Result<Computed, Error> {
        let staged = Staged::of(inputs, &self.network, &self.boards)?;
        let mut times = StepTimes { stage: laps.lap(), ..StepTimes::default() };
        let statistics = self.prepare()?;
        match self.split(&staged, &statistics, laps, &mut times) {
            Ok(pass) => Ok(Computed { pass, learning_rates: staged.learning_rates, statistics, times }),
            Err(error) => {
                // The forward pass has already updated the running statistics.
                self.restore_statistics(&statistics)?;
                Err(error)
            }
        }
    }

    /// Casts the weights for the passes of a step. Returns a copy of the running statistics, `[S]`.
    fn prepare(&self) -> Result<Tensor, Error> {
        if let Some(lowered) = &self.lowered {
            lowered.cast_again(&self.network)?;
        }
        Ok(self.network.flat_statistics.f_detach_copy()?)
    }

    fn collect_in_laps(&mut self, laps: &mut Laps<'_>) -> Option<Result<Trained, Error>> {
        #[cfg(any(test, feature = "doubles"))]
        if let Err(error) = self.stand_in.synchronise(self.submitted()) {
            return Some(Err(error));
        }
        let Queued { measured, mut times } = self.queued.pop_front()?;
        let read = measured.read(self.settings.weight_decay);
        times.backward += laps.lap();
        Some(read.and_then(|Read { losses, value_errors, loss_scale, completion }| {
            self.idle.extend(completion);
            self.collected_scale = loss_scale;
            self.refuse_not_finite(losses, loss_scale)?;
            self.step += 1;
            Ok(Trained { losses, value_errors, times })
        }))
    }

    /// Returns the number of steps applied and queued.
    fn submitted(&self) -> u64 {
        self.step + self.queued.len() as u64
    }

    fn learning_rate_after(&self, steps: u64) -> f64 {
        self.settings.learning_rate_after(steps, self.progress)
    }

    /// Returns the learning rates of the next step, if the latest queued step is applied and if it is refused. Older
    /// steps are taken as applied: with a queue of one step there are none.
    fn learning_rates(&self) -> [f32; 2] {
        let queued = self.queued.len() as u64;
        [queued, queued.saturating_sub(1)].map(|queued| self.learning_rate_after(self.step + queued) as f32)
    }

    /// Returns the maximum positions in one pass of a batch on a board.
    fn pass_positions(&self, board: usize, positions: usize) -> usize {
        self.micro_batch(board).unwrap_or(positions).min(positions)
    }

    /// Returns the maximum positions in one pass on a board, if batches there are split.
    fn micro_batch(&self, board: usize) -> Option<usize> {
        let configured = self.settings.micro_batch;
        self.split_boards.get(&board).copied().or((configured > 0).then_some(configured))
    }

    /// Runs the batch forward and backward, in micro-batches of half the size each time that memory runs out.
    fn split(
        &mut self,
        staged: &Staged,
        statistics: &Tensor,
        laps: &mut Laps<'_>,
        times: &mut StepTimes,
    ) -> Result<Pass, Error> {
        loop {
            let positions = self.pass_positions(staged.board, staged.positions);
            self.micro_batches = staged.positions.div_ceil(positions);
            match self.micro_batches_of(staged, self.micro_batches, laps, times) {
                Err(Error::OutOfMemory { message }) if self.graphs.release(&message) => {
                    self.restore_statistics(statistics)?;
                }
                Err(Error::OutOfMemory { .. }) if positions > 1 => {
                    self.restore_statistics(statistics)?;
                    self.split_boards.insert(staged.board, positions.div_ceil(2));
                }
                outcome => return outcome,
            }
        }
    }

    /// Accumulates the losses and gradients of `parts` micro-batches of about equal size.
    fn micro_batches_of(
        &self,
        staged: &Staged,
        parts: usize,
        laps: &mut Laps<'_>,
        times: &mut StepTimes,
    ) -> Result<Pass, Error> {
        let mut sum: Option<Pass> = None;
        for part in 0..parts {
            let [start, end] = [part, part + 1].map(|part| part * staged.positions / parts);
            let pass = self.forward_backward(&staged.rows(start, end - start)?, laps, times)?;
            let _guard = tch::no_grad_guard();
            sum = Some(match sum {
                None => pass,
                Some(Pass { losses, mut gradient }) => {
                    let _ = gradient.f_add_(&pass.gradient)?;
                    Pass { losses: losses.join(&pass.losses)?, gradient }
                }
            });
        }
        Ok(sum.expect("a batch has positions"))
    }

    fn forward_backward(&self, staged: &Staged, laps: &mut Laps<'_>, times: &mut StepTimes) -> Result<Pass, Error> {
        #[cfg(any(test, feature = "doubles"))]
        self.stand_in.allocate(self.submitted(), staged.positions, &self.network.flat_statistics)?;
        let kind = rules::kind(self.settings.precision);
        let network = &self.network;
        let lowered = self.lowered.as_ref().unwrap_or(network);
        let observations = staged.observations.f_to_kind(lowered.activation_kind(kind))?;
        let (losses, gradient) = match &staged.targets {
            ModelTargets::Alphazero(targets) if self.settings.recompute == Recompute::Blocks => {
                let segments = Segments::forward(lowered, &observations, kind)?;
                let x = segments.output()?;
                let logits = tower::heads(lowered, &x, kind, Mode::Training)?;
                let losses = losses::losses(&logits, targets, &self.settings.loss_weights)?;
                times.forward += laps.lap();
                let gradient =
                    segments.gradient(lowered, kind, &x, &scaled(&losses.scalars.total, self.loss_scale.as_ref())?)?;
                (losses, gradient)
            }
            _ => {
                let losses = self.losses(lowered, staged, kind, Mode::Training)?;
                times.forward += laps.lap();
                let total = scaled(&losses.scalars.total, self.loss_scale.as_ref())?;
                let gradients = Tensor::f_run_backward(&[total], &lowered.parameters, false, false)?;
                (losses, network::flatten(&lowered.layout.parameters, &gradients)?)
            }
        };
        let gradient = match &self.loss_scale {
            Some(scale) => tch::no_grad(|| Ok::<_, Error>(gradient.f_div(&scale.factor()?)?))?,
            None => gradient,
        };
        Ok(Pass { losses, gradient })
    }

    /// Runs rows of a batch through `network` with products in `kind`, and returns the losses.
    fn losses(&self, network: &Network, staged: &Staged, kind: Kind, mode: Mode) -> Result<LossTensors, Error> {
        let observations = staged.observations.f_to_kind(network.activation_kind(kind))?;
        match &staged.targets {
            ModelTargets::Alphazero(targets) => {
                let logits = tower::forward(network, &observations, kind, mode)?;
                losses::losses(&logits, targets, &self.settings.loss_weights)
            }
            ModelTargets::Muzero(targets) => {
                let tower = LatentTower::new(network, kind, mode)?;
                let next = targets.next_states.as_ref().map(|next| &next.observations);
                let predictions = muzero::unroll(tower, &observations, &targets.actions, DYNAMICS_GRADIENT, next)?;
                unrolled::losses(&predictions, targets, &self.settings.loss_weights)
            }
        }
    }

    /// Restores the running statistics from before a step.
    fn restore_statistics(&self, statistics: &Tensor) -> Result<(), Error> {
        let _guard = tch::no_grad_guard();
        Ok(self.network.flat_statistics.shallow_clone().f_copy_(statistics)?)
    }

    /// Returns the scalars of a step on the device: the losses, with the sum of squared weights as the L2 term, and the
    /// loss scale, if there is one.
    fn scalars(&self, losses: &Losses<Tensor>, gradient: &Tensor) -> Result<Tensor, Error> {
        let decayed = i64::try_from(self.network.layout.decayed()).expect("parameters fit memory");
        let weights = self.network.flat_parameters.f_narrow(0, 0, decayed)?;
        let (gradient_norm, l2) = (gradient.f_norm()?, weights.f_square()?.f_sum(None::<Kind>)?);
        let losses = Losses { gradient_norm: &gradient_norm, l2: &l2, ..losses.each_ref() };
        let scale = self.loss_scale.as_ref().map(ScaleOnDevice::factor).transpose()?;
        let scalars: Vec<&Tensor> = losses.into_array().into_iter().chain(&scale).collect();
        Ok(Tensor::f_stack(&scalars, 0)?)
    }

    fn refuse_not_finite(&self, losses: Losses, loss_scale: Option<f32>) -> Result<(), Error> {
        let step = self.step + 1;
        match (losses.not_finite(), loss_scale) {
            (None, _) => Ok(()),
            (Some("gradient norm"), Some(scale)) if scale > LossScale::MIN => {
                Err(training::Error::Overflow { loss_scale: scale.into(), step }.into())
            }
            (Some(quantity), _) => Err(training::Error::NotFinite { quantity, step }.into()),
        }
    }

    /// Keeps a copy of the gradient on request.
    fn keep_if_asked(&mut self, gradient: &Tensor) -> Result<(), Error> {
        if std::mem::take(&mut self.keeps_gradient) {
            self.kept_gradient = Some(gradient.f_detach_copy()?);
        }
        Ok(())
    }

    /// Applies a step if the quantities of [`refuse_not_finite`](Self::refuse_not_finite) are finite, which the
    /// device decides, and records the decision in place.
    fn update(
        &self,
        gradient: Tensor,
        scalars: &Tensor,
        learning_rates: &Tensor,
        statistics: &Tensor,
    ) -> Result<(), Error> {
        let is_applied = scalars.f_narrow(0, 0, measured::FINITE)?.f_isfinite()?.f_all()?.f_view([1])?;
        let share = self.average_share()?;
        // Without a queued step both are equal.
        let [applied, refused] = [0, 1].map(|index| learning_rates.f_narrow(0, index, 1));
        let learning_rate = applied?.f_where_self(&self.last_applied, &refused?)?;
        let step = StepSettings {
            groups: &self.groups,
            learning_rate: &learning_rate,
            weight_decay: self.settings.weight_decay,
            step: &self.next_step,
            // The gradient is divided by the ratio of the norm to the maximum norm.
            scale: &scalars
                .f_narrow(0, measured::GRADIENT_NORM, 1)?
                .f_divide_scalar(self.settings.gradient_clip_norm)?
                .f_clamp_min(1.0)?,
            is_applied: &is_applied,
        };
        let parameters = &self.network.flat_parameters;
        optimiser::apply(step, gradient, &self.moments, parameters)?;

        let running = &self.network.flat_statistics;
        for (average, newest) in [(&self.average_parameters, parameters), (&self.average_statistics, running)] {
            let moved = average.f_lerp_tensor(newest, &share)?;
            let _ = moved.f_where_self_out(average, &is_applied, average)?;
        }
        running.shallow_clone().f_copy_(&running.f_where_self(&is_applied, statistics)?)?;
        let _ = self.next_step.shallow_clone().f_add_(&is_applied.f_to_kind(Kind::Float)?)?;
        if let Some(scale) = &self.loss_scale {
            let finite_losses = scalars.f_narrow(0, 0, measured::GRADIENT_NORM)?.f_isfinite()?.f_all()?.f_view([1])?;
            scale.update(&is_applied, &finite_losses)?;
        }
        Ok(self.last_applied.shallow_clone().f_copy_(&is_applied)?)
    }

    /// Starts the equally weighted average once the progress has reached it.
    fn choose_average(&mut self) {
        let steps = self.submitted();
        let progress = self.settings.progress_after(steps, self.progress);
        if self.averaged_since.is_none() && self.settings.averages_equally(progress) {
            self.averaged_since = Some(steps);
            self.graphs.clear();
        }
    }

    /// Returns the share of the new weights in the average, `[1]`: [`TrainerSettings::average_share`] on the device,
    /// which alone has the number of applied steps.
    fn average_share(&self) -> Result<Tensor, Error> {
        Ok(match self.averaged_since {
            // After a refused step the device may have applied fewer steps than were queued.
            Some(since) => self.next_step.f_add_scalar(-(since as f64))?.f_clamp_min(1.0)?.f_reciprocal()?,
            None => {
                let shares = self.next_step.f_add_scalar(9.0)?.f_reciprocal()?.f_multiply_scalar(9.0)?;
                shares.f_clamp_min(1.0 - self.settings.ema_decay)?
            }
        })
    }
}

impl training::Trainer for Trainer {
    fn add_board(&mut self, architecture: &Architecture) -> Result<usize, training::Error> {
        self.boards.add(architecture)
    }

    fn queue(&mut self, examples: &Examples, laps: &mut Laps<'_>) -> Result<(), training::Error> {
        Ok(self.queue_in_laps(examples, laps)?)
    }

    fn queue_nothing(&mut self, examples: &Examples, laps: &mut Laps<'_>) -> Result<(), training::Error> {
        Ok(self.stage_alone(examples, laps)?)
    }

    fn collect(&mut self, laps: &mut Laps<'_>) -> Option<Result<Trained, training::Error>> {
        self.collect_in_laps(laps).map(|trained| Ok(trained?))
    }

    fn contribute(&mut self, examples: &Examples, laps: &mut Laps<'_>) -> Result<Contributed, training::Error> {
        let Contributed { contribution, value_errors, mut times } =
            self.contribute_on_device(Some(examples), &[], laps)?;
        let contribution = contribution.download()?;
        times.backward += laps.lap();
        Ok(Contributed { contribution, value_errors, times })
    }

    fn no_contribution(&self) -> Contribution {
        Contribution::nothing(self.network.flat_parameters.numel(), self.network.flat_statistics.numel())
    }

    /// Trainers with the same state that take the same mean on devices of the same kind have the same state again, bit
    /// for bit.
    fn apply(&mut self, mean: Contributed, laps: &mut Laps<'_>) -> Result<Trained, training::Error> {
        let Contributed { contribution, value_errors, times } = mean;
        let contribution = self.uploaded(contribution.numbers())?;
        Ok(self.apply_on_device(Contributed { contribution, value_errors, times }, laps)?)
    }

    /// An estimate.
    fn memory(&mut self, batch: usize, unroll_steps: usize) -> Memory {
        let boards = (0..).map_while(|board| self.boards.get(board).ok());
        let of_board = |board| memory::memory(&self.network, board, &self.settings, [batch, unroll_steps]);
        boards.map(of_board).max_by_key(|memory| memory.activations).expect("the network has a board")
    }

    /// Returns 1 on an accelerator, 0 on the CPU.
    fn queue_depth(&self) -> usize {
        #[cfg(any(test, feature = "doubles"))]
        if self.stand_in.recorder.is_some() {
            return 1;
        }
        usize::from(self.network.device() != Device::Cpu)
    }

    fn micro_batches(&self) -> usize {
        self.micro_batches
    }

    fn set_progress(&mut self, progress: f64) {
        self.progress = if progress.is_nan() { 0.0 } else { progress.clamp(0.0, 1.0) };
    }

    fn step_count(&self) -> u64 {
        self.step
    }

    fn learning_rate(&self) -> f64 {
        self.learning_rate_after(self.submitted())
    }

    fn loss_scale(&self) -> Option<f64> {
        self.collected_scale.map(f64::from)
    }

    fn float32_layers(&self) -> &BTreeMap<String, f64> {
        &self.float32_layers
    }

    fn keep_gradient(&mut self) {
        self.keeps_gradient = true;
    }

    fn take_gradient(&mut self) -> Result<Option<Vec<f32>>, training::Error> {
        Ok(self.kept_gradient.take().map(|gradient| network::download(&gradient)).transpose()?)
    }

    /// Copies the state on the device; on a device that takes work of one thread only, to host memory.
    fn snapshot(&self, contents: Contents) -> Result<Box<dyn training::Snapshot>, training::Error> {
        debug_assert!(self.queued.is_empty(), "a step is queued, and whether it is applied is unknown");
        Ok(Box::new(Snapshot::of(self, contents).copy()?))
    }

    fn load(&mut self, files: &[(String, Vec<u8>)]) -> Result<(), training::Error> {
        let State { network, average, moments, step, progress, averaged_since, mixed } =
            State::read(&self.network.layout, self.settings.optimiser, self.settings.moments, files)?;
        let device = self.network.device();
        let of_numbers =
            |numbers| Network::from_numbers(self.network.architecture(), numbers, self.network.layers.clone(), device);
        let (network, average) = (of_numbers(&network)?, of_numbers(&average)?);
        let moments = moments.iter().map(|moment| Moment::upload(moment, device)).collect::<Result<_, _>>()?;
        let next_step = network::upload(&[(step + 1) as f32], device)?;

        let MixedPrecision { loss_scale, float32_layers } = mixed;
        let loss_scale = scale_of(self.settings.precision, loss_scale, device)?;

        self.graphs.clear();
        // Without adaptive precision every layer is computed in the configured precision.
        self.float32_layers = if self.settings.is_adaptive { float32_layers } else { BTreeMap::new() };
        self.lowered = network.lowered(self.settings.precision, self.float32_layers.keys().cloned().collect())?;
        self.loss_scale = loss_scale;
        self.collected_scale = None;
        self.average_parameters = average.flat_parameters.shallow_clone();
        self.average_statistics = average.flat_statistics.shallow_clone();
        self.network = network;
        self.moments = moments;
        self.next_step = next_step;
        self.step = step;
        self.averaged_since = averaged_since;
        self.queued.clear();
        self.set_progress(progress);
        Ok(())
    }

    fn graphs(&self) -> Option<&str> {
        self.graphs.refusal()
    }

    fn placement(&self) -> Vec<Placed> {
        let tensors = [
            ("parameters", Some(self.network.device())),
            ("average", Some(self.average_parameters.device())),
            ("moments", self.moments.first().map(Moment::device)),
            ("batch", self.batch_device),
        ];
        let placed = |(what, device): (_, Option<Device>)| Some(Placed { what, device: device_name(device?) });
        tensors.into_iter().filter_map(placed).collect()
    }
}

#[cfg(test)]
mod tests;
