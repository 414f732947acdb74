use std::path::Path;

use super::report::{EvaluatorSpeed, Report};
use crate::plot::{self, COLOURS, Line, Panel};

/// Draws evaluations/s by the positions of a batch to `path` (SVG): of the evaluators alone, and of plain self-play at its mean
/// batch.
///
/// # Errors
/// A file that cannot be written.
pub fn draw(path: &Path, report: &Report) -> anyhow::Result<()> {
    let [blue, orange, green, ..] = COLOURS;
    let alone = |name: &str, colour, speeds: &[EvaluatorSpeed]| Line {
        name: name.to_owned(),
        colour,
        width: 1,
        speeds: speeds.iter().map(|speed| (speed.batch, speed.evaluations_per_second)).collect(),
    };
    let plain = report.plain.filter(|plain| plain.mean_batch >= 1.0).map(|plain| Line {
        name: "plain self-play".to_owned(),
        colour: green,
        width: 3,
        speeds: vec![(plain.mean_batch.round() as usize, plain.evaluations_per_second)],
    });
    let lines = [alone("evaluator alone", blue, &report.evaluator), alone("libtorch alone", orange, &report.libtorch)];
    let lines = lines.into_iter().filter(|line| !line.speeds.is_empty()).chain(plain).collect();
    let panel = Panel { title: format!("{}, {}", report.game, report.network), sizes: "positions in a batch", lines };
    plot::draw(path, &format!("Evaluations/s on {}", report.cpu), &[panel])
}
