use std::path::Path;

use anyhow::{Context, anyhow};
use network::Precision;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::engine::{Engine, Family};
use super::report::{EngineReport, NetworkReport, Report};
use crate::picture::moved_apart;

/// Width and height of a panel in pixels.
const PANEL: (u32, u32) = (600, 370);
/// Panels beside each other.
const COLUMNS: usize = 2;
/// Room for the title of the picture.
const TITLE_HEIGHT: u32 = 40;
/// Room for the names at the right ends of the lines.
const NAMES_WIDTH: u32 = 150;
/// Room above and below the lines, as a logarithm of evaluations/s.
const MARGIN: f64 = 0.1;
const INK: RGBColor = RGBColor(60, 60, 60);
const GRID: RGBColor = RGBColor(232, 232, 232);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Draws evaluations/s by batch size, one panel for each network, to `path` (SVG).
///
/// # Errors
/// A file that cannot be written.
pub fn draw(path: &Path, report: &Report) -> anyhow::Result<()> {
    let columns = report.networks.len().clamp(1, COLUMNS);
    let rows = report.networks.len().div_ceil(columns).max(1);
    let pixels = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let size = (PANEL.0 * pixels(columns), TITLE_HEIGHT + PANEL.1 * pixels(rows));
    let root = SVGBackend::new(path, size).into_drawing_area();
    let drawn = draw_panels(&root, report, rows, columns).and_then(|()| root.present().map_err(failed));
    drawn.with_context(|| format!("draw {}", path.display()))
}

fn draw_panels(root: &Area<'_>, report: &Report, rows: usize, columns: usize) -> anyhow::Result<()> {
    root.fill(&WHITE).map_err(failed)?;
    let title = format!("Evaluations/s on {}, {} threads", report.cpu, report.threads);
    let area = root.titled(&title, ("sans-serif", 20).into_font().color(&INK)).map_err(failed)?;
    for (panel, network) in area.split_evenly((rows, columns)).iter().zip(&report.networks) {
        draw_panel(root, panel, network)?;
    }
    Ok(())
}

/// Draws into `area`; what is written is placed on `root`, whose coordinates are the picture's. Both axes are
/// logarithmic.
fn draw_panel(root: &Area<'_>, area: &Area<'_>, network: &NetworkReport) -> anyhow::Result<()> {
    let (points, title) = (|| network.engines.iter().flat_map(points), ("sans-serif", 17).into_font().color(&INK));
    let (left, right) = ends(points().map(|(x, _)| x)).unwrap_or((0.0, 0.0));
    let (low, high) = ends(points().map(|(_, y)| y)).unwrap_or((0.0, 0.0));
    let mut chart = ChartBuilder::on(area)
        .caption(&network.network, title)
        .margin(10)
        .margin_left(56)
        .margin_bottom(46)
        .margin_right(NAMES_WIDTH)
        .build_cartesian_2d(left..right.max(left + 1.0), low - MARGIN..high + MARGIN)
        .map_err(failed)?;
    draw_axes(root, &mut chart, network)?;
    for engine in &network.engines {
        draw_line(&mut chart, engine)?;
    }
    draw_names(root, &chart, network)
}

/// A line for each batch size that was measured, and some round numbers of evaluations/s.
fn draw_axes(root: &Area<'_>, chart: &mut Chart<'_, '_>, network: &NetworkReport) -> anyhow::Result<()> {
    let (x_range, y_range) = (chart.x_range(), chart.y_range());
    for batch in network.batches() {
        let x = (batch as f64).log2();
        chart.draw_series([PathElement::new([(x, y_range.start), (x, y_range.end)], GRID)]).map_err(failed)?;
        let (x, y) = chart.backend_coord(&(x, y_range.start));
        write(root, &batch.to_string(), (x, y + 12), INK, HPos::Center)?;
    }
    for speed in round_numbers(y_range.start, y_range.end) {
        let y = speed.log10();
        chart.draw_series([PathElement::new([(x_range.start, y), (x_range.end, y)], GRID)]).map_err(failed)?;
        let (x, y) = chart.backend_coord(&(x_range.start, y));
        write(root, &short(speed), (x - 8, y), INK, HPos::Right)?;
    }
    let (x, y) = chart.backend_coord(&(f64::midpoint(x_range.start, x_range.end), y_range.start));
    write(root, "batch size", (x, y + 32), INK, HPos::Center)
}

