//! Formats the fleet as a table of at most eighty columns.

use std::fmt::Write as _;

use crate::engines;
use crate::screen::clock;

use super::cost::name_of;
use super::snapshot::{HeldUp, Rates, Replay, Row, Snapshot, Strength};

/// Width of the table in columns.
const WIDTH: usize = 80;
/// Column at which the text of the upper lines starts.
const INDENT: usize = 10;
/// Width of the first column.
const ROLE_WIDTH: usize = 9;
/// The text for a missing number.
const MISSING: &str = "-";

/// Formats a snapshot as lines of plain text, none longer than [`WIDTH`].
pub(super) fn table(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for (name, words) in upper(snapshot) {
        folded(&mut text, name, &words);
    }
    text.push('\n');
    let heading = ["role", "address", "state", "up", "version", "weights", "lag", "work/s"];
    line(&mut text, heading);
    for row in &snapshot.processes {
        process(&mut text, row);
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

/// Returns the lines above the processes, as name and text.
fn upper(snapshot: &Snapshot) -> Vec<(&'static str, String)> {
    let Snapshot { rates, replay, strength, weights_version, .. } = snapshot;
    let mut lines = vec![("fleet", counted(snapshot)), ("rates", rated(rates)), ("replay", stored(replay))];
    let limiter = if replay.items.is_some() { limited(&replay.held_up) } else { "unknown".to_owned() };
    lines.push(("limiter", limiter));
    lines.push(("strength", measured(strength, *weights_version)));
    let bottleneck = snapshot.bottleneck.as_ref().map_or("unknown", |bottleneck| bottleneck.sentence.as_str());
    lines.push(("held up", bottleneck.to_owned()));
    if !snapshot.engines.is_empty() {
        lines.push(("engines", engines::line(&snapshot.engines)));
    }
    if let Some(cost) = &snapshot.cost {
        lines.push(("cost", format!("{} so far, {} an hour", money(cost.so_far), money(cost.per_hour))));
    }
    lines
}

fn counted(snapshot: &Snapshot) -> String {
    let with = |state: &str| snapshot.processes.iter().filter(|row| row.state == state).count();
    let plural = if snapshot.processes.len() == 1 { "process" } else { "processes" };
    let mut words = format!("{} {plural}, {} ready", snapshot.processes.len(), with("ready"));
    for state in ["not ready", "no answer", "lost"] {
        if with(state) > 0 {
            write!(words, ", {} {state}", with(state)).expect("strings grow");
        }
    }
    words
}

fn rated(rates: &Rates) -> String {
    let named = [
        (rates.games_per_second, "games/s"),
        (rates.positions_per_second, "moves/s"),
        (rates.evaluations_per_second, "evaluations/s"),
        (rates.inserts_per_second, "inserts/s"),
        (rates.samples_per_second, "samples/s"),
        (rates.steps_per_second, "steps/s"),
    ];
    let rates = named.map(|(rate, name)| format!("{} {name}", short(rate)));
    rates.join(", ")
}

fn stored(replay: &Replay) -> String {
    let Replay { trajectories, items, window_items, bytes, samples_per_insert, .. } = replay;
    let megabytes = bytes.map(|bytes| bytes / 1e6);
    format!(
        "{} items of {} games, window {}, log {} MB, {} samples per insert",
        short(*items),
        short(*trajectories),
        short(*window_items),
        short(megabytes),
        short(*samples_per_insert),
    )
}

fn limited(held_up: &[HeldUp]) -> String {
    if held_up.is_empty() {
        return "neither side waits".to_owned();
    }
    let sentences = held_up.iter().map(|HeldUp { side, reason, share }| {
        let blocked = match side.as_str() {
            "inserts" => "actors wait",
            "samples" => "the learner waits",
            other => other,
        };
        let cause = match reason.as_str() {
            "min_items" => "too few items",
            "inserts" => "the learner is ahead",
            "samples" => "the actors are ahead",
            "nothing_to_draw" => "no item may be sampled",
            other => other,
        };
        format!("{blocked} {:.0} % of the time ({cause})", 100.0 * share.min(1.0))
    });
    sentences.collect::<Vec<_>>().join(", ")
}

fn measured(strength: &Strength, weights_version: Option<f64>) -> String {
    let Strength { elo, elo_low, elo_high, accuracy_raw, accuracy_search } = strength;
    let elo = match (elo, elo_low, elo_high) {
        (Some(elo), Some(low), Some(high)) => {
            format!("{} ({} to {})", whole(Some(*elo)), whole(Some(*low)), whole(Some(*high)))
        }
        _ => whole(*elo),
    };
    let percent = |share: &Option<f64>| match share {
        Some(share) => format!("{:.1} %", 100.0 * share.clamp(0.0, 1.0)),
        None => MISSING.to_owned(),
    };
    format!(
        "weights {}, Elo {elo}, solved positions {} raw, {} with search",
        whole(weights_version),
        percent(accuracy_raw),
        percent(accuracy_search),
    )
}

fn process(text: &mut String, row: &Row) {
    let state = match row.lost_seconds {
        Some(seconds) => format!("lost {}", span(Some(seconds))),
        None => row.state.to_owned(),
    };
    let role = row.role.map_or("?", name_of);
    let cells = [
        // The processes of a run have names of their own, which are also the names of their logs.
        if row.name.starts_with(role) && row.name.len() <= ROLE_WIDTH { row.name.as_str() } else { role },
        &row.address,
        &state,
        &span(row.age_seconds),
        row.version.as_deref().unwrap_or(MISSING),
        &whole(row.weights_version),
        &whole(row.lag_versions),
        &short(row.work_per_second),
    ];
    line(text, cells);
    if let Some(reason) = &row.reason {
        folded(text, "", reason);
    }
}

/// Appends a line of the table; text that is too long for its column is cut.
fn line(text: &mut String, cells: [&str; 8]) {
    const WIDTHS: [usize; 8] = [ROLE_WIDTH, 21, 10, 6, 9, 7, 4, 6];
    let mut line = String::new();
    for (index, (cell, width)) in cells.into_iter().zip(WIDTHS).enumerate() {
        let cell = if cell.len() > width { format!("{}~", &cell[..width - 1]) } else { cell.to_owned() };
        // Text is aligned left, numbers are aligned right.
        let is_text = matches!(index, 0 | 1 | 2 | 4);
        let cell = if is_text { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
        line.push_str(&cell);
        line.push(' ');
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

/// Appends a name and text, wrapped to the width of the table.
fn folded(text: &mut String, name: &str, words: &str) {
    let mut line = format!("{name:<INDENT$}");
    for word in words.split_whitespace() {
        if line.len() > INDENT && line.len() + word.len() + 1 > WIDTH {
            text.push_str(line.trim_end());
            text.push('\n');
            line = " ".repeat(INDENT);
        }
        if line.len() > INDENT {
            line.push(' ');
        }
        // Only a word that is longer than a line is cut.
        line.push_str(&word[..word.len().min(WIDTH - INDENT)]);
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

/// Formats a number in at most six characters: `0.42`, `812`, `24.1k`, `3.05M`, `1e18`.
fn short(value: Option<f64>) -> String {
    match value {
        Some(value) if value.abs() >= 1e12 => format!("{value:.0e}"),
        Some(value) if value.abs() >= 1e9 => format!("{:.1}G", value / 1e9),
        Some(value) if value.abs() >= 1e6 => format!("{:.1}M", value / 1e6),
        Some(value) if value.abs() >= 1e4 => format!("{:.1}k", value / 1e3),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 1.0 || value == 0.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
        None => MISSING.to_owned(),
    }
}

fn whole(value: Option<f64>) -> String {
    match value {
        Some(value) if value.abs() >= 1e7 => format!("{value:.0e}"),
        Some(value) => format!("{value:.0}"),
        None => MISSING.to_owned(),
    }
}

fn money(value: f64) -> String {
    if value >= 1e9 { format!("{value:.1e}") } else { format!("{value:.2}") }
}

/// Formats a time: `42s`, `12:05`, `7h12`, `12d`.
fn span(seconds: Option<f64>) -> String {
    match seconds {
        None => MISSING.to_owned(),
        Some(seconds) if seconds < 3600.0 => clock(seconds),
        Some(seconds) if seconds < 86_400.0 => {
            format!("{:.0}h{:02.0}", (seconds / 3600.0).floor(), (seconds % 3600.0 / 60.0).floor())
        }
        Some(seconds) => format!("{:.0}d", (seconds / 86_400.0).floor().min(99_999.0)),
    }
}
