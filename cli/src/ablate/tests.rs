//! Tests of the schedule with scripted runs, including resumption from the results file.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;

use super::rows::Row;
use super::schedule::Laboratory;
use super::*;
use crate::tune::{Measurement, Report, Runner, Values};

/// A laboratory with scripted runs, each of which uses one half of the budget per poll.
#[derive(Debug, Default)]
struct Script {
    machine: &'static str,
    looks: BTreeMap<usize, u32>,
    /// Numbers of the runs that crash at the second poll.
    crashing: BTreeSet<usize>,
    stopped: BTreeSet<usize>,
    /// Starts and measurements, sorted by time.
    log: Vec<String>,
}

impl Runner for &mut Script {
    fn start(&mut self, trial: usize, _: &Values) -> anyhow::Result<()> {
        self.log.push(format!("start {trial}"));
        self.looks.insert(trial, 0);
        Ok(())
    }

    fn poll(&mut self, trial: usize) -> anyhow::Result<Report> {
        let looks = self.looks.get_mut(&trial).expect("the run has started");
        *looks += 1;
        let measurements = vec![Measurement { budget: f64::from(*looks) * 10_000.0, metric: None }];
        let end = if *looks == 2 && self.crashing.contains(&trial) {
            Some(Err("its run was killed".to_owned()))
        } else {
            self.stopped.contains(&trial).then_some(Ok(()))
        };
        Ok(Report { measurements, end })
    }

    fn stop(&mut self, trial: usize) {
        self.stopped.insert(trial);
    }
}

impl Laboratory for &mut Script {
    fn runner(&mut self) -> &mut dyn Runner {
        self
    }

    fn here(&self) -> [String; 2] {
        [self.machine.to_owned(), "abc".to_owned()]
    }

    fn clear(&mut self, run: usize) -> anyhow::Result<()> {
        self.stopped.remove(&run);
        Ok(())
    }

    fn measured(&mut self, run: usize) -> Option<anyhow::Result<Row>> {
        self.log.push(format!("measure {run}"));
        let [machine, commit] = self.here();
        let columns = [("machine", machine), ("commit", commit), ("accuracy/raw/optimal/overall", "0.5".to_owned())];
        Some(Ok(Row(columns.into_iter().map(|(column, value)| (column.to_owned(), value)).collect())))
    }
}

