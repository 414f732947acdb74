//! Writes the results of a study to the study directory: all trials as CSV, the best trial as a run file, and two
//! pictures.

use std::path::Path;

use fleet::run_directory::RunDirectory;
use fleet::run_directory::load_run;
use run_file::RunFile;
use service::config::RunSection;
use service::directory::replace;

use super::base::Base;
use super::history::{History, Trial};
use super::objective::Objective;
use super::picture;
use super::range::{Values, text};
use super::scheduler::{number4, sentence};
use super::study::Study;
use crate::csv;
use crate::printed_command::quoted;

/// Writes the result files of a study, and returns lines for the terminal about the best trial and the files.
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
        let options = Base::session_options(&study.base.arguments(&Values::new()));
        let options: String = options.iter().map(|(option, value)| format!(" {option} {value}")).collect();
        found.push(format!("train with it: zerofleet train --config {}{options}", quoted(&file)));
    }
    picture::draw(folder, study, history)?;
    found.push(format!("trials and pictures: {}", folder.display()));
    Ok(found)
}

/// Returns all trials as CSV (RFC 4180): a header, then one line per trial.
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

/// Returns the configuration of a trial as the text of a run file, for further runs with these settings.
fn run_file(study: &Study, trial: &Trial, objective: f64, run: &RunDirectory) -> anyhow::Result<String> {
    let mut config: RunFile = load_run(run)?;
    config.run.directory = RunSection::default().directory;
    let Study { name, budget, objective: Objective { metric, .. }, .. } = study;
    let (number, reached) = (trial.number, number4(objective));
    let heading = format!(
        "# Trial {number} of study {name}: {metric} {reached} with a budget of {budget}.\n# {}\n\n",
        sentence(&trial.values)
    );
    Ok(heading + &service::config::print(&config)?)
}

/// Tests of reports on studies that are reconstructed from given events.
#[cfg(test)]
mod tests {
    use std::fs;

    use fleet::plan;
    use serde_json::json;

    use super::*;
    use crate::tune::journal::{End, Event};

    const TRIALS: usize = 12;

    /// A temporary study directory with the files of each run that a report reads.
    struct Folder {
        folder: tempfile::TempDir,
        study: Study,
    }

    impl Folder {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("reported.toml");
            let text = r#"
                base = { game = "tic_tac_toe", actors = 2 }
                objective = { metric = "elo/current", direction = "maximise" }
                budget = { minutes = 9 }
                halving = { rungs = 1 }
                [settings]
                learner.learning_rate = { min = 1e-5, max = 1.0, log = true }
                learner.batch_size = { min = 32, max = 256, step = 32 }
                search.algorithm = { choices = ["puct", "gumbel"] }
                arena.playouts = { choices = [[50, 200], [50]] }
            "#;
            fs::write(&file, text).unwrap();
            let study = Study::read(&file).unwrap();
            let folder = Self { folder, study };
            for number in 0..TRIALS {
                let options =
                    fleet::plan::Args { run: Some(number.to_string()), ..folder.study.base.arguments(&values(number)) };
                let config = plan::check_new(&options, std::iter::empty()).unwrap();
                let run = folder.run(number);
                run.create().unwrap();
                fs::write(run.config(), service::config::print(&config).unwrap()).unwrap();
            }
            folder
        }

        fn run(&self, number: usize) -> RunDirectory {
            RunDirectory::new(&self.folder.path().join("trials"), &number.to_string()).unwrap()
        }

        fn write(&self, events: &[Event]) -> Vec<String> {
            let history = History::of(events).unwrap();
            write(&self.study, &history, self.folder.path(), &self.folder.path().join("trials")).unwrap()
        }

