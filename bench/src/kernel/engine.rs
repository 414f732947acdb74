use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use inference::Batch;
use network_cpu::{KernelVariant, Stage, Tower, TowerEvaluator};
use network_torch::Precision;
use weights::WeightsVersion;

use crate::network::random_positions;
use crate::series::Speeds;
use crate::{Turn, threads};

/// Duration of the layer measurement, as a share of a turn's duration.
const LAYERS_SHARE: f64 = 0.25;
/// Rounds of a burst, which take some tenths of a millisecond.
const BURST_ROUNDS: usize = 100_000;
/// Library of the CPU kernel.
const KERNEL: &str = "kernel";
/// Libraries to compare the kernel with.
const OTHERS: [&str; 3] = ["libtorch", "openvino", "onnxruntime"];

/// An engine that evaluates positions on the CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Engine {
    /// Name in reports: the path of the kernel, or library and precision.
    pub(super) name: String,
    /// Name of the library.
    library: &'static str,
    /// Precision of the products; `None` for integers.
    precision: Option<Precision>,
}

impl Engine {
    /// Engines that Python runs; onnxruntime computes in float32 and integers only.
    pub(super) const PEERS: [(&str, Option<Precision>); 5] = [
        ("openvino", Some(Precision::Bf16)),
        ("openvino", Some(Precision::F32)),
        ("openvino", None),
        ("onnxruntime", Some(Precision::F32)),
        ("onnxruntime", None),
    ];

    /// Returns the kernel on one path.
    pub(super) fn kernel(path: KernelVariant) -> Self {
        let precision = if path.is_bf16() { Precision::Bf16 } else { Precision::F32 };
        Self { name: path.to_string(), library: KERNEL, precision: (!path.is_int8()).then_some(precision) }
    }

    /// Returns an engine of another library; it multiplies integers without a precision.
    pub(super) fn other(library: &'static str, precision: Option<Precision>) -> Self {
        let named = precision.map_or("int8".to_owned(), |precision| precision.to_string());
        Self { name: format!("{library} {named}"), library, precision }
    }
}

/// Compares the kernel on the path `chosen` with every other library in the faster floating-point precision. If that
/// path multiplies bfloat16, also compares the fastest float32 path with the other libraries in float32; and always the
/// fastest integer path with integers. Returns one sentence per comparison.
pub(super) fn ratios(engines: &[Speeds<Engine>], chosen: Option<&str>) -> Vec<String> {
    let chosen = engines.iter().find(|engine| Some(engine.label.name.as_str()) == chosen);
    let fastest = |precision: Option<Precision>| {
        let paths = engines.iter().filter(|path| path.label.library == KERNEL && path.label.precision == precision);
        let paths = paths.filter_map(|path| Some((path, path.best()?)));
        paths.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(path, _)| path)
    };
    let is_bf16 = |engine: &&Speeds<Engine>| engine.label.precision == Some(Precision::Bf16);
    let float32 = chosen.filter(is_bf16).and_then(|_| fastest(Some(Precision::F32)));
    let compared: [(Option<&Speeds<Engine>>, &str, IsCompared); 3] = [
        (chosen, "", |precision| precision.is_some()),
        (float32, " in f32", |precision| precision == Some(Precision::F32)),
        (fastest(None), " in int8", |precision| precision.is_none()),
    ];
    let compared = compared.into_iter().filter_map(|(kernel, what, is_compared)| Some((kernel?, what, is_compared)));
    let ratios = compared.flat_map(|(kernel, what, is_compared)| {
        OTHERS.map(|library| {
            let others: Vec<&Speeds<Engine>> = engines
                .iter()
                .filter(|other| other.label.library == library && is_compared(other.label.precision))
                .collect();
            ratio(kernel, &others).map(|ratio| format!("{} over {library}{what}: {ratio}", kernel.label.name))
        })
    });
    ratios.flatten().collect()
}

/// Returns true for the precisions of other libraries with which a path is compared.
type IsCompared = fn(Option<Precision>) -> bool;

/// Describes the evaluations/s of a path relative to the fastest of other engines; `None` if none was measured.
fn ratio(kernel: &Speeds<Engine>, others: &[&Speeds<Engine>]) -> Option<String> {
    let ratio = |speed: &dyn Fn(&Speeds<Engine>) -> Option<f64>| {
        let other = others.iter().filter_map(|other| speed(other)).max_by(f64::total_cmp)?;
        Some(speed(kernel)? / other)
    };
    let mut text = format!("{:.2} times at the best batch of each", ratio(&Speeds::best)?);
    for batch in [1, 8] {
        text += &ratio(&|engine| engine.at(batch))
            .map_or_else(String::new, |ratio| format!(", {ratio:.2} times at batch {batch}"));
    }
    Some(text)
}