fn study(kind: &str, seeds: usize) -> Study {
    let text = format!(
        r#"
        study = {{ name = "scripted", seeds = {seeds} }}
        design = {{ kind = "{kind}" }}
        budget = {{ positions = 25000, minutes_max = 5 }}
        [base]
        game = "tic_tac_toe"
        set = ["learner.schedule=positions", "learner.publish_interval_steps=50"]
        [switches]
        batch = {{ on = {{ "learner.batch_size" = 32 }} }}
        "#
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scripted.toml");
    std::fs::write(&file, text).unwrap();
    Study::read(&file).unwrap()
}

/// Simulates a session that is killed once `stop` returns true; returns the printed lines.
fn session(study: &Study, csv: &Path, script: &mut Script, mut stop: impl FnMut(usize) -> bool) -> Vec<String> {
    let rows = Rows::open(csv, ["batch".to_owned()].into_iter()).unwrap();
    let mut schedule = Schedule::new(study, rows, study.pairs.clone(), script);
    let mut news = Vec::new();
    for steps in 0.. {
        if schedule.is_over() || stop(steps) {
            break;
        }
        news.extend(schedule.step().unwrap());
    }
    news
}

fn keys(csv: &Path) -> Vec<String> {
    let rows = Rows::read(csv).unwrap();
    let key = |row: &Row| ["row", "side", "batch", "seed", "machine"].map(|column| row.get(column)).join(" ");
    rows.iter().map(key).collect()
}

fn script(machine: &'static str) -> Script {
    Script { machine, ..Script::default() }
}

#[test]
fn pairs_run_one_run_after_the_other_and_a_killed_study_goes_on_from_its_rows() {
    let (study, folder) = (study("pairs", 3), tempfile::tempdir().unwrap());
    let csv = folder.path().join("rows.csv");
    let mut first = script("here");
    session(&study, &csv, &mut first, |steps| steps == 14);
    assert_eq!(first.log, ["start 0", "measure 0", "start 1", "measure 1", "start 2", "measure 2", "start 3"]);
    // Simulates a crash that truncated a line.
    let text = std::fs::read_to_string(&csv).unwrap();
    std::fs::write(&csv, text + "scripted,pairs,2,of").unwrap();
    let mut second = script("here");
    session(&study, &csv, &mut second, |_| false);
    assert_eq!(second.log, ["start 3", "measure 3", "start 4", "measure 4", "start 5", "measure 5"]);
    let expected = ["1 off 0 1", "1 on 1 1", "2 on 1 2", "2 off 0 2", "3 off 0 3", "3 on 1 3"];
    assert_eq!(keys(&csv), expected.map(|key| format!("{key} here")));
    let mut third = script("elsewhere");
    session(&study, &csv, &mut third, |_| false);
    assert_eq!(third.log, [""; 0], "complete pairs count wherever they ran");
}

#[test]
fn a_pair_of_which_one_run_was_made_on_another_machine_is_run_again_as_a_whole() {
    let (study, folder) = (study("pairs", 1), tempfile::tempdir().unwrap());
    let csv = folder.path().join("rows.csv");
    session(&study, &csv, &mut script("there"), |steps| steps == 4);
    assert_eq!(keys(&csv), ["1 off 0 1 there"]);
    let mut here = script("here");
    session(&study, &csv, &mut here, |_| false);
    assert_eq!(here.log, ["start 0", "measure 0", "start 1", "measure 1"]);
    let rows = Rows::read(&csv).unwrap();
    let machines = rows::complete(&rows).concat().iter().map(|row| row.get("machine")).collect::<Vec<_>>();
    assert_eq!(machines, ["here", "here"]);
}

#[test]
fn a_row_and_its_mirror_run_side_by_side_and_a_crashed_run_is_tried_again_alone() {
    let (study, folder) = (study("screen", 1), tempfile::tempdir().unwrap());
    let csv = folder.path().join("rows.csv");
    let mut crashing = Script { crashing: [3].into(), ..script("here") };
    let news = session(&study, &csv, &mut crashing, |_| false);
    assert_eq!(crashing.log[..4], ["start 0", "start 1", "measure 0", "measure 1"]);
    assert!(news.contains(&"row 2 - failed: its run was killed".to_owned()), "{news:?}");
    assert_eq!(keys(&csv).len(), 23);
    let mut again = script("here");
    session(&study, &csv, &mut again, |_| false);
    assert_eq!(again.log, ["start 3", "measure 3"]);
    assert_eq!(keys(&csv).len(), 24);
}

#[test]
fn runs_under_way_end_when_no_more_start_and_drain_without_a_row_when_a_signal_comes() {
    fn begun<'a>(study: &'a Study, csv: &Path, script: &'a mut Script) -> Schedule<'a, &'a mut Script> {
        let rows = Rows::open(csv, ["batch".to_owned()].into_iter()).unwrap();
        let mut schedule = Schedule::new(study, rows, study.pairs.clone(), script);
        schedule.step().unwrap();
        schedule
    }
    let (study, folder) = (study("screen", 1), tempfile::tempdir().unwrap());
    let csv = folder.path().join("rows.csv");
    let over = |mut schedule: Schedule<'_, &mut Script>| {
        let mut news = Vec::new();
        while !schedule.is_over() {
            news.extend(schedule.step().unwrap());
        }
        (news, schedule.failures())
    };
    let mut script = script("here");
    let mut schedule = begun(&study, &csv, &mut script);
    schedule.drain();
    let (news, failures) = over(schedule);
    assert!(failures == 0 && news[0] == "row 1 + was stopped; the next session repeats the run", "{news:?}");
    assert_eq!(keys(&csv), [""; 0]);
    let mut script = self::script("here");
    let mut schedule = begun(&study, &csv, &mut script);
    schedule.start_no_more();
    over(schedule);
    assert_eq!(keys(&csv).len(), 2);
}

#[test]
fn a_file_of_other_switches_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("rows.csv");
    let open = |switch: &str| -> anyhow::Result<()> {
        match Rows::open(&csv, [switch.to_owned()].into_iter()) {
            Ok(_) => Ok(()),
            Err(error) => bail!("{error}"),
        }
    };
    open("batch").unwrap();
    open("batch").unwrap();
    let error = open("rate").unwrap_err().to_string();
    assert!(
        error.ends_with("has the columns of another study or program version; choose another file with --csv"),
        "{error}"
    );
}
