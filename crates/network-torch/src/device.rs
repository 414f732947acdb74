#[cfg(target_os = "linux")]
mod cuda_half;
mod precision;
mod probe;

use std::sync::OnceLock;

use inference::DevicePreference;
use tch::{Cuda, Device};
use weights::Architecture;

use crate::{Error, Purpose, gpu, rules::device_name};
use inference::Precision;

pub use precision::{ChosenPrecision, choose_precision, choose_training_precision};

/// A device with the reason for the choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// Device for a [`Network`](crate::Network).
    pub device: Device,
    /// Human-readable; under `auto` with the reason why no accelerator was chosen.
    pub reason: String,
}

impl Chosen {
    /// Returns the name of the device in a configuration, without the reason.
    #[must_use]
    pub fn name(&self) -> String {
        device_name(self.device)
    }
}

impl std::fmt::Display for Chosen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", device_name(self.device), self.reason)
    }
}

/// Devices of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Devices {
    /// Working devices, the CPU first.
    pub working: Vec<Device>,
    /// Devices that do not work, each with the human-readable reason.
    pub missing: Vec<String>,
}

/// Finds the device for `preference`. Only `auto` falls back to the CPU, with the reason.
///
/// An accelerator is chosen only after a comparison with the CPU on a small network: an evaluation for inference, a
/// training step for training. This finds an incompatible driver, an unsupported operation or wrong numbers early and
/// not in the middle of a run. Call it before anything else in this crate: the CUDA half of libtorch can only be
/// loaded before first use.
///
/// # Errors
/// [`Error::Device`] for a named device that cannot be used, with the cause.
pub fn choose_device(preference: DevicePreference, purpose: Purpose) -> Result<Chosen, Error> {
    let named = |found: Result<Chosen, String>| match found {
        Ok(Chosen { device, reason }) => Ok(Chosen { device, reason: format!("configured, {reason}") }),
        Err(reason) => Err(Error::Device { device: preference.to_string(), reason }),
    };
    #[cfg(any(test, feature = "doubles"))]
    if let Some(chosen) = crate::stand_in::chosen(preference, purpose)? {
        return Ok(chosen);
    }
    let chosen = match preference {
        DevicePreference::Cpu => Chosen { device: Device::Cpu, reason: "configured".to_owned() },
        DevicePreference::Cuda(index) => named(cuda(index, purpose))?,
        DevicePreference::Mps => named(mps(purpose))?,
        DevicePreference::Auto => match (cuda(0, purpose), mps(purpose)) {
            (Ok(chosen), _) | (Err(_), Ok(chosen)) => chosen,
            (Err(cuda), Err(mps)) => Chosen { device: Device::Cpu, reason: format!("no accelerator: {cuda}; {mps}") },
        },
    };
    if purpose == Purpose::Inference && chosen.device.is_cuda() {
        // An evaluating process computes few batch sizes again and again, so that cuDNN's search for the fastest
        // kernel pays.
        Cuda::cudnn_set_benchmark(true);
    }
    Ok(chosen)
}

/// Tries every device for inference, as [`choose_device`] does for the chosen one. Like that function, it must be
/// called before anything else in this crate.
#[must_use]
pub fn devices() -> Devices {
    // If CUDA as a whole is missing, the attempt on the first CUDA device gives the reason.
    let indices = 0..cuda_count().unwrap_or(1);
    let purpose = Purpose::Inference;
    let tried = indices.map(|index| (Device::Cuda(index), cuda(index, purpose))).chain([(Device::Mps, mps(purpose))]);
    let mut devices = Devices { working: vec![Device::Cpu], missing: Vec::new() };
    for (device, tried) in tried {
        match tried {
            Ok(_) => devices.working.push(device),
            Err(why) => devices.missing.push(format!("{}: {why}", device_name(device))),
        }
    }
    devices
}

const NO_CUDA_DEVICE: &str = "libtorch finds no CUDA device or no matching driver; CUDA 13 needs driver 580 or later, \
                              for an older one see docs/install.md#an-older-driver";

fn cuda_count() -> Result<usize, String> {
    load_cuda_half()?;
    if !Cuda::is_available() {
        return Err(NO_CUDA_DEVICE.to_owned());
    }
    Ok(usize::try_from(Cuda::device_count()).unwrap_or(0))
}

