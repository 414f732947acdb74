//! Plots the metrics of a run over time: accuracy and value error on solved positions, training and validation losses,
//! and Elo. In games with rewards: mean return, losses and episode length.

use std::path::Path;

use anyhow::Context;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use run_metrics::RunMetrics;

use crate::screen::number;

/// Width and height of the picture in pixels. The text stays readable at two thirds of this size, as in a README.
const SIZE: (u32, u32) = (1200, 680);
/// Width in pixels of the left panel, which shows the strength and is the largest panel.
const LEFT_WIDTH: u32 = 640;
/// Height in pixels of the accuracy panel, which is above the panel of value errors.
const ACCURACY_HEIGHT: u32 = 420;
/// Width in pixels reserved for the labels to the right of the lines.
const NAMES_WIDTH: u32 = 128;
/// Readings before and after each reading in the moving average of losses: losses of single batches are noisy.
const SMOOTHED_READINGS: usize = 4;
/// Colours that colour-blind readers can distinguish (Okabe and Ito).
pub(crate) const BLUE: RGBColor = RGBColor(0, 114, 178);
pub(crate) const ORANGE: RGBColor = RGBColor(213, 94, 0);
const GREEN: RGBColor = RGBColor(0, 158, 115);
const OPPONENTS: [RGBColor; 4] =
    [RGBColor(120, 120, 120), RGBColor(204, 121, 167), RGBColor(200, 140, 0), RGBColor(86, 150, 200)];

pub(crate) const INK: RGBColor = RGBColor(60, 60, 60);
pub(crate) const GRID: RGBColor = RGBColor(232, 232, 232);
/// Minimum distance in pixels between labels.
const NAME_HEIGHT: i32 = 17;

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// The line style in a panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weight {
    /// A thick main line, with a label to the right.
    Main,
    /// A thin line, with a label to the right.
    Side,
    /// A line in the background, without a label.
    Faint,
}

/// A line of a panel. Each point is a time in minutes with a value.
struct Line {
    name: String,
    colour: RGBColor,
    weight: Weight,
    points: Vec<(f64, f64)>,
}

/// The bounds of a confidence interval at a time in minutes.
#[derive(Clone, Copy)]
struct Interval {
    minutes: f64,
    low: f64,
    high: f64,
}

/// A plot of several lines over time.
struct Panel<'a> {
    caption: &'a str,
    /// Fixed range of the vertical axis; `None` derives the range from the lines.
    range: Option<(f64, f64)>,
    lines: Vec<Line>,
    /// Confidence interval of the first line.
    interval: Vec<Interval>,
    /// Formats the last value for the label of a line.
    value: fn(f64) -> String,
}

/// Plots the metrics of a run to the SVG file `path`.
pub(crate) fn draw(path: &Path, title: &str, readings: &[RunMetrics]) -> anyhow::Result<()> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    let drawn = draw_panels(&area, title, readings).and_then(|()| Ok(area.present()?));
    drawn.with_context(|| format!("draw {}", path.display()))
}

fn draw_panels(root: &Area<'_>, title: &str, readings: &[RunMetrics]) -> anyhow::Result<()> {
    root.fill(&WHITE)?;
    let area = root.margin(6, 2, 8, 4).titled(title, ("sans-serif", 24).into_font().color(&INK))?;
    let (left, right) = area.split_horizontally(LEFT_WIDTH);
    let minutes = readings.last().map_or(0.0, |last| last.elapsed_seconds / 60.0).max(0.1);
    let (strength, below) = if readings.iter().any(RunMetrics::has_returns) {
        (returns(readings), Some(lengths(readings)))
    } else if readings.iter().any(|reading| !reading.accuracy.is_empty()) {
        (accuracy(readings), Some(elo(readings)))
    } else {
        // A game without solved positions.
        (elo(readings), None)
    };
    let right = right.split_evenly((1 + usize::from(below.is_some()), 1));
    let errors = value_error(readings);
    if errors.lines.iter().all(|line| line.points.is_empty()) {
        strength.draw(root, &left, minutes)?;
    } else {
        let (upper, lower) = left.split_vertically(ACCURACY_HEIGHT);
        strength.draw(root, &upper, minutes)?;
        errors.draw(root, &lower, minutes)?;
    }
    losses(readings).draw(root, &right[0], minutes)?;
    below.map_or(Ok(()), |below| below.draw(root, &right[1], minutes))
}

