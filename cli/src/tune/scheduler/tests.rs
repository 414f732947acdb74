//! Tests of the scheduler with scripted trials: a formula replaces the run of each trial.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::json;

use super::*;
use crate::tune::sampler::Sampler;

/// Returns true for values in the optimal region: learning rates from 0.003 to 0.03 and batch sizes from 96.
fn is_good(values: &Values) -> bool {
    let rate = values["learner.learning_rate"].as_f64().unwrap();
    (0.003..=0.03).contains(&rate) && values["learner.batch_size"].as_i64().unwrap() >= 96
}

/// Returns the loss after a share of the budget. The loss falls to a minimum, which is 0 for the best values.
fn loss(values: &Values, share: f64) -> f64 {
    let rate = values["learner.learning_rate"].as_f64().unwrap();
    let batch = values["learner.batch_size"].as_f64().unwrap();
    let floor = ((rate / 0.01).log10()).powi(2) + (1.0 - batch / 256.0).abs() * 0.3;
    floor + (1.0 - share)
}

/// A runner that computes results by formula. Each poll uses one tenth of the budget. Runs continue after a simulated
/// kill of this program.
#[derive(Debug, Default)]
struct Script {
    /// Tenths of the budget that each run has used, including the time before a restart.
    trained: BTreeMap<usize, u32>,
    running: BTreeMap<usize, Scripted>,
    /// Trials that fail after this many tenths of the budget.
    failing: BTreeMap<usize, u32>,
    /// Numbers of the trials that cannot start.
    refused: BTreeSet<usize>,
    /// Tenths of the budget until the first measurement of a run.
    first_measured: u32,
    /// Highest number of trials that ran in parallel so far.
    most_running: usize,
}

#[derive(Debug)]
struct Scripted {
    values: Values,
    reported: u32,
    is_stopped: bool,
}

impl Runner for &mut Script {
    fn start(&mut self, trial: usize, values: &Values) -> anyhow::Result<()> {
        if self.refused.contains(&trial) {
            bail!("trial {trial} is refused");
        }
        self.running.insert(trial, Scripted { values: values.clone(), reported: 0, is_stopped: false });
        self.most_running = self.most_running.max(self.running.len());
        Ok(())
    }

    fn poll(&mut self, trial: usize) -> anyhow::Result<Report> {
        let run = self.running.get_mut(&trial).expect("the trial runs");
        let trained = self.trained.entry(trial).or_default();
        if !run.is_stopped && *trained < 10 {
            *trained += 1;
        }
        let measure = |tenths: u32| Measurement {
            budget: f64::from(tenths),
            metric: (tenths >= self.first_measured).then(|| loss(&run.values, f64::from(tenths) / 10.0)),
        };
        let measurements = (run.reported + 1..=*trained).map(measure).collect();
        run.reported = *trained;
        let fails = self.failing.get(&trial).is_some_and(|tenths| *trained >= *tenths);
        let end = match (fails, run.is_stopped || *trained == 10) {
            (true, _) => Some(Err("its run ended with status 1; last line: error: out of luck".to_owned())),
            (false, true) => Some(Ok(())),
            (false, false) => None,
        };
        if end.is_some() {
            self.running.remove(&trial);
        }
        Ok(Report { measurements, end })
    }

    fn stop(&mut self, trial: usize) {
        if let Some(run) = self.running.get_mut(&trial) {
            run.is_stopped = true;
        }
    }
}

