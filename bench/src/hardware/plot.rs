use std::path::Path;

use network_torch::Precision;
use plotters::style::RGBColor;

use super::report::{Report, SettingReport, WorkloadReport};
use super::setting::Setting;
use crate::plot::{self, COLOURS, Line, Panel};

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
mod tests {
    use super::super::testing::report;
    use super::*;

    fn drawn(report: &Report) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hardware.svg");
        draw(&path, report).unwrap();
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn every_setting_is_named_with_its_last_value() {
        let text = drawn(&report());
        let names = [
            "tower 6x64@6x7: evaluations/s",
            "25k avx512-bf16 2×1",
            "8.0k libtorch f32 1×1",
            "200k cuda bf16",
            "10k cuda f32",
        ];
        for name in names {
            assert!(text.contains(name), "{name} is not in {text}");
        }
    }

    #[test]
    fn reports_without_speeds_are_drawn_too() {
        let mut report = report();
        report.workloads[0].settings.iter_mut().for_each(|setting| setting.speeds.clear());
        drawn(&report);
        report.workloads.clear();
        drawn(&report);
    }
}