fn returns(readings: &[RunMetrics]) -> Panel<'static> {
    let line = |name: &str, colour, weight, value: fn(&RunMetrics) -> Option<f64>| Line {
        name: name.to_owned(),
        colour,
        weight,
        points: measured(points(readings, value)),
    };
    let lines = vec![
        line("mean", BLUE, Weight::Main, |r| r.return_mean),
        line("random play", OPPONENTS[0], Weight::Side, |r| r.random_return),
    ];
    let interval = intervals(readings, |r| r.return_low, |r| r.return_high);
    let caption = "Return of evaluation episodes with the 95 % interval of the mean";
    Panel { caption, range: None, lines, interval, value: |value| number(Some(value)) }
}

fn lengths(readings: &[RunMetrics]) -> Panel<'static> {
    let points = measured(points(readings, |r| r.episode_length));
    let lines = vec![Line { name: "steps".to_owned(), colour: BLUE, weight: Weight::Main, points }];
    let caption = "Steps of an evaluation episode";
    Panel { caption, range: None, lines, interval: Vec::new(), value: |value| number(Some(value)) }
}

/// Returns the plotted series of a measure, an average over all solved positions multiplied by `scale`.
fn solved(readings: &[RunMetrics], name: &str, weight: Weight, [search, measure]: [&str; 2], scale: f64) -> Line {
    let points = measured(points(readings, |r| r.accuracy_of(search, measure).map(|value| scale * value)));
    Line { name: name.to_owned(), colour: if search == "raw" { ORANGE } else { BLUE }, weight, points }
}

fn value_error(readings: &[RunMetrics]) -> Panel<'static> {
    let line = |name, search| solved(readings, name, Weight::Main, [search, "value_error"], 1.0);
    let lines = vec![line("with search", "search"), line("raw value", "raw")];
    let caption = "Solved positions: mean distance of the value from the outcome (0 to 2)";
    Panel { caption, range: None, lines, interval: Vec::new(), value: |error| format!("{error:.2}") }
}

fn accuracy(readings: &[RunMetrics]) -> Panel<'static> {
    let line = |name, weight, search, measure| solved(readings, name, weight, [search, measure], 100.0);
    // Share of distinct positions among the samples: with a low share, accuracy soon stops growing.
    let distinct = measured(points(readings, |r| r.distinct.get("overall").map(|share| 100.0 * share)));
    let lines = vec![
        line("with search", Weight::Main, "search", "preserving"),
        line("raw policy", Weight::Main, "raw", "preserving"),
        line("best, search", Weight::Side, "search", "optimal"),
        line("best, raw", Weight::Side, "raw", "optimal"),
        Line { name: "distinct".to_owned(), colour: GREEN, weight: Weight::Side, points: distinct },
    ];
    let caption = "Solved positions: % of moves that keep the outcome (thin: best moves)";
    // The range extends above 100, so that the axis label 100 does not touch the caption.
    Panel { caption, range: Some((0.0, 102.0)), lines, interval: Vec::new(), value: |share| format!("{share:.0} %") }
}

fn losses(readings: &[RunMetrics]) -> Panel<'static> {
    let mut lines = Vec::new();
    let mut part = |name: &str, colour, value: fn(&RunMetrics) -> Option<f64>| {
        let raw = points(readings, value);
        let smooth = smoothed(&raw);
        lines.push(Line { name: name.to_owned(), colour, weight: Weight::Main, points: smooth });
        lines.push(Line { name: String::new(), colour, weight: Weight::Faint, points: raw });
    };
    part("total", INK, |r| r.loss_total);
    part("policy", GREEN, |r| r.loss_policy);
    part("value", ORANGE, |r| r.loss_value);
    if readings.iter().any(|r| r.loss_reward.is_some_and(|loss| loss > 0.0)) {
        part("reward", BLUE, |r| r.loss_reward);
    }
    let mut held_out = |name: &str, colour, value: fn(&RunMetrics) -> Option<f64>| {
        let points = measured(points(readings, value));
        lines.push(Line { name: name.to_owned(), colour, weight: Weight::Side, points });
    };
    held_out("policy, held out", GREEN, |r| r.validation_loss_policy);
    held_out("value, held out", ORANGE, |r| r.validation_loss_value);
    let caption = "Loss (thin: on held-out games)";
    Panel { caption, range: None, lines, interval: Vec::new(), value: |loss| format!("{loss:.2}") }
}

