use network_torch::Precision;

use super::engine::{Engine, Family};
use super::speeds::EngineSpeeds;

/// Evaluations/s of the kernel over those of another engine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ratio {
    /// The kernel on this path.
    pub(super) kernel: Engine,
    /// Over the fastest of these.
    pub(super) over: Family,
    /// In which precision the other computes: whichever is faster, or this one.
    pub(super) precision: Option<Precision>,
    /// Each at the batch size where it is fastest.
    pub(super) best_batch: Option<f64>,
    /// Both at batch size 1.
    pub(super) batch_1: Option<f64>,
    /// Both at batch size 8.
    pub(super) batch_8: Option<f64>,
}

impl Ratio {
    /// A sentence of a report.
    pub(super) fn in_words(&self) -> String {
        let Self { kernel, over, precision, best_batch, batch_1, batch_8 } = self;
        let other = match precision {
            Some(precision) => format!("{over} in {precision}"),
            None => over.to_string(),
        };
        let times = [(best_batch, "the best batch of each"), (batch_1, "batch 1"), (batch_8, "batch 8")]
            .into_iter()
            .filter_map(|(ratio, at)| ratio.map(|ratio| format!("{ratio:.2} times at {at}")))
            .collect::<Vec<_>>();
        format!("{kernel} over {other}: {}", times.join(", "))
    }
}

/// The path `chosen` over every other family in whichever precision is faster; and if that path multiplies bfloat16,
/// the fastest path in float32 over the others in float32.
pub(super) fn ratios(engines: &[EngineSpeeds], chosen: Option<Engine>) -> Vec<Ratio> {
    let chosen = engines.iter().find(|report| Some(report.engine) == chosen);
    let is_bf16 = |report: &&EngineSpeeds| report.engine.precision() == Some(Precision::Bf16);
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

fn ratio(engines: &[EngineSpeeds], kernel: &EngineSpeeds, over: Family, precision: Option<Precision>) -> Ratio {
    let ratio = |speed: &dyn Fn(&EngineSpeeds) -> Option<f64>| {
        let other = of(engines, over, precision).filter_map(speed).max_by(f64::total_cmp)?;
        Some(speed(kernel)? / other)
    };
    Ratio {
        kernel: kernel.engine,
        over,
        precision,
        best_batch: ratio(&EngineSpeeds::best),
        batch_1: ratio(&|engine| engine.at(1)),
        batch_8: ratio(&|engine| engine.at(8)),
    }
}

/// The engines of a family, in one precision or any.
fn of(engines: &[EngineSpeeds], family: Family, precision: Option<Precision>) -> impl Iterator<Item = &EngineSpeeds> {
    let fits = move |engine: Engine| {
        engine.family() == family && precision.is_none_or(|precision| engine.precision() == Some(precision))
    };
    engines.iter().filter(move |report| fits(report.engine))
}

#[cfg(test)]
mod tests {
    use network_cpu::KernelVariant;
    use network_torch::Precision;

    use super::super::testing::{engine, engines};
    use super::*;

    const CHOSEN: Engine = Engine::Kernel(KernelVariant::Avx512Bf16);

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
        assert_eq!((float32.kernel, float32.precision), (Engine::Kernel(KernelVariant::Avx2F32), Some(Precision::F32)));
        assert_eq!(numbers(float32), [Some(5000.0 / 3000.0), Some(1.5), Some(4000.0 / 3000.0)]);
    }

    #[test]
    fn a_chosen_path_in_float32_is_held_against_everything_once() {
        let ratios = ratios(&engines(), Some(Engine::Kernel(KernelVariant::Avx2F32)));
        assert_eq!(ratios.iter().map(|ratio| ratio.over).collect::<Vec<_>>(), [Family::Libtorch, Family::Openvino]);
    }

    #[test]
    fn without_a_path_or_without_others_there_is_nothing_to_say() {
        assert!(ratios(&engines(), None).is_empty());
        assert!(ratios(&[engine(CHOSEN, &[(1, 1.0)])], Some(CHOSEN)).is_empty());
    }

    #[test]
    fn ratios_are_told_in_words() {
        let said: Vec<String> = ratios(&engines(), Some(CHOSEN)).iter().map(Ratio::in_words).collect();
        let libtorch = "avx512-bf16 over libtorch: 2.00 times at the best batch of each, 3.00 times at batch 1, 3.00 times at batch 8";
        let openvino = "avx512-bf16 over openvino: 3.00 times at the best batch of each, 1.50 times at batch 1";
        assert_eq!(said[..2], [libtorch, openvino]);
        assert!(said[2].starts_with("avx2-f32 over libtorch in f32: 1.67 times"), "{said:?}");
    }
}