/// Parts of a network with measured times.
pub(super) const LAYERS: [&str; 5] =
    ["observations", "stem", "a block", "convolution of the heads", "layers of the heads"];
/// Index of the residual blocks in [`LAYERS`].
const BLOCKS: usize = 2;

/// Measured upper bound and layer times of a kernel path.
pub(super) struct Path {
    variant: KernelVariant,
    pub(super) tower: Arc<Tower>,
    /// Multiply-adds/s from registers alone, over all threads, for every turn.
    peaks: Vec<f64>,
    /// By batch size, microseconds per position in each of [`LAYERS`], for every turn.
    layers: BTreeMap<usize, [Vec<f64>; LAYERS.len()]>,
}

impl Path {
    pub(super) fn new(variant: KernelVariant, tower: Arc<Tower>) -> Self {
        Self { variant, tower, peaks: Vec::new(), layers: BTreeMap::new() }
    }

    /// Measures one turn of multiply-adds from registers alone.
    pub(super) fn measure_peak(&mut self, threads: usize, time: Duration) -> anyhow::Result<()> {
        let burst = |(): &mut ()| Ok(self.variant.burst(BURST_ROUNDS));
        self.peaks.push(threads::rate(&mut vec![(); threads], time, burst)?);
        Ok(())
    }

    /// Measures one turn of the time per thread in each of [`LAYERS`], with all threads at work.
    pub(super) fn measure_layers(
        &mut self,
        size: usize,
        (threads, seed): (usize, u64),
        time: Duration,
    ) -> anyhow::Result<()> {
        let watcher = |thread: usize| {
            let batch = random_positions(self.tower.architecture(), seed.wrapping_add(thread as u64), size);
            let evaluator = TowerEvaluator::new(Arc::clone(&self.tower), WeightsVersion(1));
            Watcher { evaluator, batch, seconds: [0.0; LAYERS.len()], positions: 0 }
        };
        let mut watchers: Vec<Watcher> = (0..threads).map(watcher).collect();
        threads::rate(&mut watchers, time.mul_f64(LAYERS_SHARE), Watcher::round)?;
        let positions: usize = watchers.iter().map(|watcher| watcher.positions).sum();
        for (layer, turns) in self.layers.entry(size).or_default().iter_mut().enumerate() {
            let seconds: f64 = watchers.iter().map(|watcher| watcher.seconds[layer]).sum();
            let parts = if layer == BLOCKS { self.tower.architecture().blocks.max(1) } else { 1 };
            turns.push(1e6 * seconds / (positions * parts) as f64);
        }
        Ok(())
    }

    /// Returns the multiply-adds/s from registers alone in the reported turn.
    pub(super) fn peak(&self, turn: Turn) -> Option<f64> {
        turn.speed(&self.peaks)
    }

    /// Returns the microseconds per position in each of [`LAYERS`], by batch size, in the reported turn.
    pub(super) fn layers(&self, turn: Turn) -> Vec<(usize, [Option<f64>; LAYERS.len()])> {
        self.layers.iter().map(|(&size, turns)| (size, turns.each_ref().map(|turns| turn.time(turns)))).collect()
    }
}

/// State of a thread that measures the time of each layer.
struct Watcher {
    evaluator: TowerEvaluator,
    batch: Batch,
    seconds: [f64; LAYERS.len()],
    positions: usize,
}

