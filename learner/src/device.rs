//! Chooses the training device: the configured device, or the faster of accelerator and CPU.
//!
//! With `auto`, both devices run training steps with the run's network and batch size. The weights are temporary, so
//! the comparison affects neither the weights nor the random numbers of the run. The result is stored in the run
//! directory. Start with [`choose`].

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use inference::TrainingPrecision;
use network_torch::{DevicePreference, Purpose};
use run_file::learner::libtorch::{Cpu, why_on_cpu};
use run_file::learner::trainer_settings;
use run_file::learner::{LearnerSection, Settings};
use serde::{Deserialize, Serialize};
use service::{ConfigError, RememberedFile, gpus, machine};
use training::{Examples, Precision, TrainerSettings, TrainingBatch, UnrolledBatch};
use weights::{Architecture, Model};

use crate::backend::{Backend, Chosen};

pub(crate) use crate::trial::trial;
pub(crate) use network_torch::{Device, device_name};

/// Maximum total time for the measured steps on one device.
const TRIAL_TIME: Duration = Duration::from_millis(2500);
/// The first measured step uses 1/`FIRST_SHARE` of the batch, since a whole batch may be too large for a device.
const FIRST_SHARE: usize = 64;
/// Factor between the numbers of positions in consecutive measured steps.
const GROWTH: usize = 4;
/// Number of measured steps with the whole batch; the fastest step counts.
const WHOLE_STEPS: usize = 3;
/// Ratio of estimated step times above which the slower device is not measured further. A whole batch is more efficient
/// than a partial batch, but not by this factor.
const HOPELESS: f64 = 4.0;

/// Chooses the device and the precision for training.
///
/// # Errors
/// [`ConfigError`] names `learner.device` or `learner.precision` if the value cannot be used.
pub(crate) fn choose(settings: &Settings, architecture: &Architecture) -> Result<Chosen, ConfigError> {
    let section = &settings.learner;
    network_torch::set_threads(section.threads.max(1));
    let found = network_torch::choose_device(section.device, Purpose::Training)
        .map_err(|error| ConfigError::invalid("learner.device", error))?;
    let chosen = |subject: Subject, reason: &str| Chosen {
        description: format!("{} ({reason}), {}", device_name(subject.device), subject.precision_reason),
        device: subject.device,
        precision: subject.precision,
        is_adaptive: subject.is_adaptive,
    };
    let unsuitable = |error| ConfigError::invalid("learner.precision", error);
    let accelerator = Subject::new(found.device, section);
    if section.device != DevicePreference::Auto || found.device == Device::Cpu {
        return Ok(chosen(accelerator.map_err(unsuitable)?, &found.reason));
    }
    let cpu = Subject::new(Device::Cpu, section).map_err(unsuitable)?;
    let accelerator = match accelerator {
        Ok(accelerator) => accelerator,
        Err(error) => return Ok(chosen(cpu, &error.to_string())),
    };
    let file = RememberedFile::new(settings.run.directory.join("learner-devices.json"));
    let key = key(section, architecture, found.device);
    let comparison = remembered(&file, &key).unwrap_or_else(|| {
        let compared = Comparison::new(&accelerator, &cpu, section, architecture);
        remember(&file, key, &compared);
        compared
    });
    let reason = comparison.describe(section.batch_size, &found.name());
    Ok(chosen(if comparison.is_accelerator_faster() { accelerator } else { cpu }, &reason))
}

/// A candidate device, with the training precision on this device.
struct Subject {
    device: Device,
    precision: Precision,
    is_adaptive: bool,
    precision_reason: String,
}

impl Subject {
    /// Chooses the precision on `device`. With `auto` on a CPU, the precision of the CPU kernels, unless libtorch
    /// trains.
    ///
    /// # Errors
    /// The device does not support the configured precision.
    fn new(device: Device, section: &LearnerSection) -> Result<Self, network_torch::Error> {
        if device == Device::Cpu
            && section.precision == TrainingPrecision::Auto
            && let Some(precision) = precision_of_kernels(section)
        {
            let precision_reason = format!("{precision} (CPU kernels)");
            return Ok(Self { device, precision, is_adaptive: precision != Precision::F32, precision_reason });
        }
        let chosen = network_torch::choose_training_precision(section.precision, device, &mut Instant::now)?;
        let (precision, is_adaptive) = (chosen.precision, chosen.is_adaptive);
        Ok(Self { device, precision, is_adaptive, precision_reason: chosen.to_string() })
    }

