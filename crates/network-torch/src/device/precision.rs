use std::time::{Duration, Instant};

use inference::{PrecisionPreference, TrainingPrecision};
use tch::{Device, Tensor};

use super::{plain_tower, probe::probe_device};
use crate::{
    DeviceRules, Error, Network, Purpose, folded::Folded, gpu, gpu::ComputeCapability, network, process,
    rules::device_name,
};
use inference::Precision;

/// A precision with the reason for the choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChosenPrecision {
    /// Chosen number format.
    pub precision: Precision,
    /// Whether layers with too large an error go back to float32, in training.
    pub is_adaptive: bool,
    /// Human-readable; with both times if they were measured, and with the use of TF32.
    pub reason: String,
}

impl std::fmt::Display for ChosenPrecision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let adaptive = if self.is_adaptive { ", adaptive" } else { "" };
        write!(f, "{}{adaptive} ({})", self.precision, self.reason)
    }
}

/// Positions of the measured forward pass on the CPU, where each thread evaluates a separate batch.
const MEASURED_POSITIONS: usize = 64;
/// Positions of the measured forward pass on an accelerator, where small batches would measure launch times.
const MEASURED_POSITIONS_ACCELERATED: usize = 1024;
/// Forward passes per measurement; the fastest counts, so that other load on the machine distorts the result less.
const MEASURED_PASSES: usize = 7;
/// Minimum speed-up to choose bf16, since it costs a little accuracy.
const WORTH_IT: f64 = 1.2;

/// Finds the precision of evaluation for `preference` on `device`.
///
/// `auto` takes bfloat16 on CUDA from compute capability 8.0. Elsewhere it times a small tower in float32 and in
/// bfloat16, or float16 where the device permits that alone; `now` is the clock. On an accelerator, a precision below
/// float32 is used only after a comparison with the CPU. Takes well under a second on a CPU.
///
/// # Errors
/// [`Error::Device`] if a precision is named and the device does not permit it or differs from the CPU.
pub fn choose_precision(
    preference: PrecisionPreference,
    device: Device,
    now: &mut dyn FnMut() -> Instant,
) -> Result<ChosenPrecision, Error> {
    let wanted = match preference {
        PrecisionPreference::F32 => Wanted::Only(Precision::F32),
        PrecisionPreference::Bf16 => Wanted::Only(Precision::Bf16),
        PrecisionPreference::F16 => Wanted::Only(Precision::F16),
        // libtorch computes no networks in integers.
        PrecisionPreference::Auto | PrecisionPreference::Int8 => Wanted::Fastest,
    };
    choose(wanted, device, Purpose::Inference, now)
}

/// Finds the precision of training for `preference` on `device`.
///
/// `auto` takes the same as [`choose_precision`], but does not time float16 on a CUDA device without bfloat16; a
/// precision below float32 that only `auto` chose is adaptive. `adaptive` takes bfloat16, or float16 without it.
///
/// # Errors
/// [`Error::Device`] if a precision is named and the device does not permit it or differs from the CPU.
pub fn choose_training_precision(
    preference: TrainingPrecision,
    device: Device,
    now: &mut dyn FnMut() -> Instant,
) -> Result<ChosenPrecision, Error> {
    let wanted = match preference {
        TrainingPrecision::F32 => Wanted::Only(Precision::F32),
        TrainingPrecision::Bf16 => Wanted::Only(Precision::Bf16),
        TrainingPrecision::F16 => Wanted::Only(Precision::F16),
        TrainingPrecision::Auto => Wanted::Fastest,
        TrainingPrecision::Adaptive => Wanted::Adaptive,
    };
    choose(wanted, device, Purpose::Training, now)
}

fn choose(
    wanted: Wanted,
    device: Device,
    purpose: Purpose,
    now: &mut dyn FnMut() -> Instant,
) -> Result<ChosenPrecision, Error> {
    let capability = match device {
        Device::Cuda(index) => gpu::compute_capability(index).ok(),
        _ => None,
    };
    let candidate = Candidate { device, rules: DeviceRules::of(device), capability, purpose };
    let probe = &mut |precision| probe_device(device, precision, purpose);
    candidate.choose(wanted, probe, &mut |precision| measure(precision, device, now))
}

/// Demand of a preference on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// The fastest precision.
    Fastest,
    /// This precision and no other.
    Only(Precision),
    /// A precision below float32, with layers that go back to float32.
    Adaptive,
}

/// A device in need of a precision.
#[derive(Debug)]
struct Candidate {
    device: Device,
    rules: DeviceRules,
    /// Of CUDA devices only, if it can be read.
    capability: Option<ComputeCapability>,
    purpose: Purpose,
}