impl Watcher {
    fn round(&mut self) -> anyhow::Result<usize> {
        for (stage, time) in self.evaluator.stages(&self.batch, &mut Instant::now)? {
            let layer = match stage {
                Stage::Observe => 0,
                Stage::Stem => 1,
                Stage::Inner(_) | Stage::Block(_) | Stage::Attention => BLOCKS,
                Stage::Heads => 3,
                Stage::Layers => 4,
            };
            self.seconds[layer] += time.as_secs_f64();
        }
        self.positions += self.batch.len();
        Ok(self.batch.len())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::series::tests::made_up;

    const CHOSEN: &str = "avx512-bf16";

    /// Returns two paths, libtorch in two precisions, OpenVINO, and no onnxruntime.
    pub(in super::super) fn engines() -> Vec<Speeds<Engine>> {
        let mut missing = made_up(Engine::other("onnxruntime", Some(Precision::F32)), &[]);
        missing.not_measured = Some("the script stopped".to_owned());
        vec![
            made_up(Engine::kernel(KernelVariant::Avx512Bf16), &[(1, 6000.0), (8, 12_000.0), (32, 24_000.0)]),
            made_up(Engine::kernel(KernelVariant::Avx2F32), &[(1, 3000.0), (8, 4000.0), (32, 5000.0)]),
            made_up(Engine::other("libtorch", Some(Precision::Bf16)), &[(1, 1000.0), (8, 4000.0), (32, 12_000.0)]),
            made_up(Engine::other("libtorch", Some(Precision::F32)), &[(1, 2000.0), (8, 3000.0)]),
            made_up(Engine::other("openvino", Some(Precision::Bf16)), &[(1, 4000.0), (32, 8000.0)]),
            missing,
        ]
    }

    #[test]
    fn the_chosen_path_is_compared_with_the_faster_precision_of_each_family() {
        let ratios = ratios(&engines(), Some(CHOSEN));
        let libtorch = "avx512-bf16 over libtorch: 2.00 times at the best batch of each, 3.00 times at batch 1, 3.00 times at batch 8";
        // OpenVINO has not been measured at batch 8, onnxruntime not at all.
        let openvino = "avx512-bf16 over openvino: 3.00 times at the best batch of each, 1.50 times at batch 1";
        assert_eq!(ratios[..2], [libtorch, openvino]);
        assert!(ratios.iter().all(|ratio| !ratio.contains("onnxruntime")), "{ratios:?}");
    }

    #[test]
    fn a_float32_path_is_compared_with_float32_engines() {
        let ratios = ratios(&engines(), Some(CHOSEN));
        let expected = "avx2-f32 over libtorch in f32: 1.67 times at the best batch of each, 1.50 times at batch 1, 1.33 times at batch 8";
        assert_eq!(ratios[2..], [expected]);
    }

    #[test]
    fn integers_are_compared_with_integers() {
        let int8 = |engine, speed| made_up(engine, &[(8, speed)]);
        let integers =
            [int8(Engine::kernel(KernelVariant::AmxI8), 9000.0), int8(Engine::other("openvino", None), 6000.0)];
        let ratios = ratios(&[engines(), integers.to_vec()].concat(), Some(CHOSEN));
        let expected = "amx-i8 over openvino in int8: 1.50 times at the best batch of each, 1.50 times at batch 8";
        assert_eq!(ratios[3..], [expected]);
    }

    #[test]
    fn a_chosen_float32_path_is_compared_with_each_family_once() {
        let ratios = ratios(&engines(), Some("avx2-f32"));
        let [libtorch, openvino] = &ratios[..] else { panic!("{ratios:?}") };
        assert!(libtorch.starts_with("avx2-f32 over libtorch: ") && openvino.starts_with("avx2-f32 over openvino: "));
    }

    #[test]
    fn without_a_chosen_path_or_other_engines_there_are_no_ratios() {
        assert!(ratios(&engines(), None).is_empty());
        assert!(ratios(&engines()[..2], Some(CHOSEN)).is_empty());
    }

    #[test]
    fn layer_times_and_peak_are_the_median_or_the_best_of_the_turns() {
        let architecture = crate::network::NetworkSize { blocks: 2, channels: 16, height: 3, width: 3 }.architecture();
        let tower = Arc::new(Tower::random(&architecture, 1, KernelVariant::PortableF32).unwrap());
        let mut path = Path::new(KernelVariant::PortableF32, tower);
        for _ in 0..3 {
            path.measure_layers(8, (2, 1), Duration::from_millis(1)).unwrap();
            path.measure_peak(2, Duration::from_millis(1)).unwrap();
        }
        path.layers.get_mut(&8).unwrap()[BLOCKS] = vec![3.0, 1.0, 2.0];
        path.peaks = vec![900.0, 1100.0, 1000.0];
        let of = |turn| (path.layers(turn)[0].1[BLOCKS], path.peak(turn));
        assert_eq!((of(Turn::Median), of(Turn::Best)), ((Some(2.0), Some(1000.0)), (Some(1.0), Some(1100.0))));
        assert!(path.layers(Turn::Median)[0].1.iter().all(|time| *time > Some(0.0)));
    }
}
