//! The trials of a study, reconstructed from the events in the journal.

use anyhow::{Context as _, ensure};

use super::journal::{End, Event};
use super::range::{Setting, Values};
use super::sampler::Observation;

/// All trials of a study so far, indexed by trial number.
#[derive(Debug, Default)]
pub(super) struct History {
    trials: Vec<Trial>,
}

/// A trial of a study, with the results so far.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Trial {
    /// Number of the trial, from 0, which is also the name of the run.
    pub number: usize,
    /// Value of each tuned setting, by key.
    pub values: Values,
    /// Objective at each reached rung, in ascending order of rungs.
    pub rungs: Vec<f64>,
    /// True if the trial does not continue after the last reached rung.
    pub is_halted: bool,
    pub state: State,
    /// Budget used at the last reached rung, or at the end of the trial, in minutes or positions.
    pub budget: f64,
    /// Final objective; `None` while the trial is unfinished, or if the metric was never measured.
    pub objective: Option<f64>,
    /// Reason why the trial failed; `None` without a failure.
    pub reason: Option<String>,
    /// Start time of the trial in seconds since 1970.
    pub started: f64,
    pub ended: Option<f64>,
}

/// The state of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The trial is running, or was interrupted and can resume.
    Unfinished,
    Ended(End),
}

impl State {
    /// Returns the name of the state in tables, such as `failed`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Unfinished => "unfinished",
            Self::Ended(End::Completed) => "completed",
            Self::Ended(End::Stopped) => "stopped",
            Self::Ended(End::Failed) => "failed",
        }
    }
}

impl History {
    /// Creates the history from all events of a journal.
    ///
    /// # Errors
    /// An event contradicts earlier events, such as the end of a trial that never started.
    pub(super) fn of(events: &[Event]) -> anyhow::Result<Self> {
        let mut history = Self::default();
        for (number, event) in events.iter().enumerate() {
            history.apply(event).with_context(|| format!("apply line {} of the journal", number + 1))?;
        }
        Ok(history)
    }

    /// Updates the trials with one event.
    ///
    /// # Errors
    /// The event contradicts earlier events, such as the end of a trial that never started.
    pub(super) fn apply(&mut self, event: &Event) -> anyhow::Result<()> {
        match event {
            Event::Begun { .. } => {}
            Event::Started { trial, values, unix_seconds } => {
                ensure!(*trial == self.trials.len(), "trial {trial} is out of order");
                self.trials.push(Trial {
                    number: *trial,
                    values: values.clone(),
                    rungs: Vec::new(),
                    is_halted: false,
                    state: State::Unfinished,
                    budget: 0.0,
                    objective: None,
                    reason: None,
                    started: *unix_seconds,
                    ended: None,
                });
            }
            Event::Rung { trial, rung, budget, objective, goes_on } => {
                let trial = self.unfinished(*trial)?;
                ensure!(*rung == trial.rungs.len(), "rung {rung} of trial {} is out of order", trial.number);
                trial.rungs.push(*objective);
                (trial.budget, trial.is_halted) = (*budget, !goes_on);
            }
            Event::Ended { trial, end, budget, objective, reason, unix_seconds } => {
                let trial = self.unfinished(*trial)?;
                (trial.state, trial.ended) = (State::Ended(*end), Some(*unix_seconds));
                (trial.budget, trial.objective, trial.reason) = (*budget, *objective, reason.clone());
            }
            Event::Retried { trial } => {
                let trial = self.trials.get_mut(*trial).context("find the trial")?;
                ensure!(trial.state == State::Ended(End::Failed), "trial {} has not failed", trial.number);
                (trial.state, trial.reason, trial.ended) = (State::Unfinished, None, None);
            }
        }
        Ok(())
    }

    fn unfinished(&mut self, trial: usize) -> anyhow::Result<&mut Trial> {
        let trial = self.trials.get_mut(trial).with_context(|| format!("find trial {trial}"))?;
        ensure!(trial.state == State::Unfinished, "trial {} has ended", trial.number);
        Ok(trial)
    }

    /// Returns all trials, sorted by trial number.
    pub(super) fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// Returns the objective of a trial at a rung. The index `rungs`, one past the last rung, stands for the full
    /// budget. `None` if the trial has not reached the rung.
    fn at(trial: &Trial, rung: usize, rungs: usize) -> Option<f64> {
        let is_completed = rung == rungs && trial.state == State::Ended(End::Completed);
        if is_completed { trial.objective } else { trial.rungs.get(rung).copied() }
    }

    /// Returns the objectives at a rung, for all trials that reached the rung.
    pub(super) fn objectives_at(&self, rung: usize) -> impl Iterator<Item = f64> {
        self.trials.iter().filter_map(move |trial| trial.rungs.get(rung).copied())
    }

