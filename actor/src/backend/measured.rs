//! The choice between evaluators by how fast they are here: measured once for each machine and network, and remembered.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use game::ObservationShape;
use inference::{Candidate, Evaluator, Routed, Speed, try_out};
use proto::weights::Published;
use serde::{Deserialize, Serialize};

use super::Backend;
use crate::home::replace;

#[cfg(test)]
mod tests;

/// How long each batch size of each option is measured.
const TRIAL_TIME: Duration = Duration::from_millis(30);

/// How a process asks its evaluators.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    /// Threads, each with evaluators of its own.
    pub(super) threads: usize,
    /// The most positions in a batch: all leaves of all games of a thread.
    pub(super) batch_max: usize,
}

/// One thing that can evaluate.
pub(super) struct Choice {
    pub(super) backend: Box<dyn Backend>,
    /// Whether all threads share one device, so that two of them get no more out of it than one.
    pub(super) is_shared: bool,
}

/// Several backends, of which each batch size gets the fastest.
pub(super) struct Measured {
    choices: Vec<Choice>,
    demand: Demand,
    memory: PathBuf,
    /// What was chosen last, for people.
    chosen: Mutex<Option<String>>,
    /// Held while one thread measures; the others take what it finds.
    measuring: Mutex<()>,
}

/// Speeds by what was measured, as they lie in a file: batch and evaluations/s of all threads, for each choice by its name.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Remembered(BTreeMap<String, BTreeMap<String, Vec<(usize, f64)>>>);

impl Measured {
    /// The first of the choices is preferred among equals. `memory` is a file that need not exist.
    pub(super) fn new(choices: Vec<Choice>, demand: Demand, memory: PathBuf) -> Self {
        Self { choices, demand, memory, chosen: Mutex::default(), measuring: Mutex::default() }
    }

    /// What was measured is measured again on another machine, for another network, and for other games and threads.
    fn key(&self, published: &Published) -> String {
        let Demand { threads, batch_max } = self.demand;
        let machine = service::machine::describe();
        let architecture = &published.manifest.architecture;
        format!("{machine}; {architecture:?}; {threads} threads, batches to {batch_max}")
    }

    /// The speeds of each evaluator, remembered or measured now.
    fn speeds(
        &self,
        published: &Published,
        choices: &[&Choice],
        evaluators: &mut [Box<dyn Evaluator>],
    ) -> Vec<Vec<Speed>> {
        let _measuring = self.measuring.lock().unwrap_or_else(PoisonError::into_inner);
        let key = self.key(published);
        let mut remembered = self.recall();
        let names: Vec<String> = evaluators.iter().map(|evaluator| evaluator.attributes().name.to_string()).collect();
        let known = remembered.0.get(&key);
        if let Some(known) = known.filter(|known| names.iter().all(|name| known.contains_key(name))) {
            return names.iter().map(|name| known[name].iter().copied().map(speed).collect()).collect();
        }
        let speeds: Vec<Vec<Speed>> = (evaluators.iter_mut().zip(choices))
            .map(|(evaluator, choice)| self.measure(published, evaluator.as_mut(), choice))
            .collect();
        let pairs = |speeds: &[Speed]| speeds.iter().map(|s| (s.batch, s.evaluations_per_second)).collect();
        remembered.0.insert(key, names.into_iter().zip(speeds.iter().map(|speeds| pairs(speeds))).collect());
        self.remember(&remembered);
        speeds
    }

    /// Evaluations/s of all threads together.
    fn measure(&self, published: &Published, evaluator: &mut dyn Evaluator, choice: &Choice) -> Vec<Speed> {
        let architecture = &published.manifest.architecture;
        let (planes, height, width) = (architecture.planes, architecture.height, architecture.width);
        let shape = ObservationShape { planes, height, width };
        let position = (shape, architecture.actions);
        let mut trial = try_out(evaluator, position, self.demand.batch_max, TRIAL_TIME, &mut Instant::now);
        let name = evaluator.attributes().name;
        if let Some((batch, why)) = &trial.failure {
            tracing::warn!(evaluator = &*name, batch, why, "an evaluator failed while it was measured");
        }
        let times = if choice.is_shared { 1 } else { self.demand.threads };
        trial.speeds.iter_mut().for_each(|speed| speed.evaluations_per_second *= times as f64);
        let best = trial.speeds.iter().map(|speed| speed.evaluations_per_second).fold(0.0, f64::max);
        tracing::info!(evaluator = &*name, evaluations_per_second = best.round(), "measured at its best batch");
        trial.speeds
    }

    /// What earlier starts measured; nothing if that cannot be read, since it can be measured again.
    fn recall(&self) -> Remembered {
        match fs::read(&self.memory) {
            Ok(text) => serde_json::from_slice(&text).unwrap_or_else(|error| {
                tracing::warn!(path = %self.memory.display(), %error, "what was measured cannot be read; measuring again");
                Remembered::default()
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Remembered::default(),
            Err(error) => {
                tracing::warn!(path = %self.memory.display(), %error, "what was measured cannot be read; measuring again");
                Remembered::default()
            }
        }
    }

    fn remember(&self, remembered: &Remembered) {
        let written = serde_json::to_vec_pretty(remembered).map_err(io::Error::from);
        if let Err(error) = written.and_then(|text| replace(&self.memory, &text)) {
            tracing::warn!(path = %self.memory.display(), %error, "what was measured is not remembered");
        }
    }

    fn announce(&self, name: &str) {
        let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        if chosen.as_deref() != Some(name) {
            tracing::info!(evaluator = name, "the fastest here for this network");
            *chosen = Some(name.to_owned());
        }
    }
}

fn speed((batch, evaluations_per_second): (usize, f64)) -> Speed {
    Speed { batch, evaluations_per_second }
}

impl Backend for Measured {
    fn describe(&self) -> String {
        let chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        chosen.clone().unwrap_or_else(|| {
            let all: Vec<String> = self.choices.iter().map(|choice| choice.backend.describe()).collect();
            format!("the fastest of: {}", all.join("; "))
        })
    }

    fn build(&self, published: &Published) -> anyhow::Result<Box<dyn Evaluator>> {
        let (mut choices, mut evaluators, mut refused) = (Vec::new(), Vec::new(), None);
        for choice in &self.choices {
            match choice.backend.build(published) {
                Ok(evaluator) => {
                    choices.push(choice);
                    evaluators.push(evaluator);
                }
                Err(error) => {
                    let (backend, error) = (choice.backend.describe(), refused.insert(error));
                    tracing::warn!(backend, error = service::chain(error), "the weights are not for this evaluator");
                }
            }
        }
        if let ([], Some(error)) = (&evaluators[..], refused) {
            return Err(error);
        }
        let speeds = self.speeds(published, &choices, &mut evaluators);
        let candidates = evaluators.into_iter().zip(speeds);
        let candidates = candidates.map(|(evaluator, speeds)| Candidate { evaluator, speeds }).collect();
        let report = Box::new(|trouble: String| tracing::warn!(trouble, "an evaluator failed"));
        let routed = Routed::new(candidates, self.demand.batch_max, report);
        self.announce(&routed.attributes().name);
        Ok(Box::new(routed))
    }
}
