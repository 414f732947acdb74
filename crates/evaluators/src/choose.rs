use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use inference::{DevicePreference, PrecisionPreference};
use network_cpu::{Kernel, KernelPreference, KernelVariant};
use weights::Architecture;

use crate::backend::Cpu;
use crate::measured::{Choice, Demand, Measured};
use crate::{Backend, Store};

/// Maximum batch size to measure; no engine gains from larger batches.
const MEASURED_BATCH_MAX: usize = 4096;

/// The requested evaluator, and the evaluation load of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Preferred device. A named accelerator is the only device that evaluates.
    pub device: DevicePreference,
    /// The preferred precision.
    pub precision: PrecisionPreference,
    /// The preferred engine on a CPU.
    pub kernel: KernelPreference,
    /// Determines whether results may depend on earlier requests.
    pub calibration: Calibration,
    /// Number of evaluating threads, by device.
    pub threads: Threads,
    /// Maximum batch size of a thread, by device.
    pub batch_max: BatchMax,
    /// Instructions for getting a build with libtorch, for messages: `build it with --features torch`.
    pub torch_build: &'static str,
}

/// Determines whether an evaluator may adapt the arithmetic to the evaluated positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calibration {
    /// Bfloat16 is checked and int8 is calibrated on recent positions, so that the predictions of a version depend on
    /// earlier requests.
    OnRecentPositions,
    /// A version always makes the same prediction for the same position. Int8 is rejected.
    Off,
}

/// A number that depends on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerDevice {
    /// Number without an accelerator.
    pub cpu: usize,
    /// Number with an accelerator.
    pub accelerator: usize,
}

impl PerDevice {
    /// Uses the same number on every device.
    #[must_use]
    pub fn exactly(number: usize) -> Self {
        Self { cpu: number, accelerator: number }
    }
}

/// Maximum batch size of a thread in positions. An accelerator gains from larger batches.
pub type BatchMax = PerDevice;

/// Number of evaluating threads. An accelerator would idle between two batches of a single thread.
pub type Threads = PerDevice;

/// Properties and services of the machine, for [`choose`].
pub struct Host {
    /// Clock for measuring the engines.
    pub clock: fn() -> Instant,
    /// Name of the machine, part of the key for stored speeds.
    pub machine: String,
    /// Store of speeds measured in earlier starts.
    pub speeds: Store,
}

/// The chosen backend and number of threads for given [`Settings`].
#[derive(Clone)]
pub struct Chosen {
    /// The backend that builds the evaluators.
    pub backend: Arc<dyn Backend>,
    /// Number of evaluating threads for the chosen device.
    pub threads: usize,
}

impl fmt::Debug for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chosen").field("backend", &self.backend.describe()).field("threads", &self.threads).finish()
    }
}

/// A setting that this build or machine cannot satisfy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {reason}")]
pub struct Invalid {
    /// Name of the setting: `device`, `precision` or `kernel`.
    pub setting: &'static str,
    /// Reason, with the rejected value, for messages.
    pub reason: String,
}

/// True if this build has libtorch.
const HAS_LIBTORCH: bool = cfg!(feature = "torch");

/// Checks that a program on this machine, with or without libtorch, has an engine for `settings`. The program may be
/// another program than this one.
///
/// # Errors
/// [`Invalid`] names the setting that the program cannot satisfy.
pub fn check(settings: &Settings, has_libtorch: bool) -> Result<(), Invalid> {
    let &Settings { device, precision, kernel, calibration, torch_build, .. } = settings;
    let invalid = |setting, reason| Err(Invalid { setting, reason });
    if precision == PrecisionPreference::Int8 && calibration == Calibration::Off {
        let reason = "int8 is calibrated on earlier requests, so the response to a position would change over time; \
                      use auto, f32 or bf16";
        return invalid("precision", reason.to_owned());
    }
    if let KernelPreference::Only(variant) = kernel {
        if device.is_accelerator() {
            return invalid("kernel", format!("`{variant}` runs on the CPU, but the device is `{device}`"));
        }
        if !variant.is_available() {
            return invalid("kernel", format!("`{variant}` needs instructions that this CPU or system lacks"));
        }
    }
    let needed = |setting, name: String| {
        invalid(setting, format!("`{name}` needs libtorch, which this build lacks; {torch_build}"))
    };
    match (device, kernel) {
        _ if has_libtorch => Ok(()),
        (device, _) if device.is_accelerator() => needed("device", device.to_string()),
        (_, KernelPreference::Libtorch) => needed("kernel", "libtorch".to_owned()),
        _ => Ok(()),
    }
}

/// Checks that a program with valid `settings`, with or without libtorch, has an engine for `architecture`.
///
/// # Errors
/// No engine supports the network, or the CPU kernel does not and is the only engine.
pub fn check_network(
    settings: &Settings,
    has_libtorch: bool,
    architecture: &Architecture,
) -> Result<(), network_cpu::Error> {
    let is_kernel_alone = !has_libtorch || matches!(settings.kernel, KernelPreference::Only(_));
    network_cpu::supports(architecture).or_else(|error| match error.is_of_the_kernel() && !is_kernel_alone {
        true => Ok(()),
        false => Err(error),
    })
}