    /// Returns the observations for a sampler, from the best trial to the worst. Trials are compared at one rung, so
    /// that all scores have the same budget: the highest rung (or the full budget) that at least `least` trials have
    /// reached. Trials with a result at this rung come first and have a score. Trials stopped at lower rungs follow,
    /// then failed trials, both without a score. Returns `None` if no rung has enough trials. `score` converts an
    /// objective into a score (higher is better).
    pub(super) fn observations(
        &self,
        settings: &[Setting],
        rungs: usize,
        least: usize,
        score: impl Fn(f64) -> f64,
    ) -> Option<Vec<Observation>> {
        let reached = |rung: usize| self.trials.iter().filter(|trial| Self::at(trial, rung, rungs).is_some()).count();
        let rung = (0..=rungs).rev().find(|&rung| reached(rung) >= least.max(1))?;
        let coordinates = |trial: &Trial| -> Option<Vec<f64>> {
            let coordinate = |setting: &Setting| setting.range.coordinate(trial.values.get(&setting.key)?);
            settings.iter().map(coordinate).collect()
        };
        let mut ranked = Vec::new();
        for trial in &self.trials {
            // A stopped trial ranks below trials that continued, whose last measurement may be later.
            let last = if trial.state == State::Ended(End::Failed) { None } else { trial.rungs.last().copied() };
            let (rank, objective) = match (Self::at(trial, rung, rungs), last) {
                (Some(objective), _) => (rung + 2, Some(objective)),
                (None, Some(last)) if trial.is_halted => (trial.rungs.len(), Some(last)),
                (None, _) if trial.state == State::Ended(End::Failed) => (0, None),
                (None, _) => continue,
            };
            let is_at_rung = rank == rung + 2;
            let (Some(coordinates), objective) = (coordinates(trial), objective.map(&score)) else { continue };
            let score = objective.filter(|_| is_at_rung);
            ranked.push((rank, objective, Observation { coordinates, score }));
        }
        ranked.sort_by(|(rank, objective, _), (other_rank, other, _)| {
            let [objective, other] = [objective, other].map(|objective| objective.unwrap_or(f64::NEG_INFINITY));
            other_rank.cmp(rank).then(other.total_cmp(&objective))
        });
        Some(ranked.into_iter().map(|(.., observation)| observation).collect())
    }

    /// Returns the best trial and objective with the full budget, or else at the highest reached rung; `None` if no
    /// trial has reached a rung.
    pub(super) fn best(&self, rungs: usize, score: impl Fn(f64) -> f64) -> Option<(&Trial, f64)> {
        (0..=rungs).rev().find_map(|rung| {
            let reached = self.trials.iter().filter_map(|trial| Some((trial, Self::at(trial, rung, rungs)?)));
            // Among trials with equal scores, the first trial counts as the best.
            reached.rev().max_by(|(_, a), (_, b)| score(*a).total_cmp(&score(*b)))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tune::range::Range;

    fn started(trial: usize, x: f64) -> Event {
        Event::Started { trial, values: Values::from([("a.x".to_owned(), json!(x))]), unix_seconds: 1.0 }
    }

    fn rung(trial: usize, rung: usize, objective: f64) -> Event {
        Event::Rung { trial, rung, budget: 1.0, objective, goes_on: trial != 2 }
    }

    fn ended(trial: usize, end: End, objective: Option<f64>) -> Event {
        let reason = (end == End::Failed).then(|| "out of luck".to_owned());
        Event::Ended { trial, end, budget: 2.0, objective, reason, unix_seconds: 2.0 }
    }

    fn history() -> History {
        let events = [
            started(0, 0.0),
            started(1, 0.25),
            started(2, 0.5),
            started(3, 1.0),
            rung(0, 0, 5.0),
            rung(1, 0, 7.0),
            rung(2, 0, 9.0),
            ended(0, End::Completed, Some(6.0)),
            ended(2, End::Stopped, Some(9.0)),
            ended(3, End::Failed, None),
        ];
        History::of(&events).unwrap()
    }

    #[test]
    fn results_are_compared_at_the_highest_rung_that_enough_trials_have_reached() {
        let range = Range::new("a.x", &json!({"min": 0.0, "max": 1.0})).unwrap();
        let settings = [Setting { key: "a.x".to_owned(), range }];
        let level = |least| {
            let observations = history().observations(&settings, 1, least, |objective| -objective)?;
            Some(observations.into_iter().map(|o| (o.coordinates[0], o.score)).collect::<Vec<_>>())
        };
        assert_eq!(level(4), None);
        let at_rung = vec![(0.0, Some(-5.0)), (0.25, Some(-7.0)), (0.5, Some(-9.0)), (1.0, None)];
        assert_eq!(level(2), Some(at_rung));
        // The second trial is still running. The third trial was stopped at a rung, and still ranks above the failed
        // trial.
        assert_eq!(level(1), Some(vec![(0.0, Some(-6.0)), (0.5, None), (1.0, None)]));
    }

    #[test]
    fn the_best_trial_has_the_full_budget_if_any_has() {
        let best = |history: &History| {
            history.best(1, |objective| objective).map(|(trial, objective)| (trial.number, objective))
        };
        assert_eq!(best(&history()), Some((0, 6.0)), "trial 2 is better at the rung, and has not the full budget");
        let events = [started(0, 0.0), started(1, 0.5), rung(0, 0, 5.0), rung(1, 0, 7.0)];
        assert_eq!(best(&History::of(&events).unwrap()), Some((1, 7.0)));
        assert_eq!(best(&History::default()), None);
    }

    #[test]
    fn a_failed_trial_runs_again_if_it_is_retried_and_no_other_one() {
        let mut history = history();
        history.apply(&Event::Retried { trial: 3 }).unwrap();
        assert_eq!((history.trials()[3].state, &history.trials()[3].reason), (State::Unfinished, &None));
        let error = history.apply(&Event::Retried { trial: 0 }).unwrap_err().to_string();
        assert_eq!(error, "trial 0 has not failed");
    }

    #[test]
    fn events_that_do_not_follow_are_refused_with_their_line() {
        let refusal = |events: &[Event]| format!("{:#}", History::of(events).unwrap_err());
        assert_eq!(refusal(&[started(1, 0.0)]), "apply line 1 of the journal: trial 1 is out of order");
        assert_eq!(refusal(&[rung(0, 0, 1.0)]), "apply line 1 of the journal: find trial 0");
        assert!(refusal(&[started(0, 0.0), rung(0, 1, 1.0)]).contains("rung 1 of trial 0 is out of order"));
        let twice = [started(0, 0.0), ended(0, End::Completed, Some(1.0)), ended(0, End::Failed, None)];
        assert!(refusal(&twice).ends_with("trial 0 has ended"));
    }
}
