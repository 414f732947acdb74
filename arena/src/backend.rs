//! Builds the evaluators of weights versions.

use std::time::Instant;

use bytes::Bytes;
use evaluators::{Backend, Calibration, Chosen, Host, Invalid, Store, Threads};
use inference::Evaluator;
use service::{ConfigError, RememberedFile};
use weights::Manifest;

use crate::config::Settings;

/// Builds the evaluator of a version that must be of `game`.
///
/// # Errors
/// If it is of another game, or `backend` fails.
pub(crate) fn evaluator_of(
    backend: &dyn Backend,
    game: &str,
    manifest: &Manifest,
    bytes: &Bytes,
) -> anyhow::Result<Box<dyn Evaluator>> {
    anyhow::ensure!(manifest.architecture.game == game, "weights of {}, not {game}", manifest.architecture.game);
    Ok(backend.build(manifest, bytes)?)
}

/// Chooses the engine that the configuration names, else the fastest on its device.
///
/// # Errors
/// [`ConfigError`] names the key that this build or machine cannot satisfy.
pub(crate) fn choose(settings: &Settings) -> Result<Chosen, ConfigError> {
    let wanted = evaluators::Settings {
        device: settings.device,
        precision: settings.precision,
        kernel: settings.kernel,
        // Without this, the games of a match would depend on earlier evaluations.
        calibration: Calibration::Off,
        threads: Threads::exactly(1),
        // The games of a match are searched together, from both sides; solved positions come in such batches too.
        batch_max: 2 * settings.measurement.matches.openings,
        torch_build: "build the arena with --features torch",
    };
    let file = RememberedFile::new(settings.directory.join("arena-evaluators.json"));
    let speeds = Store::new(
        {
            let file = file.clone();
            move || file.read()
        },
        move |text| file.write(text),
    );
    let host = Host { clock: Instant::now, machine: service::machine::describe(), speeds };
    let invalid = |Invalid { setting, reason }| ConfigError::invalid(format!("arena.{setting}"), reason);
    evaluators::choose(&wanted, host).map_err(invalid)
}
