//! Draws charts as SVG: lines, bands, points and horizontal bars.
//!
//! A [`Figure`] is a title above columns of [`Chart`]s. A chart shows [`Series`] within the ranges of two axes, and the
//! label of each series to the right of the last point. A logarithmic axis is linear in logarithms, with ticks labelled
//! by the numbers themselves. Margins follow from the widths of the labels. Start with [`Figure::svg`].

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::data::float::pretty_print_float;
use plotters::prelude::*;
pub use plotters::style::RGBColor;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// The colours of series, which colour-blind readers can distinguish (after Okabe and Ito).
pub const COLOURS: [RGBColor; 6] =
    [BLUE, ORANGE, GREEN, RGBColor(160, 80, 140), RGBColor(176, 138, 0), RGBColor(86, 160, 200)];
/// Blue, the colour of the main series.
pub const BLUE: RGBColor = RGBColor(0, 114, 178);
/// Orange, the colour of a second series.
pub const ORANGE: RGBColor = RGBColor(213, 94, 0);
/// Green, the colour of a third series.
pub const GREEN: RGBColor = RGBColor(0, 158, 115);
/// Grey, the colour of a series for comparison.
pub const GREY: RGBColor = RGBColor(120, 120, 120);
/// The colour of text.
pub const INK: RGBColor = RGBColor(60, 60, 60);
const GRID: RGBColor = RGBColor(232, 232, 232);
const AXIS: RGBColor = RGBColor(150, 150, 150);

/// Text size of labels. The backend divides text sizes by 1.24 for the size in pixels.
const LABEL: i32 = 17;
/// Distance in pixels between text and the object that the text belongs to.
const GAP: i32 = 8;
/// Minimum distance in pixels between the lines of text to the right of a chart.
const LINE_HEIGHT: i32 = 17;
/// Height in pixels of the title of a figure.
const TITLE_HEIGHT: i32 = 44;
/// Height in pixels of the title of a chart.
const CAPTION_HEIGHT: i32 = 26;
/// Height in pixels below a chart, for the labels and the name of the horizontal axis.
const FOOT_HEIGHT: i32 = 54;
/// Height in pixels of a row of bars.
const ROW_HEIGHT: i32 = 26;
/// Maximum number of ticks at round numbers.
const TICKS_MAX: usize = 8;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Context<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// A picture of several charts.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Title above all charts; empty for none.
    pub title: String,
    /// Columns from left to right, each with charts from top to bottom.
    pub columns: Vec<Vec<Chart>>,
}

/// A diagram with two axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// Title above the chart; empty for none.
    pub title: String,
    /// Width in pixels, with labels.
    pub width: i32,
    /// Height in pixels, with title and labels.
    pub height: i32,
    /// Name of the horizontal axis.
    pub x_name: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// The data of the chart.
    pub series: Vec<Series>,
}

/// The range and the ticks of a linear axis. Values outside the range are drawn at the nearest bound.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// Value at the left or at the bottom.
    pub low: f64,
    /// Value at the right or at the top.
    pub high: f64,
    /// Ticks, each with a grid line.
    pub ticks: Vec<Tick>,
}

/// A labelled value of an axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Tick {
    /// Value on the axis.
    pub at: f64,
    /// Text next to the axis.
    pub label: String,
}

/// Points that are drawn together.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Text to the right of the chart, at the height of the last point; empty for none.
    pub label: String,
    /// Colour of points and label, as in [`COLOURS`].
    pub colour: RGBColor,
    /// The way in which the points are drawn.
    pub style: Style,
    /// Points in the order of drawing.
    pub points: Vec<Point>,
}

/// A point, in units of the axes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Horizontal position.
    pub x: f64,
    /// Vertical position.
    pub y: f64,
}

/// The way in which points are drawn. A chart draws the styles in this order, so that later styles are on top.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Style {
    /// A transparent area; the points are the outline.
    Band,
    /// A horizontal bar from 0 to each point.
    Bar,
    /// A faint line, for the background.
    Faint,
    /// A thin line.
    Thin,
    /// A thick line.
    Thick,
    /// A line with a disc at each point.
    Marked,
    /// A disc at each point.
    Discs,
    /// A circle at each point.
    Circles,
}

