mod laps;
mod measured;
mod snapshot;
mod staging;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ::network::Reader;
use tch::{Device, Kind, Tensor};
use weights::Architecture;

use self::laps::Laps;
use self::measured::Measured;
use self::snapshot::{AVERAGE_FILE, NETWORK_FILE, OPTIMISER_FILE};
pub use self::snapshot::{Contents, Snapshot};
use self::staging::{ModelTargets, Staged};
use crate::{
    Decay, Error, Examples, Losses, Network, Optimiser, Precision, Purpose, TrainingKernel,
    custom_backward::CustomBackward,
    layout,
    losses::{self, LossTensors},
    muzero::{self, LatentTower},
    network,
    optimiser::{self, StepSettings},
    process,
    tower::{self, Mode},
    unrolled::{self, DYNAMICS_GRADIENT, LossWeights},
};

/// Settings of training.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainerSettings {
    /// The rule that turns gradients into steps.
    pub optimiser: Optimiser,
    /// The learning rate at its peak, after the warm-up.
    pub learning_rate: f64,
    /// Training steps over which the learning rate rises linearly from near zero.
    pub warm_up_steps: u64,
    /// The decay of the learning rate with progress.
    pub decay: Decay,
    /// The number of training steps after which progress is 1; `None` if only [`Trainer::set_progress`] changes it.
    pub decay_steps: Option<u64>,
    /// Weight decay of convolutions and matrices; batch norms and biases have none.
    pub weight_decay: f64,
    /// Gradients with a larger norm are scaled down to this norm.
    pub gradient_clip_norm: f64,
    /// Share of the old average that each step keeps; early steps keep less, `min(this, (1 + t) / (10 + t))`, so that
    /// the initial weights soon lose their influence.
    pub ema_decay: f64,
    /// The factor of the value loss.
    pub value_loss_weight: f64,
    /// The factor of the consistency loss of MuZero (Ye et al. 2021), 2 as published; above 0 the network has its heads
    /// ([`network`](Self::network)), and batches hold the observations of the unrolled steps.
    pub consistency_loss_weight: f64,
    /// The number format of convolutions and matrices; parameters and losses are float32.
    pub precision: Precision,
    /// The kernel of stem and tower.
    pub tower: TrainingKernel,
    /// The most positions that are run through the network at once; a larger batch is split into micro-batches of about
    /// equal size whose gradients are added. 0 splits a batch only after the device ran out of memory for it. Each
    /// micro-batch has its own statistics of batch norms and moves the running ones.
    pub micro_batch: usize,
}

impl TrainerSettings {
    /// The defaults for MuZero: those for AlphaZero with a quarter of the value loss, against overfitting of the value
    /// (Schrittwieser et al. 2020, appendix H).
    #[must_use]
    pub fn muzero() -> Self {
        Self { value_loss_weight: 0.25, ..Self::default() }
    }
}

impl Default for TrainerSettings {
    /// AdamW at 1e-3 with a short warm-up and a cosine decay to a twentieth: with these, small towers learn small
    /// boards in minutes.
    fn default() -> Self {
        Self {
            optimiser: Optimiser::adamw(),
            learning_rate: 1e-3,
            warm_up_steps: 100,
            decay: Decay::Cosine { floor: 0.05 },
            decay_steps: None,
            weight_decay: 1e-4,
            gradient_clip_norm: 4.0,
            ema_decay: 0.999,
            value_loss_weight: 1.0,
            consistency_loss_weight: 0.0,
            precision: Precision::F32,
            tower: TrainingKernel::Auto,
            micro_batch: 0,
        }
    }
}

impl TrainerSettings {
    /// Creates the new network that these settings train: with the heads of the consistency loss, if it has a weight.
    ///
    /// # Errors
    /// [`Error::Network`] names the dimension that is out of range, or the model, since AlphaZero has no consistency
    /// loss.
    pub fn network(&self, architecture: &Architecture, device: Device, seed: u64) -> Result<Network, Error> {
        match self.consistency_loss_weight > 0.0 {
            true => Network::with_consistency(architecture, device, seed),
            false => Network::new(architecture, device, seed),
        }
    }