impl Candidate {
    fn choose(
        &self,
        wanted: Wanted,
        probe: &mut dyn FnMut(Precision) -> Result<f64, String>,
        measure: &mut dyn FnMut(Precision) -> Result<Duration, Error>,
    ) -> Result<ChosenPrecision, Error> {
        let chosen =
            |precision, reason: String| ChosenPrecision { precision, is_adaptive: wanted == Wanted::Adaptive, reason };
        let named = match wanted {
            Wanted::Fastest => None,
            Wanted::Only(precision) => Some(precision),
            Wanted::Adaptive => Some(self.lower().unwrap_or(Precision::Bf16)),
        };
        let mut choice = match named {
            Some(Precision::F32) => chosen(Precision::F32, "configured".to_owned()),
            Some(precision) => match self.check(precision, probe) {
                Ok(()) => chosen(precision, "configured".to_owned()),
                Err(reason) => return Err(Error::Device { device: device_name(self.device), reason }),
            },
            None => self.automatic(probe, measure),
        };
        if choice.precision == Precision::F32 && self.rules.tf32_convolutions {
            choice.reason += ", tf32 in convolutions";
        }
        Ok(choice)
    }

    /// Returns the precision below float32 that the device permits: bfloat16 if possible, since it needs no loss
    /// scale.
    fn lower(&self) -> Option<Precision> {
        let below = [Precision::Bf16, Precision::F16];
        below.into_iter().find(|&precision| self.rules.permits(precision, self.purpose))
    }

    fn automatic(
        &self,
        probe: &mut dyn FnMut(Precision) -> Result<f64, String>,
        measure: &mut dyn FnMut(Precision) -> Result<Duration, Error>,
    ) -> ChosenPrecision {
        let preferred = match (self.capability, self.lower()) {
            (_, None) => f32_because(self.refusal(Precision::Bf16)),
            (Some(capability), Some(Precision::Bf16)) => {
                self.lowered(Precision::Bf16, format!("compute capability {capability}"))
            }
            (Some(capability), Some(precision)) if self.purpose == Purpose::Training => {
                self.lowered(precision, format!("compute capability {capability}, which has no bf16"))
            }
            // GPUs of compute capability 7.5 have or lack matrix units for float16.
            (_, Some(precision)) => match (measure(Precision::F32), measure(precision)) {
                (Ok(f32), Ok(low)) => self.faster(f32, low, precision),
                (Ok(_), Err(error)) => f32_because(format!("{precision} does not work: {error}")),
                (Err(error), _) => f32_because(format!("no measurement worked: {error}")),
            },
        };
        match preferred.precision {
            Precision::F32 => preferred,
            precision => self.check(precision, probe).map_or_else(f32_because, |()| preferred),
        }
    }

    /// Returns a precision below float32 that was not configured.
    fn lowered(&self, precision: Precision, reason: String) -> ChosenPrecision {
        ChosenPrecision { precision, is_adaptive: self.purpose == Purpose::Training, reason }
    }

    fn faster(&self, f32: Duration, low: Duration, precision: Precision) -> ChosenPrecision {
        let ratio = f32.as_secs_f64() / low.as_secs_f64().max(1e-9);
        let reason = format!(
            "{} positions of a 4x64 tower take {:.2} ms in f32, {:.2} ms in {precision}",
            measured_positions(self.device),
            f32.as_secs_f64() * 1e3,
            low.as_secs_f64() * 1e3
        );
        if ratio >= WORTH_IT { self.lowered(precision, reason) } else { f32_because(reason) }
    }

    /// Returns the human-readable reason why a precision below float32 cannot be used, if there is one.
    fn check(
        &self,
        precision: Precision,
        probe: &mut dyn FnMut(Precision) -> Result<f64, String>,
    ) -> Result<(), String> {
        if !self.rules.permits(precision, self.purpose) {
            return Err(self.refusal(precision));
        }
        if self.device == Device::Cpu { Ok(()) } else { probe(precision).map(drop) }
    }

    fn refusal(&self, precision: Precision) -> String {
        let first = if precision == Precision::F16 { ComputeCapability::VOLTA } else { ComputeCapability::AMPERE };
        match self.capability {
            Some(capability) => format!("{precision} needs compute capability {first}, it has {capability}"),
            None => self.rules.refusal(precision, self.purpose),
        }
    }
}

fn f32_because(reason: String) -> ChosenPrecision {
    ChosenPrecision { precision: Precision::F32, is_adaptive: false, reason }
}

fn measured_positions(device: Device) -> usize {
    if device == Device::Cpu { MEASURED_POSITIONS } else { MEASURED_POSITIONS_ACCELERATED }
}

