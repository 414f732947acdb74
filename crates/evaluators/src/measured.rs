//! Choice between engines by their speed on this machine: measured once for each machine and network, and stored.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use game::ObservationShape;
use inference::{Candidate, DEPTH_MAX, Evaluator, Routed, Speed, choose_depth, try_out};
use serde::{Deserialize, Serialize};
use weights::{Architecture, Manifest};

use crate::{Backend, Error, Host};

#[cfg(test)]
mod tests;

/// The time spent on measuring each batch size of each engine.
const TRIAL_TIME: Duration = Duration::from_millis(30);

/// The evaluation load of a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Demand {
    /// The number of threads, each with its own evaluators.
    pub(crate) threads: usize,
    /// The maximum number of positions in a batch: all leaves of all games of a thread.
    pub(crate) batch_max: usize,
}

/// One engine that may be chosen.
pub(crate) struct Choice {
    pub(crate) backend: Box<dyn Backend>,
    /// True if all threads share one device, whose queue holds as many batches as are in flight.
    pub(crate) is_shared: bool,
}

/// Several backends, of which each batch size uses the fastest.
pub(crate) struct Measured {
    choices: Vec<Choice>,
    demand: Demand,
    machine: String,
    speeds: Store,
    /// The choice that was logged last.
    chosen: Mutex<Option<String>>,
    clock: Arc<dyn Fn() -> Instant + Send + Sync>,
    /// The speeds known to this process. The mutex is held while one thread measures, so that the others use its
    /// result.
    known: Mutex<Speeds>,
}

impl Measured {
    /// Creates the backend; among equally fast choices the first is preferred.
    pub(crate) fn new(choices: Vec<Choice>, demand: Demand, host: Host) -> Self {
        let Host { clock, machine, speeds } = host;
        let (chosen, known) = (Mutex::default(), Mutex::default());
        Self { choices, demand, machine, speeds, chosen, clock: Arc::new(clock), known }
    }

    /// The key of a measurement. On another machine, or for another network or load, the speeds are measured again.
    fn key(&self, architecture: &Architecture) -> String {
        let Demand { threads, batch_max } = self.demand;
        format!("{}; {architecture:?}; {threads} threads, batches to {batch_max}", self.machine)
    }

