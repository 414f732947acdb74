//! Evaluation at every batch size of the engine, on CUDA by graphs, compared with evaluation operation by operation.

use std::time::Instant;

use inference::{BATCH_SIZES, Evaluator as _, Precision, Predictions};
use network_torch::{Libtorch, LibtorchEvaluator, PrecisionPreference};
use weights::WeightsVersion;

use crate::output::Kind;
use crate::speed::manifest;
use crate::towers::{CONNECT_FOUR, complete, distance, largest, name, plain, positions, trained_weights};
use crate::{Result, Settings};

/// Evaluations of each batch: the first one is recorded, the other one is a replay alone.
const EVALUATIONS: usize = 2;

/// Evaluates a batch of each size. On CUDA, no batch may be a reason for evaluation without graphs.
pub(super) fn run(settings: &Settings) -> Result<()> {
    let libtorch = Libtorch::new(settings.preference, PrecisionPreference::Bf16, Instant::now)?;
    let device = settings.device()?.device;
    let sizes = settings.sized(&BATCH_SIZES[..], &BATCH_SIZES[..3]);
    let architectures = settings.sized(
        [plain(6, 64, CONNECT_FOUR), complete(6, 64, CONNECT_FOUR), plain(20, 256, CONNECT_FOUR)],
        [plain(2, 16, CONNECT_FOUR), complete(2, 16, CONNECT_FOUR), plain(3, 16, CONNECT_FOUR)],
    );
    let (mut expected, mut got) = (Predictions::new(), Predictions::new());
    for architecture in &architectures {
        let bytes = trained_weights(architecture, 7)?;
        let mut engine = libtorch.evaluator(&manifest(architecture, &bytes), &bytes)?;
        let mut alone = LibtorchEvaluator::new(architecture, WeightsVersion(1), &bytes, device, Precision::Bf16)?;
        let mut errors = Vec::new();
        for &size in sizes {
            let batch = positions(architecture, size, 8);
            alone.evaluate(&batch, &mut expected)?;
            for _ in 0..EVALUATIONS {
                engine.evaluate(&batch, &mut got)?;
                let of = |i| distance(&got, i, &expected, i);
                let (error, whole): (Vec<f64>, Vec<f64>) = (0..size).map(of).unzip();
                errors.push((error.iter().sum::<f64>() / whole.iter().sum::<f64>()).sqrt());
            }
        }
        let name = format!("{}: largest error of {} batch sizes", name(architecture), sizes.len());
        settings.at_most(Kind::Correctness, &name, (largest(errors), "relative"), 2e-2);
    }
    match libtorch.graphs() {
        Some(refusal) => {
            let found = if refusal.is_empty() { "as graphs" } else { &refusal };
            settings.claim("batches of every size are submitted", found, refusal.is_empty());
        }
        None => settings.skipped("CUDA graphs", "the device is no CUDA device"),
    }
    Ok(())
}