    /// Measures training steps with temporary weights.
    fn measure(
        &self,
        section: &LearnerSection,
        architecture: &Architecture,
        rival: Option<&Speed>,
    ) -> anyhow::Result<Speed> {
        let settings = TrainerSettings { precision: self.precision, ..trainer_settings(section) };
        let mut trainer = Backend::new(architecture, settings, self.device, section.threads, 0)?.trainer;
        let mut step = |positions| {
            let examples = examples(architecture, section, positions);
            let start = Instant::now();
            match trainer.step(&examples) {
                Ok(_) | Err(training::Error::Overflow { .. }) => Ok(start.elapsed()),
                Err(error) => Err(error.into()),
            }
        };
        measure(section.batch_size, rival, &mut step)
    }
}

/// Returns the precision that `auto` selects for the CPU kernels; `None` if libtorch trains on this CPU.
fn precision_of_kernels(section: &LearnerSection) -> Option<Precision> {
    let cpu = Cpu::this();
    let precision = cpu.automatic_precision();
    why_on_cpu(&TrainerSettings { precision, ..trainer_settings(section) }, cpu).is_none().then_some(precision)
}

/// Returns examples for the architecture: every fifth observation value is 1, and policies are uniform.
fn examples(architecture: &Architecture, section: &LearnerSection, positions: usize) -> Examples {
    let &LearnerSection { unroll_steps, consistency_loss_weight, .. } = section;
    let Architecture { planes, height, width, actions, ref model, .. } = *architecture;
    let cells = positions * planes * height * width;
    let observations = |cells: usize| (0..cells).map(|cell| f32::from(u8::from(cell % 5 == 0))).collect();
    let policies = |states: usize| vec![1.0 / actions as f32; states * actions];
    match model {
        Model::Alphazero => Examples::Positions(TrainingBatch {
            observations: observations(cells),
            policies: policies(positions),
            legal: vec![1; positions * actions],
            wdl: [1.0, 0.0, 0.0].repeat(positions),
            policy_weights: vec![1.0; positions],
            ..TrainingBatch::default()
        }),
        Model::AlphazeroReturns { .. } | Model::Muzero { .. } | Model::StochasticMuzero { .. } => {
            let unroll_steps = if model.has_dynamics() { unroll_steps } else { 0 };
            let (steps, states) = (positions * unroll_steps, positions * (unroll_steps + 1));
            let next = if consistency_loss_weight > 0.0 || model.codes() > 0 { unroll_steps } else { 0 };
            Examples::Unrolled(UnrolledBatch {
                unroll_steps,
                observations: observations(cells),
                actions: vec![0; steps],
                policies: policies(states),
                policy_weights: vec![1.0; states],
                values: vec![1.0; states],
                value_weights: vec![1.0; states],
                rewards: vec![0.0; steps],
                next_observations: observations(next * cells),
                next_weights: vec![1.0; next * positions],
                chance_weights: vec![1.0; next * positions],
                importance: Vec::new(),
            })
        }
    }
}

/// The measured speed of training steps on one device.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Speed {
    /// Duration of a step with the whole batch, in seconds; extrapolated linearly if only smaller batches were
    /// measured.
    step_seconds: f64,
    /// Number of positions in the measured step.
    positions: usize,
}

/// Measures steps with a growing number of positions, up to `batch`, and returns the speed of the last size. `step`
/// runs a step and returns the duration. The measurement stops early at the time limit, or if the device is far slower
/// than `rival`.
///
/// # Errors
/// The first step failed.
fn measure<E>(
    batch: usize,
    rival: Option<&Speed>,
    step: &mut dyn FnMut(usize) -> Result<Duration, E>,
) -> Result<Speed, E> {
    let mut speed: Option<Speed> = None;
    let (mut positions, mut spent) = (batch.div_ceil(FIRST_SHARE), Duration::ZERO);
    loop {
        // The first step of each size is not measured, because it loads kernels.
        let (first, mut took) = match step(positions).and_then(|first| Ok((first, step(positions)?))) {
            Ok(steps) => steps,
            // A device with too little memory for more positions is rated by the last successful size.
            Err(error) => return speed.ok_or(error),
        };
        spent += first + took;
        let mut repeats = if positions == batch { 1..WHOLE_STEPS } else { 0..0 };
        while repeats.next().is_some() && spent + took <= TRIAL_TIME {
            let again = step(positions)?;
            spent += again;
            took = took.min(again);
        }
        let measured = Speed { step_seconds: took.as_secs_f64() * batch as f64 / positions as f64, positions };
        let next = (positions * GROWTH).min(batch);
        let next_steps = 2.0 * took.as_secs_f64() * next as f64 / positions as f64;
        let is_hopeless = rival.is_some_and(|rival| measured.step_seconds > HOPELESS * rival.step_seconds);
        if positions == batch || is_hopeless || spent.as_secs_f64() + next_steps > TRIAL_TIME.as_secs_f64() {
            return Ok(measured);
        }
        speed = Some(measured);
        positions = next;
    }
}