    /// The speed of each evaluator, from the store or measured now.
    fn measurements(
        &self,
        manifest: &Manifest,
        bytes: &Bytes,
        choices: &[&Choice],
        evaluators: &mut [Box<dyn Evaluator>],
    ) -> Vec<Measurement> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let key = self.key(&manifest.architecture);
        let names: Vec<String> = evaluators.iter().map(|evaluator| evaluator.attributes().name.to_string()).collect();
        let of_all = |speeds: &Speeds| -> Option<Vec<Measurement>> {
            let speeds = speeds.get(&key)?;
            names.iter().map(|name| speeds.get(name).cloned()).collect()
        };
        if of_all(&known).is_none() {
            *known = self.speeds.load();
        }
        if let Some(found) = of_all(&known) {
            return found;
        }
        let measured: Vec<Measurement> = (evaluators.iter_mut().zip(choices))
            .map(|(evaluator, choice)| self.measure(manifest, bytes, evaluator.as_mut(), choice))
            .collect();
        known.insert(key, names.into_iter().zip(measured.iter().cloned()).collect());
        self.speeds.save(&known);
        measured
    }

    /// Measures the evaluations/s of all threads together; on a device that they share, at the best number of batches
    /// in flight.
    fn measure(
        &self,
        manifest: &Manifest,
        bytes: &Bytes,
        evaluator: &mut dyn Evaluator,
        choice: &Choice,
    ) -> Measurement {
        let architecture = &manifest.architecture;
        let (planes, height, width) = (architecture.planes, architecture.height, architecture.width);
        let position = (ObservationShape { planes, height, width }, architecture.actions);
        let Demand { threads, batch_max } = self.demand;
        // Each thread has at most one batch in flight.
        let depth_max = if choice.is_shared { DEPTH_MAX.min(threads) } else { 1 };
        let mut others: Vec<_> = (1..depth_max).map_while(|_| choice.backend.build(manifest, bytes).ok()).collect();
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
        Measurement { in_flight, speeds: trial.speeds.iter().map(all).collect() }
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
    fn is_accelerated(&self) -> bool {
        self.choices.iter().any(|choice| choice.is_shared)
    }

    fn describe(&self) -> String {
        let chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        chosen.clone().unwrap_or_else(|| {
            let all: Vec<String> = self.choices.iter().map(|choice| choice.backend.describe()).collect();
            format!("the fastest of: {}", all.join("; "))
        })
    }

    fn build(&self, manifest: &Manifest, bytes: &Bytes) -> Result<Box<dyn Evaluator>, Error> {
        let (mut choices, mut evaluators, mut refused) = (Vec::new(), Vec::new(), None);
        for choice in &self.choices {
            match choice.backend.build(manifest, bytes) {
                Ok(evaluator) => {
                    choices.push(choice);
                    evaluators.push(evaluator);
                }
                Err(error) => {
                    let backend = choice.backend.describe();
                    tracing::warn!(backend, %error, "this engine does not take the weights");
                    refused = Some(error);
                }
            }
        }
        if let ([], Some(error)) = (&evaluators[..], refused) {
            return Err(error);
        }
        let measured = self.measurements(manifest, bytes, &choices, &mut evaluators);
        for (choice, measured) in choices.iter().zip(&measured) {
            choice.backend.set_in_flight(measured.in_flight);
        }
        let candidate = |(evaluator, measured): (_, &Measurement)| Candidate { evaluator, speeds: measured.speeds() };
        let candidates = evaluators.into_iter().zip(&measured).map(candidate).collect();
        let report = Box::new(|trouble: String| tracing::warn!(trouble, "an evaluator failed"));
        let routed = Routed::new(candidates, self.demand.batch_max, report);
        let used = |index: usize| routed.routes().iter().any(|route| route.candidate == index);
        let shared = (0..choices.len()).find(|&index| choices[index].is_shared && used(index));
        let in_flight = shared.map_or(String::new(), |index| format!(", {} in flight", measured[index].in_flight));
        self.announce(&format!("{}{in_flight}", routed.attributes().name));
        Ok(Box::new(routed))
    }
}

/// Measured speeds by machine, network and load, then by the evaluator's name.
type Speeds = BTreeMap<String, BTreeMap<String, Measurement>>;

/// The speed of one evaluator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Measurement {
    /// The number of batches in flight on a device that threads share; else 1.
    in_flight: usize,
    /// Batch sizes, each with the evaluations/s of all threads at `in_flight`.
    speeds: Vec<(usize, f64)>,
}

impl Measurement {
    fn speeds(&self) -> Vec<Speed> {
        let speed = |&(batch, evaluations_per_second): &_| Speed { batch, evaluations_per_second };
        self.speeds.iter().map(speed).collect()
    }
}

type Write = dyn Fn(&[u8]) + Send + Sync;

/// Stores measured speeds between starts, as text in a format private to this crate.
pub struct Store {
    read: Box<dyn Fn() -> Option<Vec<u8>> + Send + Sync>,
    write: Box<Write>,
}

impl Store {
    /// Creates a store from two functions. `read` returns the text last passed to `write`. Both log their own failures:
    /// lost speeds are measured again.
    pub fn new(
        read: impl Fn() -> Option<Vec<u8>> + Send + Sync + 'static,
        write: impl Fn(&[u8]) + Send + Sync + 'static,
    ) -> Self {
        Self { read: Box::new(read), write: Box::new(write) }
    }

    /// Creates a store that keeps nothing, so that every start measures.
    #[must_use]
    pub fn none() -> Self {
        Self::new(|| None, |_| ())
    }

    fn load(&self) -> Speeds {
        let Some(text) = (self.read)() else { return Speeds::default() };
        serde_json::from_slice(&text).unwrap_or_else(|error| {
            tracing::warn!(%error, "remembered speeds cannot be read; measuring again");
            Speeds::default()
        })
    }

    fn save(&self, speeds: &Speeds) {
        match serde_json::to_vec_pretty(speeds) {
            Ok(text) => (self.write)(&text),
            Err(error) => tracing::warn!(%error, "measured speeds cannot be remembered"),
        }
    }
}
