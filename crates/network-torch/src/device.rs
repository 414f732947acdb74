use std::sync::OnceLock;

use inference::DevicePreference;
use tch::{Cuda, Device, Tensor};
use weights::Architecture;

use crate::{Error, Network, Trainer, TrainerSettings, TrainingBatch};

/// A device and why it was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// The device for [`Network`].
    pub device: Device,
    /// For people; under `auto` with the reason why no accelerator was chosen.
    pub reason: String,
}

impl Chosen {
    /// The device as configuration writes it, without the reason.
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

/// The devices of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Devices {
    /// Those that work, the CPU first.
    pub working: Vec<Device>,
    /// Those that do not, each with the reason, for people.
    pub missing: Vec<String>,
}

/// The device as configuration writes it.
#[must_use]
pub fn device_name(device: Device) -> String {
    match device {
        Device::Cpu => "cpu".to_owned(),
        Device::Cuda(index) => DevicePreference::Cuda(index).to_string(),
        Device::Mps => "mps".to_owned(),
        Device::Vulkan => "vulkan".to_owned(),
    }
}

/// Finds the device for `preference`. Only `auto` falls back to the CPU, with the reason.
///
/// An accelerator is chosen only after one training step of a tiny network on it succeeds: a driver that does not fit
/// or an operation the device lacks then shows here and not in the middle of a run. Call it before anything else of
/// this crate: the CUDA half of libtorch can only be loaded before first use.
///
/// # Errors
/// [`Error::Device`] for a named device that cannot be used, with the cause.
pub fn choose_device(preference: DevicePreference) -> Result<Chosen, Error> {
    let named = |found: Result<Device, String>| match found {
        Ok(device) => Ok(Chosen { device, reason: "configured".to_owned() }),
        Err(reason) => Err(Error::Device { device: preference.to_string(), reason }),
    };
    match preference {
        DevicePreference::Cpu => named(Ok(Device::Cpu)),
        DevicePreference::Cuda(index) => named(cuda(index)),
        DevicePreference::Mps => named(mps()),
        DevicePreference::Auto => {
            let (device, reason) = match (cuda(0), mps()) {
                (Ok(device), _) => (device, "the first CUDA device works".to_owned()),
                (Err(_), Ok(device)) => (device, "MPS works".to_owned()),
                (Err(cuda), Err(mps)) => (Device::Cpu, format!("no accelerator: {cuda}; {mps}")),
            };
            Ok(Chosen { device, reason })
        }
    }
}

/// Tries every device, as [`choose_device`] tries the one it takes; like it, to be called before anything else of this
/// crate.
#[must_use]
pub fn devices() -> Devices {
    // Where CUDA as a whole is missing, its first device has the reason.
    let indices = 0..cuda_count().unwrap_or(1);
    let tried = indices.map(|index| (Device::Cuda(index), cuda(index))).chain([(Device::Mps, mps())]);
    let mut devices = Devices { working: vec![Device::Cpu], missing: Vec::new() };
    for (device, tried) in tried {
        match tried {
            Ok(device) => devices.working.push(device),
            Err(why) => devices.missing.push(format!("{}: {why}", device_name(device))),
        }
    }
    devices
}

fn cuda_count() -> Result<usize, String> {
    load_cuda_half()?;
    if !Cuda::is_available() {
        return Err("libtorch finds no CUDA device or no driver that fits".to_owned());
    }
    Ok(usize::try_from(Cuda::device_count()).unwrap_or(0))
}

fn cuda(index: usize) -> Result<Device, String> {
    let count = cuda_count()?;
    if index >= count {
        return Err(format!("libtorch finds {count} CUDA devices"));
    }
    probe(Device::Cuda(index))
}

fn mps() -> Result<Device, String> {
    if !tch::utils::has_mps() {
        return Err("this libtorch has no MPS".to_owned());
    }
    probe(Device::Mps)
}

/// Loads `libtorch_cuda.so` for the whole process if the loader can find it, so that one binary serves machines with
/// and without CUDA. To have it found, put the `lib` folder of a full installation of the same libtorch into
/// `LD_LIBRARY_PATH`.
fn load_cuda_half() -> Result<(), String> {
    static LOADED: OnceLock<Result<(), String>> = OnceLock::new();
    LOADED.get_or_init(|| load_globally(c"libtorch_cuda.so")).clone()
}

