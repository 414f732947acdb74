//! From published weights to something that evaluates; the one place that knows which builds have libtorch.

use inference::Evaluator;
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

/// The evaluators of this build: libtorch in this process, on one thread.
///
/// # Errors
/// If device or precision are no such things.
#[cfg(feature = "torch")]
pub fn build(settings: &Settings) -> Result<Build, service::ConfigError> {
    use network::{DevicePreference, LibtorchEvaluator, PrecisionPreference};
    use service::ConfigError;

    let device: DevicePreference =
        settings.device.parse().map_err(|error: String| ConfigError::invalid("arena.device", error))?;
    let precision: PrecisionPreference =
        settings.precision.parse().map_err(|error: String| ConfigError::invalid("arena.precision", error))?;
    // Training has the other cores.
    network::set_threads(1);
    let device = network::choose_device(device);
    let precision = network::choose_precision(precision, device.device, &mut std::time::Instant::now);
    tracing::info!(%device, %precision, "evaluating with libtorch");
    Ok(Box::new(move |manifest, bytes| {
        let evaluator = LibtorchEvaluator::new(
            &manifest.architecture,
            manifest.version,
            bytes,
            device.device,
            precision.precision,
        )?;
        Ok(Box::new(evaluator))
    }))
}

/// This build evaluates nothing.
///
/// # Errors
/// Always.
#[cfg(not(feature = "torch"))]
pub fn build(_settings: &Settings) -> Result<Build, service::ConfigError> {
    Err(service::ConfigError::invalid("arena", "was built without the feature `torch`: it cannot evaluate weights"))
}
