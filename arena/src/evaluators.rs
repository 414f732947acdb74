//! From published weights to something that evaluates; the one place that knows which builds have libtorch.

use inference::Evaluator;
use network_cpu::{Kernel, Precision, Preference};
use service::ConfigError;
use weights::Manifest;

use crate::config::Settings;

/// Builds the evaluator of a weights version from its bytes.
pub type Build = Box<dyn Fn(&Manifest, &[u8]) -> anyhow::Result<Box<dyn Evaluator>> + Send>;

/// The evaluator of a version that must be of `game`.
///
/// # Errors
/// If it is of another game, or `build` fails.
pub fn evaluator_of(
    build: &Build,
    game: &str,
    manifest: &Manifest,
    bytes: &[u8],
) -> anyhow::Result<Box<dyn Evaluator>> {
    anyhow::ensure!(manifest.architecture.game == game, "they are of {}, not {game}", manifest.architecture.game);
    build(manifest, bytes)
}

/// The evaluators that the configuration asks for: an accelerator if one works, else the CPU kernel, else libtorch.
///
/// # Errors
/// [`ConfigError`] names the key that makes no sense, or that this build cannot do.
pub fn build(settings: &Settings) -> Result<Build, ConfigError> {
    let preference: Preference =
        settings.kernel.parse().map_err(|reason: String| ConfigError::invalid("arena.kernel", reason))?;
    let coarsest = match settings.precision.parse() {
        // Calibrating on the positions of a match would make its games depend on what was played before.
        Ok(Precision::Int8) => Err("a match is played in auto, f32 or bf16".to_owned()),
        parsed => parsed,
    };
    let coarsest = coarsest.map_err(|reason: String| ConfigError::invalid("arena.precision", reason))?;
    of_device(settings, preference.kernel(coarsest, &mut std::time::Instant::now), preference)
}

/// In a build with libtorch.
#[cfg(feature = "torch")]
fn of_device(settings: &Settings, kernel: Option<Kernel>, preference: Preference) -> Result<Build, ConfigError> {
    let device = settings.device.parse().map_err(|reason: String| ConfigError::invalid("arena.device", reason))?;
    let precision =
        settings.precision.parse().map_err(|reason: String| ConfigError::invalid("arena.precision", reason))?;
    let libtorch = network_torch::Libtorch::new(device, precision, std::time::Instant::now);
    let Some(kernel) = kernel.filter(|_| !libtorch.is_accelerated()) else {
        return Ok(Box::new(move |manifest, bytes| Ok(Box::new(libtorch.evaluator(manifest, bytes)?))));
    };
    // Who names a path wants no other evaluator.
    let takes_over = preference == Preference::Auto;
    Ok(Box::new(move |manifest, bytes| match kernel.evaluator(manifest, bytes) {
        Ok(evaluator) => Ok(Box::new(evaluator)),
        Err(error) if takes_over && error.is_of_the_kernel() => {
            tracing::warn!(%error, "libtorch takes over");
            Ok(Box::new(libtorch.evaluator(manifest, bytes)?))
        }
        Err(error) => Err(error.into()),
    }))
}

/// In a build without libtorch.
#[cfg(not(feature = "torch"))]
fn of_device(settings: &Settings, kernel: Option<Kernel>, _preference: Preference) -> Result<Build, ConfigError> {
    let without = "this arena was built without libtorch; build it with --features torch";
    let device = settings.device.as_str();
    if !matches!(device, "auto" | "cpu") {
        return Err(ConfigError::invalid("arena.device", format!("`{device}` cannot be had: {without}")));
    }
    let reason = || ConfigError::invalid("arena.kernel", format!("`libtorch` cannot be had: {without}"));
    let kernel = kernel.ok_or_else(reason)?;
    Ok(Box::new(move |manifest, bytes| Ok(Box::new(kernel.evaluator(manifest, bytes)?))))
}