    fn check(&self, network: &Network) -> Result<(), Error> {
        self.optimiser.check()?;
        self.decay.check()?;
        let is_factor = |x: f64| x >= 0.0 && x.is_finite();
        let factor = |field, x| (field, x, is_factor(x), "a finite number, 0 or above");
        let (clip, ema, consistency) = (self.gradient_clip_norm, self.ema_decay, self.consistency_loss_weight);
        let has_heads = consistency == 0.0 || network.layers.consistency().is_some();
        let checks = [
            factor("learning_rate", self.learning_rate),
            factor("weight_decay", self.weight_decay),
            factor("value_loss_weight", self.value_loss_weight),
            factor("consistency_loss_weight", consistency),
            ("consistency_loss_weight", consistency, has_heads, "0 for a network without its heads"),
            ("gradient_clip_norm", clip, clip > 0.0, "above 0"),
            ("ema_decay", ema, (0.0..1.0).contains(&ema), "from 0 to below 1"),
        ];
        match checks.into_iter().find(|(.., is_good, _)| !is_good) {
            Some((field, got, _, expected)) => Err(Error::Setting { field, got, expected }),
            None => Ok(()),
        }
    }
}

/// The durations of the parts of a training step, as seen by the caller: an accelerator may still be computing when a
/// call returns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepTimes {
    /// Copying the batch to the device.
    pub stage: Duration,
    /// The forward pass of the network and its losses.
    pub forward: Duration,
    /// Gradients and their norm, and reading the losses, which waits for an accelerator to finish the step.
    pub backward: Duration,
    /// Clipping, the optimiser, the average.
    pub optimiser: Duration,
}

/// The results of a training step.
#[derive(Debug, Clone, PartialEq)]
pub struct Trained {
    /// The losses before the step updated the weights.
    pub losses: Losses,
    /// The distance of the value of each row from its target, `[B]`; empty if the batch had no importance. Values of
    /// AlphaZero are win minus loss; those of MuZero the predicted values of the roots, in units of the reward.
    pub value_errors: Vec<f32>,
    /// The durations of its parts.
    pub times: StepTimes,
}

/// A network being trained: weights, their running average, the optimiser's state, the position in the schedule.
///
/// A step is queued by [`queue`](Self::queue) and its results are read by [`collect`](Self::collect), or both are done
/// by [`step`](Self::step). The device decides by itself whether a step is applied: one whose losses or gradient are
/// not finite changes nothing, and the next one, which may be queued already, is computed as if it had not been taken.
///
/// It uses no random numbers: on a CPU the same batches give the same weights, bit for bit with the same number of
/// threads.
#[derive(Debug)]
pub struct Trainer {
    settings: TrainerSettings,
    network: Network,
    /// The kernel of stem and tower where it is not libtorch alone.
    custom_backward: Option<CustomBackward>,
    /// The network with its weights in the precision of the passes, where that is not their own.
    lowered: Option<Network>,
    /// `[P]` and `[S]`: averages of the parameters and of the running statistics, which are published.
    average_parameters: Tensor,
    average_statistics: Tensor,
    /// One `[P]` per moment of the optimiser.
    moments: Vec<Tensor>,
    /// The number of the next step to be applied, from 1: `[1]`, float32, on the device. Exact up to 2²⁴ steps.
    next_step: Tensor,
    /// The number of applied steps that were collected.
    step: u64,
    progress: f64,
    queued: VecDeque<Queued>,
    /// The device that the observations of the last batch were on.
    batch_device: Option<Device>,
    /// The most positions run through the network at once, once a batch was split.
    micro_batch: Option<usize>,
    micro_batches: usize,
    /// The number of positions beyond which a test has the device run out of memory.
    #[cfg(test)]
    memory_positions: Option<usize>,
}

/// A step that was given to the device.
#[derive(Debug)]
struct Queued {
    measured: Measured,
    /// Whether the device applies it: `[1]`, bool.
    is_applied: Tensor,
    times: StepTimes,
}

/// The losses of a batch and their gradient `[P]`, on the device.
struct Pass {
    losses: LossTensors,
    gradient: Tensor,
}