/// Dots and what joins them; a faint line leads from the last one to the name.
fn draw_line(chart: &mut Chart<'_, '_>, engine: &EngineReport) -> anyhow::Result<()> {
    let (colour, width) = look(engine.engine);
    let Some((x, y)) = points(engine).last() else { return Ok(()) };
    let leader = [(x, y), (chart.x_range().end, y)];
    chart.draw_series(LineSeries::new(leader, colour.mix(0.25))).map_err(failed)?;
    let dots = points(engine).map(|point| Circle::new(point, 2 + width, colour.filled()));
    chart.draw_series(dots).map_err(failed)?;
    chart.draw_series(LineSeries::new(points(engine), colour.stroke_width(width))).map_err(failed)?;
    Ok(())
}

fn draw_names(root: &Area<'_>, chart: &Chart<'_, '_>, network: &NetworkReport) -> anyhow::Result<()> {
    let name = |engine: &EngineReport| {
        let (speed, (_, y)) = (engine.speeds.last()?.evaluations_per_second, points(engine).last()?);
        let (x, y) = chart.backend_coord(&(chart.x_range().end, y));
        Some((x + 8, y, format!("{} {}", short(speed), engine.engine), look(engine.engine).0))
    };
    let mut names: Vec<(i32, i32, String, RGBColor)> = network.engines.iter().filter_map(name).collect();
    names.sort_by_key(|(_, y, ..)| *y);
    let (_, bottom) = chart.backend_coord(&(chart.x_range().end, chart.y_range().start));
    let (_, top) = chart.backend_coord(&(chart.x_range().end, chart.y_range().end));
    let heights = moved_apart(&names.iter().map(|(_, y, ..)| *y).collect::<Vec<_>>(), top, bottom);
    for ((x, _, name, colour), y) in names.iter().zip(heights) {
        write(root, name, (*x, y), *colour, HPos::Left)?;
    }
    Ok(())
}

fn write(root: &Area<'_>, text: &str, at: (i32, i32), colour: RGBColor, align: HPos) -> anyhow::Result<()> {
    let style = ("sans-serif", 13).into_font().color(&colour).pos(Pos::new(align, VPos::Center));
    root.draw(&Text::new(text.to_owned(), at, style)).map_err(failed)
}

/// Logarithms of batch size (2) and evaluations/s (10).
fn points(engine: &EngineReport) -> impl Iterator<Item = (f64, f64)> {
    engine.speeds.iter().map(|speed| ((speed.batch as f64).log2(), speed.evaluations_per_second.log10()))
}

/// One, two and five of every decade between the logarithms `low` and `high`.
fn round_numbers(low: f64, high: f64) -> impl Iterator<Item = f64> {
    let decades = low.floor() as i32..=high.ceil() as i32;
    let numbers = decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(decade)));
    numbers.filter(move |number| (low..=high).contains(&number.log10()))
}

/// The least and the greatest, if there are any.
fn ends(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |ends, value| {
        let (low, high) = ends.unwrap_or((value, value));
        Some((low.min(value), high.max(value)))
    })
}

/// One colour for each family (Okabe and Ito: they stay apart for colour-blind readers); what is coarser than float32 is drawn heavier.
fn look(engine: Engine) -> (RGBColor, u32) {
    let colour = match engine.family() {
        Family::Kernel => RGBColor(0, 114, 178),
        Family::Libtorch => RGBColor(213, 94, 0),
        Family::Openvino => RGBColor(0, 158, 115),
        Family::Onnxruntime => RGBColor(160, 80, 140),
    };
    (colour, if engine.precision() == Some(Precision::F32) { 1 } else { 3 })
}

/// Two or three digits: `950`, `1.2k`, `31k`.
fn short(value: f64) -> String {
    match value {
        value if value < 9.95 => format!("{value:.1}"),
        value if value < 999.5 => format!("{value:.0}"),
        value if value < 9950.0 => format!("{:.1}k", value / 1e3),
        value => format!("{:.0}k", value / 1e3),
    }
}

fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("{error}")
}

#[cfg(test)]
mod tests;
