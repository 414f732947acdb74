//! Chooses the evaluators of this process.

use std::time::Instant;

use evaluators::{BatchMax, Calibration, Chosen, Host, Invalid, Store, Threads};
use run_file::inference::InferenceSection;
use service::ConfigError;

/// Maximum batch sizes with which engines are compared if no batch size is configured.
const MEASURED_BATCH_MAX: BatchMax = BatchMax { cpu: 1024, accelerator: 4096 };
/// Number of threads for an accelerator. Each thread has at most one batch in flight, and one more thread forms the
/// next batch.
const ACCELERATOR_THREADS: usize = inference::DEPTH_MAX + 1;

/// Chooses the configured engine, or the fastest engine on the device.
///
/// # Errors
/// [`ConfigError`] names the key that this build or machine cannot satisfy.
pub(crate) fn choose(section: &InferenceSection) -> Result<Chosen, ConfigError> {
    let threads = match section.threads {
        0 => Threads { cpu: service::machine::cores(), accelerator: ACCELERATOR_THREADS },
        threads => Threads::exactly(threads),
    };
    let wanted = evaluators::Settings {
        device: section.device,
        precision: section.precision,
        kernel: section.kernel,
        // Calibration would change the result of the same request over time.
        calibration: Calibration::Off,
        threads,
        batch_max: match section.batch_max {
            0 => MEASURED_BATCH_MAX,
            batch_max => BatchMax::exactly(batch_max),
        },
        torch_build: "build the inference server with --features torch",
    };
    // This process keeps no files, so each start measures.
    let host = Host { clock: Instant::now, machine: service::machine::describe(), speeds: Store::none() };
    let invalid = |Invalid { setting, reason }| ConfigError::invalid(format!("inference.{setting}"), reason);
    evaluators::choose(&wanted, host).map_err(invalid)
}