/// Measured speeds of an accelerator and the CPU, or the errors of failed measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Comparison {
    accelerator: Result<Speed, String>,
    cpu: Result<Speed, String>,
}

impl Comparison {
    fn new(accelerator: &Subject, cpu: &Subject, section: &LearnerSection, architecture: &Architecture) -> Self {
        let readable = |speed: anyhow::Result<Speed>| speed.map_err(|error| error.to_string());
        let accelerator = readable(accelerator.measure(section, architecture, None));
        let cpu = readable(cpu.measure(section, architecture, accelerator.as_ref().ok()));
        Self { accelerator, cpu }
    }

    fn is_accelerator_faster(&self) -> bool {
        match (&self.accelerator, &self.cpu) {
            (Ok(accelerator), Ok(cpu)) => accelerator.step_seconds <= cpu.step_seconds,
            (accelerator, _) => accelerator.is_ok(),
        }
    }

    fn describe(&self, batch: usize, accelerator: &str) -> String {
        let one = |device: &str, speed: &Result<Speed, String>| match speed {
            Ok(Speed { step_seconds, positions }) if *positions == batch => {
                format!("{:.1} ms on {device}", step_seconds * 1e3)
            }
            Ok(Speed { step_seconds, positions }) => {
                format!("about {:.1} ms on {device} (measured with {positions})", step_seconds * 1e3)
            }
            Err(error) => format!("fails on {device} ({error})"),
        };
        let (accelerator, cpu) = (one(accelerator, &self.accelerator), one("cpu", &self.cpu));
        format!("measured: a training step of {batch} positions takes {accelerator}, {cpu}")
    }
}

/// Returns the key of a stored comparison. A different machine, GPU, network, batch size or precision requires a new
/// comparison.
fn key(section: &LearnerSection, architecture: &Architecture, accelerator: Device) -> String {
    let model = match accelerator {
        Device::Cuda(number) => gpus::gpus().ok().and_then(|gpus| {
            let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
            gpus::of_cuda(&gpus, number, visible.as_deref()).map(|gpu| gpu.name.clone())
        }),
        _ => None,
    };
    let model = model.unwrap_or_else(|| device_name(accelerator));
    let LearnerSection { batch_size, unroll_steps, consistency_loss_weight, threads, precision, kernel, .. } = section;
    let unroll = match architecture.model {
        Model::Alphazero | Model::AlphazeroReturns { .. } => String::new(),
        Model::Muzero { .. } | Model::StochasticMuzero { .. } if *consistency_loss_weight > 0.0 => {
            format!(" of {unroll_steps} steps and their observations")
        }
        Model::Muzero { .. } | Model::StochasticMuzero { .. } => format!(" of {unroll_steps} steps"),
    };
    format!(
        "{}, {}; {model}; {architecture:?}; batch {batch_size}{unroll}; {threads} threads, {precision}, {kernel:?}",
        machine::describe(),
        training_cpu::Path::widest()
    )
}

type Comparisons = BTreeMap<String, Comparison>;

/// Returns the comparison stored by an earlier start; `None` if there is none for `key`.
fn remembered(file: &RememberedFile, key: &str) -> Option<Comparison> {
    all(file).remove(key)
}

fn remember(file: &RememberedFile, key: String, compared: &Comparison) {
    // The failure may have been temporary, so the devices are measured again.
    if compared.accelerator.is_err() {
        return;
    }
    let mut comparisons = all(file);
    comparisons.insert(key, compared.clone());
    match serde_json::to_vec_pretty(&comparisons) {
        Ok(text) => file.write(&text),
        Err(error) => tracing::warn!(%error, "cannot store measured speeds"),
    }
}

fn all(file: &RememberedFile) -> Comparisons {
    let Some(text) = file.read() else { return Comparisons::default() };
    serde_json::from_slice(&text).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot read stored speeds; measuring again");
        Comparisons::default()
    })
}

#[cfg(test)]
mod tests;