impl Trainer {
    /// Creates a trainer of `network`; the average starts as a copy of its weights.
    ///
    /// # Errors
    /// [`Error::Setting`] names a setting outside its range, or a consistency loss for a network without its heads;
    /// [`Error::Device`] a precision in which the device does not train.
    pub fn new(network: Network, settings: TrainerSettings) -> Result<Self, Error> {
        settings.check(&network)?;
        network.rules.check(network.device(), settings.precision, Purpose::Training)?;
        let _guard = tch::no_grad_guard();
        let moments = settings.optimiser.moment_names().iter();
        let may_be_by_hand = network.device() == Device::Cpu
            && settings.precision == Precision::Bf16
            && settings.tower == TrainingKernel::Auto
            && process::are_single();
        Ok(Self {
            average_parameters: network.flat_parameters.f_detach_copy()?,
            average_statistics: network.flat_statistics.f_detach_copy()?,
            moments: moments.map(|_| network.flat_parameters.f_zeros_like()).collect::<Result<_, _>>()?,
            next_step: network::upload(&[1.0], network.device())?,
            custom_backward: may_be_by_hand.then(|| CustomBackward::fastest(network.architecture())).flatten(),
            micro_batch: (settings.micro_batch > 0).then_some(settings.micro_batch),
            micro_batches: 1,
            lowered: network.lowered(settings.precision)?,
            settings,
            network,
            step: 0,
            progress: 0.0,
            queued: VecDeque::new(),
            batch_device: None,
            #[cfg(test)]
            memory_positions: None,
        })
    }

    /// Returns the kinds of tensors of the training, each with the device on which libtorch reports them; the batch is
    /// that of the last step.
    pub fn placement(&self) -> impl Iterator<Item = (&'static str, Device)> {
        let tensors = [
            ("parameters", Some(&self.network.flat_parameters)),
            ("average", Some(&self.average_parameters)),
            ("moments", self.moments.first()),
        ];
        let placed = tensors.into_iter().filter_map(|(what, tensor)| Some((what, tensor?.device())));
        placed.chain(self.batch_device.map(|device| ("batch", device)))
    }

    /// Takes one training step: forward, backward, clip, optimiser, average.
    ///
    /// # Errors
    /// Those of [`queue`](Self::queue) and [`collect`](Self::collect), also for steps queued before.
    pub fn step(&mut self, examples: &Examples) -> Result<Losses, Error> {
        let mut newest = self.queue_in_laps(examples, &mut Laps::none()).map(|()| None)?;
        while let Some(trained) = self.collect_in_laps(&mut Laps::none()) {
            newest = Some(trained?.losses);
        }
        Ok(newest.expect("the step was queued"))
    }

    /// Gives a training step to the device, and measures its parts with `clock`. On an accelerator this does not wait
    /// for the device.
    ///
    /// # Errors
    /// [`Error::Batch`], [`Error::Action`] or [`Error::Network`] if the examples do not fit the network;
    /// [`Error::OutOfMemory`] if the device cannot hold a single position,
    /// [`Error::Libtorch`] if it fails. Weights, statistics, average and moments are then unchanged.
    pub fn queue(&mut self, examples: &Examples, clock: &mut dyn FnMut() -> Instant) -> Result<(), Error> {
        self.queue_in_laps(examples, &mut Laps::new(clock))
    }

    /// Waits for the oldest queued step and returns its results; `None` if no step is queued.
    ///
    /// # Errors
    /// [`Error::NotFinite`] if a loss or the gradient is not finite: the step then left weights, statistics, average
    /// and moments unchanged. [`Error::Libtorch`] if the device fails.
    pub fn collect(&mut self, clock: &mut dyn FnMut() -> Instant) -> Option<Result<Trained, Error>> {
        self.collect_in_laps(&mut Laps::new(clock))
    }

