//! Schedules the pairs of an ablation and appends a row for each finished run. The schedule reads no clock and starts
//! no process: a [`Laboratory`] runs and measures.

use std::collections::{BTreeMap, VecDeque};

use super::design::{Pair, Run};
use super::rows::{Row, Rows};
use super::study::Study;
use crate::screen::number;
use crate::tune::{Budget, Report, Runner};

/// Executes the numbered runs of a study and measures the results.
pub(super) trait Laboratory {
    /// Returns the runner of the runs.
    fn runner(&mut self) -> &mut dyn Runner;

    /// Returns this machine's processor model and this program's commit, in the form of the results file.
    fn here(&self) -> [String; 2];

    /// Removes the files of a run from an earlier attempt.
    ///
    /// # Errors
    /// The process of the earlier attempt does not exit, or files cannot be removed.
    fn clear(&mut self, run: usize) -> anyhow::Result<()>;

    /// Returns the measured row of a finished run: machine, program, counts and metrics. The first call starts the
    /// measurement; `None` while it continues.
    fn measured(&mut self, run: usize) -> Option<anyhow::Result<Row>>;
}

/// The schedule of one session: pairs to run, running runs and results.
#[derive(Debug)]
pub(super) struct Schedule<'a, L> {
    study: &'a Study,
    rows: Rows,
    laboratory: L,
    /// Pairs that have not started yet.
    pairs: VecDeque<Pair>,
    /// Runs of the current pair that have not started yet.
    waiting: VecDeque<Job>,
    running: BTreeMap<usize, Running>,
    is_draining: bool,
    failures: usize,
}

/// A run to start, with the values of all switches.
#[derive(Debug)]
struct Job {
    number: usize,
    run: Run,
    values: crate::tune::Values,
    /// Columns of the row that identify the run.
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
    /// Budget used so far, in minutes or positions.
    used: f64,
    /// True once the run was requested to drain.
    is_stopped: bool,
    /// True once the run has stopped and is being measured.
    has_ended: bool,
}

impl<'a, L: Laboratory> Schedule<'a, L> {
    /// Creates a schedule of `pairs`, without runs that already have a valid row in `rows`.
    pub(super) fn new(study: &'a Study, rows: Rows, pairs: Vec<Pair>, laboratory: L) -> Self {
        let (waiting, running) = (VecDeque::new(), BTreeMap::new());
        let mut schedule =
            Self { study, rows, laboratory, pairs: VecDeque::new(), waiting, running, is_draining: false, failures: 0 };
        schedule.pairs = pairs.into_iter().filter(|pair| !schedule.missing(pair).is_empty()).collect();
        schedule
    }

    /// Limits the schedule to the first `pieces` pairs.
    pub(super) fn keep(&mut self, pieces: usize) {
        self.pairs.truncate(pieces);
    }

    /// Returns the number of pairs that have not started yet.
    pub(super) fn pairs(&self) -> usize {
        self.pairs.len()
    }

    /// Returns the number of failed runs in this session.
    pub(super) fn failures(&self) -> usize {
        self.failures
    }

    /// Returns true once no run is running, being measured or waiting to start.
    pub(super) fn is_over(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty() && self.pairs.is_empty()
    }

    /// Prevents further runs from starting. Runs in progress continue.
    pub(super) fn start_no_more(&mut self) {
        self.pairs.clear();
        self.waiting.clear();
    }

    /// Asks all runs in progress to drain. The next session repeats these runs from the start.
    pub(super) fn drain(&mut self) {
        self.start_no_more();
        self.is_draining = true;
        for (&run, running) in &mut self.running {
            if !std::mem::replace(&mut running.is_stopped, true) {
                self.laboratory.runner().stop(run);
            }
        }
    }

    /// Starts runs up to the number in parallel, and handles new measurements and ends of all running runs. Returns
    /// lines for the terminal.
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
        match self.laboratory.clear(run).and_then(|()| self.laboratory.runner().start(run, &job.values)) {
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
            let Report { measurements, end } = self.laboratory.runner().poll(run)?;
            running.used = measurements.last().map_or(running.used, |measurement| measurement.budget);
            let is_enough = running.used >= full;
            // A run with a budget in minutes stops without a request, after rating the last version.
            let must_stop = is_enough && matches!(budget, Budget::Positions { .. });
            if must_stop && end.is_none() && !std::mem::replace(&mut running.is_stopped, true) {
                self.laboratory.runner().stop(run);
            }
            running.has_ended = end.is_some();
            let name = running.job.name();
            let failure = match end {
                None => return Ok(()),
                Some(Ok(())) if is_enough => None,
                Some(Ok(())) if self.is_draining => {
                    self.running.remove(&run);
                    news.push(format!("{name} was stopped; the next session repeats the run"));
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
