//! Shows the progress of a run: live lines on a terminal, or a plain line at intervals.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use run_metrics::RunMetrics;
pub(crate) use run_metrics::words::{
    MISSING, beyond_support, clock, count, date, device_lines, distinct, elo, engines_line, losses, mean_return,
    number, percent, refused, strength, validation, warnings, whole, window,
};

/// Interval between lines without a terminal.
const PLAIN_INTERVAL: Duration = Duration::from_secs(15);
/// Assumed width in columns of a terminal that does not report the width.
const COLUMNS_DEFAULT: usize = 80;
/// Indent in columns of the continuation lines of a message.
const LINE_INDENT: usize = 2;
/// Indent in columns of a metric's continuation lines: the width of the name column.
const DETAIL_INDENT: usize = 10;
/// Column at which the words of a [`folded`] text start, after the name.
pub(crate) const NAME_WIDTH: usize = 11;

/// The progress display of a run or of a study.
#[derive(Debug)]
pub(crate) struct Screen {
    /// Text on a terminal that is redrawn in place, below the printed lines; `None` for a file or a pipe.
    live: Option<ProgressBar>,
    /// Minimum time between plain lines.
    interval: Duration,
    /// Time of the last plain line.
    last: Option<Instant>,
}

impl Screen {
    /// Creates the text `live` if standard output is a terminal, otherwise plain lines.
    pub(crate) fn new(live: impl FnOnce() -> ProgressBar, interval: Duration) -> Self {
        Self { live: std::io::stdout().is_terminal().then(live), interval, last: None }
    }

    /// Creates the display of a training session of the length `total`.
    pub(crate) fn of_run(total: Duration) -> Self {
        let bar = || {
            let template = "time      {bar:40} {prefix}\n{msg}";
            let style = ProgressStyle::with_template(template).expect("the template is a constant");
            ProgressBar::with_draw_target(Some(total.as_secs()), ProgressDrawTarget::stdout()).with_style(style)
        };
        Self::new(bar, PLAIN_INTERVAL)
    }

    /// Redraws the text with `live`, or prints the line `plain` if the interval has passed.
    pub(crate) fn show(&mut self, now: Instant, live: impl FnOnce(&ProgressBar), plain: impl FnOnce() -> String) {
        match &self.live {
            Some(bar) => live(bar),
            None if self.last.is_none_or(|last| now.duration_since(last) >= self.interval) => {
                self.last = Some(now);
                print_line(&plain());
            }
            None => {}
        }
    }

    /// Shows the current metrics of a training session.
    pub(crate) fn show_metrics(&mut self, metrics: &RunMetrics, total: Duration, now: Instant) {
        let time = time_line(metrics.elapsed_seconds, total);
        let details = detail_lines(metrics);
        let live = |bar: &ProgressBar| {
            bar.set_prefix(time.clone());
            let width = columns();
            let line = |(name, text): &(&str, String)| wrapped(&format!("{name:9} {text}"), width, DETAIL_INDENT);
            bar.set_message(details.iter().map(line).collect::<Vec<_>>().join("\n"));
            bar.set_position(metrics.elapsed_seconds as u64);
        };
        let plain = || {
            let details: Vec<_> = details.iter().map(|(name, text)| format!("{name} {text}")).collect();
            format!("{time} | {}", details.join(" | "))
        };
        self.show(now, live, plain);
    }

    /// Prints a line that stays on the screen.
    pub(crate) fn print(&self, text: &str) {
        match &self.live {
            Some(bar) if !bar.is_finished() => bar.println(wrapped(text, columns(), LINE_INDENT)),
            _ => print_line(text),
        }
    }

    /// Stops redrawing, and leaves the last text on the screen.
    pub(crate) fn close(&self) {
        self.live.iter().for_each(ProgressBar::abandon);
    }
}

/// Returns the width of the terminal in columns.
fn columns() -> usize {
    service::terminal::size(&std::io::stdout()).map_or(COLUMNS_DEFAULT, |size| size.columns)
}

