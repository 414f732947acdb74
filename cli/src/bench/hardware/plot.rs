use std::path::Path;

use network::Precision;
use plotters::style::RGBColor;

use super::report::{Report, SettingReport, WorkloadReport};
use super::setting::Setting;
use crate::bench::plot::{self, COLOURS, Line, Panel};

/// Draws speeds by size, one panel for each workload, to `path` (SVG).
///
/// # Errors
/// A file that cannot be written.
pub fn draw(path: &Path, report: &Report) -> anyhow::Result<()> {
    let title = format!("Speeds on {} ({})", report.devices.join(", "), report.cpu);
    plot::draw(path, &title, &report.workloads.iter().map(panel).collect::<Vec<_>>())
}

fn panel(workload: &WorkloadReport) -> Panel {
    let (kind, float32) = (workload.kind, Precision::F32.to_string());
    let line = |report: &SettingReport| Line {
        name: name(&report.setting),
        colour: colour(&report.setting),
        width: if report.setting.precision == float32 { 1 } else { 3 },
        speeds: report.speeds.iter().map(|speed| (speed.size, kind.in_units(speed.per_second))).collect(),
    };
    Panel {
        title: format!("{}: {}", workload.workload, kind.unit()),
        sizes: kind.sizes(),
        lines: workload.settings.iter().map(line).collect(),
    }
}

/// Short enough to stand at the end of a line: on a CPU, evaluators × threads.
fn name(setting: &Setting) -> String {
    let Setting { device, precision, evaluators, threads, .. } = setting;
    match setting.is_cpu() {
        true => format!("{} {evaluators}×{threads}", setting.engine_and_precision()),
        false => format!("{device} {precision}"),
    }
}

/// One colour for the kernel, one for libtorch on the CPU, one for a CUDA device and one for whatever else there is; what is
/// coarser than float32 is drawn heavier.
fn colour(setting: &Setting) -> RGBColor {
    let [blue, orange, green, purple] = COLOURS;
    match (setting.is_cpu(), setting.engine.as_str(), setting.device.as_str()) {
        (true, "libtorch", _) => orange,
        (true, ..) => blue,
        (false, _, "cuda") => green,
        (false, ..) => purple,
    }
}

#[cfg(test)]
mod tests;
