use std::path::Path;

use super::report::Report;
use crate::plot::{self, COLOURS, Line, Panel};

/// Draws inserts/s and samples/s by writers, and samples/s by positions held, to `path` (SVG).
///
/// # Errors
/// A file that cannot be written.
pub fn draw(path: &Path, report: &Report) -> anyhow::Result<()> {
    let [blue, orange, green, ..] = COLOURS;
    let line = |name: &str, colour, speeds: Vec<(usize, f64)>| Line { name: name.to_owned(), colour, width: 2, speeds };
    let by_writers = |speed: fn(&super::WritersReport) -> f64| {
        report.writers.iter().map(|report| (report.writers, speed(report))).collect::<Vec<_>>()
    };
    let writers = Panel {
        title: "by writers".to_owned(),
        sizes: "writers",
        lines: vec![
            line("trajectories inserted", blue, by_writers(|report| report.inserts_per_second)),
            line("samples, nobody inserting", orange, by_writers(|report| report.samples_per_second)),
            line("samples beside writers", green, by_writers(|report| report.samples_per_second_beside_writers)),
        ],
    };
    // Only where it is drawn: a table that does not fit a usize does not fit a machine.
    let size = |positions: u64| usize::try_from(positions).unwrap_or(usize::MAX);
    let samples = report.sizes.iter().map(|report| (size(report.positions), report.samples_per_second)).collect();
    let sizes = Panel {
        title: "by size".to_owned(),
        sizes: "positions held",
        lines: vec![line("samples, nobody inserting", orange, samples)],
    };
    let panels: Vec<Panel> = [writers, sizes].into_iter().filter(|panel| !panel.lines[0].speeds.is_empty()).collect();
    plot::draw(path, &format!("The replay server on {}: per second", report.cpu), &panels)
}
