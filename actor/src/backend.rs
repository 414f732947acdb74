//! Chooses where self-play evaluates positions: on an inference server, on this machine, or in a simulation.

mod remote;
pub(crate) mod simulated;

use std::sync::Arc;
use std::time::{Duration, Instant};

use evaluators::{Backend, BatchMax, Calibration, Chosen, Host, Invalid, Store};
use game::Game as _;
use network_cpu::KernelPreference;
use proto::inference::{Evaluations, EvaluationsSettings, Hello};
use remote::Remote;
use run_file::actor::{Kernel, Settings};
use service::{ConfigError, Drain, RememberedFile};
use simulated::Simulated;

/// Chooses an inference server if one is configured, else this machine. Must be called on a tokio runtime.
///
/// # Errors
/// [`ConfigError`] names the key that this build or machine cannot satisfy.
pub(crate) fn choose(settings: &Settings, drain: &Drain) -> Result<Chosen, ConfigError> {
    if settings.actor.inference.is_empty() {
        return local(settings);
    }
    let endpoint = settings.actor.inference.clone();
    let spec = settings.game.rules().spec().clone();
    let name = format!("actor-{}", settings.actor.id);
    let hello = Hello { name, game: spec.name, shape: spec.observation, actions: spec.actions };
    let evaluations = Evaluations::start(EvaluationsSettings { endpoint: endpoint.clone(), hello })
        .map_err(|error| ConfigError::invalid("actor.inference", error))?;
    let local = if settings.actor.inference_fallback { Some(local(settings)?) } else { None };
    let threads = local.as_ref().map_or(settings.threads.cpu, |local| local.threads);
    let local = local.map(|local| local.backend);
    Ok(Chosen { backend: Arc::new(Remote::new(evaluations, endpoint, local, drain.clone())), threads })
}

/// Chooses an evaluator on this machine.
fn local(settings: &Settings) -> Result<Chosen, ConfigError> {
    match settings.actor.kernel {
        Kernel::Network(kernel) => of_network(settings, kernel),
        Kernel::Simulated => {
            let delay = Duration::from_micros(settings.actor.simulated_delay_us);
            let backend: Arc<dyn Backend> = Arc::new(Simulated::new(delay));
            Ok(Chosen { backend, threads: settings.threads.cpu })
        }
    }
}

fn of_network(settings: &Settings, kernel: KernelPreference) -> Result<Chosen, ConfigError> {
    let Settings { actor, selfplay, threads, .. } = settings;
    let memory_bytes = service::machine::memory_bytes().unwrap_or(0);
    let accelerator_games = settings.accelerator_games(threads.accelerator, memory_bytes);
    let wanted = evaluators::Settings {
        device: actor.device,
        precision: actor.precision,
        kernel,
        calibration: Calibration::OnRecentPositions,
        threads: *threads,
        batch_max: BatchMax {
            cpu: selfplay.games * selfplay.leaves_per_tree,
            accelerator: accelerator_games * selfplay.leaves_per_tree,
        },
        torch_build: "build the actor with --features torch",
    };
    let file = RememberedFile::new(settings.directory.join("evaluators.json"));
    let reader = file.clone();
    let speeds = Store::new(move || reader.read(), move |text| file.write(text));
    let host = Host { clock: Instant::now, machine: service::machine::describe(), speeds };
    let invalid = |Invalid { setting, reason }| ConfigError::invalid(format!("actor.{setting}"), reason);
    evaluators::choose(&wanted, host).map_err(invalid)
}