fn cuda(index: usize, purpose: Purpose) -> Result<Chosen, String> {
    let count = cuda_count()?;
    if index >= count {
        return Err(format!("libtorch finds {count} CUDA devices"));
    }
    compared(Device::Cuda(index), gpu::name(index).ok(), purpose)
}

fn mps(purpose: Purpose) -> Result<Chosen, String> {
    if !tch::utils::has_mps() {
        return Err("this libtorch does not support MPS".to_owned());
    }
    compared(Device::Mps, None, purpose)
}

/// Compares a device with the CPU; the reason states the device model and the difference.
fn compared(device: Device, model: Option<String>, purpose: Purpose) -> Result<Chosen, String> {
    let difference = probe::probe_device(device, Precision::F32, purpose)?;
    let model = model.map_or(String::new(), |model| format!("{model}, "));
    Ok(Chosen { device, reason: format!("{model}{purpose} within {difference:.1e} of the CPU result") })
}

/// Loads the CUDA half of libtorch for the whole process, so that one binary serves machines with and without CUDA.
fn load_cuda_half() -> Result<(), String> {
    static LOADED: OnceLock<Result<(), String>> = OnceLock::new();
    #[cfg(target_os = "linux")]
    let load = cuda_half::load;
    #[cfg(not(target_os = "linux"))]
    let load = || Err("CUDA is supported on Linux only".to_owned());
    LOADED.get_or_init(load).clone()
}

/// Loads the library that records CUDA graphs. Call it after a CUDA device was chosen.
///
/// # Errors
/// Returns the reason in human-readable form.
pub(crate) fn load_graphs() -> Result<(), String> {
    #[cfg(target_os = "linux")]
    let load = cuda_half::load_graphs;
    #[cfg(not(target_os = "linux"))]
    let load = || Err("CUDA is supported on Linux only".to_owned());
    load()
}

/// Returns the architecture of a plain tower for trials: planes, height and width, then channels and blocks.
fn plain_tower([planes, height, width]: [usize; 3], [channels, blocks]: [usize; 2]) -> Architecture {
    Architecture::plain("trial", [planes, height, width], height * width, [channels, blocks])
}

#[cfg(test)]
mod tests {
    use inference::DevicePreference;
    use tch::Device;

    use super::{Purpose, choose_device, device_name, devices};

    const PURPOSES: [Purpose; 2] = [Purpose::Inference, Purpose::Training];

    #[test]
    fn the_cpu_is_always_there() {
        for purpose in PURPOSES {
            let chosen = choose_device(DevicePreference::Cpu, purpose).unwrap();
            assert_eq!(chosen.device, Device::Cpu);
            assert_eq!(chosen.to_string(), "cpu (configured)");
        }
    }

    #[test]
    fn a_named_device_that_cannot_be_used_is_an_error_with_the_device_and_the_cause() {
        // No machine has a thousand devices.
        for purpose in PURPOSES {
            let error = choose_device(DevicePreference::Cuda(1000), purpose).unwrap_err().to_string();
            let cause = error.strip_prefix("cannot use device cuda:1000: ").expect(&error);
            assert!(!cause.is_empty());
        }
    }

    #[test]
    fn automatic_choice_finds_a_device_that_can_be_named_or_the_cpu_with_the_reason() {
        for purpose in PURPOSES {
            let chosen = choose_device(DevicePreference::Auto, purpose).unwrap();
            match chosen.device {
                Device::Cpu => assert!(chosen.reason.starts_with("no accelerator: "), "{chosen}"),
                device => {
                    let named = choose_device(device_name(device).parse().unwrap(), purpose).unwrap();
                    assert_eq!(named.device, device);
                }
            }
        }
    }

    #[test]
    fn every_accelerator_works_or_is_listed_with_a_reason() {
        let devices = devices();
        assert_eq!(devices.working[0], Device::Cpu);
        for accelerator in ["cuda", "mps"] {
            let works = devices.working.iter().any(|&device| device_name(device) == accelerator);
            let reason = devices.missing.iter().any(|why| why.starts_with(&format!("{accelerator}: ")));
            assert!(works != reason, "{devices:?}");
        }
        assert_eq!(devices.working[1..].first().copied(), automatic());
    }

    /// Returns the accelerator that `auto` chooses, if there is one.
    fn automatic() -> Option<Device> {
        let chosen = choose_device(DevicePreference::Auto, Purpose::Inference).unwrap();
        Some(chosen.device).filter(|&device| device != Device::Cpu)
    }
}