fn elo(readings: &[RunMetrics]) -> Panel<'static> {
    let weights = measured(points(readings, |r| r.elo));
    let mut lines = vec![Line { name: "weights".to_owned(), colour: BLUE, weight: Weight::Main, points: weights }];
    let opponents = readings.last().map(|last| last.opponents.clone()).unwrap_or_default();
    for (name, colour) in opponents.into_keys().zip(OPPONENTS.into_iter().cycle()) {
        let points = measured(points(readings, |r| r.opponents.get(&name).copied()));
        lines.push(Line { name, colour, weight: Weight::Side, points });
    }
    let interval = intervals(readings, |r| r.elo_low, |r| r.elo_high);
    let caption = "Elo with the 95 % interval (random play is 0)";
    Panel { caption, range: None, lines, interval, value: |elo| format!("{elo:.0}") }
}

/// Returns the confidence interval of each measurement that has both bounds.
fn intervals(
    readings: &[RunMetrics],
    low: fn(&RunMetrics) -> Option<f64>,
    high: fn(&RunMetrics) -> Option<f64>,
) -> Vec<Interval> {
    // The two bounds of a measurement are matched by time.
    let lows = measured(points(readings, |r| high(r).and(low(r))));
    let highs = points(readings, |r| low(r).and(high(r)));
    let interval = lows.into_iter().filter_map(|(minutes, low)| {
        let &(_, high) = highs.iter().find(|(then, _)| *then == minutes)?;
        Some(Interval { minutes, low, high })
    });
    interval.collect()
}

impl Panel<'_> {
    /// Draws the panel into `area`, and the labels into `root`, the area of the whole picture.
    fn draw(&self, root: &Area<'_>, area: &Area<'_>, minutes: f64) -> anyhow::Result<()> {
        let (low, high) = self.range.unwrap_or_else(|| self.range_of_lines());
        let mut chart = ChartBuilder::on(area)
            .caption(self.caption, ("sans-serif", 16).into_font().color(&INK))
            .margin(10)
            .margin_right(NAMES_WIDTH)
            .x_label_area_size(40)
            .y_label_area_size(52)
            .build_cartesian_2d(0.0..minutes, low..high)?;
        let label = ("sans-serif", 14).into_font().color(&INK);
        let digits = if high - low < 10.0 { 1 } else { 0 };
        chart
            .configure_mesh()
            .x_desc("minutes")
            .axis_desc_style(label.clone())
            .label_style(label)
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(RGBColor(150, 150, 150))
            .x_labels(8)
            .y_labels(6)
            .x_label_formatter(&|x| if minutes < 5.0 { format!("{x:.1}") } else { format!("{x:.0}") })
            .y_label_formatter(&|y| format!("{y:.digits$}"))
            .draw()?;
        if self.lines.iter().all(|line| line.points.is_empty()) {
            let middle = chart.backend_coord(&(minutes / 2.0, f64::midpoint(low, high)));
            return write(root, "not measured", middle, INK, HPos::Center);
        }
        self.draw_interval(&mut chart, low, high)?;
        // Main lines are drawn last, on top.
        for weight in [Weight::Faint, Weight::Side, Weight::Main] {
            for line in self.lines.iter().filter(|line| line.weight == weight) {
                let style = match weight {
                    Weight::Main => line.colour.stroke_width(3),
                    Weight::Side => line.colour.mix(0.75).stroke_width(1),
                    Weight::Faint => line.colour.mix(0.3).stroke_width(1),
                };
                chart.draw_series(LineSeries::new(line.points.iter().copied(), style))?;
            }
        }
        self.draw_names(root, &chart, minutes)
    }

    /// Draws the confidence interval, clipped to the panel: a bound far outside the lines adds no information.
    fn draw_interval(&self, chart: &mut Chart<'_, '_>, low: f64, high: f64) -> anyhow::Result<()> {
        if self.interval.is_empty() {
            return Ok(());
        }
        let lower = self.interval.iter().map(|i| (i.minutes, i.low.clamp(low, high)));
        let upper = self.interval.iter().rev().map(|i| (i.minutes, i.high.clamp(low, high)));
        let outline: Vec<_> = lower.chain(upper).collect();
        let colour = self.lines.first().map_or(INK, |line| line.colour);
        chart.draw_series([Polygon::new(outline, colour.mix(0.13))])?;
        Ok(())
    }

    fn draw_names(&self, root: &Area<'_>, chart: &Chart<'_, '_>, minutes: f64) -> anyhow::Result<()> {
        let named = self.lines.iter().filter(|line| line.weight != Weight::Faint);
        let mut names: Vec<(i32, String, RGBColor)> = named
            .filter_map(|line| {
                let &(_, last) = line.points.last()?;
                let (_, y) = chart.backend_coord(&(minutes, last));
                Some((y, format!("{} {}", (self.value)(last), line.name), line.colour))
            })
            .collect();
        names.sort_by_key(|(y, ..)| *y);
        let (x, bottom) = chart.backend_coord(&(minutes, chart.y_range().start));
        let (_, top) = chart.backend_coord(&(minutes, chart.y_range().end));
        let heights = moved_apart(&names.iter().map(|(y, ..)| *y).collect::<Vec<_>>(), top, bottom);
        for ((_, name, colour), y) in names.iter().zip(heights) {
            write(root, name, (x + 7, y), *colour, HPos::Left)?;
        }
        Ok(())
    }

    /// Returns the range of the vertical axis: all values and the last confidence interval, with a margin of 5 %.
    /// Without values, a range of length 1.
    fn range_of_lines(&self) -> (f64, f64) {
        let values = self.lines.iter().flat_map(|line| line.points.iter().map(|&(_, value)| value));
        let ends = self.interval.last().into_iter().flat_map(|i| [i.low, i.high]);
        let (mut low, mut high) = (0.0_f64, f64::NEG_INFINITY);
        for value in values.chain(ends) {
            (low, high) = (low.min(value), high.max(value));
        }
        if high <= low {
            return (low, low + 1.0);
        }
        let margin = (high - low) / 20.0;
        (if low < 0.0 { low - margin } else { low }, high + margin)
    }
}

