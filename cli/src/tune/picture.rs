//! Draws the pictures of a study: the objective of each trial with the best so far, and the objective against each
//! tuned setting.

use std::path::Path;

use anyhow::Context as _;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use serde_json::Value;

use super::history::{History, State, Trial};
use super::journal::End;
use super::range::{Range, Setting, rounded, short};
use super::study::Study;
use crate::picture::{Area, BLUE, GRID, INK, ORANGE, write};

/// Width and height of `objective.svg` in pixels.
const SIZE: (u32, u32) = (1000, 480);
/// Width and height of each diagram in `settings.svg` in pixels.
const PANEL: (u32, u32) = (480, 340);
/// Maximum number of settings in `settings.svg`; further settings, in order of name, are left out.
const PANELS_MAX: usize = 24;
/// Radius of the point of a trial in pixels.
const POINT: i32 = 4;

/// Number of significant digits in axis labels.
const LABEL_DIGITS: usize = 2;

/// A trial with the objective to draw.
struct Point<'a> {
    trial: &'a Trial,
    objective: f64,
    is_complete: bool,
}

/// Draws the trials to `objective.svg` and `settings.svg` in the directory `folder`.
///
/// # Errors
/// A picture cannot be written.
pub(super) fn draw(folder: &Path, study: &Study, history: &History) -> anyhow::Result<()> {
    let points: Vec<Point<'_>> = history.trials().iter().filter_map(point).collect();
    let file = folder.join("objective.svg");
    draw_trials(&file, study, &points).with_context(|| format!("draw {}", file.display()))?;
    let file = folder.join("settings.svg");
    draw_settings(&file, study, &points).with_context(|| format!("draw {}", file.display()))
}

/// Returns the point for a trial: the final objective, or the objective at the last rung; `None` without an objective.
fn point(trial: &Trial) -> Option<Point<'_>> {
    let is_complete = trial.state == State::Ended(End::Completed);
    let objective = trial.objective.filter(|_| is_complete).or(trial.rungs.last().copied())?;
    Some(Point { trial, objective, is_complete })
}

