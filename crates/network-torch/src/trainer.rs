use std::time::{Duration, Instant};

use ::network::{Entry, Reader};
use tch::{Device, Kind, Tensor};
use weights::Architecture;

use crate::{
    Decay, Error, Losses, Network, Optimiser, Precision, TrainingBatch, TrainingKernel,
    custom_backward::CustomBackward,
    layout,
    losses::{self, LossTensors, Targets},
    network,
    optimiser::{self, StepSettings},
    process,
    tower::{self, Mode},
};

/// The file of a checkpoint that holds the weights as trained.
const NETWORK_FILE: &str = "network.safetensors";
/// The file of a checkpoint that holds the averaged weights.
const AVERAGE_FILE: &str = "average.safetensors";
/// The file of a checkpoint that holds the optimiser's moments, the step and the progress.
const OPTIMISER_FILE: &str = "optimiser.safetensors";

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
    /// The number format of convolutions and matrices; parameters and losses are float32.
    pub precision: Precision,
    /// The kernel of stem and tower.
    pub tower: TrainingKernel,
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
            precision: Precision::F32,
            tower: TrainingKernel::Auto,
        }
    }
}

impl TrainerSettings {
    fn check(&self) -> Result<(), Error> {
        self.optimiser.check()?;
        self.decay.check()?;
        let is_factor = |x: f64| x >= 0.0 && x.is_finite();
        let factor = |field, x| (field, x, is_factor(x), "a finite number, 0 or above");
        let (clip, ema) = (self.gradient_clip_norm, self.ema_decay);
        let checks = [
            factor("learning_rate", self.learning_rate),
            factor("weight_decay", self.weight_decay),
            factor("value_loss_weight", self.value_loss_weight),
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
/// call returns, and the step waits for it when it reads losses and norm, at the end of `backward`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepTimes {
    /// Reordering the batch and copying it to the device.
    pub stage: Duration,
    /// The forward pass of the network and its losses.
    pub forward: Duration,
    /// Gradients, their norm, and reading the losses.
    pub backward: Duration,
    /// Clipping, the optimiser, the average.
    pub optimiser: Duration,
}

/// A network being trained: weights, their running average, the optimiser's state, the position in the schedule.
///
/// It uses no random numbers: on a CPU the same batches give the same weights, bit for bit with the same number of
/// threads.
#[derive(Debug)]
pub struct Trainer {
    settings: TrainerSettings,
    network: Network,
    /// The kernel of stem and tower where it is not libtorch alone.
    custom_backward: Option<CustomBackward>,
    /// `[P]` and `[S]`: averages of the parameters and of the running statistics, which are published.
    average_parameters: Tensor,
    average_statistics: Tensor,
    /// One `[P]` per moment of the optimiser.
    moments: Vec<Tensor>,
    step: u64,
    progress: f64,
    /// Reused for the batch in the order that the convolutions use, `[B, H, W, C]`.
    staged: Vec<f32>,
    /// The value errors `[B]` of the last step; empty if its batch had no importance.
    value_errors: Vec<f32>,
    /// The device that the observations of the last batch were on.
    batch_device: Option<Device>,
}

impl Trainer {
    /// Creates a trainer of `network`; the average starts as a copy of its weights.
    ///
    /// # Errors
    /// [`Error::Setting`] names a setting outside its range.
    pub fn new(network: Network, settings: TrainerSettings) -> Result<Self, Error> {
        settings.check()?;
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
            custom_backward: may_be_by_hand.then(|| CustomBackward::fastest(network.architecture())).flatten(),
            settings,
            network,
            step: 0,
            progress: 0.0,
            staged: Vec::new(),
            value_errors: Vec::new(),
            batch_device: None,
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
    /// [`Error::Batch`] if the batch does not fit, [`Error::NotFinite`] if the loss or the gradient is not finite.
    /// After either, weights, statistics, average and moments are unchanged.
    pub fn step(&mut self, batch: &TrainingBatch) -> Result<Losses, Error> {
        self.step_in_laps(batch, &mut Laps::none()).map(|(losses, _)| losses)
    }

    /// Takes one training step as [`step`](Self::step) does, and measures its parts with `clock`.
    ///
    /// # Errors
    /// Same as [`step`](Self::step).
    pub fn step_timed(
        &mut self,
        batch: &TrainingBatch,
        clock: &mut dyn FnMut() -> Instant,
    ) -> Result<(Losses, StepTimes), Error> {
        self.step_in_laps(batch, &mut Laps::new(clock))
    }

    fn step_in_laps(&mut self, batch: &TrainingBatch, laps: &mut Laps<'_>) -> Result<(Losses, StepTimes), Error> {
        process::apply();
        let positions = batch.positions(self.network.architecture())?;
        let statistics = self.network.flat_statistics.f_detach_copy()?;
        let mut times = StepTimes::default();
        let outcome = self.forward_backward(batch, positions, laps, &mut times);
        let checked =
            outcome.and_then(|(losses, gradient)| self.refuse_not_finite(losses).map(|()| (losses, gradient)));
        let (losses, gradient) = match checked {
            Ok(passed) => passed,
            Err(error) => {
                // The forward pass has already updated the running statistics.
                let _guard = tch::no_grad_guard();
                self.network.flat_statistics.shallow_clone().f_copy_(&statistics)?;
                return Err(error);
            }
        };
        self.update(&losses, gradient)?;
        times.optimiser = laps.lap();
        Ok((losses, times))
    }

    /// Returns the averaged weights, including running statistics, as a safetensors file for the actors.
    ///
    /// # Errors
    /// [`Error::Libtorch`] if the device cannot be read.
    pub fn published(&self) -> Result<Vec<u8>, Error> {
        network::write(&self.network.layout, &self.average_parameters, &self.average_statistics)
    }

    /// Returns the whole state of the training as files by name: a restored trainer continues as if it had not stopped.
    ///
    /// # Errors
    /// [`Error::Libtorch`] if the device cannot be read.
    pub fn save(&self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let mut entries = vec![Entry::count("step", self.step), Entry::real("progress", self.progress)];
        for (name, moment) in self.settings.optimiser.moment_names().iter().zip(&self.moments) {
            let parameters = &self.network.layout.parameters;
            entries.extend(layout::file_entries(name, parameters, &network::download(moment)?));
        }
        Ok(vec![
            (NETWORK_FILE.to_owned(), self.network.to_safetensors()?),
            (AVERAGE_FILE.to_owned(), self.published()?),
            (OPTIMISER_FILE.to_owned(), ::network::write(entries)?),
        ])
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
        let mut trainer = Self::new(Network::new(architecture, device, 0)?, settings)?;
        trainer.load(files)?;
        Ok(trainer)
    }

    /// Restores the files that [`save`](Self::save) wrote in place, for example after failed steps.
    ///
    /// # Errors
    /// Missing files, and files whose contents do not match the network or the optimiser; the trainer is then
    /// unchanged.
    pub fn load(&mut self, files: &[(String, Vec<u8>)]) -> Result<(), Error> {
        let file = |name: &'static str| {
            let found = files.iter().find(|(file, _)| file == name);
            found.map(|(_, bytes)| bytes.as_slice()).ok_or(Error::MissingFile { name })
        };
        let (architecture, device) = (self.network.architecture(), self.network.device());
        let network = Network::from_safetensors(architecture, file(NETWORK_FILE)?, device)?;
        let average = Network::from_safetensors(architecture, file(AVERAGE_FILE)?, device)?;
        let mut reader = Reader::new(file(OPTIMISER_FILE)?)?;
        let (step, progress) = (reader.count("step")?, reader.real("progress")?);
        let mut moments = Vec::with_capacity(self.moments.len());
        for name in self.settings.optimiser.moment_names() {
            moments.push(network::upload(&layout::flat(&mut reader, name, &network.layout.parameters)?, device)?);
        }
        reader.finish()?;

        self.average_parameters = average.flat_parameters.shallow_clone();
        self.average_statistics = average.flat_statistics.shallow_clone();
        self.network = network;
        self.moments = moments;
        self.step = step;
        self.set_progress(progress);
        Ok(())
    }

    /// The number of applied training steps.
    #[must_use]
    pub fn step_count(&self) -> u64 {
        self.step
    }

    /// The learning rate of the next step.
    #[must_use]
    pub fn learning_rate(&self) -> f64 {
        let warm_up = optimiser::warm_up(self.step, self.settings.warm_up_steps);
        self.settings.learning_rate * warm_up * self.settings.decay.factor(self.progress())
    }

    /// The progress of the run: the larger of the set value and the share of steps.
    #[must_use]
    pub fn progress(&self) -> f64 {
        let by_steps = self.settings.decay_steps.map_or(0.0, |steps| self.step as f64 / steps.max(1) as f64);
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

    /// The distance of the value of each row of the last batch from its target, `[B]`, 0 to 2; empty under uniform
    /// sampling.
    #[must_use]
    pub fn value_errors(&self) -> &[f32] {
        &self.value_errors
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

    fn forward_backward(
        &mut self,
        batch: &TrainingBatch,
        positions: usize,
        laps: &mut Laps<'_>,
        times: &mut StepTimes,
    ) -> Result<(Losses, Tensor), Error> {
        let (observations, targets) = self.stage(batch, positions)?;
        times.stage = laps.lap();
        let kind = self.settings.precision.kind();
        let observations = observations.f_to_kind(kind)?;
        let network = &self.network;
        let (losses, gradient) = match &mut self.custom_backward {
            None => {
                let logits = tower::forward(network, &observations, kind, Mode::Training)?;
                let losses = losses::losses(&logits, &targets, self.settings.value_loss_weight)?;
                times.forward = laps.lap();
                let gradients = Tensor::f_run_backward(&[&losses.total], &network.parameters, false, false)?;
                (losses, network::flatten(&network.layout.parameters, &gradients)?)
            }
            Some(custom_backward) => {
                let tape = custom_backward.forward(network, &observations)?;
                let x = tape.output()?.f_set_requires_grad(true)?;
                let logits = tower::heads(network, &x, kind, Mode::Training)?;
                let losses = losses::losses(&logits, &targets, self.settings.value_loss_weight)?;
                times.forward = laps.lap();
                let gradient = custom_backward.gradient(network, &tape, &x, &losses.total)?;
                (losses, gradient)
            }
        };

        let _guard = tch::no_grad_guard();
        let measured = self.measure(&losses, &gradient)?;
        self.value_errors = losses.value_errors.as_ref().map(network::download).transpose()?.unwrap_or_default();
        times.backward = laps.lap();
        Ok((measured, gradient))
    }

    /// Copies observations `[B, C, H, W]`, channels last in memory, and targets to the device.
    fn stage(&mut self, batch: &TrainingBatch, positions: usize) -> Result<(Tensor, Targets), Error> {
        let Architecture { planes, height, width, actions, .. } = *self.network.architecture();
        let size = |n: usize| i64::try_from(n).expect("a batch fits memory");
        let device = self.network.device();
        self.staged.resize(batch.observations.len(), 0.0);
        layout::channels_last(&batch.observations, planes, height * width, &mut self.staged);
        let observations = network::upload(&self.staged, device)?;
        self.batch_device = Some(observations.device());
        let observations = observations.f_view([size(positions), size(height), size(width), size(planes)])?;
        let by_action = [size(positions), size(actions)];
        let legal = network::upload(&batch.legal, device)?.f_view(by_action)?;
        let targets = Targets {
            policies: network::upload(&batch.policies, device)?.f_view(by_action)?,
            illegal: legal.f_eq(0)?,
            wdl: network::upload(&batch.wdl, device)?.f_view([size(positions), 3])?,
            policy_weights: network::upload(&batch.policy_weights, device)?,
            importance: match batch.importance.as_slice() {
                [] => None,
                importance => Some(network::upload(importance, device)?),
            },
        };
        Ok((observations.f_permute([0, 3, 1, 2])?, targets))
    }

    /// Copies all scalars to the CPU at once.
    fn measure(&self, losses: &LossTensors, gradient: &Tensor) -> Result<Losses, Error> {
        let decayed = i64::try_from(self.network.layout.decayed()).expect("parameters fit memory");
        let weights = self.network.flat_parameters.f_narrow(0, 0, decayed)?;
        let scalars = [
            &losses.total,
            &losses.policy,
            &losses.value,
            &weights.f_square()?.f_sum(None::<Kind>)?,
            &gradient.f_norm()?,
            &losses.policy_entropy,
            &losses.value_accuracy,
        ];
        let scalars = network::download(&Tensor::f_stack(&scalars, 0)?)?;
        let scalar = |index: usize| f64::from(scalars[index]);
        Ok(Losses {
            total: scalar(0),
            policy: scalar(1),
            value: scalar(2),
            l2: 0.5 * self.settings.weight_decay * scalar(3),
            gradient_norm: scalar(4),
            policy_entropy: scalar(5),
            value_accuracy: scalar(6),
        })
    }

    fn refuse_not_finite(&self, losses: Losses) -> Result<(), Error> {
        let quantities =
            [("policy loss", losses.policy), ("value loss", losses.value), ("gradient norm", losses.gradient_norm)];
        match quantities.into_iter().find(|(_, value)| !value.is_finite()) {
            Some((quantity, _)) => Err(Error::NotFinite { quantity, step: self.step + 1 }),
            None => Ok(()),
        }
    }

    fn update(&mut self, losses: &Losses, mut gradient: Tensor) -> Result<(), Error> {
        let _guard = tch::no_grad_guard();
        if losses.gradient_norm > self.settings.gradient_clip_norm {
            let _ = gradient.f_multiply_scalar_(self.settings.gradient_clip_norm / losses.gradient_norm)?;
        }
        let step = StepSettings {
            learning_rate: self.learning_rate(),
            weight_decay: self.settings.weight_decay,
            decayed: self.network.layout.decayed(),
            step: self.step + 1,
        };
        let parameters = &self.network.flat_parameters;
        optimiser::apply(self.settings.optimiser, step, &gradient, &mut self.moments, parameters)?;

        let age = self.step as f64;
        let kept = self.settings.ema_decay.min((1.0 + age) / (10.0 + age));
        let _ = self.average_parameters.f_lerp_(parameters, 1.0 - kept)?;
        let _ = self.average_statistics.f_lerp_(&self.network.flat_statistics, 1.0 - kept)?;
        self.step += 1;
        Ok(())
    }
}

/// A stopwatch with a given clock, or without a clock.
pub(crate) struct Laps<'a> {
    clock: Option<&'a mut dyn FnMut() -> Instant>,
    last: Option<Instant>,
}

impl<'a> Laps<'a> {
    /// Begins the first lap.
    pub(crate) fn new(clock: &'a mut dyn FnMut() -> Instant) -> Self {
        let last = Some(clock());
        Self { clock: Some(clock), last }
    }

    /// Creates a stopwatch whose laps all take no time.
    pub(crate) fn none() -> Self {
        Self { clock: None, last: None }
    }

    /// Ends a lap and begins the next.
    pub(crate) fn lap(&mut self) -> Duration {
        let Some((clock, last)) = self.clock.as_mut().zip(self.last) else { return Duration::ZERO };
        let now = clock();
        self.last = Some(now);
        now.saturating_duration_since(last)
    }
}

#[cfg(test)]
mod tests;
