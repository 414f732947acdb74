//! Plots the metrics of a run over time: accuracy and value error on solved positions, training and validation losses,
//! and Elo. In games with rewards: mean return, losses and episode length. Start with [`picture`].

use figures::plot::{Axis, BLUE, COLOURS, Chart, Figure, GREEN, GREY, INK, ORANGE, Point, RGBColor, Series, Style};

use crate::RunMetrics;
use crate::words::{count, number};

/// Height of each column in pixels. The text stays readable at two thirds of the size, as in a README.
const HEIGHT: i32 = 640;
/// Width in pixels of the left column, which shows the strength and is the widest column.
const LEFT_WIDTH: i32 = 640;
const RIGHT_WIDTH: i32 = 560;
/// Height in pixels of the accuracy, which is above the value error.
const ACCURACY_HEIGHT: i32 = 400;
/// Number of neighbours on each side that the moving average of the losses includes, because single batches have noisy
/// losses.
const SMOOTHED_READINGS: usize = 4;
/// Colours of the opponents.
const OPPONENTS: [RGBColor; 4] = [GREY, COLOURS[3], COLOURS[4], COLOURS[5]];

/// Maximum number of versions in a chart; the outline of the interval has two points per version.
const VERSIONS_MAX: usize = 500;

/// The rating of a weights version in a fit over all games, in Elo.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RatedVersion {
    /// Number of the version.
    pub version: u64,
    /// Most likely strength.
    pub elo: f64,
    /// Lower bound of the 95 % confidence interval.
    pub low: f64,
    /// Upper bound of the 95 % confidence interval.
    pub high: f64,
}

/// Returns the charts of a run in two columns: the picture in the run directory.
pub fn picture(title: &str, readings: &[RunMetrics]) -> Figure {
    let errors = value_error(readings);
    let (strength, below) = strength(readings);
    let errors = Some(errors).filter(|errors| errors.series.iter().any(|series| !series.points.is_empty()));
    let columns = vec![
        column(LEFT_WIDTH, ACCURACY_HEIGHT, [strength].into_iter().chain(errors).collect()),
        column(RIGHT_WIDTH, HEIGHT / 2, [losses(readings)].into_iter().chain(below).collect()),
    ];
    Figure { title: title.to_owned(), columns }
}

/// Returns the main charts of a run, each as an untitled figure of this size: strength, losses, and Elo or the length
/// of episodes.
pub fn overview(readings: &[RunMetrics], width: i32, height: i32) -> Vec<Figure> {
    let (strength, below) = strength(readings);
    untitled([strength, losses(readings)].into_iter().chain(below), width, height)
}

/// Returns all charts of the strength of a run, each as an untitled figure of this size: Elo of `versions` by training
/// step and by time, or returns; accuracy on solved positions; losses on held-out games.
pub fn strengths(readings: &[RunMetrics], versions: &[RatedVersion], width: i32, height: i32) -> Vec<Figure> {
    let mut charts = Vec::new();
    if readings.iter().any(RunMetrics::has_returns) {
        charts.extend([returns(readings), lengths(readings)]);
    }
    if !versions.is_empty() {
        charts.push(rated(readings, versions, "training steps", |r| r.steps));
        charts.push(rated(readings, versions, "minutes", |r| Some(r.elapsed_seconds / 60.0)));
    }
    if readings.iter().any(|reading| !reading.accuracy.is_empty()) {
        charts.extend([accuracy(readings), value_error(readings)]);
    }
    if readings.iter().any(|reading| reading.validation_loss_policy.is_some()) {
        charts.push(losses(readings));
    }
    charts.retain(|chart| chart.series.iter().any(|series| !series.points.is_empty()));
    untitled(charts, width, height)
}

fn untitled(charts: impl IntoIterator<Item = Chart>, width: i32, height: i32) -> Vec<Figure> {
    let sized = charts.into_iter().map(|chart| Chart { width, height, ..chart });
    sized.map(|chart| Figure { title: String::new(), columns: vec![vec![chart]] }).collect()
}

