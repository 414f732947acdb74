//! Writes what a study has found into its folder: every trial as CSV, the best one as a run file, the importance of the
//! settings, and two pictures.

use std::fs;
use std::path::Path;

use fleet::config::{Fleet, load_run};
use fleet::run_directory::RunDirectory;
use service::config::RunSection;
use service::directory::replace;

use super::history::{History, Trial};
use super::importance::{RESULTS_MIN, importance};
use super::objective::Objective;
use super::picture;
use super::range::{Values, text};
use super::scheduler::{number4, sentence};
use super::study::Study;
use crate::csv;
use crate::printed_command::quoted;

/// Writes the files of a study's results and returns sentences about them.
///
/// # Errors
/// A file cannot be written, or the configuration of the best run cannot be read.
pub(super) fn write(study: &Study, history: &History, folder: &Path, trials: &Path) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    replace(&folder.join("trials.csv"), csv(study, history).as_bytes())?;
    let rungs = study.halving.budgets.len();
    if let Some((trial, objective)) = history.best(rungs, |value| study.objective.score(value)) {
        let run = RunDirectory::new(trials, &trial.number.to_string())?;
        let file = folder.join("best.toml");
        replace(&file, run_file(study, trial, objective, &run)?.as_bytes())?;
        let (metric, number, values) = (&study.objective.metric, trial.number, sentence(&trial.values));
        found.push(format!("best: trial {number}, {metric} {}: {values}", number4(objective)));
        let options = options(study);
        found.push(format!("train with it: zerofleet train --config {}{options}", quoted(&file)));
    }
    found.extend(importance_lines(study, history, folder)?);
    picture::draw(folder, study, history)?;
    found.push(format!("trials and pictures: {}", folder.display()));
    Ok(found)
}

/// Returns every trial as a line of CSV (RFC 4180), below a line of names.
fn csv(study: &Study, history: &History) -> String {
    let columns = ["trial", "state", "rungs", study.budget.unit(), "objective", "started", "seconds", "reason"];
    let keys = study.settings.iter().map(|setting| setting.key.clone());
    let mut lines = vec![columns.into_iter().map(str::to_owned).chain(keys).collect::<Vec<_>>()];
    let number = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    for trial in history.trials() {
        let fields = [
            trial.number.to_string(),
            trial.state.name().to_owned(),
            trial.rungs.len().to_string(),
            number(trial.ended.map(|_| trial.budget)),
            number(trial.objective.or(trial.rungs.last().copied())),
            format!("{:.0}", trial.started),
            number(trial.ended.map(|ended| (ended - trial.started).round())),
            trial.reason.clone().unwrap_or_default(),
        ];
        let value =
            |key: &str| trial.values.get(key).map(|value| value.as_str().map_or_else(|| text(value), str::to_owned));
        let values = study.settings.iter().map(|setting| value(&setting.key).unwrap_or_default());
        lines.push(fields.into_iter().chain(values).collect());
    }
    lines.iter().map(csv::line).collect()
}

/// Returns the configuration of a trial's run as a run file for further runs.
fn run_file(study: &Study, trial: &Trial, objective: f64, run: &RunDirectory) -> anyhow::Result<String> {
    let mut config: Fleet = load_run(run)?;
    config.run.directory = RunSection::default().directory;
    let Study { name, budget, objective: Objective { metric, .. }, .. } = study;
    let (number, reached) = (trial.number, number4(objective));
    let heading = format!(
        "# Trial {number} of study {name}: {metric} {reached} with a budget of {budget}.\n# {}\n\n",
        sentence(&trial.values)
    );
    Ok(heading + &service::config::print(&config)?)
}

/// Returns the options of `zerofleet train` that are not in a run file.
fn options(study: &Study) -> String {
    let options = study.arguments(&Values::new());
    let mut line = format!(" --minutes {}", study.budget.run_minutes());
    options.actors.iter().for_each(|actors| line += &format!(" --actors {actors}"));
    options.replay_servers.iter().for_each(|servers| line += &format!(" --replay-servers {servers}"));
    if let Some(inference) = options.inference.as_ref().and_then(clap::ValueEnum::to_possible_value) {
        line += &format!(" --inference {}", inference.get_name());
    }
    line
}

/// Writes `importance.csv` and returns a sentence about it.
fn importance_lines(study: &Study, history: &History, folder: &Path) -> anyhow::Result<Vec<String>> {
    let score = |value: f64| study.objective.score(value);
    let level = history.level(&study.settings, study.halving.budgets.len(), RESULTS_MIN, score);
    let shares = level.as_ref().and_then(|level| importance(&study.settings, &level.observations));
    let file = folder.join("importance.csv");
    let Some((level, shares)) = level.as_ref().zip(shares) else {
        // That of fewer trials would be out of date.
        service::directory::if_exists(fs::remove_file(&file))?;
        return Ok(vec![format!("importance: unknown, since fewer than {RESULTS_MIN} trials have different results")]);
    };
    let mut sorted: Vec<_> = study.settings.iter().map(|setting| setting.key.as_str()).zip(shares).collect();
    sorted.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let lines = sorted.iter().map(|(key, share)| csv::line([key.to_string(), format!("{share:.3}")]));
    replace(&file, ("setting,importance\n".to_owned() + &lines.collect::<String>()).as_bytes())?;
    let shares = sorted.iter().map(|(key, share)| format!("{key} {:.0} %", 100.0 * share)).collect::<Vec<_>>();
    let results = level.observations.iter().filter(|observation| observation.score.is_some()).count();
    let budget = study.halving.budgets.get(level.rung).copied().unwrap_or(study.budget.full());
    let budget = crate::screen::number(Some(budget));
    let unit = study.budget.unit();
    Ok(vec![format!("importance, of {results} results after {budget} {unit}: {}", shares.join(", "))])
}

#[cfg(test)]
mod tests;