fn study(trials: usize, parallel: usize, sampler: Sampler) -> Study {
    let (sampler, seed) = (json!(sampler), 1);
    let text = format!(
        r#"
        study = {{ name = "scripted", trials = {trials}, parallel = {parallel}, seed = {seed}, sampler = {sampler}, startup_trials = 8 }}
        base = {{ game = "tic_tac_toe" }}
        objective = {{ metric = "loss/total", direction = "minimise" }}
        budget = {{ minutes = 10 }}
        halving = {{ rungs = 2, reduction_factor = 3 }}
        [settings]
        learner.learning_rate = {{ min = 1e-5, max = 1.0, log = true }}
        learner.batch_size = {{ min = 32, max = 256, step = 32 }}
        "#
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scripted.toml");
    fs::write(&file, text).unwrap();
    Study::read(&file).unwrap()
}

/// Steps the study until the study is over or `stop` returns true. Returns the printed lines and the trials.
fn run(
    study: &Study,
    folder: &Path,
    script: &mut Script,
    mut stop: impl FnMut(&Scheduler<'_, &mut Script>) -> bool,
) -> (anyhow::Result<Vec<String>>, Vec<Trial>) {
    // All processes stopped with the previous session.
    script.running.clear();
    let (journal, events) = Journal::open(&folder.join("journal.jsonl")).unwrap();
    let mut scheduler = Scheduler::new(study, journal, &events, script).unwrap();
    let mut news = Vec::new();
    for _ in 0..100_000 {
        if scheduler.is_over() || stop(&scheduler) {
            return (Ok(news), scheduler.history().trials().to_vec());
        }
        match scheduler.step(100.0) {
            Ok(more) => news.extend(more),
            Err(error) => return (Err(error), scheduler.history().trials().to_vec()),
        }
    }
    panic!("the study does not end: {news:?}");
}

fn states(trials: &[Trial]) -> Vec<&'static str> {
    trials.iter().map(|trial| trial.state.name()).collect()
}

#[test]
fn a_planted_region_of_learning_rate_and_batch_is_found_with_a_part_of_the_budget() {
    for sampler in [Sampler::Tpe, Sampler::Random] {
        let folder = tempfile::tempdir().unwrap();
        let study = study(40, 3, sampler);
        let mut script = Script::default();
        let (news, trials) = run(&study, folder.path(), &mut script, |_| false);
        news.unwrap();
        let history = History::of(&Journal::open(&folder.path().join("journal.jsonl")).unwrap().1).unwrap();
        let (best, loss) = history.best(2, |loss| -loss).unwrap();
        assert!(is_good(&best.values), "{:?} with loss {loss}", best.values);
        assert_eq!((trials.len(), script.most_running), (40, 3));
        let used: u32 = script.trained.values().sum();
        // TPE proposes better values, so that more trials continue and use more budget.
        assert!(used < 40 * 10 * 6 / 10, "{used} tenths");
        let good = trials[20..].iter().filter(|trial| is_good(&trial.values)).count();
        assert!(sampler == Sampler::Random || good >= 8, "{good} of the last 20 trials of TPE are in the region");
    }
}

/// The script measures after every minute, a tenth of the budget. The rungs at 10/9 and 10/3 minutes are therefore
/// reached at 2 and 4 minutes.
#[test]
fn a_trial_that_falls_behind_at_a_rung_is_stopped_there_and_the_best_one_completes() {
    let folder = tempfile::tempdir().unwrap();
    let (news, trials) = run(&study(12, 1, Sampler::Random), folder.path(), &mut Script::default(), |_| false);
    for trial in &trials {
        let (used, end) = (trial.budget, trial.state);
        match end {
            State::Ended(End::Completed) => assert_eq!((used, trial.rungs.len()), (10.0, 2)),
            State::Ended(End::Stopped) => assert_eq!(used, [2.0, 4.0][trial.rungs.len() - 1]),
            other => panic!("{other:?}"),
        }
        // Repeats each decision: fewer than a third of the earlier trials at the rung must be at least as good.
        for (rung, &loss) in trial.rungs.iter().enumerate() {
            let before: Vec<f64> =
                trials[..trial.number].iter().filter_map(|other| other.rungs.get(rung).copied()).collect();
            let ahead = before.iter().filter(|&&other| other <= loss).count();
            let goes_on = ahead < ((before.len() + 1) / 3).max(1);
            assert_eq!(goes_on, trial.rungs.len() > rung + 1 || end == State::Ended(End::Completed));
        }
    }
    let stopped = states(&trials).iter().filter(|&&state| state == "stopped").count();
    assert!(stopped >= 6, "{:?}", states(&trials));
    let news = news.unwrap().join("\n");
    assert!(news.contains("at rung 1: loss/total") && news.contains(", stops\n"), "{news}");
}

/// Without parallel trials, a study is a deterministic function of the seed. A study that is killed after any number
/// of steps must therefore have the same trials.
#[test]
fn a_killed_tuner_goes_on_with_the_same_trials() {
    let study = study(6, 1, Sampler::Tpe);
    let whole = tempfile::tempdir().unwrap();
    let (_, expected) = run(&study, whole.path(), &mut Script::default(), |_| false);
    for steps in 0..25 {
        let folder = tempfile::tempdir().unwrap();
        let mut script = Script::default();
        let mut left = steps;
        let _killed = run(&study, folder.path(), &mut script, |_| {
            left -= 1;
            left < 0
        });
        let (news, trials) = run(&study, folder.path(), &mut script, |_| false);
        news.unwrap();
        assert_eq!(trials, expected, "killed after {steps} steps");
    }
}

#[test]
fn a_tuner_that_was_killed_between_the_decision_to_stop_a_trial_and_its_end_stops_it() {
    let study = study(2, 1, Sampler::Random);
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open(&folder.path().join("journal.jsonl")).unwrap();
    let values =
        Values::from([("learner.learning_rate".into(), json!(0.01)), ("learner.batch_size".into(), json!(64))]);
    for event in [
        Event::Begun { definition: study.definition.clone() },
        Event::Started { trial: 0, values, unix_seconds: 1.0 },
        Event::Rung { trial: 0, rung: 0, budget: 2.0, objective: 1e9, goes_on: false },
    ] {
        journal.append(&event).unwrap();
    }
    drop(journal);
    let mut script = Script::default();
    let (news, trials) = run(&study, folder.path(), &mut script, |_| false);
    news.unwrap();
    assert_eq!((trials[0].state, trials[0].objective), (State::Ended(End::Stopped), Some(1e9)));
    assert!(!script.trained.contains_key(&0), "it was not started again");
    assert_eq!(trials[1].state, State::Ended(End::Completed));
}

#[test]
fn a_crashed_trial_is_recorded_with_its_reason_and_the_study_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let study = study(5, 2, Sampler::Random);
    let mut script = Script { failing: BTreeMap::from([(1, 1)]), refused: BTreeSet::from([3]), ..Script::default() };
    let (news, trials) = run(&study, folder.path(), &mut script, |_| false);
    assert_eq!(
        trials.iter().filter(|trial| trial.state == State::Ended(End::Failed)).count(),
        2,
        "{:?}",
        states(&trials)
    );
    let reason = trials[1].reason.as_deref();
    assert_eq!(reason, Some("its run ended with status 1; last line: error: out of luck"));
    assert_eq!(trials[3].reason.as_deref(), Some("trial 3 is refused"));
    let news = news.unwrap();
    assert!(news.iter().any(|line| line.starts_with("trial 3 failed (trial 3 is refused)")), "{news:?}");
    assert_ne!(trials[4].state.name(), "failed");
}