    /// The number of queued steps that were not collected.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queued.len()
    }

    /// The number of steps to leave queued, so that the device always has work: one on an accelerator, none on the CPU.
    #[must_use]
    pub fn queue_depth(&self) -> usize {
        usize::from(self.network.device() != Device::Cpu)
    }

    /// The number of micro-batches of the newest step.
    #[must_use]
    pub fn micro_batches(&self) -> usize {
        self.micro_batches
    }

    /// Copies examples to the device as [`queue`](Self::queue) does and counts a step without computing it: the work of
    /// the host beside an accelerator, for benchmarks. Its losses are 0 and the weights do not change.
    ///
    /// # Errors
    /// Those of [`queue`](Self::queue).
    pub fn queue_nothing(&mut self, examples: &Examples, clock: &mut dyn FnMut() -> Instant) -> Result<(), Error> {
        let _guard = tch::no_grad_guard();
        let mut laps = Laps::new(clock);
        let staged = Staged::new(examples, &self.network, [0.0; 2])?;
        let times = StepTimes { stage: laps.lap(), ..StepTimes::default() };
        let device = self.network.device();
        let errors = staged.targets.importance().map(Tensor::f_zeros_like).transpose()?;
        let measured = Measured::new(&network::upload(&[0.0; measured::SCALARS], device)?, errors.as_ref())?;
        let is_applied = Tensor::f_ones([1_i64], (Kind::Bool, device))?;
        let _ = self.next_step.f_add_scalar_(1.0)?;
        self.queued.push_back(Queued { measured, is_applied, times });
        Ok(())
    }

    fn queue_in_laps(&mut self, examples: &Examples, laps: &mut Laps<'_>) -> Result<(), Error> {
        process::apply();
        let staged = Staged::new(examples, &self.network, self.learning_rates())?;
        self.batch_device = Some(staged.observations.device());
        let mut times = StepTimes { stage: laps.lap(), ..StepTimes::default() };
        if let (Some(lowered), None) = (&self.lowered, &self.custom_backward) {
            lowered.cast_again(&self.network)?;
        }
        let statistics = self.network.flat_statistics.f_detach_copy()?;
        let pass = match self.split(&staged, &statistics, laps, &mut times) {
            Ok(pass) => pass,
            Err(error) => {
                // The forward pass has already updated the running statistics.
                self.restore_statistics(&statistics)?;
                return Err(error);
            }
        };
        let _guard = tch::no_grad_guard();
        let scalars = self.scalars(&pass)?;
        let measured = Measured::new(&scalars, pass.losses.value_errors.as_ref())?;
        times.backward += laps.lap();
        let is_applied = self.update(pass.gradient, &scalars, &staged, &statistics)?;
        times.optimiser = laps.lap();
        self.queued.push_back(Queued { measured, is_applied, times });
        Ok(())
    }

    fn collect_in_laps(&mut self, laps: &mut Laps<'_>) -> Option<Result<Trained, Error>> {
        let Queued { measured, mut times, .. } = self.queued.pop_front()?;
        let read = measured.read(self.settings.weight_decay);
        times.backward += laps.lap();
        Some(read.and_then(|(losses, value_errors)| {
            self.refuse_not_finite(losses)?;
            self.step += 1;
            Ok(Trained { losses, value_errors, times })
        }))
    }

    /// Returns the averaged weights, including running statistics, as a safetensors file for the actors. Queued steps
    /// must be collected before.
    ///
    /// # Errors
    /// [`Error::Libtorch`] if the device cannot be read.
    pub fn published(&self) -> Result<Vec<u8>, Error> {
        self.view(Contents::Average).published()
    }

    /// Returns the whole state of the training as files by name: a restored trainer continues as if it had not stopped.
    /// Queued steps must be collected before.
    ///
    /// # Errors
    /// [`Error::Libtorch`] if the device cannot be read.
    pub fn save(&self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        self.view(Contents::All).files()
    }

    /// Copies the state on its device, so that another thread can read it while training continues. Queued steps must
    /// be collected before.
    ///
    /// The copy takes 4 bytes for each parameter and running statistic of the average, and for a whole state as much
    /// again for the weights and for each moment. On a device that takes work of one thread only, the copy is in host
    /// memory.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the device cannot hold the copy, [`Error::Libtorch`] if it fails.
    pub fn snapshot(&self, contents: Contents) -> Result<Snapshot, Error> {
        self.view(contents).copy()
    }

    /// The state in the trainer's own memory.
    fn view(&self, contents: Contents) -> Snapshot {
        debug_assert!(self.queued.is_empty(), "a step is queued, and whether it is applied is unknown");
        Snapshot::of(self, contents)
    }

    /// Restores a trainer from the files that [`save`](Self::save) wrote; other files are ignored.
    ///
    /// Settings are those given here: a run may continue with another learning rate, but not with another optimiser.
    ///
    /// # Errors
    /// Missing files, and files whose contents do not match the network or the optimiser.
    pub fn restore(
        architecture: &Architecture,
        settings: TrainerSettings,
        device: Device,
        files: &[(String, Vec<u8>)],
    ) -> Result<Self, Error> {
        // The seed does not matter: every number is replaced.
        let mut trainer = Self::new(settings.network(architecture, device, 0)?, settings)?;
        trainer.load(files)?;
        Ok(trainer)
    }

    /// Restores the files that [`save`](Self::save) wrote in place, for example after failed steps. The results of
    /// queued steps are dropped with what they changed.
    ///
    /// # Errors
    /// Missing files, and files whose contents do not match the network or the optimiser; the trainer is then
    /// unchanged.
    pub fn load(&mut self, files: &[(String, Vec<u8>)]) -> Result<(), Error> {
        let file = |name: &'static str| {
            let found = files.iter().find(|(file, _)| file == name);
            found.map(|(_, bytes)| bytes.as_slice()).ok_or(Error::MissingFile { name })
        };
        let device = self.network.device();
        let (network, average) =
            (self.network.another(file(NETWORK_FILE)?)?, self.network.another(file(AVERAGE_FILE)?)?);
        let mut reader = Reader::new(file(OPTIMISER_FILE)?)?;
        let (step, progress) = (reader.count("step")?, reader.real("progress")?);
        let mut moments = Vec::with_capacity(self.moments.len());
        for name in self.settings.optimiser.moment_names() {
            moments.push(network::upload(&layout::flat(&mut reader, name, &network.layout.parameters)?, device)?);
        }
        reader.finish()?;
        let next_step = network::upload(&[(step + 1) as f32], device)?;

        self.lowered = network.lowered(self.settings.precision)?;
        self.average_parameters = average.flat_parameters.shallow_clone();
        self.average_statistics = average.flat_statistics.shallow_clone();
        self.network = network;
        self.moments = moments;
        self.next_step = next_step;
        self.step = step;
        self.queued.clear();
        self.set_progress(progress);
        Ok(())
    }

    /// The number of applied training steps that were collected.
    #[must_use]
    pub fn step_count(&self) -> u64 {
        self.step
    }

    /// The learning rate of the next step, if every queued one is applied.
    #[must_use]
    pub fn learning_rate(&self) -> f64 {
        self.learning_rate_after(self.step + self.queued.len() as u64)
    }

    fn learning_rate_after(&self, steps: u64) -> f64 {
        let warm_up = optimiser::warm_up(steps, self.settings.warm_up_steps);
        self.settings.learning_rate * warm_up * self.settings.decay.factor(self.progress_after(steps))
    }

    /// The learning rates of the next step if the newest queued one is applied, and if it is refused. Older ones are
    /// taken as applied: with a queue of one step there are none.
    fn learning_rates(&self) -> [f32; 2] {
        let queued = self.queued.len() as u64;
        [queued, queued.saturating_sub(1)].map(|queued| self.learning_rate_after(self.step + queued) as f32)
    }

    /// The progress of the run: the larger of the set value and the share of steps.
    #[must_use]
    pub fn progress(&self) -> f64 {
        self.progress_after(self.step)
    }

    fn progress_after(&self, steps: u64) -> f64 {
        let by_steps = self.settings.decay_steps.map_or(0.0, |all| steps as f64 / all.max(1) as f64);
        self.progress.max(by_steps.min(1.0))
    }

    /// Sets the progress of the run, for runs that are limited by something other than steps. Clamped to `[0, 1]`; NaN
    /// counts as 0.
    pub fn set_progress(&mut self, progress: f64) {
        self.progress = if progress.is_nan() { 0.0 } else { progress.clamp(0.0, 1.0) };
    }

    /// Its settings.
    #[must_use]
    pub fn settings(&self) -> &TrainerSettings {
        &self.settings
    }

    /// Returns whether the crate `gradients` computes the operations between the convolutions of stem and tower, and
    /// the gradients of their weights.
    #[must_use]
    pub fn trains_by_hand(&self) -> bool {
        self.custom_backward.is_some()
    }

    /// The network as trained so far, without averaging.
    #[must_use]
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Runs the batch forward and back, in micro-batches of half the size each time that memory runs out.
    fn split(
        &mut self,
        staged: &Staged,
        statistics: &Tensor,
        laps: &mut Laps<'_>,
        times: &mut StepTimes,
    ) -> Result<Pass, Error> {
        loop {
            let positions = self.micro_batch.map_or(staged.positions, |most| most.min(staged.positions));
            match self.micro_batches_of(staged, positions, laps, times) {
                Err(Error::OutOfMemory { .. }) if positions > 1 => {
                    self.restore_statistics(statistics)?;
                    self.micro_batch = Some(positions.div_ceil(2));
                }
                outcome => return outcome,
            }
        }
    }

    /// Adds up the losses and gradients of micro-batches of about equal size, at most `positions_max` each.
    fn micro_batches_of(
        &mut self,
        staged: &Staged,
        positions_max: usize,
        laps: &mut Laps<'_>,
        times: &mut StepTimes,
    ) -> Result<Pass, Error> {
        let parts = staged.positions.div_ceil(positions_max);
        self.micro_batches = parts;
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

    fn forward_backward(&mut self, staged: &Staged, laps: &mut Laps<'_>, times: &mut StepTimes) -> Result<Pass, Error> {
        #[cfg(test)]
        if self.memory_positions.is_some_and(|most| staged.positions > most) {
            // As on a device: in the middle of the step, after the statistics have changed.
            tch::no_grad(|| self.network.flat_statistics.shallow_clone().f_add_scalar_(1.0).map(drop))?;
            return Err(Error::OutOfMemory { message: format!("no memory for {} positions", staged.positions) });
        }
        let kind = self.settings.precision.kind();
        let observations = staged.observations.f_to_kind(kind)?;
        let (network, value_loss_weight) = (&self.network, self.settings.value_loss_weight);
        let lowered = self.lowered.as_ref().unwrap_or(network);
        let gradient_of = |loss: &Tensor| {
            let gradients = Tensor::f_run_backward(&[loss], &lowered.parameters, false, false)?;
            network::flatten(&lowered.layout.parameters, &gradients)
        };
        let (losses, gradient) = match (&staged.targets, &mut self.custom_backward) {
            (ModelTargets::Alphazero(targets), None) => {
                let logits = tower::forward(lowered, &observations, kind, Mode::Training)?;
                let losses = losses::losses(&logits, targets, value_loss_weight)?;
                times.forward += laps.lap();
                let gradient = gradient_of(&losses.total)?;
                (losses, gradient)
            }
            (ModelTargets::Alphazero(targets), Some(custom_backward)) => {
                let tape = custom_backward.forward(network, &observations)?;
                let x = tape.output()?.f_set_requires_grad(true)?;
                let logits = tower::heads(network, &x, kind, Mode::Training)?;
                let losses = losses::losses(&logits, targets, value_loss_weight)?;
                times.forward += laps.lap();
                let gradient = custom_backward.gradient(network, &tape, &x, &losses.total)?;
                (losses, gradient)
            }
            (ModelTargets::Muzero(targets), _) => {
                let tower = LatentTower::new(lowered, kind, Mode::Training)?;
                let next = targets.next_states.as_ref().map(|next| &next.observations);
                let predictions = muzero::unroll(tower, &observations, &targets.actions, DYNAMICS_GRADIENT, next)?;
                let weights =
                    LossWeights { value: value_loss_weight, consistency: self.settings.consistency_loss_weight };
                let losses = unrolled::losses(&predictions, targets, weights)?;
                times.forward += laps.lap();
                let gradient = gradient_of(&losses.total)?;
                (losses, gradient)
            }
        };
        Ok(Pass { losses, gradient })
    }

    /// Writes back the running statistics of before a step.
    fn restore_statistics(&self, statistics: &Tensor) -> Result<(), Error> {
        let _guard = tch::no_grad_guard();
        Ok(self.network.flat_statistics.shallow_clone().f_copy_(statistics)?)
    }

    /// The scalars of a step, in the order of [`Measured`], on the device.
    fn scalars(&self, Pass { losses, gradient }: &Pass) -> Result<Tensor, Error> {
        let decayed = i64::try_from(self.network.layout.decayed()).expect("parameters fit memory");
        let weights = self.network.flat_parameters.f_narrow(0, 0, decayed)?;
        let scalars = [
            &losses.policy,
            &losses.value,
            &losses.reward,
            &losses.consistency,
            &losses.chance,
            &gradient.f_norm()?,
            &losses.total,
            &weights.f_square()?.f_sum(None::<Kind>)?,
            &losses.policy_entropy,
            &losses.value_accuracy,
        ];
        Ok(Tensor::f_stack(&scalars, 0)?)
    }

    fn refuse_not_finite(&self, losses: Losses) -> Result<(), Error> {
        let quantities = [
            ("policy loss", losses.policy),
            ("value loss", losses.value),
            ("reward loss", losses.reward),
            ("consistency loss", losses.consistency),
            ("chance loss", losses.chance),
            ("gradient norm", losses.gradient_norm),
        ];
        match quantities.into_iter().find(|(_, value)| !value.is_finite()) {
            Some((quantity, _)) => Err(Error::NotFinite { quantity, step: self.step + 1 }),
            None => Ok(()),
        }
    }

    /// Applies a step if the quantities of [`refuse_not_finite`](Self::refuse_not_finite) are finite, which the device
    /// decides; returns whether it does, `[1]`.
    fn update(
        &mut self,
        gradient: Tensor,
        scalars: &Tensor,
        staged: &Staged,
        statistics: &Tensor,
    ) -> Result<Tensor, Error> {
        let is_applied = scalars.f_narrow(0, 0, measured::FINITE)?.f_isfinite()?.f_all()?.f_view([1])?;
        let learning_rate = match self.queued.back() {
            Some(before) => {
                let [applied, refused] = [0, 1].map(|index| staged.learning_rates.f_narrow(0, index, 1));
                applied?.f_where_self(&before.is_applied, &refused?)?
            }
            None => staged.learning_rates.f_narrow(0, 0, 1)?,
        };
        let step = StepSettings {
            learning_rate: &learning_rate,
            weight_decay: self.settings.weight_decay,
            decayed: self.network.layout.decayed(),
            step: &self.next_step,
            // The gradient is divided by its norm relative to the largest that is accepted.
            scale: &scalars
                .f_narrow(0, measured::GRADIENT_NORM, 1)?
                .f_divide_scalar(self.settings.gradient_clip_norm)?
                .f_clamp_min(1.0)?,
            is_applied: &is_applied,
        };
        let parameters = &self.network.flat_parameters;
        optimiser::apply(self.settings.optimiser, step, gradient, &mut self.moments, parameters)?;

        // 1 − min(decay, (1 + t) / (10 + t)) with t steps before this one.
        let shares = self.next_step.f_add_scalar(9.0)?.f_reciprocal()?.f_multiply_scalar(9.0)?;
        let share = shares.f_clamp_min(1.0 - self.settings.ema_decay)?;
        let running = &self.network.flat_statistics;
        let averages = [(&mut self.average_parameters, parameters), (&mut self.average_statistics, running)];
        for (average, newest) in averages {
            *average = average.f_lerp_tensor(newest, &share)?.f_where_self(&is_applied, average)?;
        }
        running.shallow_clone().f_copy_(&running.f_where_self(&is_applied, statistics)?)?;
        let _ = self.next_step.f_add_(&is_applied.f_to_kind(Kind::Float)?)?;
        Ok(is_applied)
    }
}

#[cfg(test)]
mod tests;
