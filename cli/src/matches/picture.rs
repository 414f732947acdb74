//! Draws the ratings of a match or round robin as bars with confidence intervals.

use std::path::Path;

use anyhow::Context as _;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::report::{MatchPlayer, Report};
use crate::picture::{Area, BLUE, GRID, INK, write};

/// Width of the picture in pixels.
const WIDTH: u32 = 900;
/// Height of the row of a player in pixels.
const ROW_HEIGHT: u32 = 40;
/// Total height of title and axis in pixels.
const FRAME_HEIGHT: u32 = 120;
/// Width of the names at the left of the bars in pixels.
const NAMES_WIDTH: u32 = 200;
/// Width of the ratings at the right of the bars in pixels.
const RATINGS_WIDTH: u32 = 70;

/// Draws the ratings of all players to the SVG file `path`.
///
/// # Errors
/// The file cannot be written.
pub(super) fn draw(path: &Path, report: &Report) -> anyhow::Result<()> {
    // Saturates at a limit that no round robin reaches.
    let rows = u32::try_from(report.players.len()).unwrap_or(u32::MAX / ROW_HEIGHT / 2);
    let root = SVGBackend::new(path, (WIDTH, FRAME_HEIGHT + ROW_HEIGHT * rows)).into_drawing_area();
    let drawn = draw_bars(&root, report).and_then(|()| Ok(root.present()?));
    drawn.with_context(|| format!("draw {}", path.display()))
}

fn draw_bars(root: &Area<'_>, report: &Report) -> anyhow::Result<()> {
    root.fill(&WHITE)?;
    let games: u64 = report.pairings.iter().map(|pairing| pairing.games).sum();
    let title = format!("{}: Elo relative to {} with 95 % intervals, {games} games", report.game, report.reference());
    let area = root.margin(6, 2, 8, 4).titled(&title, ("sans-serif", 20).into_font().color(&INK))?;
    let (low, high) = range(&report.players);
    let rows = report.players.len() as f64;
    let label = ("sans-serif", 14).into_font().color(&INK);
    let mut chart = ChartBuilder::on(&area)
        .margin(10)
        .margin_left(NAMES_WIDTH)
        .margin_right(RATINGS_WIDTH)
        .x_label_area_size(40)
        .build_cartesian_2d(low..high, 0.0..rows)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .x_desc("Elo")
        .axis_desc_style(label.clone())
        .label_style(label)
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(GRID)
        .x_labels(8)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .draw()?;
    for (row, index) in report.by_rating().into_iter().enumerate() {
        let MatchPlayer { name, rating, .. } = &report.players[index];
        let middle = rows - row as f64 - 0.5;
        let bar = [(0.0, middle - 0.28), (rating.elo, middle + 0.28)];
        chart.draw_series([Rectangle::new(bar, BLUE.mix(0.6).filled())])?;
        let interval = vec![(rating.low, middle), (rating.high, middle)];
        chart.draw_series([PathElement::new(interval, INK.stroke_width(2))])?;
        let ends = [rating.low, rating.high].map(|end| vec![(end, middle - 0.12), (end, middle + 0.12)]);
        chart.draw_series(ends.map(|end| PathElement::new(end, INK.stroke_width(2))))?;
        let ((left, y), (right, _)) = (chart.backend_coord(&(low, middle)), chart.backend_coord(&(high, middle)));
        write(root, name, (left - 10, y), INK, HPos::Right)?;
        write(root, &format!("{:+.0}", rating.elo), (right + 10, y), INK, HPos::Left)?;
    }
    Ok(())
}

/// Returns an Elo range that contains 0 and all intervals, with a margin of 5 %.
fn range(players: &[MatchPlayer]) -> (f64, f64) {
    let (mut low, mut high) = (-1.0_f64, 1.0_f64);
    for player in players {
        (low, high) = (low.min(player.rating.low), high.max(player.rating.high));
    }
    let margin = (high - low) / 20.0;
    (low - margin, high + margin)
}