/// Returns the shares of distinct positions among samples from the latest games, as an untitled figure of this size.
pub fn distinct(readings: &[RunMetrics], width: i32, height: i32) -> Vec<Figure> {
    let line = |name: &str, colour, style, part: &str| {
        let shares = points(readings, |r| r.distinct.get(part).map(|share| 100.0 * share));
        line(name, colour, style, measured(shares), |share| format!("{share:.0} %"))
    };
    let series = vec![
        line("all plies", BLUE, Style::Thick, "overall"),
        line("plies 0 to 7", ORANGE, Style::Thin, "empty/0-7"),
        line("plies 8 to 15", GREEN, Style::Thin, "empty/8-15"),
        line("plies 16 to 23", GREY, Style::Thin, "empty/16-23"),
    ];
    let chart = over_time("Distinct positions among the samples of the latest games, %", readings, series);
    untitled([Chart { y: Axis::new(0.0, 100.0), ..chart }], width, height)
}

/// Returns the chart of the strength, and a second chart that belongs to it, if any.
fn strength(readings: &[RunMetrics]) -> (Chart, Option<Chart>) {
    if readings.iter().any(RunMetrics::has_returns) {
        (returns(readings), Some(lengths(readings)))
    } else if readings.iter().any(|reading| !reading.accuracy.is_empty()) {
        (accuracy(readings), Some(elo(readings)))
    } else {
        // A game without solved positions.
        (elo(readings), None)
    }
}

/// Sets the sizes of the charts in a column: one chart fills the column, and the first of two charts has the height
/// `first`.
fn column(width: i32, first: i32, mut charts: Vec<Chart>) -> Vec<Chart> {
    let heights = if charts.len() == 1 { [HEIGHT, 0] } else { [first, HEIGHT - first] };
    for (chart, height) in charts.iter_mut().zip(heights) {
        (chart.width, chart.height) = (width, height);
    }
    charts
}

/// Creates a chart over the time of a run; [`column`] sets the size. The vertical axis contains 0, all values and the
/// last confidence interval.
fn over_time(title: &str, readings: &[RunMetrics], series: Vec<Series>) -> Chart {
    let minutes = readings.last().map_or(0.0, |last| last.elapsed_seconds / 60.0).max(0.1);
    let measured = series.iter().flat_map(|Series { style, points, .. }| match (style, points.len() / 2) {
        // The outline of a band has the last two bounds in the middle.
        (Style::Band, middle @ 1..) => &points[middle - 1..=middle],
        _ => &points[..],
    });
    let values = measured.map(|point| point.y).chain([0.0]);
    Chart {
        title: title.to_owned(),
        width: 0,
        height: 0,
        x_name: "minutes".to_owned(),
        x: Axis::new(0.0, minutes),
        y: Axis::around(values),
        series,
    }
}

/// Returns a series that is labelled with the last value and a name.
fn line(name: &str, colour: RGBColor, style: Style, points: Vec<Point>, value: fn(f64) -> String) -> Series {
    let label = points.last().map(|last| format!("{} {name}", value(last.y))).unwrap_or_default();
    Series { label, colour, style, points }
}

fn with_two_decimals(value: f64) -> String {
    format!("{value:.2}")
}

fn with_three_digits(value: f64) -> String {
    number(Some(value))
}

fn returns(readings: &[RunMetrics]) -> Chart {
    let line = |name: &str, colour, style, value: fn(&RunMetrics) -> Option<f64>| {
        line(name, colour, style, measured(points(readings, value)), with_three_digits)
    };
    let series = vec![
        interval(readings, |r| r.return_low, |r| r.return_high),
        line("mean", BLUE, Style::Thick, |r| r.return_mean),
        line("random play", GREY, Style::Thin, |r| r.random_return),
    ];
    over_time("Return of evaluation episodes with the 95 % interval of the mean", readings, series)
}

fn lengths(readings: &[RunMetrics]) -> Chart {
    let steps = measured(points(readings, |r| r.episode_length));
    let series = vec![line("steps", BLUE, Style::Thick, steps, with_three_digits)];
    over_time("Steps of an evaluation episode", readings, series)
}