#[test]
fn a_study_whose_first_trials_all_fail_ends_with_the_reason_and_failed_trials_can_be_retried() {
    let folder = tempfile::tempdir().unwrap();
    let study = study(9, 1, Sampler::Random);
    let mut script = Script { refused: (0..9).collect(), ..Script::default() };
    let (news, trials) = run(&study, folder.path(), &mut script, |_| false);
    let error = news.unwrap_err().to_string();
    assert!(error.starts_with("3 trials failed and none has a result; trial 2: trial 2 is refused; "), "{error}");
    assert!(error.ends_with("--retry-failed"), "{error}");
    assert_eq!(states(&trials), ["failed"; 3]);

    let mut script = Script::default();
    let (journal, events) = Journal::open(&folder.path().join("journal.jsonl")).unwrap();
    let mut scheduler = Scheduler::new(&study, journal, &events, &mut script).unwrap();
    scheduler.retry_failed().unwrap();
    drop(scheduler);
    let (news, trials) = run(&study, folder.path(), &mut script, |_| false);
    news.unwrap();
    assert!(!states(&trials).contains(&"failed"), "{:?}", states(&trials));
    assert_eq!(trials.len(), 9);
}

#[test]
fn a_drain_stops_every_trial_and_leaves_them_unfinished_for_the_next_session() {
    let folder = tempfile::tempdir().unwrap();
    let study = study(4, 2, Sampler::Random);
    let mut script = Script::default();
    let (journal, events) = Journal::open(&folder.path().join("journal.jsonl")).unwrap();
    let mut scheduler = Scheduler::new(&study, journal, &events, &mut script).unwrap();
    scheduler.step(1.0).unwrap();
    scheduler.drain();
    while !scheduler.is_over() {
        scheduler.step(1.0).unwrap();
    }
    assert!(!scheduler.is_complete());
    assert_eq!(states(scheduler.history().trials()), ["unfinished"; 2]);
    drop(scheduler);
    let before = script.trained.clone();
    let (news, trials) = run(&study, folder.path(), &mut script, |_| false);
    assert!(news.unwrap()[0].starts_with("trial 0 continues: learner.batch_size "));
    assert!(before.values().all(|&tenths| tenths > 0));
    assert!(!states(&trials).contains(&"unfinished"), "{:?}", states(&trials));
}

#[test]
fn a_rung_that_comes_before_the_first_measurement_is_decided_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut script = Script { first_measured: 5, ..Script::default() };
    let (_, trials) = run(&study(4, 1, Sampler::Random), folder.path(), &mut script, |_| false);
    assert_eq!(trials[0].rungs.len(), 2);
    assert_eq!(trials[0].rungs[0], trials[0].rungs[1], "both are the measurement at 5");
    assert!(trials[1..].iter().all(|trial| trial.budget >= 5.0));
}

#[test]
fn a_trial_that_is_never_measured_has_failed() {
    let folder = tempfile::tempdir().unwrap();
    let mut script = Script { first_measured: 99, ..Script::default() };
    let (news, trials) = run(&study(4, 1, Sampler::Random), folder.path(), &mut script, |_| false);
    let reason = trials[0].reason.as_deref().unwrap();
    assert!(reason.starts_with("loss/total was never measured within 10 minutes: give"), "{reason}");
    assert!(news.unwrap_err().to_string().contains("none has a result"));
}

#[test]
fn the_objective_is_the_mean_of_the_last_readings() {
    let mut running = Running::default();
    for (budget, metric) in [(1.0, Some(9.0)), (2.0, Some(4.0)), (3.0, None), (4.0, Some(6.0))] {
        running.measure(Measurement { budget, metric }, 2);
    }
    assert_eq!((running.budget, running.objective()), (4.0, Some(5.0)));
}
