//! Pictures of benchmarks: speeds against sizes, on logarithmic axes, a panel for each of whatever was compared.

use std::path::Path;

use anyhow::Context;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use plot::{Area, BLUE, Chart, GREEN, GRID, INK, ORANGE, failed, moved_apart};

/// Width and height of a panel in pixels.
const PANEL: (u32, u32) = (600, 370);
/// Panels beside each other.
const COLUMNS: usize = 2;
/// Room for the title of the picture.
const TITLE_HEIGHT: u32 = 40;
/// Room for the names at the right ends of the lines.
const NAMES_WIDTH: u32 = 150;
/// Room above and below the lines, as a logarithm of the speed.
const MARGIN: f64 = 0.1;
/// Colours that stay apart for colour-blind readers (after Okabe and Ito).
pub(super) const COLOURS: [RGBColor; 4] = [BLUE, ORANGE, GREEN, RGBColor(160, 80, 140)];

/// One part of a picture.
#[derive(Debug, Clone)]
pub(super) struct Panel {
    pub(super) title: String,
    /// What the sizes are.
    pub(super) sizes: &'static str,
    pub(super) lines: Vec<Line>,
}

/// Speeds by size, ascending.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) colour: RGBColor,
    pub(super) width: u32,
    pub(super) speeds: Vec<(usize, f64)>,
}

impl Line {
    /// Logarithms of size (2) and speed (10).
    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.speeds.iter().map(|&(size, speed)| ((size as f64).log2(), speed.log10()))
    }
}

impl Panel {
    /// Every size at which something was measured, ascending.
    fn measured_sizes(&self) -> Vec<usize> {
        let mut sizes: Vec<usize> =
            self.lines.iter().flat_map(|line| line.speeds.iter().map(|(size, _)| *size)).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}

/// Draws the panels to `path` (SVG).
///
/// # Errors
/// A file that cannot be written.
pub(super) fn draw(path: &Path, title: &str, panels: &[Panel]) -> anyhow::Result<()> {
    let columns = panels.len().clamp(1, COLUMNS);
    let rows = panels.len().div_ceil(columns).max(1);
    let pixels = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let size = (PANEL.0 * pixels(columns), TITLE_HEIGHT + PANEL.1 * pixels(rows));
    let root = SVGBackend::new(path, size).into_drawing_area();
    let drawn = draw_panels(&root, title, panels, (rows, columns)).and_then(|()| root.present().map_err(failed));
    drawn.with_context(|| format!("draw {}", path.display()))
}

fn draw_panels(root: &Area<'_>, title: &str, panels: &[Panel], grid: (usize, usize)) -> anyhow::Result<()> {
    root.fill(&WHITE).map_err(failed)?;
    let area = root.titled(title, ("sans-serif", 20).into_font().color(&INK)).map_err(failed)?;
    for (area, panel) in area.split_evenly(grid).iter().zip(panels) {
        draw_panel(root, area, panel)?;
    }
    Ok(())
}

/// Draws into `area`; what is written is placed on `root`, whose coordinates are the picture's. Both axes are
/// logarithmic.
fn draw_panel(root: &Area<'_>, area: &Area<'_>, panel: &Panel) -> anyhow::Result<()> {
    let (points, title) = (|| panel.lines.iter().flat_map(Line::points), ("sans-serif", 17).into_font().color(&INK));
    let (left, right) = ends(points().map(|(x, _)| x)).unwrap_or((0.0, 0.0));
    let (low, high) = ends(points().map(|(_, y)| y)).unwrap_or((0.0, 0.0));
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, title)
        .margin(10)
        .margin_left(56)
        .margin_bottom(46)
        .margin_right(NAMES_WIDTH)
        .build_cartesian_2d(left..right.max(left + 1.0), low - MARGIN..high + MARGIN)
        .map_err(failed)?;
    draw_axes(root, &mut chart, panel)?;
    for line in &panel.lines {
        draw_line(&mut chart, line)?;
    }
    draw_names(root, &chart, panel)
}