/// Returns the points of a measure on solved positions, an average over all positions.
fn solved(readings: &[RunMetrics], search: &str, measure: &str) -> Vec<Point> {
    measured(points(readings, |r| r.accuracy_of(search, measure)))
}

fn value_error(readings: &[RunMetrics]) -> Chart {
    let line = |name, colour, search| {
        line(name, colour, Style::Thick, solved(readings, search, "value_error"), with_two_decimals)
    };
    let series = vec![line("with search", BLUE, "search"), line("raw value", ORANGE, "raw")];
    over_time("Solved positions: mean distance of the value from the outcome (0 to 2)", readings, series)
}

fn accuracy(readings: &[RunMetrics]) -> Chart {
    let line = |name, colour, style, shares: Vec<Point>| {
        let points = shares.into_iter().map(|Point { x, y }| Point { x, y: 100.0 * y }).collect();
        line(name, colour, style, points, |share| format!("{share:.0} %"))
    };
    // Share of distinct positions among the samples: with a low share, accuracy soon stops growing.
    let distinct = measured(points(readings, |r| r.distinct.get("overall").copied()));
    let series = vec![
        line("with search", BLUE, Style::Thick, solved(readings, "search", "preserving")),
        line("raw policy", ORANGE, Style::Thick, solved(readings, "raw", "preserving")),
        line("best, search", BLUE, Style::Thin, solved(readings, "search", "optimal")),
        line("best, raw", ORANGE, Style::Thin, solved(readings, "raw", "optimal")),
        line("distinct", GREEN, Style::Thin, distinct),
    ];
    let chart = over_time("Solved positions: % of moves that keep the outcome (thin: best moves)", readings, series);
    Chart { y: Axis::new(0.0, 100.0), ..chart }
}

fn losses(readings: &[RunMetrics]) -> Chart {
    let mut series = Vec::new();
    let mut part = |name: &str, colour, value: fn(&RunMetrics) -> Option<f64>| {
        let points = points(readings, value);
        series.push(line(name, colour, Style::Thick, smoothed(&points), with_two_decimals));
        series.push(Series { label: String::new(), colour, style: Style::Faint, points });
    };
    part("total", INK, |r| r.loss_total);
    part("policy", GREEN, |r| r.loss_policy);
    part("value", ORANGE, |r| r.loss_value);
    if readings.iter().any(|r| r.loss_reward.is_some_and(|loss| loss > 0.0)) {
        part("reward", BLUE, |r| r.loss_reward);
    }
    let mut held_out = |name: &str, colour, value: fn(&RunMetrics) -> Option<f64>| {
        series.push(line(name, colour, Style::Thin, measured(points(readings, value)), with_two_decimals));
    };
    held_out("policy, held out", GREEN, |r| r.validation_loss_policy);
    held_out("value, held out", ORANGE, |r| r.validation_loss_value);
    over_time("Loss (thin: on held-out games)", readings, series)
}

fn elo(readings: &[RunMetrics]) -> Chart {
    let line =
        |name: &str, colour, style, ratings| line(name, colour, style, measured(ratings), |elo| format!("{elo:.0}"));
    let mut series = vec![
        interval(readings, |r| r.elo_low, |r| r.elo_high),
        line("weights", BLUE, Style::Thick, points(readings, |r| r.elo)),
    ];
    let opponents = readings.last().map(|last| last.opponents.keys()).into_iter().flatten();
    for (name, colour) in opponents.zip(OPPONENTS.into_iter().cycle()) {
        let ratings = points(readings, |r| r.opponents.get(name).copied());
        series.push(line(name, colour, Style::Thin, ratings));
    }
    over_time("Elo with the 95 % interval (random play is 0)", readings, series)
}

