use std::sync::OnceLock;
use std::time::{Duration, Instant};

use inference::{DevicePreference, PrecisionPreference};
use tch::{Cuda, Device, Tensor};
use weights::Architecture;

use crate::{Error, Network, Precision, Trainer, TrainerSettings, TrainingBatch, folded::Folded, network, process};

/// A device and the reason why it was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// The device for [`Network`].
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

/// The devices of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Devices {
    /// The devices that work, the CPU first.
    pub working: Vec<Device>,
    /// The devices that do not work, each with the human-readable reason.
    pub missing: Vec<String>,
}

/// Returns the name of a device in a configuration.
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
/// An accelerator is chosen only after one training step of a tiny network on it succeeds: an incompatible driver or an
/// operation that the device does not support is then found here and not in the middle of a run. Call it before
/// anything else of this crate: the CUDA half of libtorch can only be loaded before first use.
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

/// Tries every device, as [`choose_device`] tries the one it chooses. Like that function, it must be called before
/// anything else of this crate.
#[must_use]
pub fn devices() -> Devices {
    // If CUDA as a whole is missing, the attempt for its first device gives the reason.
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
/// and without CUDA. For the loader to find it, put the `lib` folder of a full installation of the same libtorch into
/// `LD_LIBRARY_PATH`.
fn load_cuda_half() -> Result<(), String> {
    static LOADED: OnceLock<Result<(), String>> = OnceLock::new();
    LOADED.get_or_init(|| load_globally(c"libtorch_cuda.so")).clone()
}

#[cfg(target_os = "linux")]
fn load_globally(library: &std::ffi::CStr) -> Result<(), String> {
    // SAFETY: the name is a valid C string; the library is never closed, so nothing it registers can dangle. Its
    // initialisers register the CUDA kernels with the libtorch that is already loaded, as intended.
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

/// The architecture of a plain tower for trials: planes, cells along a side and actions, then channels and blocks.
fn plain_tower([planes, side, actions]: [usize; 3], [channels, blocks]: [usize; 2]) -> Architecture {
    Architecture {
        game: "trial".to_owned(),
        planes,
        height: side,
        width: side,
        actions,
        channels,
        blocks,
        squeeze_excitation: 0,
        global_pooling: 0,
    }
}

/// Takes one training step on `device` and reads the weights back.
fn probe(device: Device) -> Result<Device, String> {
    let train = || -> Result<(), Error> {
        // A bare allocation first: without it a missing kernel and a missing device look the same.
        let _ = Tensor::f_zeros([1_i64], (tch::Kind::Float, device))?;
        let mut trainer =
            Trainer::new(Network::new(&plain_tower([1, 3, 2], [8, 1]), device, 0)?, TrainerSettings::default())?;
        trainer.step(&TrainingBatch {
            observations: (0..18).map(|i| i as f32 / 18.0).collect(),
            policies: vec![0.5; 4],
            legal: vec![1; 4],
            wdl: vec![1.0, 0.0, 0.0, 0.0, 0.0, 1.0],
            policy_weights: vec![1.0; 2],
            importance: Vec::new(),
        })?;
        trainer.published().map(drop)
    };
    train().map(|()| device).map_err(|error| format!("a trial step failed: {error}"))
}

/// A precision and the reason why it was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChosenPrecision {
    /// The precision.
    pub precision: Precision,
    /// Human-readable; with the two times if they were measured.
    pub reason: String,
}

impl std::fmt::Display for ChosenPrecision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.precision, self.reason)
    }
}

/// Positions of the measured forward pass.
const MEASURED_POSITIONS: usize = 64;
/// Forward passes per measurement; the fastest counts, so that other load on the machine distorts the result less.
const MEASURED_PASSES: usize = 7;
/// The speed-up from which on bf16 is chosen, since it costs a little accuracy.
const WORTH_IT: f64 = 1.2;

/// Finds the precision for `preference` on `device`. `auto` times a small tower in both; `now` is the clock. Takes
/// well under a second.
#[must_use]
pub fn choose_precision(
    preference: PrecisionPreference,
    device: Device,
    now: &mut dyn FnMut() -> Instant,
) -> ChosenPrecision {
    let chosen = |precision, reason: String| ChosenPrecision { precision, reason };
    match preference {
        PrecisionPreference::F32 => chosen(Precision::F32, "configured".to_owned()),
        PrecisionPreference::Bf16 => chosen(Precision::Bf16, "configured".to_owned()),
        // libtorch computes no networks in integers.
        PrecisionPreference::Auto | PrecisionPreference::Int8 => {
            match (measure(Precision::F32, device, now), measure(Precision::Bf16, device, now)) {
                (Ok(f32), Ok(bf16)) => faster(f32, bf16),
                (Ok(_), Err(error)) => chosen(Precision::F32, format!("bf16 does not work here: {error}")),
                (Err(error), _) => chosen(Precision::F32, format!("no measurement worked: {error}")),
            }
        }
    }
}

