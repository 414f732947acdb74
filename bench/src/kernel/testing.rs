//! Reports of made-up numbers.

use network_cpu::Path;
use network_torch::Precision;

use super::{Engine, EngineReport, LayerTimes, NetworkReport, Report, Speed, ratios};
use crate::Turn;

/// An engine with `(batch, evaluations/s)`.
pub(super) fn engine(engine: Engine, speeds: &[(usize, f64)]) -> EngineReport {
    let speed =
        |&(batch, evaluations_per_second)| Speed { batch, evaluations_per_second, share_of_peak: None, ratio: None };
    EngineReport {
        engine,
        peak: None,
        speeds: speeds.iter().map(speed).collect(),
        layers: Vec::new(),
        not_measured: None,
    }
}

/// Two paths, libtorch in two precisions, OpenVINO, and no onnxruntime.
pub(super) fn engines() -> Vec<EngineReport> {
    let mut chosen = engine(Engine::Kernel(Path::Avx512Bf16), &[(1, 6000.0), (8, 12_000.0), (32, 24_000.0)]);
    chosen.peak = Some(4e11);
    chosen.speeds[2].share_of_peak = Some(0.61);
    let block_ns = vec![3000.0, 5000.0];
    chosen.layers =
        vec![LayerTimes { batch: 32, observe_ns: 50.0, stem_ns: 400.0, block_ns, heads_ns: 300.0, layers_ns: 200.0 }];
    let mut missing = engine(Engine::Onnxruntime, &[]);
    missing.not_measured = Some("it ended".to_owned());
    vec![
        chosen,
        engine(Engine::Kernel(Path::Avx2F32), &[(1, 3000.0), (8, 4000.0), (32, 5000.0)]),
        engine(Engine::Libtorch(Precision::Bf16), &[(1, 1000.0), (8, 4000.0), (32, 12_000.0)]),
        engine(Engine::Libtorch(Precision::F32), &[(1, 2000.0), (8, 3000.0)]),
        engine(Engine::Openvino(Precision::Bf16), &[(1, 4000.0), (32, 8000.0)]),
        missing,
    ]
}

/// One network of [`engines`].
pub(super) fn report() -> Report {
    let (engines, chosen) = (engines(), Some(Engine::Kernel(Path::Avx512Bf16)));
    let ratios = ratios(&engines, chosen);
    let network = NetworkReport {
        network: "6x64@6x7".to_owned(),
        multiply_adds: Some(18_900_000),
        chosen,
        reason: "the widest".to_owned(),
        engines,
        ratios,
    };
    Report {
        cpu: "Some CPU".to_owned(),
        target: "x86_64 linux".to_owned(),
        cores: 4,
        threads: 2,
        seconds: 1.0,
        repeats: 3,
        turn: Turn::Median,
        batch_seconds_max: 10.0,
        seed: 7,
        peers: Some("openvino 1.2.3".to_owned()),
        compared: None,
        networks: vec![network],
    }
}
