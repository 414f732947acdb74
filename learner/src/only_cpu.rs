//! The training device in a program built without libtorch: always the CPU.

use inference::TrainingPrecision;
use run_file::learner::libtorch::{self, Cpu, Reason};
use run_file::learner::{LearnerSection, Settings};
use service::ConfigError;
use service::device_trial::{Choice, DeviceTrial, Libtorch};
use service::devices::CPU;
use training::Precision;
use weights::Architecture;

use crate::backend::Chosen;

/// Explains why other devices are unavailable, with the command to build with libtorch.
const WITHOUT_LIBTORCH: &str = "this program was built without libtorch; `cargo xtask train` builds with libtorch if \
                                the run needs it, `cargo build --release --package learner --features torch` always \
                                does";

/// The training device of a program without libtorch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Device {
    /// The CPU, with the CPU kernels.
    Cpu,
}

/// Returns the device name as used in the run file.
pub(crate) fn device_name(Device::Cpu: Device) -> String {
    CPU.to_owned()
}

/// Chooses the CPU. With `learner.precision = "auto"`, the precision is bfloat16 if the CPU supports it, otherwise
/// float32.
///
/// # Errors
/// [`ConfigError`] names the key whose value requires libtorch.
pub(crate) fn choose(settings: &Settings, _: &Architecture) -> Result<Chosen, ConfigError> {
    let cpu = Cpu::this();
    if let Some(Reason::Required { key, why }) = libtorch::why(settings, cpu) {
        return Err(ConfigError::invalid(key, format!("{why}, and {WITHOUT_LIBTORCH}")));
    }
    let LearnerSection { precision, .. } = settings.learner;
    let (precision, reason) = match precision {
        TrainingPrecision::Bf16 => (Precision::Bf16, "configured"),
        TrainingPrecision::F16 => unreachable!("it needs libtorch, which was refused"),
        TrainingPrecision::Adaptive => (Precision::Bf16, "configured, adaptive"),
        TrainingPrecision::F32 => (Precision::F32, "configured"),
        TrainingPrecision::Auto => (cpu.automatic_precision(), "CPU kernels"),
    };
    let asked = settings.learner.precision;
    // With `auto`, lower precision only improves speed, so layers may be switched to float32.
    let is_adaptive =
        asked == TrainingPrecision::Adaptive || asked == TrainingPrecision::Auto && precision != Precision::F32;
    let description = format!("cpu (built without libtorch), {precision} ({reason})");
    Ok(Chosen { device: Device::Cpu, precision, is_adaptive, description })
}

/// Returns the list of devices, in which only the CPU is usable.
pub(crate) fn trial() -> DeviceTrial {
    let chosen = || Choice { device: CPU.to_owned(), reason: WITHOUT_LIBTORCH.to_owned() };
    DeviceTrial {
        libtorch: Libtorch::default(),
        working: vec![CPU.to_owned()],
        missing: ["cuda", "mps"].map(|device| format!("{device}: {WITHOUT_LIBTORCH}")).into(),
        cannot_train: Vec::new(),
        training: chosen(),
        inference: chosen(),
    }
}

#[cfg(test)]
mod tests {
    use inference::{DevicePreference, TrainingKernel};
    use run_file::learner::Config;
    use weights::Model;

    use super::*;
    use crate::trainer::conformance::architecture;

    fn chosen(set: impl FnOnce(&mut Config)) -> Result<Chosen, String> {
        let mut config = Config::default();
        set(&mut config);
        choose(&config.settings().unwrap(), &architecture(Model::Alphazero)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_program_without_libtorch_trains_on_the_cpu_in_bfloat16_where_that_multiplies_it() {
        let automatic = Cpu::this().automatic_precision();
        for (precision, expected) in [(TrainingPrecision::Auto, automatic), (TrainingPrecision::F32, Precision::F32)] {
            let chosen = chosen(|config| config.learner.precision = precision).unwrap();
            assert_eq!((chosen.device, chosen.precision), (Device::Cpu, expected));
        }
    }

    #[test]
    fn what_needs_libtorch_is_refused_with_its_key_and_the_command_that_builds_the_program_with_it() {
        let refused = |key: &str, set: &dyn Fn(&mut Config)| {
            let error = chosen(set).unwrap_err();
            assert!(error.starts_with(&format!("{key}: ")), "{error}");
            assert!(error.contains("built without libtorch; `cargo xtask train` builds with"), "{error}");
        };
        refused("learner.device", &|config| config.learner.device = DevicePreference::Cuda(0));
        refused("learner.device", &|config| config.learner.device = DevicePreference::Mps);
        refused("learner.group", &|config| config.learner.group = "http://127.0.0.1:1,http://127.0.0.1:2".to_owned());
        refused("learner.precision", &|config| config.learner.precision = TrainingPrecision::F16);
        refused("learner.kernel", &|config| config.learner.kernel = TrainingKernel::Libtorch);
    }

    #[test]
    fn every_accelerator_is_refused_with_the_reason() {
        let trial = trial();
        assert_eq!((trial.training.device.as_str(), trial.refusal(CPU)), (CPU, None));
        for device in ["cuda", "cuda:1", "mps"] {
            assert_eq!(trial.training_refusal(device), Some(WITHOUT_LIBTORCH), "{device}");
        }
    }
}