/// A row of a chart of bars.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// Text to the left of the bar.
    pub name: String,
    /// Length of the bar, in units of the horizontal axis.
    pub value: f64,
    /// Text to the right of the bar.
    pub label: String,
    /// Bounds of a confidence interval of the value.
    pub interval: Option<[f64; 2]>,
}

impl Figure {
    /// Creates a figure of charts in rows of at most `columns`.
    #[must_use]
    pub fn in_rows(title: String, charts: Vec<Chart>, columns: usize) -> Self {
        let mut dealt = vec![Vec::new(); columns.min(charts.len()).max(1)];
        let count = dealt.len();
        charts.into_iter().enumerate().for_each(|(index, chart)| dealt[index % count].push(chart));
        Self { title, columns: dealt }
    }

    /// Returns the figure as SVG.
    #[must_use]
    pub fn svg(&self) -> String {
        let width: i32 = self.columns.iter().map(|charts| width_max(charts)).sum();
        let heights = self.columns.iter().map(|charts| charts.iter().map(|chart| chart.height).sum::<i32>());
        let height = self.head_height() + heights.max().unwrap_or(0);
        let mut svg = String::new();
        let backend = SVGBackend::with_string(&mut svg, (width.unsigned_abs(), height.unsigned_abs()));
        self.draw(&backend.into_drawing_area()).expect("a string accepts every text");
        svg
    }

    /// Returns the height in pixels of the title, 0 without one.
    fn head_height(&self) -> i32 {
        if self.title.is_empty() { 0 } else { TITLE_HEIGHT }
    }

    fn draw(&self, root: &Area<'_>) -> Drawn {
        root.fill(&WHITE)?;
        let (head, mut rest) = root.split_vertically(self.head_height());
        head.draw_text(&self.title, &text(25, INK, HPos::Left), (12, TITLE_HEIGHT / 2))?;
        for charts in &self.columns {
            let width = width_max(charts);
            let (mut column, others) = rest.split_horizontally(width);
            rest = others;
            let ticks = charts.iter().flat_map(|chart| &chart.y.ticks).map(|tick| &tick.label);
            let labels = charts.iter().flat_map(|chart| &chart.series).map(|series| &series.label);
            // All charts of a column have the same margins, and long labels leave space for the points.
            let margins = [label_width_max(ticks), label_width_max(labels)];
            let margins = margins.map(|label| label.min(2 * width / 5) + 2 * GAP);
            for chart in charts {
                let (area, below) = column.split_vertically(chart.height);
                column = below;
                chart.draw(&area, margins)?;
            }
        }
        root.present()
    }
}

fn width_max(charts: &[Chart]) -> i32 {
    charts.iter().map(|chart| chart.width).max().unwrap_or(0)
}

/// Returns the height in pixels of a chart's title, 0 without one.
fn caption_height(title: &str) -> i32 {
    if title.is_empty() { 0 } else { CAPTION_HEIGHT }
}

/// Returns the estimated width of the widest label in pixels, which is at least the width of a short tick label.
fn label_width_max<'a>(labels: impl Iterator<Item = &'a String>) -> i32 {
    let font = ("sans-serif", LABEL).into_font();
    let width = |label: &String| font.layout_box(label).map_or(0, |(_, (width, _))| width);
    labels.map(width).fold(2 * GAP, i32::max)
}

fn text(size: i32, colour: RGBColor, side: HPos) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&colour).pos(Pos::new(side, VPos::Center))
}

impl Axis {
    /// Creates an axis from `low` to `high` with ticks at round numbers. Extends a range that is empty or too short.
    #[must_use]
    pub fn new(low: f64, high: f64) -> Self {
        // The length of an axis is finite, and long enough for ticks that are distinct numbers.
        let [low, high] = [low, high].map(|bound| bound.clamp(-1e100, 1e100));
        let length_min = 1e-9 * low.abs().max(high.abs());
        let high = if high - low > length_min { high } else { low + length_min.max(1.0) };
        let ticks = RangedCoordf64::from(low..high).key_points(TICKS_MAX).into_iter();
        // Rounding may leave a tick next to zero, with the label -0.
        let ticks = ticks.map(|at| if at.abs() < 1e-9 * (high - low) { 0.0 } else { at });
        Self { low, high, ticks: ticks.map(|at| Tick { at, label: pretty_print_float(at, false) }).collect() }
    }

