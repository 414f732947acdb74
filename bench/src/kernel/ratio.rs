use network_torch::Precision;
use serde::Serialize;

use super::engine::{Engine, Family};
use super::report::EngineReport;

/// Evaluations/s of the kernel over those of another engine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    /// The kernel on this path.
    pub kernel: Engine,
    /// Over the fastest of these.
    pub over: Family,
    /// In which precision the other computes: whichever is faster, or this one.
    #[serde(serialize_with = "name")]
    pub precision: Option<Precision>,
    /// Each at the batch size where it is fastest.
    pub best_batch: Option<f64>,
    /// Both at batch size 1.
    pub batch_1: Option<f64>,
    /// Both at batch size 8.
    pub batch_8: Option<f64>,
}

/// The path `chosen` over every other family in whichever precision is faster; and if that path multiplies bfloat16, the
/// fastest path in float32 over the others in float32.
#[must_use]
pub fn ratios(engines: &[EngineReport], chosen: Option<Engine>) -> Vec<Ratio> {
    let chosen = engines.iter().find(|report| Some(report.engine) == chosen);
    let is_bf16 = |report: &&EngineReport| report.engine.precision() == Some(Precision::Bf16);
    let float32 = chosen.filter(is_bf16).and_then(|_| {
        let paths = of(engines, Family::Kernel, Some(Precision::F32)).filter(|path| path.best().is_some());
        paths.max_by(|a, b| a.best().unwrap_or(0.0).total_cmp(&b.best().unwrap_or(0.0)))
    });
    let compared = [(chosen, None), (float32, Some(Precision::F32))];
    let compared = compared.into_iter().filter_map(|(kernel, precision)| Some((kernel?, precision)));
    compared
        .flat_map(|(kernel, precision)| Family::OTHERS.map(|over| ratio(engines, kernel, over, precision)))
        .filter(|ratio| ratio.best_batch.is_some())
        .collect()
}

fn ratio(engines: &[EngineReport], kernel: &EngineReport, over: Family, precision: Option<Precision>) -> Ratio {
    let ratio = |speed: &dyn Fn(&EngineReport) -> Option<f64>| {
        let other = of(engines, over, precision).filter_map(speed).max_by(f64::total_cmp)?;
        Some(speed(kernel)? / other)
    };
    Ratio {
        kernel: kernel.engine,
        over,
        precision,
        best_batch: ratio(&EngineReport::best),
        batch_1: ratio(&|engine| engine.at(1)),
        batch_8: ratio(&|engine| engine.at(8)),
    }
}

/// The engines of a family, in one precision or any.
fn of(engines: &[EngineReport], family: Family, precision: Option<Precision>) -> impl Iterator<Item = &EngineReport> {
    let fits = move |engine: Engine| {
        engine.family() == family && precision.is_none_or(|precision| engine.precision() == Some(precision))
    };
    engines.iter().filter(move |report| fits(report.engine))
}

fn name<S: serde::Serializer>(precision: &Option<Precision>, serializer: S) -> Result<S::Ok, S::Error> {
    match precision {
        Some(precision) => serializer.collect_str(precision),
        None => serializer.serialize_str("the faster"),
    }
}

#[cfg(test)]
mod tests {
    use network_cpu::Path;
    use network_torch::Precision;

    use super::super::testing::{engine, engines};
    use super::*;

    const CHOSEN: Engine = Engine::Kernel(Path::Avx512Bf16);

    fn numbers(ratio: &Ratio) -> [Option<f64>; 3] {
        [ratio.best_batch, ratio.batch_1, ratio.batch_8]
    }

    #[test]
    fn the_chosen_path_is_held_against_the_faster_precision_of_each_family() {
        let ratios = ratios(&engines(), Some(CHOSEN));
        assert_eq!((ratios[0].kernel, ratios[0].over, ratios[0].precision), (CHOSEN, Family::Libtorch, None));
        assert_eq!(numbers(&ratios[0]), [Some(2.0), Some(3.0), Some(3.0)]);
        // OpenVINO has not been measured at batch 8, onnxruntime not at all.
        assert_eq!((ratios[1].kernel, ratios[1].over), (CHOSEN, Family::Openvino));
        assert_eq!(numbers(&ratios[1]), [Some(3.0), Some(1.5), None]);
        assert!(ratios.iter().all(|ratio| ratio.over != Family::Onnxruntime));
    }

    #[test]
    fn float32_is_held_against_float32() {
        let ratios = ratios(&engines(), Some(CHOSEN));
        let [float32] = &ratios[2..] else { panic!("{ratios:?}") };
        assert_eq!((float32.kernel, float32.precision), (Engine::Kernel(Path::Avx2F32), Some(Precision::F32)));
        assert_eq!(numbers(float32), [Some(5000.0 / 3000.0), Some(1.5), Some(4000.0 / 3000.0)]);
    }

    #[test]
    fn a_chosen_path_in_float32_is_held_against_everything_once() {
        let ratios = ratios(&engines(), Some(Engine::Kernel(Path::Avx2F32)));
        assert_eq!(ratios.iter().map(|ratio| ratio.over).collect::<Vec<_>>(), [Family::Libtorch, Family::Openvino]);
    }

    #[test]
    fn without_a_path_or_without_others_there_is_nothing_to_say() {
        assert!(ratios(&engines(), None).is_empty());
        assert!(ratios(&[engine(CHOSEN, &[(1, 1.0)])], Some(CHOSEN)).is_empty());
    }
}
