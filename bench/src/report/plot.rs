//! The plot of a report as SVG: lines over a logarithmic size, or bars.

use std::fmt::Write as _;

use super::table::in_unit;
use super::{Plot, Report, Row, Unit};

/// Width of a panel, and height of a panel with lines, in pixels.
const PANEL: (f64, f64) = (600.0, 370.0);
/// Number of panels side by side.
const COLUMNS: usize = 2;
/// Height reserved for the title of the plot.
const TITLE_HEIGHT: f64 = 44.0;
/// Margins around the lines of a panel: left, top, right, bottom.
const MARGINS: [f64; 4] = [64.0, 40.0, 190.0, 56.0];
/// Height of a text line, and of a bar.
const LINE_HEIGHT: f64 = 17.0;
/// Colours that colour-blind readers can distinguish (after Okabe and Ito).
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#a0508c", "#b08a00", "#56a0c8"];
/// Colour of text.
const INK: &str = "#3c3c3c";
/// Colour of grid lines.
const GRID: &str = "#e8e8e8";

/// One part of a plot.
struct Panel<'a> {
    title: String,
    /// Unit of every value.
    unit: Unit,
    x: Option<&'a str>,
    /// Series by name: values by size (lines), or one value (bars, at size 0).
    series: Vec<(String, Vec<(f64, f64)>)>,
}

impl Report {
    /// Returns the plot as SVG; `None` if there is nothing to plot.
    #[must_use]
    pub fn svg(&self) -> Option<String> {
        let panels: Vec<Panel<'_>> = self.plots.iter().flat_map(|plot| panels(self, plot)).collect();
        if panels.is_empty() {
            return None;
        }
        let columns = panels.len().min(COLUMNS);
        let (mut body, mut top) = (String::new(), TITLE_HEIGHT);
        for row in panels.chunks(columns) {
            for (column, panel) in row.iter().enumerate() {
                body +=
                    &format!("<g transform=\"translate({},{top})\">\n{}</g>\n", column as f64 * PANEL.0, panel.draw());
            }
            top += row.iter().map(Panel::height).fold(0.0, f64::max);
        }
        let (width, title) = (columns as f64 * PANEL.0, text((12.0, 28.0), INK, 20, "start", &self.title));
        Some(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{top}\" viewBox=\"0 0 {width} {top}\" \
             font-family=\"sans-serif\">\n<rect width=\"{width}\" height=\"{top}\" fill=\"white\"/>\n{title}{body}</svg>\n"
        ))
    }
}

fn panels<'a>(report: &'a Report, plot: &'a Plot) -> Vec<Panel<'a>> {
    let mut panels: Vec<Panel<'a>> = Vec::new();
    let is_plotted = |row: &&Row| row.section == plot.section && row.metric == plot.metric;
    for row in report.rows.iter().filter(is_plotted) {
        let Some(value) = row.value.filter(|value| *value > 0.0 || plot.x.is_none()) else { continue };
        let size = match &plot.x {
            Some(x) => match row.dimensions.get(x).and_then(|size| size.parse::<f64>().ok()) {
                Some(size) if size > 0.0 => size,
                _ => continue,
            },
            None => 0.0,
        };
        let part = plot.panel.as_deref().and_then(|panel| row.dimensions.get(panel));
        let title = format!("{}: {}", part.unwrap_or(&plot.section), plot.metric);
        let is_named = |name: &str| Some(name) != plot.x.as_deref() && Some(name) != plot.panel.as_deref();
        let name: Vec<&str> =
            row.dimensions.iter().filter(|(name, _)| is_named(name)).map(|(_, value)| value).collect();
        let panel = entry(
            &mut panels,
            |panel| panel.title == title,
            || Panel { title: title.clone(), unit: row.unit, x: plot.x.as_deref(), series: Vec::new() },
        );
        let name = name.join(", ");
        entry(&mut panel.series, |(other, _)| *other == name, || (name.clone(), Vec::new())).1.push((size, value));
    }
    for (_, points) in panels.iter_mut().flat_map(|panel| &mut panel.series) {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    panels
}

/// Returns the first element that fits, or appends a new one.
fn entry<T>(all: &mut Vec<T>, fits: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> &mut T {
    let at = all.iter().position(fits).unwrap_or_else(|| {
        all.push(new());
        all.len() - 1
    });
    &mut all[at]
}

impl Panel<'_> {
    fn height(&self) -> f64 {
        match self.x {
            Some(_) => PANEL.1,
            None => MARGINS[1] + LINE_HEIGHT * (self.series.len() as f64 + 1.0),
        }
    }

    fn draw(&self) -> String {
        let title = text((12.0, 22.0), INK, 16, "start", &self.title);
        title + &if self.x.is_some() { self.lines() } else { self.bars() }
    }

    fn bars(&self) -> String {
        let most = self.series.iter().flat_map(|(_, points)| points).map(|(_, value)| *value).fold(0.0, f64::max);
        let (left, room) = (0.42 * PANEL.0, 0.4 * PANEL.0);
        let mut svg = String::new();
        for (index, (name, points)) in self.series.iter().enumerate() {
            let Some((_, value)) = points.first() else { continue };
            let (y, width) =
                (MARGINS[1] + LINE_HEIGHT * index as f64, room * (value / most.max(f64::MIN_POSITIVE)).max(0.0));
            let height = LINE_HEIGHT - 4.0;
            let _ = writeln!(
                svg,
                "<rect x=\"{left}\" y=\"{y}\" width=\"{width:.1}\" height=\"{height}\" fill=\"{}\"/>",
                COLOURS[0]
            );
            svg += &text((left - 6.0, y + 11.0), INK, 12, "end", name);
            svg += &text((left + width + 6.0, y + 11.0), INK, 12, "start", &in_unit(*value, self.unit));
        }
        svg
    }

    fn lines(&self) -> String {
        let [left, top, right, bottom] = MARGINS;
        let (right, bottom) = (PANEL.0 - right, PANEL.1 - bottom);
        let points = || self.series.iter().flat_map(|(_, points)| points);
        let (first, last) = ends(points().map(|(size, _)| size.log2()));
        let (low, high) = ends(points().map(|(_, value)| value.log10()));
        let (last, low, high) = (last.max(first + 1.0), low - 0.1, high + 0.1);
        let x = |size: f64| left + (right - left) * (size.log2() - first) / (last - first);
        let y = |value: f64| bottom - (bottom - top) * (value.log10() - low) / (high - low);
        let mut svg = String::new();
        let mut sizes: Vec<f64> = points().map(|(size, _)| *size).collect();
        sizes.sort_by(f64::total_cmp);
        sizes.dedup();
        for size in sizes {
            svg += &path(&[(x(size), top), (x(size), bottom)], GRID, 1);
            svg += &text((x(size), bottom + 16.0), INK, 12, "middle", &size.to_string());
        }
        for value in round_numbers(low, high) {
            svg += &path(&[(left, y(value)), (right, y(value))], GRID, 1);
            svg += &text((left - 6.0, y(value) + 4.0), INK, 12, "end", &in_unit(value, self.unit));
        }
        svg += &text((f64::midpoint(left, right), bottom + 38.0), INK, 13, "middle", self.x.unwrap_or_default());
        // The legend follows the order of the right ends of the lines.
        let mut legend: Vec<(f64, usize)> = Vec::new();
        for (index, (_, points)) in self.series.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let line: Vec<(f64, f64)> = points.iter().map(|(size, value)| (x(*size), y(*value))).collect();
            svg += &path(&line, colour, 2);
            for (x, y) in line {
                let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
            }
            legend.extend(points.last().map(|(_, value)| (*value, index)));
        }
        legend.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (line, (value, index)) in legend.into_iter().enumerate() {
            let (name, colour) = (&self.series[index].0, COLOURS[index % COLOURS.len()]);
            let at = (right + 10.0, top + 10.0 + LINE_HEIGHT * line as f64);
            svg += &text(at, colour, 12, "start", &format!("{} {name}", in_unit(value, self.unit)));
        }
        svg
    }
}

