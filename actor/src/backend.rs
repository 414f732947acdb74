//! What turns published weights into evaluators.

#[cfg(feature = "torch")]
mod measured;
mod remote;
pub(crate) mod simulated;

use std::sync::{Arc, Mutex, PoisonError};

use game::Game as _;
use inference::Evaluator;
use network_cpu::{ChosenPath, Kernel, Precision, Preference};
#[cfg(feature = "torch")]
use network_torch::Libtorch;
use proto::inference::{Evaluations, EvaluationsSettings, Hello};
use proto::weights::Published;
use service::{ConfigError, Drain};

use crate::config::Settings;
use remote::Remote;
use simulated::Simulated;

/// Larger batches are not measured: nothing is gained beyond them anywhere.
#[cfg(feature = "torch")]
const BATCH_MEASURED_MAX: usize = 4096;

/// Builds an evaluator from a weights version, once per thread and version.
pub trait Backend: Send + Sync {
    /// For people: what evaluates, and why it was chosen.
    fn describe(&self) -> String;

    /// The evaluator of one thread.
    ///
    /// # Errors
    /// Weights that are not of the network their manifest names, or a device that refuses.
    fn build(&self, published: &Published) -> anyhow::Result<Box<dyn Evaluator>>;

    /// At most so many batches are under way at once from now on, where the threads share a device; nothing where each thread
    /// computes by itself.
    fn set_in_flight(&self, _depth: usize) {}
}

/// The backend a configuration asks for: an inference server where one is named, else an accelerator or a path of the kernel where one is named, else whoever is fastest here
/// among the CPU kernel and libtorch on the device asked for. Must be called on a runtime. Where an accelerator evaluates and
/// nobody gave a number of threads, there are enough of them to keep it busy.
///
/// # Errors
/// [`ConfigError`] names the key that makes no sense, or that this build cannot do.
pub(crate) fn choose(settings: &mut Settings, drain: &Drain) -> Result<Arc<dyn Backend>, ConfigError> {
    if settings.actor.inference.is_empty() {
        return here(settings);
    }
    let endpoint = settings.actor.inference.clone();
    let spec = games::with_game!(settings.game, |game| game.spec().clone());
    let name = format!("actor-{}", settings.actor.id);
    let hello = Hello { name, game: spec.name, shape: spec.observation, actions: spec.actions };
    let evaluations = Evaluations::start(EvaluationsSettings { endpoint: endpoint.clone(), hello });
    let local = if settings.actor.inference_fallback { Some(here(settings)?) } else { None };
    Ok(Arc::new(Remote::new(evaluations, endpoint, local, drain.clone())))
}

/// What evaluates on this machine.
fn here(settings: &mut Settings) -> Result<Arc<dyn Backend>, ConfigError> {
    let actor = &settings.actor;
    if let Some(delay) = settings.simulated {
        return Ok(Arc::new(Simulated::new(delay)));
    }
    let preference: Preference =
        actor.kernel.parse().map_err(|reason: String| ConfigError::invalid("actor.kernel", reason))?;
    let coarsest: Precision =
        actor.precision.parse().map_err(|reason: String| ConfigError::invalid("actor.precision", reason))?;
    let kernel = preference.kernel(coarsest, &mut std::time::Instant::now).map(Kernel::adaptive);
    of_device(settings, kernel, preference)
}