        fn text(&self, name: &str) -> String {
            fs::read_to_string(self.folder.path().join(name)).unwrap()
        }
    }

    fn values(number: usize) -> Values {
        let rate = 1e-5 * 2.7_f64.powf(number as f64 * 0.9);
        let algorithm = ["puct", "gumbel"][number % 2];
        let playouts = [json!([50, 200]), json!([50])][number / 2 % 2].clone();
        Values::from([
            ("learner.learning_rate".to_owned(), json!(rate)),
            ("learner.batch_size".to_owned(), json!(32 * (1 + number * 5 % 8))),
            ("search.algorithm".to_owned(), json!(algorithm)),
            ("arena.playouts".to_owned(), playouts),
        ])
    }

    /// Returns the events of a study: the eighth trial is the best, every fourth trial is stopped, and the last trial
    /// fails.
    fn events() -> Vec<Event> {
        let mut events = Vec::new();
        for trial in 0..TRIALS {
            let objective = 0.9 - 0.01 * (trial as f64 - 7.0).powi(2);
            let is_stopped = trial % 4 == 0;
            events.push(Event::Started { trial, values: values(trial), unix_seconds: 10.0 });
            let (end, reason, reached) = if trial == TRIALS - 1 {
                (End::Failed, Some("it said \"no\", twice".to_owned()), None)
            } else {
                events.push(Event::Rung {
                    trial,
                    rung: 0,
                    budget: 3.0,
                    objective: objective - 0.1,
                    goes_on: !is_stopped,
                });
                let end = if is_stopped { End::Stopped } else { End::Completed };
                (end, None, Some(if is_stopped { objective - 0.1 } else { objective }))
            };
            let budget = if is_stopped { 3.0 } else { 9.0 };
            events.push(Event::Ended { trial, end, budget, objective: reached, reason, unix_seconds: 500.0 });
        }
        events
    }

    #[test]
    fn the_best_trial_is_a_run_file_that_a_new_run_takes_unchanged() {
        let folder = Folder::new();
        let found = folder.write(&events());
        assert!(found[0].starts_with("best: trial 7, elo/current 0.9: arena.playouts [50], "), "{found:?}");
        assert!(found[1].starts_with("train with it: zerofleet train --config "), "{found:?}");
        assert!(found[1].ends_with("best.toml --minutes 9 --actors 2"), "{found:?}");
        let file = Some(folder.folder.path().join("best.toml"));
        let options = fleet::plan::Args {
            config: file,
            game: None,
            sets: Vec::new(),
            ..folder.study.base.arguments(&Values::new())
        };
        let config = plan::check_new(&options, std::iter::empty()).unwrap();
        let trial = load_run::<RunFile>(&folder.run(7)).unwrap();
        let same = |config: &RunFile| service::config::print(&(&config.learner, &config.search, &config.arena)).ok();
        assert_eq!(same(&config), same(&trial));
        assert_eq!(config.run.game, "tic_tac_toe");
        assert!(folder.text("best.toml").starts_with("# Trial 7 of study reported: elo/current 0.9 with"));
    }

    #[test]
    fn every_trial_is_a_line_of_the_csv_with_its_state_and_values() {
        let folder = Folder::new();
        folder.write(&events());
        let text = folder.text("trials.csv");
        let lines: Vec<&str> = text.lines().collect();
        let heading = "trial,state,rungs,minutes,objective,started,seconds,reason,\
                       arena.playouts,learner.batch_size,learner.learning_rate,search.algorithm";
        assert_eq!((lines.len(), lines[0]), (1 + TRIALS, heading));
        assert!(
            lines[1].starts_with("0,stopped,1,3,0.31000000000000005,10,490,,\"[50,200]\",32,0.00001,puct"),
            "{text}"
        );
        assert!(lines[8].starts_with("7,completed,1,9,0.9,10,490,,"), "{text}");
        assert!(lines[12].starts_with("11,failed,0,9,,10,490,\"it said \"\"no\"\", twice\","), "{text}");
    }

    #[test]
    fn pictures_name_the_objective_and_every_setting_and_are_drawn_without_any_trial_too() {
        let folder = Folder::new();
        folder.write(&events());
        assert!(folder.text("objective.svg").contains("Study reported: elo/current of each trial"));
        let settings = folder.text("settings.svg");
        for name in ["learner.learning_rate", "learner.batch_size", "search.algorithm", "gumbel", "puct", "[50,200]"] {
            assert!(settings.contains(name), "{name}");
        }
        // The picture has a disc or circle for each trial with a result.
        let objectives = folder.text("objective.svg");
        assert_eq!(objectives.matches("<circle").count(), TRIALS - 1);
        assert!(["0.9 best\n", "completed\n", "stopped or running\n"].iter().all(|label| objectives.contains(label)));
        assert_eq!(settings.matches("<circle").count(), 4 * (TRIALS - 1));
        let found = folder.write(&[]);
        assert!(folder.text("objective.svg").contains("not measured"));
        assert!(!found.iter().any(|line| line.starts_with("best")), "{found:?}");
    }
}