/// Returns the time of the fastest of a few forward passes, including the copy to the CPU.
fn measure(precision: Precision, device: Device, now: &mut dyn FnMut() -> Instant) -> Result<Duration, Error> {
    process::apply();
    let positions = measured_positions(device);
    let folded = Folded::new(&Network::new(&plain_tower([3, 8, 8], [64, 4]), device, 0)?, precision)?;
    let _guard = tch::no_grad_guard();
    let observations = Tensor::f_from_slice(&vec![0.5_f32; positions * 3 * 64])?;
    let mut best = Duration::MAX;
    // The first pass sets kernels up and does not count.
    for pass in 0..=MEASURED_PASSES {
        let start = now();
        let _ = network::download(&folded.forward(&observations, positions)?)?;
        let took = now().duration_since(start);
        best = if pass == 0 { best } else { best.min(took) };
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that panics if it is read.
    fn stopped() -> Instant {
        panic!("nothing has to be measured")
    }

    #[test]
    fn a_configured_precision_is_chosen_without_measuring() {
        for (preference, expected) in [
            (PrecisionPreference::F32, "f32 (configured)"),
            (PrecisionPreference::Bf16, "bf16 (configured)"),
            (PrecisionPreference::F16, "f16 (configured)"),
        ] {
            assert_eq!(choose_precision(preference, Device::Cpu, &mut stopped).unwrap().to_string(), expected);
        }
        for (preference, expected) in [
            (TrainingPrecision::F32, "f32 (configured)"),
            (TrainingPrecision::Bf16, "bf16 (configured)"),
            (TrainingPrecision::F16, "f16 (configured)"),
            (TrainingPrecision::Adaptive, "bf16, adaptive (configured)"),
        ] {
            assert_eq!(choose_training_precision(preference, Device::Cpu, &mut stopped).unwrap().to_string(), expected);
        }
    }

    #[test]
    fn bf16_must_be_a_fifth_faster() {
        let cpu =
            Candidate { device: Device::Cpu, rules: DeviceRules::CPU, capability: None, purpose: Purpose::Inference };
        let bf16 = Precision::Bf16;
        let choice = |f32, low| cpu.faster(Duration::from_micros(f32), Duration::from_micros(low), bf16).precision;
        assert_eq!(choice(1200, 1000), Precision::Bf16);
        assert_eq!(choice(1190, 1000), Precision::F32);
        assert_eq!(choice(1000, 4000), Precision::F32);
    }

    /// A scripted clock with passes in the first measurement five times as long as in the second.
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
        let auto = PrecisionPreference::Auto;
        let chosen = choose_precision(auto, Device::Cpu, &mut clock).unwrap();
        let expected = "bf16 (64 positions of a 4x64 tower take 5.00 ms in f32, 1.00 ms in bf16)";
        assert_eq!(chosen.to_string(), expected);
    }

    fn cuda(major: u32, minor: u32, purpose: Purpose) -> Candidate {
        let capability = Some(ComputeCapability { major, minor });
        Candidate { device: Device::Cuda(0), rules: DeviceRules::cuda(capability), capability, purpose }
    }

    fn mps(purpose: Purpose) -> Candidate {
        Candidate { device: Device::Mps, rules: DeviceRules::MPS, capability: None, purpose }
    }

    /// Returns the choice with this probe result for a precision below float32, which is twice as fast.
    fn choice(candidate: &Candidate, wanted: Wanted, probed: Result<f64, &str>) -> String {
        let milliseconds = |precision| if precision == Precision::F32 { 2 } else { 1 };
        let chosen = candidate.choose(wanted, &mut |_| probed.map_err(str::to_owned), &mut |precision| {
            Ok(Duration::from_millis(milliseconds(precision)))
        });
        chosen.map_or_else(|error| error.to_string(), |chosen| chosen.to_string())
    }

    #[test]
    fn auto_takes_bf16_on_cuda_by_compute_capability_if_the_probe_holds() {
        let auto = |candidate, probed| choice(&candidate, Wanted::Fastest, probed);
        for (purpose, new, old) in [
            (Purpose::Inference, "bf16", "f16 (1024 positions of a 4x64 tower take 2.00 ms in f32, 1.00 ms in f16)"),
            (Purpose::Training, "bf16, adaptive", "f16, adaptive (compute capability 7.5, which has no bf16)"),
        ] {
            assert_eq!(auto(cuda(9, 0, purpose), Ok(0.01)), format!("{new} (compute capability 9.0)"));
            assert_eq!(auto(cuda(9, 0, purpose), Err("it differs")), "f32 (it differs, tf32 in convolutions)");
            assert_eq!(auto(cuda(7, 5, purpose), Ok(0.01)), old);
            assert_eq!(auto(cuda(7, 5, purpose), Err("it is not finite")), "f32 (it is not finite)");
            let none = "f32 (bf16 needs compute capability 8.0, it has 6.1)";
            assert_eq!(auto(cuda(6, 1, purpose), Ok(0.01)), none);
        }
    }

    #[test]
    fn f16_that_is_hardly_faster_is_not_chosen_on_a_gpu_without_matrix_units() {
        let milliseconds = |precision| if precision == Precision::F32 { 11 } else { 10 };
        let mut probe = |precision: Precision| -> Result<f64, String> { panic!("{precision} is not used") };
        let chosen = cuda(7, 5, Purpose::Inference)
            .choose(Wanted::Fastest, &mut probe, &mut |precision| Ok(Duration::from_millis(milliseconds(precision))));
        let expected = "f32 (1024 positions of a 4x64 tower take 11.00 ms in f32, 10.00 ms in f16)";
        assert_eq!(chosen.unwrap().to_string(), expected);
    }

    #[test]
    fn a_named_f16_is_used_from_volta_on_and_refused_elsewhere_with_the_reason() {
        let f16 = |candidate, probed| choice(&candidate, Wanted::Only(Precision::F16), probed);
        for (major, minor) in [(7, 0), (7, 5), (9, 0)] {
            assert_eq!(f16(cuda(major, minor, Purpose::Inference), Ok(0.001)), "f16 (configured)");
        }
        let refused = "cannot use device cuda: output of the inference batch on cuda is not finite";
        let not_finite = Err("output of the inference batch on cuda is not finite");
        assert_eq!(f16(cuda(7, 5, Purpose::Inference), not_finite), refused);
        let refused = "cannot use device cuda: f16 needs compute capability 7.0, it has 6.1";
        assert_eq!(f16(cuda(6, 1, Purpose::Inference), Ok(0.0)), refused);
        let refused = "cannot use device mps: the device does not support inference in f16";
        assert_eq!(f16(mps(Purpose::Inference), Ok(0.0)), refused);
    }

    #[test]
    fn adaptive_takes_the_lower_precision_of_the_device_or_is_an_error() {
        let adaptive = |candidate, probed| choice(&candidate, Wanted::Adaptive, probed);
        assert_eq!(adaptive(cuda(8, 0, Purpose::Training), Ok(0.0)), "bf16, adaptive (configured)");
        assert_eq!(adaptive(cuda(7, 5, Purpose::Training), Ok(0.0)), "f16, adaptive (configured)");
        let refused = "cannot use device mps: the device supports training in f32 only";
        assert_eq!(adaptive(mps(Purpose::Training), Ok(0.0)), refused);
        assert_eq!(adaptive(cuda(8, 0, Purpose::Training), Err("it differs")), "cannot use device cuda: it differs");
    }

    #[test]
    fn a_named_bf16_that_the_device_cannot_compute_is_an_error_with_the_reason() {
        let bf16 = |candidate, probed| choice(&candidate, Wanted::Only(Precision::Bf16), probed);
        let refused = "cannot use device cuda: bf16 needs compute capability 8.0, it has 7.5";
        assert_eq!(bf16(cuda(7, 5, Purpose::Inference), Ok(0.0)), refused);
        let refused = "cannot use device mps: the device supports training in f32 only";
        assert_eq!(bf16(mps(Purpose::Training), Ok(0.0)), refused);
        assert_eq!(bf16(mps(Purpose::Inference), Err("it differs")), "cannot use device mps: it differs");
        assert_eq!(bf16(cuda(8, 0, Purpose::Training), Ok(0.01)), "bf16 (configured)");
    }

    #[test]
    fn on_mps_inference_is_measured_with_a_large_batch_and_probed_and_training_is_f32() {
        let auto = |candidate, probed| choice(&candidate, Wanted::Fastest, probed);
        let measured = "bf16 (1024 positions of a 4x64 tower take 2.00 ms in f32, 1.00 ms in bf16)";
        assert_eq!(auto(mps(Purpose::Inference), Ok(0.01)), measured);
        assert_eq!(auto(mps(Purpose::Inference), Err("it differs")), "f32 (it differs)");
        assert_eq!(auto(mps(Purpose::Training), Ok(0.0)), "f32 (the device supports training in f32 only)");
    }

    #[test]
    fn tf32_is_named_where_convolutions_use_it() {
        let f32 = |candidate| choice(&candidate, Wanted::Only(Precision::F32), Ok(0.0));
        assert_eq!(f32(cuda(8, 9, Purpose::Inference)), "f32 (configured, tf32 in convolutions)");
        assert_eq!(f32(cuda(7, 5, Purpose::Inference)), "f32 (configured)");
    }
}
