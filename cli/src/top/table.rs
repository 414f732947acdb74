//! Formats the state of the fleet as a table of at most 80 columns, truncated to fit a smaller terminal.

use std::fmt::Write as _;

use fleet::Role;
use run_metrics::RunMetrics;
use run_metrics::rows::Row;
use run_metrics::words::{counted, limited, rates, replay, span};
use service::terminal::Size;

use crate::screen::{self, MISSING, NAME_WIDTH, distinct, losses, mean_return, number, validation, whole};

use super::snapshot::Snapshot;

/// Width of the table in terminal columns.
const WIDTH: usize = 80;
/// Width of the column with the role, in characters.
const ROLE_WIDTH: usize = 9;

/// Formats a snapshot as plain text, with lines of at most [`WIDTH`] characters.
pub(super) fn table(snapshot: &Snapshot) -> String {
    // The whole table is ASCII, which every terminal can display.
    format!("{}\n{}", summary(snapshot, WIDTH), processes(snapshot, WIDTH)).replace(MISSING, "-")
}

/// Formats a snapshot to fit a terminal. If the terminal is too narrow, columns at the right are left out. If it has
/// too few rows, summary lines are left out first, from the bottom, and then processes.
pub(super) fn fitted(snapshot: &Snapshot, Size { columns, rows }: Size) -> String {
    let width = columns.clamp(2 * NAME_WIDTH, WIDTH);
    let (summary, processes) = (summary(snapshot, width), processes(snapshot, width));
    // One row stays free, for the cursor below the text.
    let rows = rows.saturating_sub(1);
    let below: Vec<&str> = processes.lines().take(rows).collect();
    let (above, left) = (summary.lines().count(), rows - below.len());
    let mut lines: Vec<&str> =
        summary.lines().take(if above < left { above } else { left.saturating_sub(1) }).collect();
    if !lines.is_empty() {
        lines.push("");
    }
    lines.extend(below);
    let cut = |line: &str| line.replace(MISSING, "-").chars().take(columns).collect::<String>();
    lines.into_iter().map(cut).collect::<Vec<_>>().join("\n")
}

/// Formats the summary lines above the list of processes.
fn summary(snapshot: &Snapshot, width: usize) -> String {
    upper(snapshot).into_iter().map(|(name, words)| folded(name, &words, width)).collect()
}

/// Formats the list of processes, with one line per process.
fn processes(snapshot: &Snapshot, width: usize) -> String {
    let mut text = String::new();
    let heading = ["role", "address", "state", "up", "version", "weights", "lag", "work/s"];
    line(&mut text, heading);
    for row in &snapshot.processes {
        process(&mut text, row, width);
    }
    if snapshot.processes.is_empty() {
        text.push_str("no processes found; use --run or --admin\n");
    }
    if snapshot.gone > 0 {
        writeln!(text, "{} more lost earlier", snapshot.gone).expect("strings grow");
    }
    text.push_str("work: inserts, training steps, evaluations, rated games, moves\n");
    text
}

/// Returns the summary lines above the list of processes, each as a name and a text.
fn upper(snapshot: &Snapshot) -> Vec<(&'static str, String)> {
    let metrics = &snapshot.metrics;
    let is_limited = metrics.replay_items.is_some();
    let limiter = if is_limited { limited(&snapshot.limiter_waits) } else { "unknown".to_owned() };
    let bottleneck = snapshot.bottleneck.as_ref().map_or("unknown", |bottleneck| bottleneck.sentence.as_str());
    let mut lines = vec![("fleet", counted(&snapshot.processes))];
    lines.extend(metrics.health.fault.iter().map(|fault| ("fault", fault.clone())));
    lines.extend([
        ("rates", rates(metrics)),
        ("replay", replay(metrics)),
        ("limiter", limiter),
        ("strength", strength(metrics)),
    ]);
    lines.extend(distinct(metrics).map(|text| ("positions", ascii(&text))));
    lines.extend(screen::warnings(metrics).into_iter().map(|(name, text)| (name, ascii(&text))));
    if metrics.loss_total.is_some() {
        lines.push(("loss", ascii(&losses(metrics))));
    }
    lines.extend(validation(metrics).map(|text| ("held out", ascii(&text))));
    lines.push(("bottleneck", bottleneck.to_owned()));
    if !metrics.engines.is_empty() {
        lines.push(("engines", screen::engines_line(&metrics.engines)));
    }
    lines.extend(screen::device_lines(&metrics.devices).into_iter().map(|line| ("devices", line)));
    if let Some(cost) = &snapshot.cost {
        lines.push(("cost", format!("{} so far, {} an hour", money(cost.so_far), money(cost.per_hour))));
    }
    lines
}

/// Replaces non-ASCII separators in a line with ASCII, which every terminal can display.
fn ascii(line: &str) -> String {
    line.replace(" · ", ", ")
}

fn strength(metrics: &RunMetrics) -> String {
    if metrics.has_returns() {
        let (version, random) = (whole(metrics.weights_version), number(metrics.random_return));
        return format!("weights {version}, return {}, random play {random}", mean_return(metrics));
    }
    let strength = screen::strength(metrics).unwrap_or_else(|| "not measured yet".to_owned());
    format!("weights {}, {strength}", whole(metrics.weights_version))
}

fn process(text: &mut String, row: &Row, width: usize) {
    let state = match row.lost_seconds {
        Some(seconds) => format!("lost {}", span(Some(seconds))),
        None => row.state.to_owned(),
    };
    let role = row.role.map_or("?", Role::name);
    let cells = [
        // Processes of a run have individual names, which also name the log files.
        if row.name.starts_with(role) && row.name.len() <= ROLE_WIDTH { row.name.as_str() } else { role },
        &row.address,
        &state,
        &span(row.age_seconds),
        row.version.as_deref().unwrap_or(MISSING),
        &whole(row.weights_version),
        &whole(row.lag_versions),
        &number(row.work_per_second),
    ];
    line(text, cells);
    if let Some(reason) = &row.reason {
        text.push_str(&folded("", reason, width));
    }
}

/// Appends a line of the table; text that is too long for a column is truncated.
fn line(text: &mut String, cells: [&str; 8]) {
    const WIDTHS: [usize; 8] = [ROLE_WIDTH, 21, 10, 6, 9, 7, 4, 6];
    let mut line = String::new();
    for (index, (cell, width)) in cells.into_iter().zip(WIDTHS).enumerate() {
        let cell = if cell.len() > width { format!("{}~", &cell[..width - 1]) } else { cell.to_owned() };
        // Text is aligned to the left, numbers to the right.
        let is_text = matches!(index, 0 | 1 | 2 | 4);
        let cell = if is_text { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
        line.push_str(&cell);
        line.push(' ');
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

/// Formats a name and words as lines of at most `width` columns, which must be more than [`NAME_WIDTH`]. Only a word
/// longer than a line is truncated.
fn folded(name: &str, words: &str, width: usize) -> String {
    let words = words.split_whitespace().map(|word| &word[..word.floor_char_boundary(width - NAME_WIDTH)]);
    screen::folded(name, &words.collect::<Vec<_>>().join(" "), width)
}

fn money(value: f64) -> String {
    if value >= 1e9 { format!("{value:.1e}") } else { format!("{value:.2}") }
}
