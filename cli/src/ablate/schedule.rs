//! Runs the pairs of an ablation and appends a row for each finished run. It has no clock and no processes: a
//! [`Laboratory`] runs and measures.

use std::collections::{BTreeMap, VecDeque};

use super::design::{Pair, Run};
use super::rows::{Row, Rows};
use super::study::Study;
use crate::screen::number;
use crate::tune::{Budget, Report, Runner};

/// Runs and measures the numbered runs of a study.
pub(super) trait Laboratory: Runner {
    /// Returns the processor and the commit, as in the rows.
    fn here(&self) -> [String; 2];

    /// Removes the files of an earlier attempt at a run.
    ///
    /// # Errors
    /// A process does not exit, or files cannot be removed.
    fn clear(&mut self, run: usize) -> anyhow::Result<()>;

    /// Returns the columns of a finished run: machine, program, counts and metrics. `None` during the measurement.
    fn measured(&mut self, run: usize) -> Option<anyhow::Result<Row>>;
}

/// The runs of a session.
#[derive(Debug)]
pub(super) struct Schedule<'a, L> {
    study: &'a Study,
    rows: Rows,
    laboratory: L,
    /// Pairs that have not started.
    pairs: VecDeque<Pair>,
    /// Runs of the current pair that have not started.
    waiting: VecDeque<Job>,
    running: BTreeMap<usize, Running>,
    is_draining: bool,
    failures: usize,
}

/// A run of a pair.
#[derive(Debug)]
struct Job {
    number: usize,
    run: Run,
    values: crate::tune::Values,
    /// The columns that identify the run.
    identity: Row,
}

impl Job {
    fn name(&self) -> String {
        format!("row {} {}", self.identity.get("row"), self.run.side)
    }
}

#[derive(Debug)]
struct Running {
    job: Job,
    /// Budget used so far.
    used: f64,
    /// True after the request to drain.
    is_stopped: bool,
    /// True once the run has stopped and is being measured.
    has_ended: bool,
}

impl<'a, L: Laboratory> Schedule<'a, L> {
    /// Schedules `pairs` of a study, except for runs that `rows` already has.
    pub(super) fn new(study: &'a Study, rows: Rows, pairs: Vec<Pair>, laboratory: L) -> Self {
        let (waiting, running) = (VecDeque::new(), BTreeMap::new());
        let mut schedule =
            Self { study, rows, laboratory, pairs: VecDeque::new(), waiting, running, is_draining: false, failures: 0 };
        schedule.pairs = pairs.into_iter().filter(|pair| !schedule.missing(pair).is_empty()).collect();
        schedule
    }

    /// Keeps at most `pieces` pairs.
    pub(super) fn keep(&mut self, pieces: usize) {
        self.pairs.truncate(pieces);
    }

    /// Returns the number of pairs that have not started.
    pub(super) fn pairs(&self) -> usize {
        self.pairs.len()
    }

    /// Returns the number of failed runs.
    pub(super) fn failures(&self) -> usize {
        self.failures
    }

    /// Returns true once no run is under way or waiting.
    pub(super) fn is_over(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty() && self.pairs.is_empty()
    }

    /// Starts no further run; runs under way continue.
    pub(super) fn start_no_more(&mut self) {
        self.pairs.clear();
        self.waiting.clear();
    }

    /// Requests that all runs drain. The next session repeats them from the start.
    pub(super) fn drain(&mut self) {
        self.start_no_more();
        self.is_draining = true;
        for (&run, running) in &mut self.running {
            if !std::mem::replace(&mut running.is_stopped, true) {
                self.laboratory.stop(run);
            }
        }
    }

    /// Starts runs in free places and handles the news of all running runs. Returns sentences for the screen.
    ///
    /// # Errors
    /// A row cannot be written, or metrics cannot be read.
    pub(super) fn step(&mut self) -> anyhow::Result<Vec<String>> {
        let mut news = Vec::new();
        if self.running.is_empty() && self.waiting.is_empty() {
            self.waiting = self.pairs.pop_front().map(|pair| self.jobs(&pair)).unwrap_or_default();
        }
        while self.running.len() < self.study.kind.parallel()
            && let Some(job) = self.waiting.pop_front()
        {
            self.start(job, &mut news);
        }
        for run in self.running.keys().copied().collect::<Vec<_>>() {
            self.watch(run, &mut news)?;
        }
        Ok(news)
    }

