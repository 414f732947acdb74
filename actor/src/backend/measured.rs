//! The choice between evaluators by how fast they are here: measured once for each machine and network, and remembered.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use game::ObservationShape;
use inference::{Candidate, DEPTH_MAX, Evaluator, Routed, Speed, choose_depth, try_out};
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
    /// Whether all threads share one device, whose queue holds as many batches as are in flight.
    pub(super) is_shared: bool,
}

/// Several backends, of which each batch size gets the fastest.
pub(super) struct Measured {
    choices: Vec<Choice>,
    demand: Demand,
    memory: PathBuf,
    /// What was chosen last, for people.
    chosen: Mutex<Option<String>>,
    clock: Arc<dyn Fn() -> Instant + Send + Sync>,
    /// Held while one thread measures; the others take what it finds.
    measuring: Mutex<()>,
}

/// What was measured, as it lies in a file: for each choice by its name. What lies there in another format cannot be read and
/// is measured anew.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
struct Remembered(BTreeMap<String, BTreeMap<String, Known>>);

/// What is known of a choice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Known {
    /// Batches under way at once where threads share a device; else 1.
    in_flight: usize,
    /// Batch, and evaluations/s of all threads with so many in flight.
    speeds: Vec<(usize, f64)>,
}

impl Known {
    fn speeds(&self) -> Vec<Speed> {
        let speed = |&(batch, evaluations_per_second): &_| Speed { batch, evaluations_per_second };
        self.speeds.iter().map(speed).collect()
    }
}

impl Measured {
    /// The first of the choices is preferred among equals. `memory` is a file that need not exist.
    pub(super) fn new(choices: Vec<Choice>, demand: Demand, memory: PathBuf) -> Self {
        let clock = Arc::new(Instant::now);
        Self { choices, demand, memory, chosen: Mutex::default(), clock, measuring: Mutex::default() }
    }

    /// What was measured is measured again on another machine, for another network, and for other games and threads.
    fn key(&self, published: &Published) -> String {
        let Demand { threads, batch_max } = self.demand;
        let machine = service::machine::describe();
        let architecture = &published.manifest.architecture;
        format!("{machine}; {architecture:?}; {threads} threads, batches to {batch_max}")
    }

    /// What is known of each evaluator, remembered or measured now.
    fn known(&self, published: &Published, choices: &[&Choice], evaluators: &mut [Box<dyn Evaluator>]) -> Vec<Known> {
        let _measuring = self.measuring.lock().unwrap_or_else(PoisonError::into_inner);
        let key = self.key(published);
        let mut remembered = self.recall();
        let names: Vec<String> = evaluators.iter().map(|evaluator| evaluator.attributes().name.to_string()).collect();
        let known = remembered.0.get(&key);
        if let Some(known) = known.filter(|known| names.iter().all(|name| known.contains_key(name))) {
            return names.iter().map(|name| known[name].clone()).collect();
        }
        let known: Vec<Known> = (evaluators.iter_mut().zip(choices))
            .map(|(evaluator, choice)| self.measure(published, evaluator.as_mut(), choice))
            .collect();
        remembered.0.insert(key, names.into_iter().zip(known.iter().cloned()).collect());
        self.remember(&remembered);
        known
    }

    /// Evaluations/s of all threads together, and on a device that they share the in-flight depth at which they are most.
    fn measure(&self, published: &Published, evaluator: &mut dyn Evaluator, choice: &Choice) -> Known {
        let architecture = &published.manifest.architecture;
        let (planes, height, width) = (architecture.planes, architecture.height, architecture.width);
        let position = (ObservationShape { planes, height, width }, architecture.actions);
        let Demand { threads, batch_max } = self.demand;
        // Each batch in flight is one of a thread that waits for it.
        let depth_max = if choice.is_shared { DEPTH_MAX.min(threads) } else { 1 };
        let mut others: Vec<_> = (1..depth_max).map_while(|_| choice.backend.build(published).ok()).collect();
        let name = evaluator.attributes().name;
        let (in_flight, trial) = choose_depth(1 + others.len(), |depth| {
            choice.backend.set_in_flight(depth);
            let mut callers: Vec<&mut dyn Evaluator> = vec![&mut *evaluator];
            callers.extend(others.iter_mut().take(depth - 1).map(|other| &mut **other as &mut dyn Evaluator));
            let trial = try_out(&mut callers, position, batch_max, TRIAL_TIME, &*self.clock);
            if let Some((batch, why)) = &trial.failure {
                tracing::warn!(evaluator = &*name, batch, depth, why, "an evaluator failed while it was measured");
            }
            trial
        });
        let times = if choice.is_shared { 1 } else { threads };
        let all = |speed: &Speed| (speed.batch, speed.evaluations_per_second * times as f64);
        let best = (trial.best() * times as f64).round();
        tracing::info!(evaluator = &*name, evaluations_per_second = best, in_flight, "measured at its best batch");
        Known { in_flight, speeds: trial.speeds.iter().map(all).collect() }
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
        let known = self.known(published, &choices, &mut evaluators);
        for (choice, known) in choices.iter().zip(&known) {
            choice.backend.set_in_flight(known.in_flight);
        }
        let candidates = evaluators.into_iter().zip(&known);
        let candidates = candidates.map(|(evaluator, known)| Candidate { evaluator, speeds: known.speeds() }).collect();
        let report = Box::new(|trouble: String| tracing::warn!(trouble, "an evaluator failed"));
        let routed = Routed::new(candidates, self.demand.batch_max, report);
        let used = |index: usize| routed.routes().iter().any(|route| route.candidate == index);
        let shared = (0..choices.len()).find(|&index| choices[index].is_shared && used(index));
        let in_flight = shared.map_or(String::new(), |index| format!(", {} in flight", known[index].in_flight));
        self.announce(&format!("{}{in_flight}", routed.attributes().name));
        Ok(Box::new(routed))
    }
}