/// A line for each size that was measured, and some round numbers of speeds.
fn draw_axes(root: &Area<'_>, chart: &mut Chart<'_, '_>, panel: &Panel) -> anyhow::Result<()> {
    let (x_range, y_range) = (chart.x_range(), chart.y_range());
    for size in panel.measured_sizes() {
        let x = (size as f64).log2();
        chart.draw_series([PathElement::new([(x, y_range.start), (x, y_range.end)], GRID)]).map_err(failed)?;
        let (x, y) = chart.backend_coord(&(x, y_range.start));
        write(root, &size.to_string(), (x, y + 12), INK, HPos::Center)?;
    }
    for speed in round_numbers(y_range.start, y_range.end) {
        let y = speed.log10();
        chart.draw_series([PathElement::new([(x_range.start, y), (x_range.end, y)], GRID)]).map_err(failed)?;
        let (x, y) = chart.backend_coord(&(x_range.start, y));
        write(root, &short(speed), (x - 8, y), INK, HPos::Right)?;
    }
    let (x, y) = chart.backend_coord(&(f64::midpoint(x_range.start, x_range.end), y_range.start));
    write(root, panel.sizes, (x, y + 32), INK, HPos::Center)
}

/// Dots and what joins them; a faint line leads from the last one to the name.
fn draw_line(chart: &mut Chart<'_, '_>, line: &Line) -> anyhow::Result<()> {
    let Line { colour, width, .. } = *line;
    let Some((x, y)) = line.points().last() else { return Ok(()) };
    let leader = [(x, y), (chart.x_range().end, y)];
    chart.draw_series(LineSeries::new(leader, colour.mix(0.25))).map_err(failed)?;
    let dots = line.points().map(|point| Circle::new(point, 2 + width, colour.filled()));
    chart.draw_series(dots).map_err(failed)?;
    chart.draw_series(LineSeries::new(line.points(), colour.stroke_width(width))).map_err(failed)?;
    Ok(())
}

fn draw_names(root: &Area<'_>, chart: &Chart<'_, '_>, panel: &Panel) -> anyhow::Result<()> {
    let name = |line: &Line| {
        let ((_, speed), (_, y)) = (*line.speeds.last()?, line.points().last()?);
        let (x, y) = chart.backend_coord(&(chart.x_range().end, y));
        Some((x + 8, y, format!("{} {}", short(speed), line.name), line.colour))
    };
    let mut names: Vec<(i32, i32, String, RGBColor)> = panel.lines.iter().filter_map(name).collect();
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

/// Two or three digits: `950`, `1.2k`, `31k`, `1.2M`.
fn short(value: f64) -> String {
    match value {
        value if value < 9.95 => format!("{value:.1}"),
        value if value < 999.5 => format!("{value:.0}"),
        value if value < 9950.0 => format!("{:.1}k", value / 1e3),
        value if value < 999.5e3 => format!("{:.0}k", value / 1e3),
        value if value < 99.5e6 => format!("{:.1}M", value / 1e6),
        value => format!("{:.0}M", value / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_numbers_are_one_two_and_five_of_each_decade() {
        assert_eq!(round_numbers(1.2, 3.1).map(short).collect::<Vec<_>>(), ["20", "50", "100", "200", "500", "1.0k"]);
    }

    #[test]
    fn labels_are_short() {
        let labels = [2.34, 950.4, 1234.0, 31_204.0, 951_000.0, 1_234_567.0].map(short);
        assert_eq!(labels, ["2.3", "950", "1.2k", "31k", "951k", "1.2M"]);
    }

    #[test]
    fn a_picture_without_panels_or_speeds_is_drawn_too() {
        let folder = tempfile::tempdir().unwrap();
        let line = Line { name: "nothing".to_owned(), colour: COLOURS[0], width: 1, speeds: Vec::new() };
        let panel = Panel { title: "empty".to_owned(), sizes: "size", lines: vec![line] };
        for panels in [vec![], vec![panel]] {
            draw(&folder.path().join("plot.svg"), "Nothing", &panels).unwrap();
        }
    }
}
