use std::time::{Duration, Instant};

use inference::PrecisionPreference;
use tch::{Device, Tensor};

use super::{plain_tower, probe::probe_device};
use crate::{
    DeviceRules, Error, Network, Purpose, folded::Folded, gpu, gpu::ComputeCapability, network, process,
    rules::device_name,
};
use inference::Precision;

/// A precision and the reason why it was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChosenPrecision {
    /// The precision.
    pub precision: Precision,
    /// Human-readable; with the two times if they were measured, and with the use of TF32.
    pub reason: String,
}

impl std::fmt::Display for ChosenPrecision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.precision, self.reason)
    }
}

/// Positions of the measured forward pass on the CPU, where a thread evaluates a batch of its own.
const MEASURED_POSITIONS: usize = 64;
/// Positions of the measured forward pass on an accelerator, where small batches measure the time of launches.
const MEASURED_POSITIONS_ACCELERATED: usize = 1024;
/// Forward passes per measurement; the fastest counts, so that other load on the machine distorts the result less.
const MEASURED_PASSES: usize = 7;
/// The speed-up from which on bf16 is chosen, since it costs a little accuracy.
const WORTH_IT: f64 = 1.2;

/// Finds the precision for `preference` and `purpose` on `device`.
///
/// `auto` takes bfloat16 on CUDA from compute capability 8.0, and float32 where the device does not permit bfloat16.
/// Elsewhere it times a small tower in both; `now` is the clock. On an accelerator, bfloat16 is used only after a
/// comparison with the CPU. Takes well under a second on a CPU.
///
/// # Errors
/// [`Error::Device`] if bfloat16 is named and the device does not permit it or differs from the CPU.
pub fn choose_precision(
    preference: PrecisionPreference,
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
    candidate.choose(preference, probe, &mut |precision| measure(precision, device, now))
}

/// A device for which a precision is chosen.
#[derive(Debug)]
struct Candidate {
    device: Device,
    rules: DeviceRules,
    /// Only of CUDA devices, where it can be read.
    capability: Option<ComputeCapability>,
    purpose: Purpose,
}

impl Candidate {
    fn choose(
        &self,
        preference: PrecisionPreference,
        probe: &mut dyn FnMut(Precision) -> Result<f64, String>,
        measure: &mut dyn FnMut(Precision) -> Result<Duration, Error>,
    ) -> Result<ChosenPrecision, Error> {
        let chosen = |precision, reason: String| ChosenPrecision { precision, reason };
        let mut choice = match preference {
            PrecisionPreference::F32 => chosen(Precision::F32, "configured".to_owned()),
            PrecisionPreference::Bf16 => match self.check_bf16(probe) {
                Ok(()) => chosen(Precision::Bf16, "configured".to_owned()),
                Err(reason) => return Err(Error::Device { device: device_name(self.device), reason }),
            },
            // libtorch computes no networks in integers.
            PrecisionPreference::Auto | PrecisionPreference::Int8 => self.automatic(probe, measure),
        };
        if choice.precision == Precision::F32 && self.rules.tf32_convolutions {
            choice.reason += ", tf32 in convolutions";
        }
        Ok(choice)
    }

    fn automatic(
        &self,
        probe: &mut dyn FnMut(Precision) -> Result<f64, String>,
        measure: &mut dyn FnMut(Precision) -> Result<Duration, Error>,
    ) -> ChosenPrecision {
        let permits_bf16 = self.rules.permits(Precision::Bf16, self.purpose);
        let preferred = match self.capability {
            Some(capability) => {
                ChosenPrecision { precision: Precision::Bf16, reason: format!("compute capability {capability}") }
            }
            None if permits_bf16 => match (measure(Precision::F32), measure(Precision::Bf16)) {
                (Ok(f32), Ok(bf16)) => faster(f32, bf16, self.device),
                (Ok(_), Err(error)) => f32_because(format!("bf16 does not work here: {error}")),
                (Err(error), _) => f32_because(format!("no measurement worked: {error}")),
            },
            None => f32_because(self.refusal()),
        };
        match preferred.precision {
            Precision::F32 => preferred,
            Precision::Bf16 => self.check_bf16(probe).map_or_else(f32_because, |()| preferred),
        }
    }

    /// Returns the human-readable reason why bfloat16 cannot be used, if there is one.
    fn check_bf16(&self, probe: &mut dyn FnMut(Precision) -> Result<f64, String>) -> Result<(), String> {
        if !self.rules.permits(Precision::Bf16, self.purpose) {
            return Err(self.refusal());
        }
        if self.device == Device::Cpu { Ok(()) } else { probe(Precision::Bf16).map(drop) }
    }

    fn refusal(&self) -> String {
        match self.capability {
            Some(capability) => {
                format!("bf16 needs compute capability {}, it has {capability}", ComputeCapability::AMPERE)
            }
            None => format!("{} on it is in f32 only", self.purpose),
        }
    }
}