/// Chooses the engine for `settings`: the requested engine, or else the fastest engine at each batch size, measured at
/// the first build.
///
/// # Errors
/// [`Invalid`] names the setting that this build or machine cannot satisfy. A named device or kernel is never replaced.
pub fn choose(settings: &Settings, host: Host) -> Result<Chosen, Invalid> {
    let &Settings { device, precision, kernel, calibration, .. } = settings;
    check(settings, HAS_LIBTORCH)?;
    // With a named accelerator, the CPU is not used for evaluation.
    let on_cpu = if device.is_accelerator() { KernelPreference::Libtorch } else { kernel };
    let kernel = on_cpu.kernel(precision, &mut || (host.clock)()).map(|kernel| {
        let remedy = (!HAS_LIBTORCH).then_some(settings.torch_build);
        let kernel = if calibration == Calibration::Off { kernel } else { adaptive(kernel, settings, host.clock) };
        Choice { backend: Box::new(Cpu::new(kernel, remedy)), is_shared: false }
    });
    let mut choices: Vec<Choice> = kernel.into_iter().chain(libtorch(settings, host.clock)?).collect();
    #[cfg(feature = "doubles")]
    if let Some(stand_in) = crate::stand_in::chosen(device, host.clock)? {
        choices = vec![stand_in];
    }
    let is_accelerated = choices.iter().any(|choice| choice.is_shared);
    let (threads, batch_max) = match is_accelerated {
        true => (settings.threads.accelerator, settings.batch_max.accelerator),
        false => (settings.threads.cpu, settings.batch_max.cpu),
    };
    if choices.len() == 1 && !is_accelerated {
        // There is nothing to measure: no other engine, and no number of batches in flight.
        return Ok(Chosen { backend: Arc::from(choices.remove(0).backend), threads });
    }
    let demand = Demand { threads, batch_max: batch_max.clamp(1, MEASURED_BATCH_MAX) };
    Ok(Chosen { backend: Arc::new(Measured::new(choices, demand, host)), threads })
}

/// Makes the kernel check the precision on recent positions. If the settings name neither a kernel nor a precision, the
/// kernel may also multiply integers.
fn adaptive(kernel: Kernel, settings: &Settings, clock: fn() -> Instant) -> Kernel {
    let is_free = settings.kernel == KernelPreference::Auto && settings.precision == PrecisionPreference::Auto;
    match KernelVariant::fast_integers().filter(|_| is_free) {
        Some(path) => kernel.try_integers(path, clock),
        None => kernel.adaptive(),
    }
}

/// Returns libtorch on the requested device; `None` if the settings name a variant of the CPU kernel.
#[cfg(feature = "torch")]
fn libtorch(settings: &Settings, clock: fn() -> Instant) -> Result<Option<Choice>, Invalid> {
    if matches!(settings.kernel, KernelPreference::Only(_)) {
        return Ok(None);
    }
    let libtorch = network_torch::Libtorch::new(settings.device, settings.precision, clock)
        .map_err(|error| Invalid { setting: "device", reason: error.to_string() })?
        .report_to(|trouble| tracing::warn!(trouble, "device settings changed"));
    let is_shared = libtorch.is_accelerated();
    Ok(Some(Choice { backend: Box::new(libtorch), is_shared }))
}

/// Returns no engine, since this build has no libtorch.
#[cfg(not(feature = "torch"))]
fn libtorch(_: &Settings, _: fn() -> Instant) -> Result<Option<Choice>, Invalid> {
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            device: DevicePreference::Auto,
            precision: PrecisionPreference::Auto,
            kernel: KernelPreference::Auto,
            calibration: Calibration::Off,
            threads: Threads { cpu: 3, accelerator: 5 },
            batch_max: BatchMax::exactly(8),
            torch_build: "take the torch build",
        }
    }

    #[expect(clippy::disallowed_methods, reason = "variants are measured with a real clock")]
    fn refused(settings: Settings) -> Invalid {
        let host = Host { clock: Instant::now, machine: "test".to_owned(), speeds: Store::none() };
        choose(&settings, host).unwrap_err()
    }

    #[test]
    fn integers_need_calibration() {
        let invalid = refused(Settings { precision: PrecisionPreference::Int8, ..settings() });
        assert_eq!(invalid.setting, "precision");
        assert!(invalid.reason.ends_with("use auto, f32 or bf16"), "{invalid}");
    }

    #[test]
    fn a_named_device_is_never_replaced() {
        // No machine has a thousand devices.
        let invalid = refused(Settings { device: DevicePreference::Cuda(1000), ..settings() });
        assert_eq!(invalid.setting, "device");
        assert!(invalid.reason.contains("cuda:1000"), "{invalid}");
    }

    #[test]
    fn a_named_kernel_is_never_replaced() {
        let only = |variant| Settings { kernel: KernelPreference::Only(variant), ..settings() };
        for variant in KernelVariant::ALL.into_iter().filter(|variant| !variant.is_available()) {
            let invalid = refused(only(variant));
            assert_eq!(invalid.setting, "kernel");
            assert!(invalid.reason.contains(variant.name()), "{invalid}");
        }
        let invalid = refused(Settings { device: DevicePreference::Cuda(0), ..only(KernelVariant::PortableF32) });
        assert_eq!(invalid.to_string(), "kernel: `portable-f32` runs on the CPU, but the device is `cuda`");
    }

    #[cfg(not(feature = "torch"))]
    #[test]
    fn a_build_without_libtorch_reports_how_to_get_it() {
        let invalid = refused(Settings { kernel: KernelPreference::Libtorch, ..settings() });
        assert_eq!(
            invalid.to_string(),
            "kernel: `libtorch` needs libtorch, which this build lacks; take the torch build"
        );
        let invalid = refused(Settings { device: DevicePreference::Mps, ..settings() });
        assert_eq!(invalid.to_string(), "device: `mps` needs libtorch, which this build lacks; take the torch build");
    }
}
