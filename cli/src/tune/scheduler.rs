//! Schedules the trials of a study: starts trials, compares results at rungs and stops trials. The journal records
//! every event before the scheduler acts on it. The scheduler reads no clock and starts no process: a [`Runner`] runs
//! the trials.

use std::collections::{BTreeMap, VecDeque};

use anyhow::bail;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::history::{History, State, Trial};
use super::journal::{End, Event, Journal};
use super::range::{Values, rounded, short};
use super::study::Study;
use crate::screen::number;

/// Number of significant digits to which objectives are rounded.
const OBJECTIVE_DIGITS: usize = 9;

/// Runs the numbered trials of a study. The run directory of a trial remains when this program exits, so that the trial
/// can resume.
pub(crate) trait Runner {
    /// Starts or resumes the run of a trial.
    ///
    /// # Errors
    /// The run cannot start, so that the trial has failed.
    fn start(&mut self, trial: usize, values: &Values) -> anyhow::Result<()>;

    /// Returns the new measurements of a started trial since the last call, and whether the run has ended. The first
    /// call returns all measurements from the start of the run.
    ///
    /// # Errors
    /// The measurements cannot be read, so that the study stops.
    fn poll(&mut self, trial: usize) -> anyhow::Result<Report>;

    /// Asks the run of a started trial to drain; has no effect once the run has stopped.
    fn stop(&mut self, trial: usize);
}

/// The new measurements of a trial and the end of the run, if any.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub measurements: Vec<Measurement>,
    /// Result of the run, with the reason for a failure; `None` while the run continues.
    pub end: Option<Result<(), String>>,
}

/// The metrics of a trial's run, as recorded at one time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Measurement {
    /// Budget used up to this reading, in minutes or positions.
    pub budget: f64,
    /// Value of the objective's metric; `None` if the metric is not measured yet.
    pub metric: Option<f64>,
}

/// The scheduler of a study, with all trials that are running or have ended.
#[derive(Debug)]
pub(super) struct Scheduler<'a, R> {
    study: &'a Study,
    journal: Journal,
    history: History,
    runner: R,
    running: BTreeMap<usize, Running>,
    /// True once no more trials may start and running trials must drain.
    is_draining: bool,
    /// Number of failed trials in this session.
    failures: usize,
}

/// The state of a running trial.
#[derive(Debug, Default)]
pub(super) struct Running {
    /// Budget used so far, in minutes or positions.
    pub budget: f64,
    /// Latest values of the objective's metric, from which the mean is computed.
    metrics: VecDeque<f64>,
    /// True once the run was requested to drain.
    pub is_draining: bool,
}

impl Running {
    /// Records a measurement, and keeps only the last `readings` values of the metric.
    fn measure(&mut self, measurement: Measurement, readings: usize) {
        self.budget = measurement.budget;
        self.metrics.extend(measurement.metric);
        while self.metrics.len() > readings {
            self.metrics.pop_front();
        }
    }

    /// Returns the objective so far: the mean of the latest values; `None` without a value.
    pub(super) fn objective(&self) -> Option<f64> {
        let mean = || self.metrics.iter().sum::<f64>() / self.metrics.len() as f64;
        // Rounds, so that the value read from the journal is the same.
        (!self.metrics.is_empty()).then(|| rounded(mean(), OBJECTIVE_DIGITS))
    }
}

impl<'a, R: Runner> Scheduler<'a, R> {
    /// Creates a scheduler from the events of a journal, or begins a new study if there are no events.
    ///
    /// # Errors
    /// The journal belongs to a study with another definition, or cannot be written.
    pub(super) fn new(study: &'a Study, journal: Journal, events: &[Event], runner: R) -> anyhow::Result<Self> {
        let history = History::of(events)?;
        let (running, is_draining, failures) = (BTreeMap::new(), false, 0);
        let mut scheduler = Self { study, journal, history, runner, running, is_draining, failures };
        match events.first() {
            Some(Event::Begun { definition }) => study.check_definition(definition)?,
            _ => scheduler.keep(&Event::Begun { definition: study.definition.clone() })?,
        }
        Ok(scheduler)
    }