fn f32_because(reason: String) -> ChosenPrecision {
    ChosenPrecision { precision: Precision::F32, reason }
}

fn faster(f32: Duration, bf16: Duration, device: Device) -> ChosenPrecision {
    let ratio = f32.as_secs_f64() / bf16.as_secs_f64().max(1e-9);
    let precision = if ratio >= WORTH_IT { Precision::Bf16 } else { Precision::F32 };
    let reason = format!(
        "{} positions of a 4x64 tower take {:.2} ms in f32, {:.2} ms in bf16",
        measured_positions(device),
        f32.as_secs_f64() * 1e3,
        bf16.as_secs_f64() * 1e3
    );
    ChosenPrecision { precision, reason }
}

fn measured_positions(device: Device) -> usize {
    if device == Device::Cpu { MEASURED_POSITIONS } else { MEASURED_POSITIONS_ACCELERATED }
}

/// Returns the duration of the fastest of a few forward passes, including the copy of the answers to the CPU.
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
        let wish = |preference, purpose| choose_precision(preference, Device::Cpu, purpose, &mut stopped).unwrap();
        for purpose in [Purpose::Inference, Purpose::Training] {
            assert_eq!(wish(PrecisionPreference::F32, purpose).to_string(), "f32 (configured)");
            assert_eq!(wish(PrecisionPreference::Bf16, purpose).to_string(), "bf16 (configured)");
        }
    }

    #[test]
    fn bf16_must_be_a_fifth_faster() {
        let choice = |f32, bf16| faster(Duration::from_micros(f32), Duration::from_micros(bf16), Device::Cpu).precision;
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
        let auto = PrecisionPreference::Auto;
        let chosen = choose_precision(auto, Device::Cpu, Purpose::Inference, &mut clock).unwrap();
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

    /// The choice where bf16 passes the probe or not, and is twice as fast.
    fn choice(candidate: &Candidate, preference: PrecisionPreference, probed: Result<f64, &str>) -> String {
        let milliseconds = |precision| if precision == Precision::F32 { 2 } else { 1 };
        let chosen = candidate.choose(preference, &mut |_| probed.map_err(str::to_owned), &mut |precision| {
            Ok(Duration::from_millis(milliseconds(precision)))
        });
        chosen.map_or_else(|error| error.to_string(), |chosen| chosen.to_string())
    }

    #[test]
    fn auto_takes_bf16_on_cuda_by_compute_capability_if_the_probe_holds() {
        for purpose in [Purpose::Inference, Purpose::Training] {
            let auto = |candidate, probed| choice(&candidate, PrecisionPreference::Auto, probed);
            assert_eq!(auto(cuda(9, 0, purpose), Ok(0.01)), "bf16 (compute capability 9.0)");
            assert_eq!(auto(cuda(9, 0, purpose), Err("it differs")), "f32 (it differs, tf32 in convolutions)");
            let old = "f32 (bf16 needs compute capability 8.0, it has 7.5)";
            assert_eq!(auto(cuda(7, 5, purpose), Ok(0.01)), old);
        }
    }

    #[test]
    fn a_named_bf16_that_the_device_cannot_compute_is_an_error_with_the_reason() {
        let bf16 = |candidate, probed| choice(&candidate, PrecisionPreference::Bf16, probed);
        let refused = "the device cuda cannot be used: bf16 needs compute capability 8.0, it has 7.5";
        assert_eq!(bf16(cuda(7, 5, Purpose::Inference), Ok(0.0)), refused);
        let refused = "the device mps cannot be used: training on it is in f32 only";
        assert_eq!(bf16(mps(Purpose::Training), Ok(0.0)), refused);
        assert_eq!(bf16(mps(Purpose::Inference), Err("it differs")), "the device mps cannot be used: it differs");
        assert_eq!(bf16(cuda(8, 0, Purpose::Training), Ok(0.01)), "bf16 (configured)");
    }

    #[test]
    fn on_mps_inference_is_measured_with_a_large_batch_and_probed_and_training_is_f32() {
        let auto = |candidate, probed| choice(&candidate, PrecisionPreference::Auto, probed);
        let measured = "bf16 (1024 positions of a 4x64 tower take 2.00 ms in f32, 1.00 ms in bf16)";
        assert_eq!(auto(mps(Purpose::Inference), Ok(0.01)), measured);
        assert_eq!(auto(mps(Purpose::Inference), Err("it differs")), "f32 (it differs)");
        assert_eq!(auto(mps(Purpose::Training), Ok(0.0)), "f32 (training on it is in f32 only)");
    }

    #[test]
    fn tf32_is_named_where_convolutions_use_it() {
        let f32 = |candidate| choice(&candidate, PrecisionPreference::F32, Ok(0.0));
        assert_eq!(f32(cuda(8, 9, Purpose::Inference)), "f32 (configured, tf32 in convolutions)");
        assert_eq!(f32(cuda(7, 5, Purpose::Inference)), "f32 (configured)");
    }
}
