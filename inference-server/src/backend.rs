//! The choice of the evaluators of this process.

use std::time::Instant;

use evaluators::{Calibration, Chosen, Host, Invalid, Store, Threads};
use service::ConfigError;

use crate::config::InferenceSection;

/// The largest batch at which engines are compared if no batch size is configured.
const MEASURED_BATCH_MAX: usize = 1024;
/// The number of threads with an accelerator: while it computes one batch, the next one waits in its queue.
const ACCELERATOR_THREADS: usize = 2;

/// Chooses the configured engine, or the fastest on its device.
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
        // Calibration would change the answer to the same request over time.
        calibration: Calibration::Off,
        threads,
        batch_max: if section.batch_max == 0 { MEASURED_BATCH_MAX } else { section.batch_max },
        torch_build: "build the inference server with --features torch",
    };
    // This process keeps no files, so each start measures.
    let host = Host { clock: Instant::now, machine: service::machine::describe(), speeds: Store::none() };
    let invalid = |Invalid { setting, reason }| ConfigError::invalid(format!("inference.{setting}"), reason);
    evaluators::choose(&wanted, host).map_err(invalid)
}