    /// Creates an axis that contains all finite `values`, with a margin of 5 % at both ends.
    #[must_use]
    pub fn around(values: impl IntoIterator<Item = f64>) -> Self {
        let values = values.into_iter().filter(|value| value.is_finite());
        let (low, high) =
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (value.min(low), value.max(high)));
        if low > high {
            return Self::new(0.0, 1.0);
        }
        let margin = if low < high { (high - low) / 20.0 } else { 0.5 };
        Self::new(low - margin, high + margin)
    }

    /// Creates an axis of the decimal logarithms of positive `values`, with ticks at one, two and five times every
    /// power of ten. `label` formats these numbers.
    #[must_use]
    pub fn logarithmic(values: impl IntoIterator<Item = f64>, label: impl Fn(f64) -> String) -> Self {
        let Self { low, high, .. } = Self::around(values.into_iter().map(f64::log10));
        let decades = low.floor() as i32..=high.ceil() as i32;
        let numbers = decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(decade)));
        let inside = numbers.filter(|number| (low..=high).contains(&number.log10()));
        Self { low, high, ticks: inside.map(|number| Tick { at: number.log10(), label: label(number) }).collect() }
    }

    /// Replaces the labels of all ticks.
    #[must_use]
    pub fn labelled(mut self, label: impl Fn(f64) -> String) -> Self {
        self.ticks.iter_mut().for_each(|tick| tick.label = label(tick.at));
        self
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, pixels: (i32, i32)) -> i32 {
        RangedCoordf64::from(self.range()).map(&value.clamp(self.low, self.high), pixels)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // Light points are grid lines between ticks.
        let is_light = hint.weight().allow_light_points();
        self.ticks.iter().filter(|_| !is_light).map(|tick| tick.at).collect()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        self.ticks.iter().find(|tick| tick.at == *value).map(|tick| tick.label.clone()).unwrap_or_default()
    }
}

impl Chart {
    /// Creates a chart of horizontal bars from top to bottom, with the height of the bars.
    #[must_use]
    pub fn of_bars(title: String, width: i32, x_name: &str, x: Axis, bars: Vec<Bar>) -> Self {
        let caption = caption_height(&title);
        let rows: i32 = bars.iter().map(|_| ROW_HEIGHT).sum();
        let height = GAP + caption + rows + FOOT_HEIGHT;
        let count = bars.len() as f64;
        let (mut ticks, mut series) = (Vec::new(), Vec::new());
        for (row, Bar { name, value, label, interval }) in bars.into_iter().enumerate() {
            let y = count - row as f64 - 0.5;
            ticks.push(Tick { at: y, label: name });
            series.push(Series { label, colour: BLUE, style: Style::Bar, points: vec![Point { x: value, y }] });
            series.extend(interval.map(|bounds| {
                let points = bounds.map(|x| Point { x, y }).to_vec();
                Series { label: String::new(), colour: INK, style: Style::Marked, points }
            }));
        }
        let y = Axis { low: 0.0, high: count.max(1.0), ticks };
        Self { title, width, height, x_name: x_name.to_owned(), x, y, series }
    }