fn faster(f32: Duration, bf16: Duration) -> ChosenPrecision {
    let ratio = f32.as_secs_f64() / bf16.as_secs_f64().max(1e-9);
    let precision = if ratio >= WORTH_IT { Precision::Bf16 } else { Precision::F32 };
    let reason = format!(
        "{MEASURED_POSITIONS} positions of a 4x64 tower take {:.2} ms in f32, {:.2} ms in bf16",
        f32.as_secs_f64() * 1e3,
        bf16.as_secs_f64() * 1e3
    );
    ChosenPrecision { precision, reason }
}

/// Returns the duration of the fastest of a few forward passes, including the copy of the answers to the CPU.
fn measure(precision: Precision, device: Device, now: &mut dyn FnMut() -> Instant) -> Result<Duration, Error> {
    process::apply();
    let folded = Folded::new(&Network::new(&plain_tower([3, 8, 64], [64, 4]), device, 0)?, precision)?;
    let _guard = tch::no_grad_guard();
    let observations = Tensor::f_from_slice(&[0.5_f32; MEASURED_POSITIONS * 3 * 64])?;
    let mut best = Duration::MAX;
    // The first pass sets kernels up and does not count.
    for pass in 0..=MEASURED_PASSES {
        let start = now();
        let _ = network::download(&folded.forward(&observations, MEASURED_POSITIONS)?)?;
        let took = now().duration_since(start);
        best = if pass == 0 { best } else { best.min(took) };
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use inference::{DevicePreference, PrecisionPreference};
    use tch::Device;

    use super::{Precision, choose_device, choose_precision, device_name, devices, faster, probe};

    #[test]
    fn the_cpu_is_always_there() {
        let chosen = choose_device(DevicePreference::Cpu).unwrap();
        assert_eq!(chosen.device, Device::Cpu);
        assert_eq!(chosen.to_string(), "cpu (configured)");
        assert_eq!(probe(Device::Cpu), Ok(Device::Cpu));
    }

    #[test]
    fn a_named_device_that_cannot_be_used_is_an_error_with_the_device_and_the_cause() {
        // No machine has a thousand devices.
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

    /// The accelerator that would be chosen, if there is one.
    fn automatic() -> Option<Device> {
        Some(choose_device(DevicePreference::Auto).unwrap().device).filter(|&device| device != Device::Cpu)
    }

    /// A clock that panics if it is read.
    fn stopped() -> Instant {
        panic!("nothing has to be measured")
    }

    #[test]
    fn a_configured_precision_is_chosen_without_measuring() {
        let wish = |preference| choose_precision(preference, Device::Cpu, &mut stopped).precision;
        assert_eq!(wish(PrecisionPreference::F32), Precision::F32);
        assert_eq!(wish(PrecisionPreference::Bf16), Precision::Bf16);
    }

    #[test]
    fn bf16_must_be_a_fifth_faster() {
        let choice = |f32, bf16| faster(Duration::from_micros(f32), Duration::from_micros(bf16)).precision;
        assert_eq!(choice(1200, 1000), Precision::Bf16);
        assert_eq!(choice(1190, 1000), Precision::F32);
        assert_eq!(choice(1000, 4000), Precision::F32);
    }

    /// A scripted clock in which every pass of the first measurement takes five times as long as of the second.
    #[test]
    fn auto_chooses_the_faster_measured_precision_and_reports_the_times() {
        #[allow(clippy::disallowed_methods, reason = "an Instant has no other beginning; only differences count")]
        let start = Instant::now();
        let mut readings = 0;
        let mut elapsed = Duration::ZERO;
        let mut clock = || {
            // Readings come in pairs, eight pairs for each precision.
            elapsed += Duration::from_millis(if readings < 16 { 5 } else { 1 });
            readings += 1;
            start + elapsed
        };
        let chosen = choose_precision(PrecisionPreference::Auto, Device::Cpu, &mut clock);
        let expected = "bf16 (64 positions of a 4x64 tower take 5.00 ms in f32, 1.00 ms in bf16)";
        assert_eq!(chosen.to_string(), expected);
    }
}
