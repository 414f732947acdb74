//! Evaluations and training steps per second, compared with the peak rate of a large matrix product.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use inference::{Evaluator, Predictions};
use network::Layers;
use network_torch::{
    Device, Libtorch, Network, Operands, Operation, PrecisionPreference, Trainer, TrainingPrecision,
    choose_training_precision, set_threads,
};
use training::{Precision, Trainer as _, TrainerSettings};
use weights::{Architecture, Manifest, WeightsVersion};

use crate::output::Kind;
use crate::towers::{CONNECT_FOUR, plain, positions, trained_weights, training_batch};
use crate::{Result, Settings, Size, cores};

/// Threads that evaluate concurrently, so that the device has the next batch while it computes one.
const CALLERS: usize = 3;
/// Minimum share of the peak for 20x256 evaluation: 200,000 evaluations/s on an H100.
const EVALUATION_SHARE_BAR: f64 = 0.4;
/// Minimum share of the peak for 20x256 training: 35,000 positions/s on an H100.
const TRAINING_SHARE_BAR: f64 = 0.2;

/// Blocks and channels.
type Tower = [usize; 2];

/// Measures evaluations/s by network and batch size.
pub(super) fn sweep(settings: &Settings) -> Result<()> {
    let device = settings.device()?.device;
    let peak = peak(settings, device)?;
    let towers: &[Tower] = settings.sized(&[[6, 64], [10, 128], [20, 256]], &[[2, 16], [4, 64]]);
    let batches: &[usize] = settings.sized(&[128, 512, 1024, 2048, 4096], &[64, 256]);
    let time = settings.sized(Duration::from_millis(900), Duration::from_millis(300));
    for preference in [PrecisionPreference::Bf16, PrecisionPreference::F32] {
        let libtorch = Libtorch::new(settings.preference, preference, Instant::now)?;
        let callers = if libtorch.is_accelerated() { CALLERS } else { cores() };
        libtorch.set_in_flight(callers);
        // float32 is for comparison only.
        let batches = if preference == PrecisionPreference::F32 { &batches[batches.len() - 2..] } else { batches };
        for &[blocks, channels] in towers {
            let architecture = plain(blocks, channels, CONNECT_FOUR);
            let bytes = trained_weights(&architecture, 1)?;
            let manifest = manifest(&architecture, &bytes);
            let mut best = 0.0_f64;
            for &batch in batches {
                let evaluators: Vec<_> = (0..callers)
                    .map(|_| libtorch.evaluator(&manifest, &bytes))
                    .collect::<std::result::Result<_, _>>()?;
                let rate = evaluations_per_second(evaluators, &architecture, batch, time)?;
                settings.value(&format!("{blocks}x{channels} {preference}, batch {batch}"), rate, "evaluations/s");
                best = best.max(rate);
            }
            if preference == PrecisionPreference::Bf16 {
                share(
                    settings,
                    ([blocks, channels], [20, 256], "evaluation"),
                    best * flops(&architecture)? / peak,
                    EVALUATION_SHARE_BAR,
                );
            }
        }
    }
    Ok(())
}

/// Measures training steps in the precision of `auto`: positions/s by network and batch size.
pub(super) fn learner(settings: &Settings) -> Result<()> {
    let device = settings.training_device()?.device;
    // The learner computes CPU operations in all threads of libtorch.
    set_threads(settings.sized(cores(), 1));
    let precision = match device {
        Device::Cpu => choose_training_precision(TrainingPrecision::Auto, device, &mut Instant::now)?.precision,
        _ => Precision::Bf16,
    };
    let peak = peak(settings, device)?;
    let towers: &[Tower] = settings.sized(&[[6, 64], [10, 128], [20, 256]], &[[2, 16]]);
    let batches: &[usize] = settings.sized(&[256, 1024, 4096], &[64, 256]);
    let time = settings.sized(Duration::from_secs(2), Duration::from_millis(500));
    for &[blocks, channels] in towers {
        let architecture = plain(blocks, channels, CONNECT_FOUR);
        let mut best = 0.0_f64;
        for &rows in batches {
            let network = Network::new(&architecture, device, 1)?;
            let mut trainer = Trainer::new(network, TrainerSettings { precision, ..TrainerSettings::default() })?;
            let batch = training_batch(&architecture, rows, 1).into();
            let rate = rows as f64 * calls_per_second(time, || trainer.step(&batch).map(|_| ()).map_err(Into::into))?;
            settings.value(&format!("{blocks}x{channels} {precision}, batch {rows}"), rate, "positions/s");
            best = best.max(rate);
        }
        // The backward pass has twice the products of the forward pass.
        share(
            settings,
            ([blocks, channels], [20, 256], "training"),
            best * 3.0 * flops(&architecture)? / peak,
            TRAINING_SHARE_BAR,
        );
    }
    Ok(())
}