/// Writes a text at the pixel `at` of `root`, the area of the whole picture.
pub(crate) fn write(root: &Area<'_>, text: &str, at: (i32, i32), colour: RGBColor, align: HPos) -> anyhow::Result<()> {
    let style = ("sans-serif", 14).into_font().color(&colour).pos(Pos::new(align, VPos::Center));
    Ok(root.draw(&Text::new(text.to_owned(), at, style))?)
}

fn points(readings: &[RunMetrics], value: impl Fn(&RunMetrics) -> Option<f64>) -> Vec<(f64, f64)> {
    let value = |r: &RunMetrics| value(r).filter(|value| value.is_finite());
    readings.iter().filter_map(|r| Some((r.elapsed_seconds / 60.0, value(r)?))).collect()
}

/// Removes repeated values, since readings repeat the last result of a rare measurement. Keeps the last point.
fn measured(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let is_new = |i: usize| i == 0 || i + 1 == points.len() || points[i - 1].1 != points[i].1;
    (0..points.len()).filter(|&i| is_new(i)).map(|i| points[i]).collect()
}

fn smoothed(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mean = |i: usize| {
        let end = points.len().min(i + SMOOTHED_READINGS + 1);
        let around = &points[i.saturating_sub(SMOOTHED_READINGS)..end];
        around.iter().map(|&(_, value)| value).sum::<f64>() / around.len() as f64
    };
    (0..points.len()).map(|i| (points[i].0, mean(i))).collect()
}

