use std::path::Path;

use super::Ablation;
use crate::plot::{self, COLOURS, Line, Panel};

/// Draws positions/s by the number of optimisations taken away to `path` (SVG).
///
/// # Errors
/// A file that cannot be written.
pub(super) fn draw(path: &Path, ablation: &Ablation) -> anyhow::Result<()> {
    let speeds = ablation.steps.iter().enumerate().map(|(index, step)| (index + 1, step.positions_per_second));
    let line = Line { name: "positions/s".to_owned(), colour: COLOURS[0], width: 3, speeds: speeds.collect() };
    let title = format!("{}, {}", ablation.game, ablation.network);
    let panel = Panel { title, sizes: "row of the table, from everything down to nothing", lines: vec![line] };
    plot::draw(path, &format!("Self-play without its optimisations on {}", ablation.cpu), &[panel])
}
