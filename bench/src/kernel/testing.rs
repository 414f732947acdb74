//! Engines with made-up speeds.

use network_cpu::KernelVariant;
use network_torch::Precision;

use super::engine::Engine;
use super::ratio::ratios;
use super::speeds::{EngineSpeeds, LayerTimes, NetworkSpeeds, Speed};

/// An engine with `(batch, evaluations/s)`.
pub(super) fn engine(engine: Engine, speeds: &[(usize, f64)]) -> EngineSpeeds {
    let speed = |&(batch, evaluations_per_second)| Speed { batch, evaluations_per_second, share_of_peak: None };
    EngineSpeeds {
        engine,
        peak: None,
        speeds: speeds.iter().map(speed).collect(),
        layers: Vec::new(),
        not_measured: None,
    }
}

/// Two paths, libtorch in two precisions, OpenVINO, and no onnxruntime.
pub(super) fn engines() -> Vec<EngineSpeeds> {
    let mut chosen = engine(Engine::Kernel(KernelVariant::Avx512Bf16), &[(1, 6000.0), (8, 12_000.0), (32, 24_000.0)]);
    chosen.peak = Some(4e11);
    chosen.speeds[2].share_of_peak = Some(0.61);
    let block_ns = vec![3000.0, 5000.0];
    chosen.layers =
        vec![LayerTimes { batch: 32, observe_ns: 50.0, stem_ns: 400.0, block_ns, heads_ns: 300.0, layers_ns: 200.0 }];
    let mut missing = engine(Engine::Onnxruntime, &[]);
    missing.not_measured = Some("it ended".to_owned());
    vec![
        chosen,
        engine(Engine::Kernel(KernelVariant::Avx2F32), &[(1, 3000.0), (8, 4000.0), (32, 5000.0)]),
        engine(Engine::Libtorch(Precision::Bf16), &[(1, 1000.0), (8, 4000.0), (32, 12_000.0)]),
        engine(Engine::Libtorch(Precision::F32), &[(1, 2000.0), (8, 3000.0)]),
        engine(Engine::Openvino(Precision::Bf16), &[(1, 4000.0), (32, 8000.0)]),
        missing,
    ]
}

/// One network of [`engines`].
pub(super) fn network() -> NetworkSpeeds {
    let (engines, chosen) = (engines(), Some(Engine::Kernel(KernelVariant::Avx512Bf16)));
    let ratios = ratios(&engines, chosen);
    let (multiply_adds, reason) = (Some(18_900_000), "the widest".to_owned());
    NetworkSpeeds { network: "6x64@6x7".to_owned(), multiply_adds, chosen, reason, engines, ratios }
}