    fn identity(&self, pair: &Pair) -> Row {
        let Study { name, kind, .. } = self.study;
        let columns = [("study", name.clone()), ("design", kind.name().to_owned())];
        let of_pair = [("row", pair.number.to_string()), ("seed", pair.seed.to_string())];
        Row(columns.into_iter().chain(of_pair).map(|(column, value)| (column.to_owned(), value)).collect())
    }

    fn missing(&self, pair: &Pair) -> Vec<usize> {
        let [machine, commit] = self.laboratory.here();
        self.rows.missing(pair, &self.identity(pair), &machine, &commit)
    }

    fn jobs(&self, pair: &Pair) -> VecDeque<Job> {
        let job = |index: usize| {
            let run = pair.runs[index].clone();
            let mut identity = self.identity(pair);
            identity.0.insert("side".to_owned(), run.side.to_owned());
            for (switch, &is_on) in self.study.switches.iter().zip(&run.levels) {
                identity.0.insert(switch.name.clone(), u8::from(is_on).to_string());
            }
            let number = (pair.number - 1) * pair.runs.len() + index;
            Job { number, values: self.study.values(&run, pair.seed), run, identity }
        };
        self.missing(pair).into_iter().map(job).collect()
    }

    fn start(&mut self, job: Job, news: &mut Vec<String>) {
        let (run, name) = (job.number, job.name());
        match self.laboratory.clear(run).and_then(|()| self.laboratory.start(run, &job.values)) {
            Ok(()) => {
                news.push(format!("{name} starts as run {run}: {}", self.study.sentence(&job.run)));
                let running = Running { job, used: 0.0, is_stopped: false, has_ended: false };
                self.running.insert(run, running);
            }
            Err(error) => self.failed(&name, &service::chain(&error), news),
        }
    }

    fn watch(&mut self, run: usize, news: &mut Vec<String>) -> anyhow::Result<()> {
        let (budget, full) = (self.study.budget, self.study.budget.full());
        let Some(running) = self.running.get_mut(&run) else { return Ok(()) };
        if !running.has_ended {
            let Report { measurements, end } = self.laboratory.poll(run)?;
            running.used = measurements.last().map_or(running.used, |measurement| measurement.budget);
            let is_enough = running.used >= full;
            // A run with a budget in minutes stops by itself, after the rated games of the last version.
            let must_stop = is_enough && matches!(budget, Budget::Positions { .. });
            if must_stop && end.is_none() && !std::mem::replace(&mut running.is_stopped, true) {
                self.laboratory.stop(run);
            }
            running.has_ended = end.is_some();
            let name = running.job.name();
            let failure = match end {
                None => return Ok(()),
                Some(Ok(())) if is_enough => None,
                Some(Ok(())) if self.is_draining => {
                    self.running.remove(&run);
                    news.push(format!("{name} was stopped; the next session starts it again"));
                    return Ok(());
                }
                Some(Ok(())) => Some(format!("the run ended after {} of {budget}", number(Some(running.used)))),
                Some(Err(reason)) => Some(reason),
            };
            if let Some(reason) = failure {
                self.running.remove(&run);
                self.failed(&name, &reason, news);
                return Ok(());
            }
        }
        let Some(measured) = self.laboratory.measured(run) else { return Ok(()) };
        let Some(Running { job, .. }) = self.running.remove(&run) else { return Ok(()) };
        let name = job.name();
        match measured {
            Ok(Row(columns)) => {
                let row = Row(columns.into_iter().chain(job.identity.0).collect());
                news.push(format!("{name} is complete: {}", super::report::sentence(&row)));
                self.rows.append(row)?;
            }
            Err(error) => self.failed(&name, &service::chain(&error), news),
        }
        Ok(())
    }

    fn failed(&mut self, name: &str, reason: &str, news: &mut Vec<String>) {
        self.failures += 1;
        news.push(format!("{name} failed: {reason}"));
    }
}
