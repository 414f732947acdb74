use std::path::Path;

use network::Precision;

use super::engine::{Engine, Family};
use super::report::{NetworkReport, Report};
use crate::bench::plot::{self, COLOURS, Line, Panel};

/// Draws evaluations/s by batch size, one panel for each network, to `path` (SVG).
///
/// # Errors
/// A file that cannot be written.
pub fn draw(path: &Path, report: &Report) -> anyhow::Result<()> {
    let title = format!("Evaluations/s on {}, {} threads", report.cpu, report.threads);
    plot::draw(path, &title, &report.networks.iter().map(panel).collect::<Vec<_>>())
}

fn panel(network: &NetworkReport) -> Panel {
    let lines = network.engines.iter().map(|report| line(report.engine, &report.speeds));
    Panel { title: network.network.clone(), sizes: "batch size", lines: lines.collect() }
}

/// One colour for each family; what is coarser than float32 is drawn heavier.
fn line(engine: Engine, speeds: &[super::Speed]) -> Line {
    let [blue, orange, green, purple] = COLOURS;
    let colour = match engine.family() {
        Family::Kernel => blue,
        Family::Libtorch => orange,
        Family::Openvino => green,
        Family::Onnxruntime => purple,
    };
    Line {
        name: engine.to_string(),
        colour,
        width: if engine.precision() == Some(Precision::F32) { 1 } else { 3 },
        speeds: speeds.iter().map(|speed| (speed.batch, speed.evaluations_per_second)).collect(),
    }
}

#[cfg(test)]
mod tests;