    fn draw(&self, area: &Area<'_>, [left, right]: [i32; 2]) -> Drawn {
        let label = text(LABEL, INK, HPos::Center);
        let mut builder = ChartBuilder::on(area);
        let caption = caption_height(&self.title);
        builder.margin_top(GAP + caption).margin_right(right).x_label_area_size(FOOT_HEIGHT).y_label_area_size(left);
        // A centred title may be wider than the points below it.
        area.draw_text(&self.title, &text(20, INK, HPos::Left), (GAP, GAP + caption / 2))?;
        let mut chart = builder.build_cartesian_2d(self.x.clone(), self.y.clone())?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(&self.x_name).label_style(label.clone()).bold_line_style(GRID).axis_style(AXIS);
        mesh.set_all_tick_mark_size(GAP / 2).draw()?;
        // Series labels are outside the area of the points, in pixels of the figure.
        let (figure, (across, up)) = (area.use_screen_coord(), chart.plotting_area().get_pixel_range());
        let mut drawn: Vec<&Series> = self.series.iter().filter(|series| !series.points.is_empty()).collect();
        if drawn.is_empty() {
            let middle = (i32::midpoint(across.start, across.end), i32::midpoint(up.start, up.end));
            return figure.draw(&Text::new("not measured", middle, label));
        }
        drawn.sort_by_key(|series| series.style);
        let mut labels: Vec<(i32, &Series)> = Vec::new();
        for series in drawn {
            series.draw(&mut chart)?;
            let last = series.points.last().filter(|_| !series.label.is_empty());
            labels.extend(last.map(|last| (chart.backend_coord(&(last.x, last.y)).1, series)));
        }
        labels.sort_by_key(|(y, _)| *y);
        let heights = moved_apart(labels.iter().map(|(y, _)| *y), up.start, up.end);
        for ((_, series), y) in labels.into_iter().zip(heights) {
            let style = text(LABEL, series.colour, HPos::Left);
            figure.draw(&Text::new(series.label.as_str(), (across.end + GAP, y), style))?;
        }
        Ok(())
    }
}

impl Series {
    fn draw(&self, chart: &mut Context<'_, '_>) -> Drawn {
        let colour = self.colour;
        let points: Vec<(f64, f64)> = self.points.iter().map(|&Point { x, y }| (x, y)).collect();
        let drawn = match self.style {
            Style::Band => chart.draw_series([Polygon::new(points, colour.mix(0.13))]),
            Style::Bar => chart.draw_series(points.into_iter().map(|(x, y)| {
                // A row has the height 1.
                Rectangle::new([(0.0, y - 0.3), (x, y + 0.3)], colour.mix(0.6).filled())
            })),
            Style::Faint => chart.draw_series(LineSeries::new(points, colour.mix(0.3))),
            Style::Thin => chart.draw_series(LineSeries::new(points, colour.mix(0.75))),
            Style::Thick => chart.draw_series(LineSeries::new(points, colour.stroke_width(3))),
            Style::Marked => chart.draw_series(LineSeries::new(points, colour.stroke_width(2).filled()).point_size(3)),
            Style::Discs => chart.draw_series(points.into_iter().map(|at| Circle::new(at, 4, colour.filled()))),
            Style::Circles => chart.draw_series(points.into_iter().map(|at| Circle::new(at, 4, colour))),
        };
        drawn.map(|_| ())
    }
}