/// Prints a share of the peak, with a bar if the bar is for this tower. Small networks on a CPU have other limits.
fn share(settings: &Settings, ([blocks, channels], of_the_bar, what): (Tower, Tower, &str), share: f64, bar: f64) {
    if settings.size == Size::Small {
        return;
    }
    let name = format!("{blocks}x{channels}: {what}, share of the bf16 peak");
    if [blocks, channels] == of_the_bar {
        settings.at_least(Kind::Speed, &name, (share, "share"), bar);
    } else {
        settings.value(&name, share, "share");
    }
}

/// Returns the FLOP/s of a large product of bfloat16 matrices.
fn peak(settings: &Settings, device: Device) -> Result<f64> {
    let side = settings.sized(8192, 1024);
    if device == Device::Cpu {
        set_threads(cores());
    }
    let mut operands = Operands::new(Operation::Product, side, device, Precision::Bf16, 1)?;
    let products = settings.sized(20, 2);
    let time = settings.sized(Duration::from_secs(1), Duration::from_millis(300));
    let calls = calls_per_second(time, || operands.operate(products).map(|_| ()).map_err(Into::into))?;
    let rate = 2.0 * Operation::Product.units(side, Precision::Bf16) * products as f64 * calls;
    settings.value(&format!("peak: bf16 product of {side}x{side}"), rate / 1e12, "TFLOP/s");
    Ok(rate)
}

/// Returns calls per second over `time`, after three uncounted calls.
pub(super) fn calls_per_second(time: Duration, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    for _ in 0..3 {
        call()?;
    }
    let (start, mut calls) = (Instant::now(), 0_u32);
    while start.elapsed() < time {
        call()?;
        calls += 1;
    }
    Ok(f64::from(calls) / start.elapsed().as_secs_f64())
}

/// Returns evaluations/s of all evaluators together, each in a separate thread with a separate batch.
fn evaluations_per_second(
    evaluators: Vec<Box<dyn Evaluator>>,
    architecture: &Architecture,
    size: usize,
    time: Duration,
) -> Result<f64> {
    let barrier = Barrier::new(evaluators.len());
    let work = |(thread, mut evaluator): (usize, Box<dyn Evaluator>)| -> Result<f64> {
        let batch = positions(architecture, size, thread as u64);
        let mut predictions = Predictions::new();
        let warm = (0..3).try_for_each(|_| evaluator.evaluate(&batch, &mut predictions));
        // All threads reach the barrier, even after a failure.
        barrier.wait();
        warm?;
        let (start, mut evaluated) = (Instant::now(), 0);
        while start.elapsed() < time {
            evaluator.evaluate(&batch, &mut predictions)?;
            evaluated += size;
        }
        Ok(evaluated as f64 / start.elapsed().as_secs_f64())
    };
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            evaluators.into_iter().enumerate().map(|evaluator| scope.spawn(move || work(evaluator))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread panicked")).sum()
    })
}

/// Returns the FLOPs of one evaluation; products with the padding do not count.
fn flops(architecture: &Architecture) -> Result<f64> {
    Ok(2.0 * Layers::new(architecture)?.multiply_adds() as f64)
}

/// Returns the manifest of the first version.
pub(super) fn manifest(architecture: &Architecture, bytes: &[u8]) -> Manifest {
    Manifest::of(bytes, WeightsVersion(1), 0, architecture.clone())
}