/// Returns the chart of rated versions over a metric that grows with the run.
fn rated(
    readings: &[RunMetrics],
    versions: &[RatedVersion],
    x_name: &str,
    at: fn(&RunMetrics) -> Option<f64>,
) -> Chart {
    let mark = |r: &RunMetrics| Some(Point { x: r.weights_version?, y: at(r)? });
    let marks: Vec<Point> = readings.iter().filter_map(mark).collect();
    // Counted from the end, so that the latest version is shown.
    let stride = versions.len().div_ceil(VERSIONS_MAX).max(1);
    let shown = versions.iter().rev().step_by(stride);
    let mut shown: Vec<(f64, &RatedVersion)> =
        shown.filter_map(|version| Some((published(&marks, version.version as f64)?, version))).collect();
    shown.reverse();
    let points = |value: fn(&RatedVersion) -> f64| -> Vec<Point> {
        shown.iter().map(|&(x, version)| Point { x, y: value(version) }).collect()
    };
    let rounded = |elo: f64| format!("{elo:.0}");
    let mut outline = points(|version| version.low);
    outline.extend(points(|version| version.high).into_iter().rev());
    let mut series = vec![
        Series { label: String::new(), colour: BLUE, style: Style::Band, points: outline },
        line("weights", BLUE, Style::Thick, points(|version| version.elo), rounded),
    ];
    let end = marks.iter().map(|mark| mark.y).fold(0.1, f64::max);
    let opponents = readings.last().map(|last| &last.opponents).into_iter().flatten();
    for ((name, elo), colour) in opponents.zip(OPPONENTS.into_iter().cycle()) {
        let points = [0.0, end].map(|x| Point { x, y: *elo }).to_vec();
        series.push(line(name, colour, Style::Thin, points, rounded));
    }
    let chart =
        over_time(&format!("Elo by {x_name}, in one fit of all games, with the 95 % interval"), readings, series);
    let axis = Axis::new(0.0, end);
    // Ticks of a short axis may lie between whole numbers.
    let x = if end < 1e4 { axis } else { axis.labelled(|x| count(Some(x))) };
    Chart { x_name: x_name.to_owned(), x, ..chart }
}

/// Returns the metric at which a version was published, between those of the readings before and after. `marks` are
/// versions with the metric, in the order of the readings.
fn published(marks: &[Point], version: f64) -> Option<f64> {
    let index = marks.partition_point(|mark| mark.x < version);
    let after = marks.get(index).or(marks.last())?;
    let before = index.checked_sub(1).map_or(Point { x: 0.0, y: 0.0 }, |index| marks[index]);
    let span = after.x - before.x;
    let share = if span > 0.0 { (version - before.x) / span } else { 1.0 };
    Some(before.y + share * (after.y - before.y))
}

/// Returns the confidence intervals of all measurements that have both bounds, as a band.
fn interval(
    readings: &[RunMetrics],
    low: fn(&RunMetrics) -> Option<f64>,
    high: fn(&RunMetrics) -> Option<f64>,
) -> Series {
    let lows = measured(points(readings, |r| high(r).and(low(r))));
    let highs = points(readings, |r| low(r).and(high(r)));
    // The two bounds of a measurement are matched by time.
    let bounds = lows.into_iter().filter_map(|low| Some([low, *highs.iter().find(|high| high.x == low.x)?]));
    let bounds: Vec<[Point; 2]> = bounds.collect();
    let upper = bounds.iter().rev().map(|[_, high]| *high);
    let points = bounds.iter().map(|[low, _]| *low).chain(upper).collect();
    Series { label: String::new(), colour: BLUE, style: Style::Band, points }
}

fn points(readings: &[RunMetrics], value: impl Fn(&RunMetrics) -> Option<f64>) -> Vec<Point> {
    let value = |r: &RunMetrics| value(r).filter(|value| value.is_finite());
    readings.iter().filter_map(|r| Some(Point { x: r.elapsed_seconds / 60.0, y: value(r)? })).collect()
}

/// Removes repeated values, since the metrics repeat the last result of a rare measurement. Keeps the last point.
fn measured(points: Vec<Point>) -> Vec<Point> {
    let is_new = |i: usize| i == 0 || i + 1 == points.len() || points[i - 1].y != points[i].y;
    (0..points.len()).filter(|&i| is_new(i)).map(|i| points[i]).collect()
}

