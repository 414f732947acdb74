use std::path::Path;

use network_torch::Precision;

use super::engine::{Engine, Family};
use super::report::{NetworkReport, Report};
use crate::plot::{self, COLOURS, Line, Panel};

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
mod tests {
    use super::super::testing;
    use super::*;

    fn drawn(report: &Report) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kernel.svg");
        draw(&path, report).unwrap();
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn every_engine_is_named_with_its_last_value() {
        let text = drawn(&testing::report());
        for name in ["6x64@6x7", "24k avx512-bf16", "12k libtorch bf16", "3.0k libtorch f32", "8.0k openvino bf16"] {
            assert!(text.contains(name), "{name} is not in {text}");
        }
        assert!(!text.contains("onnxruntime"));
    }

    #[test]
    fn each_network_has_a_panel() {
        let mut report = testing::report();
        let mut other = report.networks[0].clone();
        other.network = "10x128@19x19".to_owned();
        report.networks.extend([other.clone(), other]);
        assert_eq!(drawn(&report).matches("10x128@19x19").count(), 2);
    }

    #[test]
    fn reports_without_speeds_are_drawn_too() {
        let mut report = testing::report();
        report.networks[0].engines.iter_mut().for_each(|engine| engine.speeds.truncate(1));
        drawn(&report);
        report.networks[0].engines.clear();
        drawn(&report);
        report.networks.clear();
        drawn(&report);
    }
}