/// In a build with libtorch.
#[cfg(feature = "torch")]
fn of_device(
    settings: &mut Settings,
    kernel: Option<Kernel>,
    preference: Preference,
) -> Result<Arc<dyn Backend>, ConfigError> {
    use measured::{Choice, Demand, Measured};

    let actor = &settings.actor;
    let device = actor.device.parse().map_err(|reason: String| ConfigError::invalid("actor.device", reason))?;
    // Only the kernel has integers.
    let precision = if actor.precision == "int8" { "auto" } else { &actor.precision };
    let precision = precision.parse().map_err(|reason: String| ConfigError::invalid("actor.precision", reason))?;
    let libtorch = Libtorch::new(device, precision, std::time::Instant::now);
    let is_accelerated = libtorch.is_accelerated();
    if is_accelerated {
        settings.keep_accelerator_busy();
    }
    let kernel = match kernel {
        // Who names an accelerator wants no other evaluator, and neither does who names a path.
        Some(_) if is_accelerated && settings.actor.device != "auto" => None,
        Some(kernel) if preference != Preference::Auto => {
            return Ok(Arc::new(Cpu { kernel, announced: Mutex::default() }));
        }
        kernel => kernel,
    };
    if kernel.is_none() && !is_accelerated {
        // Nothing to choose: neither another evaluator nor an in-flight depth.
        return Ok(Arc::new(libtorch));
    }
    let kernel = kernel.map(|kernel| {
        let backend = Box::new(Cpu { kernel, announced: Mutex::default() });
        Choice { backend, is_shared: false }
    });
    let libtorch = Choice { backend: Box::new(libtorch), is_shared: is_accelerated };
    let selfplay = &settings.selfplay;
    let batch_max = (selfplay.games * selfplay.leaves_per_tree).min(BATCH_MEASURED_MAX);
    let demand = Demand { threads: settings.actor.threads, batch_max };
    let choices = kernel.into_iter().chain([libtorch]).collect();
    Ok(Arc::new(Measured::new(choices, demand, settings.directory.join("evaluators.json"))))
}

/// In a build without libtorch.
#[cfg(not(feature = "torch"))]
fn of_device(
    settings: &mut Settings,
    kernel: Option<Kernel>,
    _preference: Preference,
) -> Result<Arc<dyn Backend>, ConfigError> {
    let device = settings.actor.device.as_str();
    let without = "this actor was built without libtorch; build it with --features torch";
    if !matches!(device, "auto" | "cpu") {
        return Err(ConfigError::invalid("actor.device", format!("`{device}` cannot be had: {without}")));
    }
    match kernel {
        Some(kernel) => Ok(Arc::new(Cpu { kernel, announced: Mutex::default() })),
        None => Err(ConfigError::invalid("actor.kernel", format!("`libtorch` cannot be had: {without}"))),
    }
}

/// The CPU kernel.
struct Cpu {
    kernel: Kernel,
    /// What was said last of the path, which is known with the first weights and may change with others.
    announced: Mutex<Option<ChosenPath>>,
}

impl Backend for Cpu {
    fn describe(&self) -> String {
        match self.kernel.chosen() {
            Some(path) => format!("CPU kernel, {path}"),
            None => "CPU kernel".to_owned(),
        }
    }

    fn build(&self, published: &Published) -> anyhow::Result<Box<dyn Evaluator>> {
        match self.kernel.evaluator(&published.manifest, &published.bytes) {
            Ok(evaluator) => {
                self.announce();
                Ok(Box::new(evaluator))
            }
            Err(error) if error.is_of_the_kernel() => Err(otherwise(error)),
            Err(error) => Err(error.into()),
        }
    }
}

impl Cpu {
    fn announce(&self) {
        let chosen = self.kernel.chosen();
        let mut announced = self.announced.lock().unwrap_or_else(PoisonError::into_inner);
        if *announced != chosen {
            tracing::info!(evaluator = self.describe(), "the weights are ready to use");
            *announced = chosen;
        }
    }
}

/// What to say of weights that the kernel does not take.
fn otherwise(error: network_cpu::Error) -> anyhow::Error {
    let error = anyhow::Error::from(error);
    if cfg!(feature = "torch") {
        return error;
    }
    error.context("this actor was built without libtorch, which may take the network")
}

#[cfg(feature = "torch")]
impl Backend for Libtorch {
    fn describe(&self) -> String {
        // The one of its own.
        Libtorch::describe(self)
    }

    fn build(&self, published: &Published) -> anyhow::Result<Box<dyn Evaluator>> {
        Ok(Box::new(self.evaluator(&published.manifest, &published.bytes)?))
    }

    fn set_in_flight(&self, depth: usize) {
        // The one of its own.
        Libtorch::set_in_flight(self, depth);
    }
}