fn smoothed(points: &[Point]) -> Vec<Point> {
    let mean = |i: usize| {
        let end = points.len().min(i + SMOOTHED_READINGS + 1);
        let around = &points[i.saturating_sub(SMOOTHED_READINGS)..end];
        around.iter().map(|point| point.y).sum::<f64>() / around.len() as f64
    };
    (0..points.len()).map(|i| Point { x: points[i].x, y: mean(i) }).collect()
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
        picture("a run", readings).svg()
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
    fn the_main_charts_are_separate_figures_without_a_title() {
        let figures = overview(&run(), 480, 260);
        let texts: Vec<String> = figures.iter().map(Figure::svg).collect();
        assert!(texts.iter().all(|svg| svg.starts_with("<svg width=\"480\" height=\"260\"")), "{texts:?}");
        let [strength, losses, elo] = ["95 % with search", "1.53 total", "900 weights"];
        assert!(texts[0].contains(strength) && texts[1].contains(losses) && texts[2].contains(elo), "{texts:?}");
    }

    #[test]
    fn the_share_of_distinct_positions_is_drawn_by_plies() {
        let share = [("overall".to_owned(), 0.62), ("empty/0-7".to_owned(), 0.08)];
        let readings: Vec<RunMetrics> =
            run().into_iter().map(|r| RunMetrics { distinct: share.clone().into(), ..r }).collect();
        let text = distinct(&readings, 480, 260)[0].svg();
        assert!(text.contains("62 % all plies") && text.contains("8 % plies 0 to 7"), "{text}");
        assert!(!text.contains("plies 8 to 15"), "{text}");
    }

    #[test]
    fn versions_are_drawn_at_the_step_and_the_time_of_their_publication() {
        let mut readings = run();
        for (index, reading) in readings.iter_mut().enumerate() {
            (reading.weights_version, reading.steps) = (Some(index as f64), Some(100.0 * index as f64));
        }
        let version =
            |version: u64| RatedVersion { version, elo: version as f64, low: 0.0, high: 2.0 * version as f64 };
        let versions: Vec<RatedVersion> = (1..=5_000).map(version).collect();
        let figures = strengths(&readings, &versions[..60], 480, 260);
        let texts: Vec<String> = figures.iter().map(Figure::svg).collect();
        for (text, name) in texts.iter().zip(["training steps", "minutes", "95 % with search", "0.50 raw value"]) {
            assert!(text.contains(name), "{name} is not in {text}");
        }
        assert!(texts[0].contains("60 weights") && texts[0].contains("350 playouts-50"), "{}", texts[0]);
        assert!(texts[4].contains("held out"), "{}", texts[4]);
        let many = strengths(&readings, &versions, 480, 260)[0].svg();
        assert!(many.contains("5000 weights") && many.len() < 50_000, "{} bytes", many.len());
        let marks = [[2.0, 100.0], [4.0, 200.0]].map(|[x, y]| Point { x, y });
        assert_eq!([1.0, 3.0, 4.0, 9.0].map(|at| published(&marks, at)), [50.0, 150.0, 200.0, 200.0].map(Some));
        assert_eq!(published(&[], 1.0), None);
    }

    #[test]
    fn repetitions_of_a_measurement_are_left_out() {
        let points = |points: &[[f64; 2]]| points.iter().map(|&[x, y]| Point { x, y }).collect::<Vec<_>>();
        let repeated = points(&[[0.0, 1.0], [1.0, 1.0], [2.0, 2.0], [3.0, 2.0], [4.0, 2.0]]);
        assert_eq!(measured(repeated), points(&[[0.0, 1.0], [2.0, 2.0], [4.0, 2.0]]));
    }

    #[test]
    fn smoothing_averages_over_the_available_readings_on_either_side() {
        let line: Vec<Point> = (0..20).map(|i| Point { x: f64::from(i), y: 2.0 * f64::from(i) }).collect();
        let smooth = smoothed(&line);
        assert_eq!(smooth[4..16], line[4..16]);
        assert_eq!((smooth[0].y, smooth[19].y), (4.0, 34.0));
    }
}
