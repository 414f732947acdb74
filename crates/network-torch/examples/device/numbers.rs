//! Predictions of a device compared with the CPU in float32.

use inference::Precision;
use inference::{Batch, Evaluator, Predictions};
use network_torch::{Device, LibtorchEvaluator, set_threads};
use tch::{Kind as Dtype, Tensor};
use weights::{Architecture, WeightsVersion};

use crate::output::Kind;
use crate::towers::{CONNECT_FOUR, GO, complete, distance, name, plain, positions, trained_weights};
use crate::{Result, Settings, cores};

/// Memory blocks that are filled with NaN and freed before each batch, in float32 numbers: a kernel that reads memory
/// it did not write then returns NaN.
const POISONED: [i64; 6] = [1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 24, 1 << 26];

/// Compares networks and batch sizes in one arithmetic.
pub(super) fn run(settings: &Settings) -> Result<()> {
    let device = settings.device()?.device;
    // Sums in another order differ by a few ulps per layer; TF32 and float16 keep 10 bits of each factor, bfloat16 7.
    let (precision, bar) = match settings.arithmetic.as_str() {
        "f32" => (Precision::F32, 1e-4),
        "tf32" => (Precision::F32, 3e-3),
        "bf16" => (Precision::Bf16, 2e-2),
        "f16" => (Precision::F16, 5e-3),
        other => return Err(format!("`{other}` is no arithmetic: expected f32, tf32, bf16 or f16").into()),
    };
    let networks = settings.sized(
        [(plain(6, 64, CONNECT_FOUR), 256), (complete(6, 64, CONNECT_FOUR), 256), (plain(20, 256, GO), 16)],
        [(plain(2, 16, CONNECT_FOUR), 64), (complete(3, 16, CONNECT_FOUR), 64), (plain(2, 32, GO), 4)],
    );
    let batches: &[usize] = settings.sized(&[1, 3, 17, 255, 256, 4096], &[1, 3, 17, 255, 256]);
    for (architecture, distinct) in networks {
        let error = largest_error(&architecture, distinct, batches, (device, precision))?;
        let name = format!("{} {}: largest error of batches {batches:?}", name(&architecture), settings.arithmetic);
        settings.at_most(Kind::Correctness, &name, (error, "relative"), bar);
    }
    Ok(())
}

/// Returns the largest relative error over batches, which repeat `distinct` positions; NaN if a batch could not be
/// evaluated to finite numbers.
fn largest_error(
    architecture: &Architecture,
    distinct: usize,
    batches: &[usize],
    (device, precision): (Device, Precision),
) -> Result<f64> {
    let bytes = trained_weights(architecture, 7)?;
    let evaluator =
        |device, precision| LibtorchEvaluator::new(architecture, WeightsVersion(1), &bytes, device, precision);
    set_threads(cores());
    let once = positions(architecture, distinct, 8);
    let mut expected = Predictions::new();
    evaluator(Device::Cpu, Precision::F32)?.evaluate(&once, &mut expected)?;

    let mut evaluator = evaluator(device, precision)?;
    let (mut got, mut largest) = (Predictions::new(), 0.0_f64);
    for &size in batches {
        // Each size starts with another position, so that a prediction in a wrong row is detected.
        let order: Vec<usize> = (0..size).map(|i| (i + size) % distinct).collect();
        let mut batch = Batch::new(once.shape());
        batch.extend_from(&once, order.iter().copied());
        poison(device)?;
        if let Err(error) = evaluator.evaluate(&batch, &mut got) {
            eprintln!("batch {size}: {error}");
            return Ok(f64::NAN);
        }
        let (error, whole) = order.iter().enumerate().fold((0.0, 0.0), |(error, whole), (i, &position)| {
            let (more_error, more_whole) = distance(&got, i, &expected, position);
            (error + more_error, whole + more_whole)
        });
        let relative = (error / whole).sqrt();
        eprintln!("{} batch {size}: relative error {relative:.2e}", name(architecture));
        // `f64::max` would drop a NaN.
        largest = if relative.is_nan() { f64::NAN } else { largest.max(relative) };
        if largest.is_nan() {
            break;
        }
    }
    Ok(largest)
}

/// Fills memory that the allocator of the device then hands out again.
fn poison(device: Device) -> Result<()> {
    for numbers in POISONED {
        drop(Tensor::f_full([numbers], f64::NAN, (Dtype::Float, device))?);
    }
    Ok(())
}