fn text((x, y): (f64, f64), colour: &str, size: u32, anchor: &str, text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{colour}\" font-size=\"{size}\" text-anchor=\"{anchor}\">{text}</text>\n"
    )
}

fn path(points: &[(f64, f64)], colour: &str, width: u32) -> String {
    let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    format!("<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"/>\n", points.join(" "))
}

/// Returns the minimum and the maximum; 0 and 1 without values.
fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let ends = values.fold(None, |ends, value| {
        let (low, high) = ends.unwrap_or((value, value));
        Some((f64::min(low, value), f64::max(high, value)))
    });
    ends.unwrap_or((0.0, 1.0))
}

/// Returns one, two and five times every power of ten between the logarithms `low` and `high`.
fn round_numbers(low: f64, high: f64) -> impl Iterator<Item = f64> {
    let decades = low.floor() as i32..=high.ceil() as i32;
    let numbers = decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(decade)));
    numbers.filter(move |number| (low..=high).contains(&number.log10()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    #[test]
    fn round_numbers_are_one_two_and_five_of_each_decade() {
        let numbers: Vec<f64> = round_numbers(1.2, 3.1).map(f64::round).collect();
        assert_eq!(numbers, [20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]);
    }

    #[test]
    fn every_value_of_the_panel_dimension_has_a_panel_and_every_other_set_of_dimensions_a_line() {
        let mut report = report();
        report.plot("alone", "simulations/s", Some("simulations"), Some("game"));
        let svg = report.svg().unwrap();
        for expected in ["hex-9: simulations/s", "connect_four: simulations/s", "2.00 M puct", ">simulations<", ">800<"]
        {
            assert!(svg.contains(expected), "{expected}: {svg}");
        }
    }

    #[test]
    fn without_an_axis_every_row_is_a_bar() {
        let mut report = report();
        report.plot("alone", "bytes per node", None, None);
        let svg = report.svg().unwrap();
        assert_eq!(svg.matches("<rect").count(), 1 + 4, "{svg}");
        assert!(svg.contains("connect_four, puct, 64"), "{svg}");
    }

    #[test]
    fn a_report_without_values_has_no_plot() {
        let mut report = Report { rows: Vec::new(), ..report() };
        report.plot("alone", "simulations/s", None, None);
        assert_eq!(report.svg(), None);
    }

    #[test]
    fn names_cannot_break_the_markup() {
        assert!(text((0.0, 0.0), INK, 12, "start", "<a & b>").contains(">&lt;a &amp; b></text>"));
    }
}
