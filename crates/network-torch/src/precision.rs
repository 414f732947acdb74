use std::time::{Duration, Instant};

use inference::PrecisionPreference;
use tch::{Device, Kind, Tensor};
use weights::Architecture;

use crate::{Error, Network, folded::Folded, network, threads};

/// The number format of convolutions and matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// 32 bits.
    F32,
    /// bfloat16, sums in 32 bits.
    Bf16,
}

impl Precision {
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::F32 => Kind::Float,
            Self::Bf16 => Kind::BFloat16,
        }
    }
}

impl std::fmt::Display for Precision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        })
    }
}

/// A precision and why it was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChosenPrecision {
    /// The precision.
    pub precision: Precision,
    /// For people; with the two times where it was measured.
    pub reason: String,
}

impl std::fmt::Display for ChosenPrecision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.precision, self.reason)
    }
}

/// Positions of the measured forward pass.
const MEASURED_POSITIONS: usize = 64;
/// Forward passes per measurement; the fastest counts, so a busy machine misleads less.
const MEASURED_PASSES: usize = 7;
/// bf16 costs a little accuracy: it must be this much faster to be worth it.
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

/// The fastest of a few forward passes, answers copied back.
fn measure(precision: Precision, device: Device, now: &mut dyn FnMut() -> Instant) -> Result<Duration, Error> {
    threads::apply();
    let architecture = Architecture {
        game: "measurement".to_owned(),
        planes: 3,
        height: 8,
        width: 8,
        actions: 64,
        channels: 64,
        blocks: 4,
        squeeze_excitation: 0,
        global_pooling: 0,
    };
    let folded = Folded::new(&Network::new(&architecture, device, 0)?, precision)?;
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

    use inference::PrecisionPreference;
    use tch::Device;

    use super::{Precision, choose_precision, faster};

    /// A clock that may not be read.
    fn stopped() -> Instant {
        panic!("nothing has to be measured")
    }

    #[test]
    fn a_wish_is_followed_without_measuring() {
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
    fn auto_takes_what_it_measures_to_be_faster_and_says_so() {
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