    /// Marks all failed trials to run again.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub(super) fn retry_failed(&mut self) -> anyhow::Result<()> {
        let failed = self.history.trials().iter().filter(|trial| trial.state == State::Ended(End::Failed));
        for trial in failed.map(|trial| trial.number).collect::<Vec<_>>() {
            self.keep(&Event::Retried { trial })?;
        }
        Ok(())
    }

    /// Returns all trials so far, with results.
    pub(super) fn history(&self) -> &History {
        &self.history
    }

    /// Returns the running trials by trial number.
    pub(super) fn running(&self) -> &BTreeMap<usize, Running> {
        &self.running
    }

    /// Returns true once no trial is running and no further trial will start.
    pub(super) fn is_over(&self) -> bool {
        self.running.is_empty() && (self.is_draining || self.next().is_none())
    }

    /// Returns true once every trial of the study has ended.
    pub(super) fn is_complete(&self) -> bool {
        self.history.trials().len() >= self.study.trials && self.unfinished().next().is_none()
    }

    /// Asks all running trials to drain, so that they can resume later.
    pub(super) fn drain(&mut self) {
        self.is_draining = true;
        for (&trial, running) in &mut self.running {
            if !std::mem::replace(&mut running.is_draining, true) {
                self.runner.stop(trial);
            }
        }
    }

    /// Starts trials up to the maximum number in parallel, and handles new measurements and ends of all running trials.
    /// Returns lines for the terminal.
    ///
    /// # Errors
    /// The journal cannot be written, metrics cannot be read, or too many trials failed before any result.
    pub(super) fn step(&mut self, unix_seconds: f64) -> anyhow::Result<Vec<String>> {
        let mut news = Vec::new();
        while !self.is_draining && self.running.len() < self.study.parallel {
            let Some(trial) = self.next() else { break };
            self.start(trial, unix_seconds, &mut news)?;
            self.check_failures()?;
        }
        for trial in self.running.keys().copied().collect::<Vec<_>>() {
            let report = self.runner.poll(trial)?;
            for measurement in report.measurements {
                self.measured(trial, measurement, &mut news)?;
            }
            if let Some(end) = report.end {
                self.ended(trial, end, unix_seconds, &mut news)?;
                self.check_failures()?;
            }
        }
        Ok(news)
    }

    /// Returns the unfinished trials that are not running.
    fn unfinished(&self) -> impl Iterator<Item = &Trial> {
        let trials = self.history.trials().iter();
        trials.filter(|trial| trial.state == State::Unfinished && !self.running.contains_key(&trial.number))
    }

    /// Returns the number of the next trial to start: an interrupted trial, or else a new trial. `None` if all have
    /// ended.
    fn next(&self) -> Option<usize> {
        let new = Some(self.history.trials().len()).filter(|&number| number < self.study.trials);
        self.unfinished().next().map(|trial| trial.number).or(new)
    }

    fn start(&mut self, trial: usize, unix_seconds: f64, news: &mut Vec<String>) -> anyhow::Result<()> {
        let is_new = trial == self.history.trials().len();
        if is_new {
            let values = self.propose(trial);
            self.keep(&Event::Started { trial, values, unix_seconds })?;
        }
        let begun = &self.history.trials()[trial];
        if begun.is_halted {
            // An earlier session was killed after deciding to stop the trial, but before recording the end. The run of
            // the trial stopped with that session.
            let (end, budget, objective, reason) = (End::Stopped, begun.budget, begun.rungs.last().copied(), None);
            return self.keep(&Event::Ended { trial, end, budget, objective, reason, unix_seconds });
        }
        let what = if is_new { "starts" } else { "continues" };
        news.push(format!("trial {trial} {what}: {}", sentence(&begun.values)));
        let values = begun.values.clone();
        self.running.insert(trial, Running::default());
        match self.runner.start(trial, &values) {
            Ok(()) => Ok(()),
            Err(error) => self.ended(trial, Err(service::chain(&error)), unix_seconds, news),
        }
    }

    /// Proposes the values of a new trial from the seed of the study, the trial number and the results so far.
    fn propose(&self, trial: usize) -> Values {
        let Study { settings, halving, objective, seed, startup_trials, sampler, .. } = self.study;
        let score = |value| objective.score(value);
        let observations = self.history.observations(settings, halving.budgets.len(), *startup_trials, score);
        let mut rng = ChaCha8Rng::seed_from_u64(*seed);
        rng.set_stream(trial as u64);
        sampler.propose(settings, &observations.unwrap_or_default(), &mut rng)
    }

    fn measured(&mut self, trial: usize, measurement: Measurement, news: &mut Vec<String>) -> anyhow::Result<()> {
        let study = self.study;
        let Some(running) = self.running.get_mut(&trial) else { return Ok(()) };
        if self.history.trials()[trial].is_halted {
            return Ok(());
        }
        running.measure(measurement, study.objective.readings);
        let (budget, objective) = (running.budget, running.objective());
        // A rung whose budget was used up before the first measurement is decided by the first measurement.
        while let Some(objective) = objective {
            let rung = self.history.trials()[trial].rungs.len();
            if study.halving.budgets.get(rung).is_none_or(|&rung_budget| budget < rung_budget) {
                break;
            }
            let others: Vec<f64> =
                self.history.objectives_at(rung).map(|objective| study.objective.score(objective)).collect();
            let goes_on = study.halving.goes_on(study.objective.score(objective), &others);
            self.keep(&Event::Rung { trial, rung, budget, objective, goes_on })?;
            let at = format!("trial {trial} at rung {}: {} {}", rung + 1, study.objective.metric, number4(objective));
            if !goes_on {
                news.push(format!("{at}, stops"));
                self.stop(trial);
                return Ok(());
            }
            news.push(format!("{at}, continues"));
        }
        if budget >= study.budget.full() {
            self.stop(trial);
        }
        Ok(())
    }

    fn stop(&mut self, trial: usize) {
        if let Some(running) = self.running.get_mut(&trial)
            && !std::mem::replace(&mut running.is_draining, true)
        {
            self.runner.stop(trial);
        }
    }

    fn ended(
        &mut self,
        trial: usize,
        run: Result<(), String>,
        unix_seconds: f64,
        news: &mut Vec<String>,
    ) -> anyhow::Result<()> {
        let Some(running) = self.running.remove(&trial) else { return Ok(()) };
        let begun = &self.history.trials()[trial];
        let (budget, full) = (running.budget, self.study.budget);
        let (end, objective, reason) = if begun.is_halted {
            (End::Stopped, begun.rungs.last().copied(), run.err())
        } else {
            match (run, running.objective()) {
                // The result is complete even if the run failed while draining.
                (run, Some(objective)) if budget >= full.full() => (End::Completed, Some(objective), run.err()),
                (Err(reason), objective) => (End::Failed, objective, Some(reason)),
                // An interrupted trial resumes later.
                (Ok(()), _) if self.is_draining && budget < full.full() => return Ok(()),
                (Ok(()), None) if budget >= full.full() => {
                    let metric = &self.study.objective.metric;
                    let remedy = "give trials a larger budget, or the arena more time (arena.cpu_share)";
                    (End::Failed, None, Some(format!("{metric} was never measured within {full}: {remedy}")))
                }
                (Ok(()), objective) => {
                    let used = number(Some(budget));
                    (End::Failed, objective, Some(format!("the run ended after {used} of {full}")))
                }
            }
        };
        let name = State::Ended(end).name();
        let result = objective.map(|objective| format!(": {} {}", self.study.objective.metric, number4(objective)));
        let because = reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        news.push(format!("trial {trial} {name}{}{because}", result.unwrap_or_default()));
        self.failures += usize::from(end == End::Failed);
        self.keep(&Event::Ended { trial, end, budget, objective, reason, unix_seconds })
    }

    /// Checks that fewer than `study.failures_max` trials have failed, unless a trial has a result.
    fn check_failures(&self) -> anyhow::Result<()> {
        let trials = self.history.trials();
        let has_result =
            trials.iter().any(|trial| !trial.rungs.is_empty() || trial.state == State::Ended(End::Completed));
        if has_result || self.failures < self.study.failures_max {
            return Ok(());
        }
        let last = trials.iter().rev().find(|trial| trial.state == State::Ended(End::Failed));
        let reason = last.and_then(|trial| Some(format!("trial {}: {}", trial.number, trial.reason.as_ref()?)));
        bail!(
            "{} trials failed and none has a result; {}; fix the cause and rerun with --retry-failed",
            self.failures,
            reason.unwrap_or_default()
        )
    }

    fn keep(&mut self, event: &Event) -> anyhow::Result<()> {
        self.journal.append(event)?;
        self.history.apply(event)
    }
}

/// Formats values as one line, such as `learner.batch_size 64, learner.learning_rate 0.003`.
pub(crate) fn sentence(values: &Values) -> String {
    values.iter().map(|(key, value)| format!("{key} {}", short(value))).collect::<Vec<_>>().join(", ")
}

/// Formats an objective with four significant digits.
pub(super) fn number4(value: f64) -> String {
    short(&serde_json::Value::from(value))
}

#[cfg(test)]
mod tests;