/// Moves sorted heights at least [`LINE_HEIGHT`] apart, and between `top` and `bottom` if there is enough space.
fn moved_apart(heights: impl Iterator<Item = i32>, top: i32, bottom: i32) -> Vec<i32> {
    let mut moved: Vec<i32> = heights.collect();
    let mut free = top;
    for height in &mut moved {
        *height = (*height).max(free);
        free = *height + LINE_HEIGHT;
    }
    let mut free = bottom;
    for height in moved.iter_mut().rev() {
        *height = (*height).min(free);
        free = *height - LINE_HEIGHT;
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(series: Vec<Series>) -> Chart {
        let axis = Axis::new(0.0, 10.0);
        let [title, x_name] = ["chart", "steps"].map(str::to_owned);
        Chart { title, width: 400, height: 300, x_name, x: axis.clone(), y: axis, series }
    }

    fn series(label: &str, style: Style, points: &[[f64; 2]]) -> Series {
        let points = points.iter().map(|&[x, y]| Point { x, y }).collect();
        Series { label: label.to_owned(), colour: BLUE, style, points }
    }

    fn svg(series: Vec<Series>) -> String {
        Figure { title: "title".to_owned(), columns: vec![vec![chart(series)]] }.svg()
    }

    /// Returns the number in an attribute of each element with the tag `tag`.
    fn numbers(svg: &str, tag: &str, attribute: &str) -> Vec<i32> {
        let [start, name] = [format!("<{tag} "), format!(" {attribute}=\"")];
        let number = |line: &str| line.split_once(&name)?.1.split('"').next()?.parse::<i32>().ok();
        svg.lines().filter(|line| line.starts_with(&start)).filter_map(number).collect()
    }

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_numbers_inside_the_range_with_labels_that_are_the_numbers() {
        assert_eq!(labels(&Axis::new(0.0, 10.0)), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!(labels(&Axis::new(-0.5, 0.5)), ["-0.4", "-0.2", "0", "0.2", "0.4"]);
        for [low, high] in [[-0.03, 0.05], [0.0, 6.9], [0.0, 1e6], [-1234.5, 987.6], [3.0, 3.0]] {
            let Axis { high, ticks, .. } = Axis::new(low, high);
            let margin = (high - low) * 1e-9;
            assert!((3..=TICKS_MAX).contains(&ticks.len()), "{ticks:?}");
            for Tick { at, label } in &ticks {
                assert!((low - margin..=high + margin).contains(at), "{at} in {low} to {high}");
                assert!((label.parse::<f64>().unwrap() - at).abs() < margin && label.len() <= 7, "{at}: {label}");
            }
        }
    }

    #[test]
    fn an_axis_contains_all_finite_values_with_a_margin() {
        let Axis { low, high, .. } = Axis::around([3.0, f64::NAN, 1.0, f64::INFINITY, 2.0]);
        assert!((low - 0.9).abs() < 1e-12 && (high - 3.1).abs() < 1e-12, "{low} to {high}");
        assert_eq!(Axis::around([]), Axis::new(0.0, 1.0));
        assert_eq!(Axis::around([4.0]), Axis::new(3.5, 4.5));
        for extremes in [[f64::MIN, f64::MAX], [1e300, 1e300], [0.0, f64::MIN_POSITIVE]] {
            let Axis { low, high, ticks } = Axis::around(extremes);
            assert!(low < high && high.is_finite() && ticks.len() <= TICKS_MAX, "{extremes:?}");
        }
    }

    #[test]
    fn ticks_of_a_logarithmic_axis_are_one_two_and_five_of_each_decade() {
        let axis = Axis::logarithmic([20.0, 1000.0], |number| format!("{number:.0}"));
        assert_eq!(labels(&axis), ["20", "50", "100", "200", "500", "1000"]);
        assert!(axis.ticks.iter().all(|tick| (axis.low..=axis.high).contains(&tick.at)), "{axis:?}");
    }

    #[test]
    fn every_tick_has_a_label_and_a_grid_line() {
        let svg = svg(Vec::new());
        for label in ["0", "2", "4", "6", "8", "10"] {
            assert_eq!(svg.matches(&format!(">\n{label}\n<")).count(), 2, "{label}: {svg}");
        }
        assert_eq!(svg.matches("<line ").count(), 2 * 6, "{svg}");
        assert!(["title", "chart", "steps"].iter().all(|text| svg.contains(&format!(">\n{text}\n<"))), "{svg}");
    }

    #[test]
    fn points_are_placed_by_the_axes_and_clamped_to_the_range() {
        let svg = svg(vec![series("", Style::Discs, &[[0.0, 0.0], [10.0, 10.0], [5.0, 5.0], [99.0, -99.0]])]);
        let [x, y] = ["cx", "cy"].map(|name| numbers(&svg, "circle", name));
        assert!((2 * x[2] - x[0] - x[1]).abs() <= 2 && (2 * y[2] - y[0] - y[1]).abs() <= 2, "{x:?} {y:?}");
        assert!(0 < x[0] && x[0] + 100 < x[1] && x[1] < 400, "{x:?}");
        assert!(TITLE_HEIGHT < y[1] && y[1] + 100 < y[0] && y[0] < TITLE_HEIGHT + 300, "{y:?}");
        assert_eq!((x[3], y[3]), (x[1], y[0]), "{svg}");
    }

    #[test]
    fn labels_stand_apart_to_the_right_in_the_order_of_the_last_points() {
        let lines = [("low", 5.0), ("high", 5.2), ("bottom", 0.0)];
        let svg = svg(lines.map(|(label, last)| series(label, Style::Thick, &[[0.0, 1.0], [10.0, last]])).into());
        // Only labels of series have the colour of the series.
        let blue: Vec<&str> = svg.split("<text ").filter(|text| text.contains("fill=\"#0072B2\">")).collect();
        let order = ["\nhigh\n", "\nlow\n", "\nbottom\n"];
        assert!(blue.len() == 3 && blue.iter().zip(order).all(|(text, label)| text.contains(label)), "{blue:?}");
        let y = numbers(&blue.iter().map(|text| format!("<text {text}")).collect::<String>(), "text", "y");
        assert!(y[1] - y[0] >= LINE_HEIGHT && y[2] - y[1] >= LINE_HEIGHT, "{y:?}");
    }

    #[test]
    fn heights_are_moved_apart_and_stay_inside() {
        assert_eq!(moved_apart([0, 5, 90, 100].into_iter(), 0, 100), [0, 17, 83, 100]);
        assert!(moved_apart(std::iter::empty(), 0, 100).is_empty());
    }

    #[test]
    fn later_styles_are_drawn_on_top_of_bands_and_faint_lines() {
        let styles = [Style::Circles, Style::Thick, Style::Faint, Style::Band];
        let svg = svg(styles.map(|style| series("", style, &[[1.0, 1.0], [2.0, 2.0]])).into());
        let places = ["<polygon", "opacity=\"0.3\"", "stroke-width=\"3\"", "<circle"].map(|part| svg.find(part));
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}: {svg}");
    }

    #[test]
    fn a_chart_without_points_is_marked() {
        assert!(svg(vec![series("name", Style::Thick, &[])]).contains("not measured"));
        assert!(!svg(vec![series("name", Style::Thick, &[[1.0, 1.0]])]).contains("not measured"));
    }

    #[test]
    fn bars_start_at_zero_below_each_other_with_names_values_and_intervals() {
        let bar = |name: &str, value: f64, interval| {
            let (name, label) = (name.to_owned(), format!("{value:+}"));
            Bar { name, value, label, interval }
        };
        let bars = vec![bar("up", 10.0, Some([5.0, 15.0])), bar("down", -20.0, None)];
        let chart = Chart::of_bars(String::new(), 500, "Elo", Axis::around([-20.0, 15.0]), bars);
        let svg = Figure::in_rows(String::new(), vec![chart], 2).svg();
        // The first rectangle is the background.
        let [x, y, width] = ["x", "y", "width"].map(|name| numbers(&svg, "rect", name)[1..].to_vec());
        assert!(x[0] == x[1] + width[1] && (width[1] - 2 * width[0]).abs() <= 2, "{svg}");
        assert!((y[1] - y[0] - ROW_HEIGHT).abs() <= 1, "{y:?}");
        for part in ["up", "down", "+10", "-20", "Elo"] {
            assert!(svg.contains(&format!(">\n{part}\n<")), "{part}: {svg}");
        }
        assert_eq!(svg.matches("stroke-width=\"2\"").count(), 3, "a line with a disc at each end: {svg}");
    }

    #[test]
    fn charts_fill_rows_and_long_labels_leave_space_for_the_points() {
        let long = series(&"x".repeat(200), Style::Discs, &[[0.0, 0.0], [10.0, 10.0]]);
        let svg = Figure::in_rows("title".to_owned(), vec![chart(vec![long]); 3], 2).svg();
        assert!(svg.starts_with("<svg width=\"800\" height=\"644\""), "{svg}");
        let [x, y] = ["cx", "cy"].map(|name| numbers(&svg, "circle", name));
        // The first column has the first and the third chart.
        assert!(x[1] - x[0] > 100 && x[0] == x[2] && x[4] == x[0] + 400, "{x:?}");
        assert!(y[2] == y[0] + 300 && y[4] == y[0], "{y:?}");
    }
}
