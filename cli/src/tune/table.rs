//! Formats the state of a study for the terminal: a status line and a table of trials.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use figures::table::Table;

use super::history::{History, State, Trial};
use super::range::short;
use super::scheduler::{Running, number4};
use super::study::Study;
use crate::screen::{MISSING, number};

/// Maximum number of trials in the live table. Running trials come before the latest other trials.
const ROWS_MAX: usize = 16;
/// Maximum width of the column of a setting, in characters.
const WIDTH_MAX: usize = 18;

/// Formats the state of the study: a line with counts and the best trial, and a table of the latest trials.
pub(super) fn live(study: &Study, history: &History, running: &BTreeMap<usize, Running>) -> String {
    let trials = history.trials();
    let others = ROWS_MAX.saturating_sub(running.len());
    let ended: Vec<&Trial> = trials.iter().filter(|trial| !running.contains_key(&trial.number)).collect();
    let newest = &ended[ended.len().saturating_sub(others)..];
    let mut shown: Vec<&Trial> =
        newest.iter().copied().chain(running.keys().filter_map(|&number| trials.get(number))).collect();
    shown.sort_by_key(|trial| trial.number);
    format!("{}\n\n{}", status(study, history, running), table(study, &shown, running))
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
    let numbers = ["rung", study.budget.unit(), study.objective.metric.as_str()];
    let settings = study.settings.iter().map(|setting| setting.key.as_str());
    let mut table = Table::default().numbers(["trial"]).words(["state"]).numbers(numbers).numbers(settings);
    trials.iter().for_each(|trial| table.row(row(study, trial, running.get(&trial.number))));
    table.to_string()
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
