//! The plots of a report as SVG: lines over a logarithmic size, or bars.

use figures::plot::{Axis, Bar, COLOURS, Chart, Figure, Point, Series, Style, Tick};

use crate::report::{Plot, Report, Row};
use crate::units::{Unit, in_unit};

/// Width of a chart in pixels.
const WIDTH: i32 = 640;
/// Height of a chart with lines in pixels.
const HEIGHT: i32 = 370;
/// Maximum number of charts side by side.
const COLUMNS: usize = 2;

/// The values of one chart.
struct Panel<'a> {
    title: String,
    /// Unit of every value.
    unit: Unit,
    x: Option<&'a str>,
    /// Series by name: values by size (lines), or one value (bars, at size 0).
    series: Vec<(String, Vec<Point>)>,
}

impl Report {
    /// Returns the plot as SVG; `None` if there is nothing to plot.
    #[must_use]
    pub fn svg(&self) -> Option<String> {
        let panels = self.plots.iter().flat_map(|plot| panels(self, plot));
        let charts: Vec<Chart> = panels.map(Panel::chart).collect();
        (!charts.is_empty()).then(|| Figure::in_rows(self.title.clone(), charts, COLUMNS).svg())
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
        let (_, points) = entry(&mut panel.series, |(other, _)| *other == name, || (name.clone(), Vec::new()));
        points.push(Point { x: size, y: value });
    }
    for (_, points) in panels.iter_mut().flat_map(|panel| &mut panel.series) {
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
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
    fn chart(self) -> Chart {
        if self.x.is_some() { self.lines() } else { self.bars() }
    }

    fn bars(self) -> Chart {
        let Self { title, unit, series, .. } = self;
        let values = series.iter().flat_map(|(_, points)| points).map(|point| point.y);
        let axis = Axis::around(values.chain([0.0])).labelled(|value| in_unit(value, unit));
        let bar = |(name, points): (String, Vec<Point>)| {
            let value = points.first()?.y;
            Some(Bar { name, value, label: in_unit(value, unit), interval: None })
        };
        Chart::of_bars(title, WIDTH, "", axis, series.into_iter().filter_map(bar).collect())
    }

    fn lines(self) -> Chart {
        let Self { title, unit, x, series } = self;
        let points = || series.iter().flat_map(|(_, points)| points);
        let mut sizes: Vec<f64> = points().map(|point| point.x).collect();
        sizes.sort_by(f64::total_cmp);
        sizes.dedup();
        let ticks = sizes.iter().map(|size| Tick { at: size.log2(), label: size.to_string() });
        let [first, last] = [sizes.first(), sizes.last()].map(|size| size.map_or(0.0, |size| size.log2()));
        let across = Axis { low: first, high: last.max(first + 1.0), ticks: ticks.collect() };
        let up = Axis::logarithmic(points().map(|point| point.y), |value| in_unit(value, unit));
        let line = |((name, points), colour): (&(String, Vec<Point>), _)| Series {
            label: points.last().map(|last| format!("{} {name}", in_unit(last.y, unit))).unwrap_or_default(),
            colour,
            style: Style::Marked,
            points: points.iter().map(|&Point { x, y }| Point { x: x.log2(), y: y.log10() }).collect(),
        };
        let series = series.iter().zip(COLOURS.into_iter().cycle()).map(line).collect();
        let x_name = x.unwrap_or_default().to_owned();
        Chart { title, width: WIDTH, height: HEIGHT, x_name, x: across, y: up, series }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    #[test]
    fn every_value_of_the_panel_dimension_has_a_panel_and_every_other_set_of_dimensions_a_line() {
        let mut report = report();
        report.plot("alone", "simulations/s", Some("simulations"), Some("game"));
        let svg = report.svg().unwrap();
        let titles = ["hex-9: simulations/s", "connect_four: simulations/s"];
        for expected in titles.into_iter().chain(["2.00 M puct", "\nsimulations\n", "\n800\n"]) {
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
}
