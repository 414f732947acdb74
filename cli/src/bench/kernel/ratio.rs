use network::Precision;
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
mod tests;
