//! Shows the progress of a run: live lines on a terminal, and a plain line at intervals elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::engines;
use crate::run_metrics::RunMetrics;

/// Interval between lines where there is no terminal.
const PLAIN_INTERVAL: Duration = Duration::from_secs(15);
/// The text for a missing number.
const MISSING: &str = "–";

/// The output of one session.
#[derive(Debug)]
pub enum Screen {
    /// A terminal, where lines are redrawn in place.
    Live {
        /// All lines.
        lines: MultiProgress,
        /// The line with the time.
        bar: ProgressBar,
        /// The lines below the time.
        details: Vec<ProgressBar>,
    },
    /// A file or a pipe, to which a line is written at intervals.
    Plain {
        /// The time of the last line.
        last: Option<Instant>,
    },
}

impl Screen {
    /// Creates the output that suits standard output.
    pub fn new(total: Duration) -> Self {
        if !std::io::stdout().is_terminal() {
            return Self::Plain { last: None };
        }
        let lines = MultiProgress::with_draw_target(ProgressDrawTarget::stdout());
        // Long messages are cut at the edge: a line that wraps would remain on the screen after a redraw.
        let style = ProgressStyle::with_template("{prefix:9} {bar:40} {wide_msg}").expect("the template is a constant");
        let bar = lines.add(ProgressBar::new(total.as_secs()).with_style(style).with_prefix("time"));
        let style = ProgressStyle::with_template("{prefix:9} {wide_msg}").expect("the template is a constant");
        let detail = |name: &'static str| {
            lines.add(ProgressBar::new_spinner().with_style(style.clone()).with_prefix(name).with_message(MISSING))
        };
        let details = NAMES.into_iter().map(detail).collect();
        Self::Live { lines, bar, details }
    }

    /// Shows the current metrics.
    pub fn show(&mut self, readings: &RunMetrics, total: Duration, now: Instant) {
        let time = time_line(readings.elapsed_seconds, total);
        let texts = detail_lines(readings);
        match self {
            Self::Live { bar, details, .. } => {
                bar.set_position(readings.elapsed_seconds as u64);
                bar.set_message(time);
                for (line, text) in details.iter().zip(texts) {
                    line.set_message(text);
                }
            }
            Self::Plain { last } => {
                if last.is_none_or(|last| now.duration_since(last) >= PLAIN_INTERVAL) {
                    *last = Some(now);
                    let named: Vec<String> =
                        NAMES.iter().zip(texts).map(|(name, text)| format!("{name} {text}")).collect();
                    print_line(&format!("{time} | {}", named.join(" | ")));
                }
            }
        }
    }

    /// Prints a line that stays on the screen.
    pub fn print(&self, text: &str) {
        match self {
            // A closed terminal must not stop the training.
            Self::Live { lines, .. } => drop(lines.println(text)),
            Self::Plain { .. } => print_line(text),
        }
    }

    /// Leaves the last metrics on the screen.
    pub fn close(&self) {
        if let Self::Live { bar, details, .. } = self {
            bar.abandon();
            details.iter().for_each(ProgressBar::abandon);
        }
    }
}

/// Prints a line to standard output. Errors are ignored: a full disk must not stop the training.
fn print_line(line: &str) {
    drop(writeln!(std::io::stdout(), "{line}"));
}

/// Names of the lines below the time, each of at most eighty columns for numbers of the usual size.
const NAMES: [&str; 8] = ["self-play", "batches", "replay", "learner", "loss", "strength", "opponents", "engines"];

fn time_line(elapsed_seconds: f64, total: Duration) -> String {
    let left = (total.as_secs_f64() - elapsed_seconds).max(0.0);
    format!("{} of {}, {} left", clock(elapsed_seconds), clock(total.as_secs_f64()), clock(left))
}

fn detail_lines(r: &RunMetrics) -> [String; NAMES.len()] {
    let play = format!(
        "{} games/s · {} positions/s · {} evaluations/s",
        number(r.games_per_second),
        number(r.positions_per_second),
        number(r.evaluations_per_second),
    );
    let batches = format!("{} positions · cache hits {}", number(r.batch_mean), percent(r.cache_hit_share));
    let replay = format!(
        "{} items · window {} · {} samples per insert",
        number(r.replay_items),
        number(r.window_items),
        number(r.samples_per_insert),
    );
    let learner = format!(
        "step {} · {} steps/s · weights {}, lag {}",
        number(r.steps),
        number(r.steps_per_second),
        whole(r.weights_version),
        whole(r.weights_lag),
    );
    let loss =
        format!("{} = policy {} + value {}", precise(r.loss_total), precise(r.loss_policy), precise(r.loss_value));
    let strength = format!(
        "solved {} raw, {} with search · Elo {}",
        percent(r.accuracy_of("raw", "preserving")),
        percent(r.accuracy_of("search", "preserving")),
        elo(r),
    );
    let opponents: Vec<String> = r.opponents.iter().map(|(name, elo)| format!("{name} {elo:.0}")).collect();
    let opponents = if opponents.is_empty() { MISSING.to_owned() } else { opponents.join(" · ") };
    let engines = if r.engines.is_empty() { MISSING.to_owned() } else { engines::line(&r.engines) };
    [play, batches, replay, learner, loss, strength, opponents, engines]
}

/// Formats a rating with its confidence interval.
pub(crate) fn elo(r: &RunMetrics) -> String {
    match (r.elo, r.elo_low, r.elo_high) {
        (Some(elo), Some(low), Some(high)) => format!("{elo:.0} ({low:.0} to {high:.0})"),
        (Some(elo), ..) => format!("{elo:.0}"),
        (None, ..) => MISSING.to_owned(),
    }
}

/// Formats a time: `0:42`, `12:05`, `1:00:00`.
pub(crate) fn clock(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// Formats a number with about three digits: `0.42`, `7.3`, `812`, `24.1k`, `3.05M`.
pub(crate) fn number(value: Option<f64>) -> String {
    match value {
        None => MISSING.to_owned(),
        Some(value) if value.abs() >= 1e6 => format!("{:.2}M", value / 1e6),
        Some(value) if value.abs() >= 1e4 => format!("{:.1}k", value / 1e3),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 1.0 || value == 0.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

/// Formats a share: `71.3 %`.
pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| MISSING.to_owned(), |share| format!("{:.1} %", share * 100.0))
}

pub(crate) fn precise(value: Option<f64>) -> String {
    value.map_or_else(|| MISSING.to_owned(), |value| format!("{value:.3}"))
}

fn whole(value: Option<f64>) -> String {
    value.map_or_else(|| MISSING.to_owned(), |value| format!("{value:.0}"))
}
