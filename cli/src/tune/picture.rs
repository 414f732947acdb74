//! Draws the pictures of a study: the objective of each trial with the best so far, and the objective against each
//! tuned setting.

use std::path::Path;

use figures::plot::{Axis, BLUE, Chart, Figure, ORANGE, Point, Series, Style, Tick};
use serde_json::Value;
use service::directory::{FileError, replace};

use super::history::{History, State, Trial};
use super::journal::End;
use super::range::{Range, rounded, short};
use super::study::Study;

/// Width and height of `objective.svg` in pixels, without the title.
const SIZE: [i32; 2] = [1000, 440];
/// Width and height of each diagram in `settings.svg` in pixels.
const PANEL: [i32; 2] = [560, 340];
/// Maximum number of settings in `settings.svg`; after sorting by name, further settings are left out.
const PANELS_MAX: usize = 24;
/// Number of diagrams side by side in `settings.svg`.
const COLUMNS: usize = 2;
/// Bounds of an axis of coordinates from 0 to 1, with space for points at the ends.
const COORDINATES: [f64; 2] = [-0.04, 1.04];
/// Number of significant digits in axis labels.
const LABEL_DIGITS: usize = 2;

/// A trial with the objective to draw.
struct Outcome<'a> {
    trial: &'a Trial,
    objective: f64,
    is_complete: bool,
}

/// Draws the trials to `objective.svg` and `settings.svg` in the directory `folder`.
///
/// # Errors
/// A picture cannot be written.
pub(super) fn draw(folder: &Path, study: &Study, history: &History) -> Result<(), FileError> {
    let outcomes: Vec<Outcome<'_>> = history.trials().iter().filter_map(outcome).collect();
    replace(&folder.join("objective.svg"), objectives(study, &outcomes).svg().as_bytes())?;
    replace(&folder.join("settings.svg"), settings(study, &outcomes).svg().as_bytes())
}

/// Returns the outcome of a trial: the final objective, or the objective at the last rung; `None` without an objective.
fn outcome(trial: &Trial) -> Option<Outcome<'_>> {
    let is_complete = trial.state == State::Ended(End::Completed);
    let objective = trial.objective.filter(|_| is_complete).or(trial.rungs.last().copied())?;
    Some(Outcome { trial, objective, is_complete })
}

fn objectives(study: &Study, outcomes: &[Outcome<'_>]) -> Figure {
    let title = format!("Study {}: {} of each trial", study.name, study.objective.metric);
    let last = outcomes.iter().map(|outcome| outcome.trial.number).max().unwrap_or(0);
    let mut numbers = Axis::new(-0.5, last as f64 + 0.5);
    numbers.ticks.retain(|tick| tick.at.fract() == 0.0);
    let best = best_so_far(study, outcomes);
    let label = best.last().map(|best| format!("{} best", short(&Value::from(best.y)))).unwrap_or_default();
    let best = Series { label, colour: BLUE, style: Style::Thick, points: best };
    let chart = Chart {
        title: String::new(),
        width: SIZE[0],
        height: SIZE[1],
        x_name: "trial".to_owned(),
        x: numbers.labelled(|number| format!("{number:.0}")),
        y: Axis::around(outcomes.iter().map(|outcome| outcome.objective)),
        series: [best].into_iter().chain(points(outcomes, |trial| Some(trial.number as f64))).collect(),
    };
    Figure { title, columns: vec![vec![chart]] }
}

/// Returns the best objective so far after each trial, from completed trials only, as the points of a step curve.
fn best_so_far(study: &Study, outcomes: &[Outcome<'_>]) -> Vec<Point> {
    let mut steps = Vec::new();
    let mut best: Option<f64> = None;
    let score = |objective: f64| study.objective.score(objective);
    for outcome in outcomes {
        let x = outcome.trial.number as f64;
        if outcome.is_complete && best.is_none_or(|best| score(outcome.objective) > score(best)) {
            steps.extend(best.map(|y| Point { x, y }));
            best = Some(outcome.objective);
        }
        steps.extend(best.map(|y| Point { x, y }));
    }
    steps
}

/// Returns a figure with the objective against each setting. The horizontal axis is the coordinate, with values of the
/// setting as labels.
fn settings(study: &Study, outcomes: &[Outcome<'_>]) -> Figure {
    let title = format!("Study {}: {} against each setting", study.name, study.objective.metric);
    let charts = study.settings.iter().take(PANELS_MAX).map(|setting| Chart {
        title: String::new(),
        width: PANEL[0],
        height: PANEL[1],
        x_name: setting.key.clone(),
        x: coordinates(&setting.range),
        y: Axis::around(outcomes.iter().map(|outcome| outcome.objective)),
        series: points(outcomes, |trial| setting.range.coordinate(trial.values.get(&setting.key)?)).into(),
    });
    Figure::in_rows(title, charts.collect(), COLUMNS)
}

/// Returns an axis for the coordinates of a range, labelled with values.
fn coordinates(range: &Range) -> Axis {
    let [low, high] = COORDINATES;
    if let Range::Choices(choices) = range {
        // The label of a choice is in the middle of the coordinates for that choice.
        let tick = |choice: &Value| Some(Tick { at: range.coordinate(choice)?, label: short(choice) });
        return Axis { low, high, ticks: choices.iter().filter_map(tick).collect() };
    }
    Axis::new(low, high).labelled(|coordinate| match range.value(coordinate) {
        // Ticks of a logarithmic scale are not at round numbers.
        Value::Number(number) if number.is_f64() => {
            short(&Value::from(rounded(number.as_f64().unwrap_or_default(), LABEL_DIGITS)))
        }
        value => short(&value),
    })
}

/// Returns the outcomes as discs (completed trials) and circles (other trials), with the horizontal position `x`.
fn points(outcomes: &[Outcome<'_>], x: impl Fn(&Trial) -> Option<f64>) -> [Series; 2] {
    let kinds = [("completed", BLUE, Style::Discs, true), ("stopped or running", ORANGE, Style::Circles, false)];
    kinds.map(|(label, colour, style, is_complete)| {
        let shown = outcomes.iter().filter(|outcome| outcome.is_complete == is_complete);
        let points = shown.filter_map(|outcome| Some(Point { x: x(outcome.trial)?, y: outcome.objective })).collect();
        Series { label: label.to_owned(), colour, style, points }
    })
}
