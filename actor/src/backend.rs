//! What turns published weights into evaluators.

use std::sync::{Arc, Mutex, PoisonError};

use inference::Evaluator;
#[cfg(feature = "torch")]
use network::Libtorch;
use proto::weights::Published;
use service::ConfigError;
use tower::{ChosenPath, Kernel, Precision, Preference};

/// Builds an evaluator from a weights version, once per thread and version.
pub trait Backend: Send + Sync {
    /// For people: what evaluates, and why it was chosen.
    fn describe(&self) -> String;

    /// The evaluator of one thread.
    ///
    /// # Errors
    /// Weights that are not of the network their manifest names, or a device that refuses.
    fn build(&self, published: &Published) -> anyhow::Result<Box<dyn Evaluator>>;
}

/// The backend a configuration asks for: an accelerator if one works, else the CPU kernel, else libtorch.
///
/// # Errors
/// [`ConfigError`] names the key that makes no sense, or that this build cannot do.
pub(crate) fn choose(device: &str, precision: &str, kernel: &str) -> Result<Arc<dyn Backend>, ConfigError> {
    let preference: Preference =
        kernel.parse().map_err(|reason: String| ConfigError::invalid("actor.kernel", reason))?;
    let coarsest: Precision =
        precision.parse().map_err(|reason: String| ConfigError::invalid("actor.precision", reason))?;
    let kernel = preference.kernel(coarsest, &mut std::time::Instant::now).map(Kernel::adaptive);
    of_device(device, precision, kernel, preference)
}

/// In a build with libtorch.
#[cfg(feature = "torch")]
fn of_device(
    device: &str,
    precision: &str,
    kernel: Option<Kernel>,
    preference: Preference,
) -> Result<Arc<dyn Backend>, ConfigError> {
    let device = device.parse().map_err(|reason: String| ConfigError::invalid("actor.device", reason))?;
    // Only the kernel has integers.
    let precision = if precision == "int8" { "auto" } else { precision };
    let precision = precision.parse().map_err(|reason: String| ConfigError::invalid("actor.precision", reason))?;
    let libtorch = Libtorch::new(device, precision, std::time::Instant::now);
    Ok(match kernel {
        Some(kernel) if !libtorch.is_accelerated() => {
            // Who names a path wants no other evaluator.
            let libtorch = (preference == Preference::Auto).then_some(libtorch);
            Arc::new(Cpu { kernel, announced: Mutex::default(), libtorch })
        }
        _ => Arc::new(libtorch),
    })
}

/// In a build without libtorch.
#[cfg(not(feature = "torch"))]
fn of_device(
    device: &str,
    _precision: &str,
    kernel: Option<Kernel>,
    _preference: Preference,
) -> Result<Arc<dyn Backend>, ConfigError> {
    let without = "this actor was built without libtorch; build it with --features torch";
    if !matches!(device, "auto" | "cpu") {
        return Err(ConfigError::invalid("actor.device", format!("`{device}` cannot be had: {without}")));
    }
    match kernel {
        Some(kernel) => Ok(Arc::new(Cpu { kernel, announced: Mutex::default() })),
        None => Err(ConfigError::invalid("actor.kernel", format!("`libtorch` cannot be had: {without}"))),
    }
}

/// The CPU kernel, and libtorch for networks that it does not take.
struct Cpu {
    kernel: Kernel,
    /// What was said last of the path, which is known with the first weights and may change with others.
    announced: Mutex<Option<ChosenPath>>,
    #[cfg(feature = "torch")]
    libtorch: Option<Libtorch>,
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
            Err(error) if error.is_of_the_kernel() => self.build_otherwise(error, published),
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

    /// What the kernel does not take: libtorch's, where it is.
    #[cfg(feature = "torch")]
    fn build_otherwise(&self, error: tower::Error, published: &Published) -> anyhow::Result<Box<dyn Evaluator>> {
        let Some(libtorch) = &self.libtorch else { return Err(error.into()) };
        tracing::warn!(%error, "libtorch takes over");
        libtorch.build(published)
    }

    #[cfg(not(feature = "torch"))]
    fn build_otherwise(&self, error: tower::Error, _published: &Published) -> anyhow::Result<Box<dyn Evaluator>> {
        Err(anyhow::Error::from(error).context("this actor was built without libtorch, which may take the network"))
    }
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
}