#[cfg(target_os = "linux")]
fn load_globally(library: &std::ffi::CStr) -> Result<(), String> {
    // SAFETY: the name is a valid C string; the library is never closed, so nothing it registers can dangle. Its
    // initialisers register the CUDA kernels with the libtorch that is already loaded, which is what they are for.
    let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if !handle.is_null() {
        return Ok(());
    }
    // SAFETY: dlerror returns null or a C string that stays valid until the next call on this thread.
    let why = unsafe {
        let message = libc::dlerror();
        if message.is_null() { None } else { Some(std::ffi::CStr::from_ptr(message).to_string_lossy().into_owned()) }
    };
    Err(why.unwrap_or_else(|| format!("{} cannot be loaded", library.to_string_lossy())))
}

#[cfg(not(target_os = "linux"))]
fn load_globally(_library: &std::ffi::CStr) -> Result<(), String> {
    Err("CUDA is supported on Linux only".to_owned())
}

/// One training step and one reading on `device`.
fn probe(device: Device) -> Result<Device, String> {
    let train = || -> Result<(), Error> {
        // A bare allocation first: without it a missing kernel and a missing device look the same.
        let _ = Tensor::f_zeros([1_i64], (tch::Kind::Float, device))?;
        let architecture = Architecture {
            game: "probe".to_owned(),
            planes: 1,
            height: 3,
            width: 3,
            actions: 2,
            channels: 8,
            blocks: 1,
            squeeze_excitation: 0,
            global_pooling: 0,
        };
        let mut trainer = Trainer::new(Network::new(&architecture, device, 0)?, TrainerSettings::default())?;
        trainer.step(&TrainingBatch {
            observations: (0..18).map(|i| i as f32 / 18.0).collect(),
            policies: vec![0.5; 4],
            legal: vec![1.0; 4],
            wdl: vec![1.0, 0.0, 0.0, 0.0, 0.0, 1.0],
            policy_weights: vec![1.0; 2],
            importance: Vec::new(),
        })?;
        trainer.published().map(drop)
    };
    train().map(|()| device).map_err(|error| format!("a trial step failed: {error}"))
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use inference::DevicePreference;

    use super::{choose_device, device_name, devices, probe};

    #[test]
    fn the_cpu_is_always_there() {
        let chosen = choose_device(DevicePreference::Cpu).unwrap();
        assert_eq!(chosen.device, Device::Cpu);
        assert_eq!(chosen.to_string(), "cpu (configured)");
        assert_eq!(probe(Device::Cpu), Ok(Device::Cpu));
    }

    #[test]
    fn a_named_device_that_cannot_be_used_is_an_error_with_the_device_and_the_cause() {
        // No machine has a thousand.
        let error = choose_device(DevicePreference::Cuda(1000)).unwrap_err().to_string();
        let cause = error.strip_prefix("the device cuda:1000 cannot be used: ").expect(&error);
        assert!(!cause.is_empty());
    }

    #[test]
    fn automatic_choice_always_finds_a_device_that_works() {
        let chosen = choose_device(DevicePreference::Auto).unwrap();
        assert_eq!(probe(chosen.device), Ok(chosen.device), "{}", chosen.reason);
    }

    #[test]
    fn every_device_works_or_says_why_not() {
        let devices = devices();
        assert_eq!(devices.working[0], Device::Cpu);
        for accelerator in ["cuda", "mps"] {
            let works = devices.working.iter().any(|&device| device_name(device) == accelerator);
            let reason = devices.missing.iter().any(|why| why.starts_with(&format!("{accelerator}: ")));
            assert!(works != reason, "{devices:?}");
        }
        assert_eq!(devices.working[1..].first().copied(), automatic());
    }

    /// The accelerator that would be chosen, if there is one.
    fn automatic() -> Option<Device> {
        Some(choose_device(DevicePreference::Auto).unwrap().device).filter(|&device| device != Device::Cpu)
    }
}