/// Moves sorted label positions at least one label height apart, and between `top` and `bottom` if there is enough
/// space.
fn moved_apart(heights: &[i32], top: i32, bottom: i32) -> Vec<i32> {
    let mut moved = heights.to_vec();
    let mut free = top;
    for height in &mut moved {
        *height = (*height).max(free);
        free = *height + NAME_HEIGHT;
    }
    let mut free = bottom;
    for height in moved.iter_mut().rev() {
        *height = (*height).min(free);
        free = *height - NAME_HEIGHT;
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the metrics of a run that improves evenly for fifteen minutes.
    fn run() -> Vec<RunMetrics> {
        let reading = |i: i32| {
            let t = f64::from(i) / 60.0;
            let mut r = RunMetrics { elapsed_seconds: t * 900.0, loss_total: Some(2.5 - t), ..RunMetrics::default() };
            (r.loss_policy, r.loss_value) = (Some(1.6 - 0.6 * t), Some(0.9 - 0.4 * t));
            (r.validation_loss_policy, r.validation_loss_value) = (Some(1.7 - 0.6 * t), Some(1.0 - 0.35 * t));
            (r.elo, r.elo_low, r.elo_high) = (Some(900.0 * t), Some(900.0 * t - 80.0), Some(900.0 * t + 80.0));
            r.accuracy.insert("raw/preserving/overall".to_owned(), 0.4 + 0.4 * t);
            r.accuracy.insert("search/preserving/overall".to_owned(), 0.5 + 0.45 * t);
            r.accuracy.insert("raw/value_error/overall".to_owned(), 0.8 - 0.3 * t);
            r.opponents.insert("playouts-50".to_owned(), 350.0);
            r
        };
        (0..=60).map(reading).collect()
    }

    fn drawn(readings: &[RunMetrics]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.svg");
        draw(&path, "a run", readings).unwrap();
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn every_line_is_named_with_its_last_value() {
        let text = drawn(&run());
        for name in [
            "95 % with search",
            "80 % raw policy",
            "0.50 raw value",
            "1.53 total",
            "900 weights",
            "350 playouts-50",
            "minutes",
        ] {
            assert!(text.contains(name), "{name} is not in {text}");
        }
    }

    #[test]
    fn losses_on_held_out_games_are_drawn_where_they_are_measured() {
        let text = drawn(&run());
        for name in ["1.10 policy, held out", "0.65 value, held out"] {
            assert!(text.contains(name), "{name} is not in {text}");
        }
        // A run without held-out games.
        let without =
            run().into_iter().map(|r| RunMetrics { validation_loss_policy: None, validation_loss_value: None, ..r });
        let text = drawn(&without.collect::<Vec<_>>());
        assert!(text.contains("1.02 policy") && !text.contains("held out"), "{text}");
    }

    #[test]
    fn a_game_scored_by_rewards_is_drawn_with_its_mean_return() {
        let readings: Vec<RunMetrics> = run()
            .into_iter()
            .map(|r| {
                let mean = 20.0 + 0.5 * r.elapsed_seconds;
                let (return_low, return_high) = (Some(mean - 9.0), Some(mean + 9.0));
                let (return_mean, random_return) = (Some(mean), Some(22.4));
                RunMetrics { return_mean, return_low, return_high, random_return, episode_length: Some(mean), ..r }
            })
            .collect();
        let text = drawn(&readings);
        for name in ["470 mean", "22.4 random play", "470 steps", "1.53 total"] {
            assert!(text.contains(name), "{name} is not in {text}");
        }
        assert!(!text.contains("Elo"), "{text}");
    }

    #[test]
    fn missing_measurements_are_marked_as_not_measured() {
        assert_eq!(drawn(&[]).matches("not measured").count(), 2);
        let readings = [RunMetrics { elapsed_seconds: 5.0, elo: Some(f64::NAN), ..RunMetrics::default() }];
        assert_eq!(drawn(&readings).matches("not measured").count(), 2);
    }

    #[test]
    fn repetitions_of_a_measurement_are_left_out() {
        let points = vec![(0.0, 1.0), (1.0, 1.0), (2.0, 2.0), (3.0, 2.0), (4.0, 2.0)];
        assert_eq!(measured(points), [(0.0, 1.0), (2.0, 2.0), (4.0, 2.0)]);
    }

    #[test]
    fn smoothing_averages_over_the_available_readings_on_either_side() {
        let line: Vec<(f64, f64)> = (0..20).map(|i| (f64::from(i), 2.0 * f64::from(i))).collect();
        let smooth = smoothed(&line);
        assert_eq!(smooth[4..16], line[4..16]);
        assert_eq!((smooth[0].1, smooth[19].1), (4.0, 34.0));
    }

    #[test]
    fn names_are_moved_apart_and_stay_inside() {
        assert_eq!(moved_apart(&[0, 5, 90, 100], 0, 100), [0, 17, 83, 100]);
        assert!(moved_apart(&[], 0, 100).is_empty());
    }
}
