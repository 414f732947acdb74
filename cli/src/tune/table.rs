//! Formats the state of a study for the terminal: a status line and a table of trials.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::history::{History, State, Trial};
use super::range::short;
use super::scheduler::{Running, number4};
use super::study::Study;
use crate::screen::{MISSING, number};
use crate::table::aligned;

/// Maximum number of trials in the live table. Running trials come before the latest other trials.
const ROWS_MAX: usize = 16;
/// Index of the column with the trial state, which is aligned as text.
const STATE_COLUMN: usize = 1;
/// Maximum width of the column of a setting, in characters.
const WIDTH_MAX: usize = 18;

/// Formats the state of the study: a line with counts and the best trial, and a table of the latest trials.
pub(super) fn live(study: &Study, history: &History, running: &BTreeMap<usize, Running>) -> String {
    let mut text = format!("{}\n\n", status(study, history, running));
    let trials = history.trials();
    let others = ROWS_MAX.saturating_sub(running.len());
    let ended: Vec<&Trial> = trials.iter().filter(|trial| !running.contains_key(&trial.number)).collect();
    let newest = &ended[ended.len().saturating_sub(others)..];
    let mut shown: Vec<&Trial> =
        newest.iter().copied().chain(running.keys().filter_map(|&number| trials.get(number))).collect();
    shown.sort_by_key(|trial| trial.number);
    text += &table(study, &shown, running);
    text
}

/// Formats the state of the study as one line, with counts and the best trial.
pub(super) fn status(study: &Study, history: &History, running: &BTreeMap<usize, Running>) -> String {
    let with = |state: &str| history.trials().iter().filter(|trial| trial.state.name() == state).count();
    let counts = ["completed", "stopped", "failed"].map(|state| format!("{} {state}", with(state)));
    let mut line =
        format!("study {}: {}, {} running of {} trials", study.name, counts.join(", "), running.len(), study.trials);
    if let Some((trial, objective)) = history.best(study.halving.budgets.len(), |value| study.objective.score(value)) {
        let (metric, number) = (&study.objective.metric, trial.number);
        write!(line, "; best {metric} {} by trial {number}", number4(objective)).expect("strings grow");
    }
    line
}

/// Formats trials as a table, with one line per trial.
pub(super) fn table(study: &Study, trials: &[&Trial], running: &BTreeMap<usize, Running>) -> String {
    let keys = study.settings.iter().map(|setting| setting.key.as_str());
    let heading = ["trial", "state", "rung", study.budget.unit(), study.objective.metric.as_str()];
    let mut rows: Vec<Vec<String>> = vec![heading.into_iter().chain(keys).map(str::to_owned).collect()];
    rows.extend(trials.iter().map(|trial| row(study, trial, running.get(&trial.number))));
    aligned(&rows, &[STATE_COLUMN]).into_iter().map(|line| line + "\n").collect()
}

fn row(study: &Study, trial: &Trial, running: Option<&Running>) -> Vec<String> {
    let state = match (trial.state, running) {
        (State::Unfinished, Some(running)) if running.is_draining => "draining",
        (State::Unfinished, Some(_)) => "running",
        (state, _) => state.name(),
    };
    let objective = trial.objective.or_else(|| running?.objective()).or(trial.rungs.last().copied());
    let budget = running.map_or(trial.budget, |running| running.budget);
    let rung = format!("{}/{}", trial.rungs.len(), study.halving.budgets.len());
    let cells = [
        trial.number.to_string(),
        state.to_owned(),
        rung,
        if budget > 0.0 { number(Some(budget)) } else { MISSING.to_owned() },
        objective.map_or_else(|| MISSING.to_owned(), number4),
    ];
    let value = |key: &str| trial.values.get(key).map_or_else(|| MISSING.to_owned(), short);
    let cut = |text: String| {
        let is_long = text.chars().count() > WIDTH_MAX;
        if is_long { text.chars().take(WIDTH_MAX - 1).chain(['~']).collect() } else { text }
    };
    cells.into_iter().chain(study.settings.iter().map(|setting| cut(value(&setting.key)))).collect()
}