fn draw_trials(file: &Path, study: &Study, points: &[Point<'_>]) -> anyhow::Result<()> {
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let title = format!("Study {}: {} of each trial", study.name, study.objective.metric);
    let area = root.titled(&title, ("sans-serif", 22).into_font().color(&INK))?;
    let last = points.iter().map(|point| point.trial.number).max().unwrap_or(0);
    let bounds = Bounds { across: (-0.5, last as f64 + 0.5), up: objective_range(points) };
    let whole = |x: f64| if (x - x.round()).abs() < 1e-6 { format!("{x:.0}") } else { String::new() };
    let mut chart = bounds.chart(&area, "trial", &whole)?;
    if points.is_empty() {
        write(&root, "no trial has a result", (SIZE.0 as i32 / 2, SIZE.1 as i32 / 2), INK, HPos::Center)?;
    }
    chart.draw_series(LineSeries::new(best_so_far(study, points), BLUE.stroke_width(2)))?;
    draw_points(&mut chart, points.iter().map(|point| (point.trial.number as f64, point)))?;
    legend(&root, SIZE.0)?;
    Ok(root.present()?)
}

/// Returns the best objective so far after each trial, from completed trials only, as the points of a step curve.
fn best_so_far(study: &Study, points: &[Point<'_>]) -> Vec<(f64, f64)> {
    let mut steps = Vec::new();
    let mut best: Option<f64> = None;
    for point in points {
        let x = point.trial.number as f64;
        let score = |objective: f64| study.objective.score(objective);
        if point.is_complete && best.is_none_or(|best| score(point.objective) > score(best)) {
            steps.extend(best.map(|best| (x, best)));
            best = Some(point.objective);
        }
        steps.extend(best.map(|best| (x, best)));
    }
    steps
}

fn draw_settings(file: &Path, study: &Study, points: &[Point<'_>]) -> anyhow::Result<()> {
    let settings = &study.settings[..study.settings.len().min(PANELS_MAX)];
    let columns = settings.len().clamp(1, 2);
    let rows = settings.len().div_ceil(columns).max(1);
    // The product cannot overflow: there are at most PANELS_MAX panels.
    let size = (PANEL.0 * columns as u32, PANEL.1 * rows as u32 + 40);
    let root = SVGBackend::new(file, size).into_drawing_area();
    root.fill(&WHITE)?;
    let title = format!("Study {}: {} against each setting", study.name, study.objective.metric);
    let area = root.titled(&title, ("sans-serif", 22).into_font().color(&INK))?;
    for (setting, panel) in settings.iter().zip(area.split_evenly((rows, columns))) {
        draw_setting(&panel, setting, points)?;
    }
    Ok(root.present()?)
}

/// Draws the objective against a setting. The horizontal axis is the coordinate, with values of the setting as labels.
fn draw_setting(area: &Area<'_>, setting: &Setting, points: &[Point<'_>]) -> anyhow::Result<()> {
    let bounds = Bounds { across: (-0.04, 1.04), up: objective_range(points) };
    let label = |x: f64| match setting.range.value(x) {
        _ if !(0.0..=1.0).contains(&x) => String::new(),
        // Grid lines of a logarithmic scale are not at round numbers.
        Value::Number(number) if number.is_f64() => {
            short(&Value::from(rounded(number.as_f64().unwrap_or_default(), LABEL_DIGITS)))
        }
        value => short(&value),
    };
    // The label of a choice is in the middle of the coordinates for that choice.
    let is_choice = matches!(setting.range, Range::Choices(_));
    let mut chart = bounds.chart(area, &setting.key, &|x| if is_choice { String::new() } else { label(x) })?;
    if is_choice {
        for choice in setting.range.ends() {
            let Some(x) = setting.range.coordinate(&choice) else { continue };
            let (x, y) = chart.backend_coord(&(x, bounds.up.0));
            let (left, top) = area.get_base_pixel();
            write(area, &short(&choice), (x - left, y - top + 12), INK, HPos::Center)?;
        }
    }
    let placed = points.iter().filter_map(|point| {
        let coordinate = setting.range.coordinate(point.trial.values.get(&setting.key)?)?;
        Some((coordinate, point))
    });
    draw_points(&mut chart, placed)
}

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Draws completed trials as filled discs and other trials as circles.
fn draw_points<'p>(
    chart: &mut Chart<'_, '_>,
    points: impl Iterator<Item = (f64, &'p Point<'p>)>,
) -> anyhow::Result<()> {
    for (x, point) in points {
        let style = if point.is_complete { BLUE.filled() } else { ORANGE.stroke_width(1) };
        chart.draw_series([Circle::new((x, point.objective), POINT, style)])?;
    }
    Ok(())
}

/// Draws the legend of the points at the top right. The picture is `width` pixels wide.
fn legend(root: &Area<'_>, width: u32) -> anyhow::Result<()> {
    let right = width as i32;
    for (x, style, text) in
        [(right - 240, BLUE.filled(), "completed"), (right - 140, ORANGE.stroke_width(1), "stopped or running")]
    {
        root.draw(&Circle::new((x, 40), POINT, style))?;
        write(root, text, (x + 9, 40), INK, HPos::Left)?;
    }
    Ok(())
}

/// The bounds of both axes of a diagram.
struct Bounds {
    across: (f64, f64),
    up: (f64, f64),
}

impl Bounds {
    fn chart<'a, 'b>(
        &self,
        area: &'a Area<'b>,
        name: &str,
        label_across: &dyn Fn(f64) -> String,
    ) -> anyhow::Result<Chart<'a, 'b>> {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .margin_top(22)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(self.across.0..self.across.1, self.up.0..self.up.1)?;
        let style = ("sans-serif", 14).into_font().color(&INK);
        chart
            .configure_mesh()
            .x_desc(name)
            .axis_desc_style(style.clone())
            .label_style(style)
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(RGBColor(150, 150, 150))
            .x_labels(6)
            .y_labels(6)
            .x_label_formatter(&|x| label_across(*x))
            .y_label_formatter(&|y| short(&Value::from(*y)))
            .draw()?;
        Ok(chart)
    }
}

/// Returns the vertical range of a diagram: all objectives and a margin.
fn objective_range(points: &[Point<'_>]) -> (f64, f64) {
    let objectives = points.iter().map(|point| point.objective);
    let (low, high) = objectives.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
    let margin = (high - low) / 12.0;
    match (low <= high, margin > 0.0 && margin.is_finite()) {
        (false, _) => (0.0, 1.0),
        (true, true) => (low - margin, high + margin),
        (true, false) => (low - 0.5, low + 0.5),
    }
}