/// Breaks a line wider than `width` between words, and indents the continuation lines. A longer word stays whole, so
/// that a path can be copied.
fn wrapped(line: &str, width: usize, indent: usize) -> String {
    let mut text = String::new();
    let mut column = 0;
    for (index, word) in line.split(' ').enumerate() {
        let length = word.chars().count();
        // A line is never empty except for the indent.
        if index > 0 && column + 1 > indent && column + 1 + length > width {
            text.truncate(text.trim_end().len());
            text.push_str(&format!("\n{:indent$}", ""));
            column = indent;
        } else if index > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text
}

/// Formats a name, followed by words that start at column [`NAME_WIDTH`], as lines of at most `width` columns. Drops
/// control characters, since messages from drivers, loaders or servers must not control the terminal.
pub(crate) fn folded(name: &str, words: &str, width: usize) -> String {
    let words = words.split_whitespace().map(|word| word.chars().filter(|c| !c.is_control()).collect::<String>());
    let line = format!("{name:<NAME_WIDTH$}{}", words.collect::<Vec<_>>().join(" "));
    wrapped(&line, width, NAME_WIDTH).trim_end().to_owned() + "\n"
}

/// Prints a line to standard output. Errors are ignored: a full disk must not stop the training.
pub(crate) fn print_line(line: &str) {
    drop(writeln!(std::io::stdout(), "{line}"));
}

/// Creates a text on standard output that is redrawn in place.
pub(crate) fn redrawn_text() -> ProgressBar {
    let style = ProgressStyle::with_template("{msg}").expect("the template is a constant");
    ProgressBar::with_draw_target(None, ProgressDrawTarget::stdout()).with_style(style)
}

/// Creates a line on standard error that is redrawn in place; hidden without a terminal.
pub(crate) fn progress_line() -> ProgressBar {
    let style = ProgressStyle::with_template("{msg}").expect("the template is a constant");
    ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_style(style)
}

fn time_line(elapsed_seconds: f64, total: Duration) -> String {
    let left = (total.as_secs_f64() - elapsed_seconds).max(0.0);
    format!("{} of {}, {} left", clock(elapsed_seconds), clock(total.as_secs_f64()), clock(left))
}

/// Returns the lines below the time, as name and text. With numbers of usual size, every line fits 80 columns.
fn detail_lines(r: &RunMetrics) -> Vec<(&'static str, String)> {
    let opponents: Vec<String> = r.opponents.iter().map(|(name, elo)| format!("{name} {elo:.0}")).collect();
    let [games, positions, evaluations, steps] =
        [r.games_per_second, r.positions_per_second, r.evaluations_per_second, r.steps_per_second].map(number);
    let (items, window, ratio) = (count(r.replay_items), window(r), number(r.samples_per_insert));
    let (version, lag) = (whole(r.weights_version), whole(r.weights_lag));
    let refused = refused(r).map(|refused| format!(" · {refused} refused")).unwrap_or_default();
    let or_missing = |text: String| if text.is_empty() { MISSING.to_owned() } else { text };
    let mut lines: Vec<(&'static str, String)> = r.health.fault.iter().map(|fault| ("fault", fault.clone())).collect();
    lines.extend([
        ("self-play", format!("{games} games/s · {positions} positions/s · {evaluations} evaluations/s")),
        ("batches", format!("{} positions each · cache hits {}", number(r.batch_mean), percent(r.cache_hit_share))),
        ("replay", format!("{items} items · window {window} · {ratio} samples per insert{refused}")),
        ("learner", format!("step {} · {steps} steps/s · weights v{version}, policy lag {lag}", count(r.steps))),
        ("loss", losses(r)),
    ]);
    lines.extend(distinct(r).map(|text| ("positions", text)));
    lines.extend(warnings(r));
    lines.extend(validation(r).map(|text| ("held out", text)));
    if r.has_returns() {
        let length = number(r.episode_length);
        lines.push(("strength", format!("return {} · {length} steps an episode", mean_return(r))));
        lines.push(("opponents", format!("random play {}", number(r.random_return))));
    } else {
        lines.push(("strength", strength(r).unwrap_or_else(|| "not measured yet".to_owned())));
        if r.rated_games.is_some_and(|games| games > 0.0) {
            lines.push(("opponents", opponents.join(" · ")));
        }
    }
    lines.push(("engines", or_missing(engines_line(&r.engines))));
    lines.extend(device_lines(&r.devices).into_iter().map(|line| ("devices", line)));
    lines
}

#[cfg(test)]
mod tests {
    use run_metrics::DISTINCT;

    use super::*;

    #[test]
    fn a_line_is_broken_between_words_where_it_is_wider_than_the_terminal() {
        assert_eq!(wrapped("loss      1.5: policy", 80, 10), "loss      1.5: policy");
        assert_eq!(
            wrapped("loss      1.5: policy 1.0 · value", 22, 10),
            "loss      1.5: policy\n          1.0 · value"
        );
        assert_eq!(wrapped("run a in /a/very/long/path: hex-5", 12, 2), "run a in\n  /a/very/long/path:\n  hex-5");
        assert_eq!(wrapped("", 80, 2), "");
    }

    #[test]
    fn the_lines_of_a_run_with_numbers_of_usual_size_fit_eighty_columns() {
        let many = Some(123_456.0);
        let share = Some(0.987);
        let metrics = RunMetrics {
            games_per_second: many,
            positions_per_second: many,
            evaluations_per_second: many,
            batch_mean: many,
            cache_hit_share: share,
            replay_items: many,
            window_items: many,
            window_passes: Some(1234.0),
            samples_per_insert: many,
            steps: many,
            steps_per_second: many,
            weights_version: Some(1234.0),
            weights_lag: Some(12.0),
            loss_total: Some(12.345),
            loss_policy: Some(12.345),
            loss_value: Some(12.345),
            validation_loss_policy: Some(12.345),
            validation_loss_value: Some(12.345),
            validation_policy_accuracy: Some(1.0),
            validation_calibration_error: Some(1.0),
            elo: Some(1234.0),
            elo_low: Some(1200.0),
            elo_high: Some(1300.0),
            rated_games: many,
            distinct: DISTINCT.map(|part| (part.to_owned(), 1.0)).into(),
            ..RunMetrics::default()
        };
        for (name, text) in detail_lines(&metrics) {
            let line = format!("{name:9} {text}");
            assert!(line.chars().count() <= 80, "{} characters: {line}", line.chars().count());
        }
    }
}
