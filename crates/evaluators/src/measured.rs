//! Choice between engines by their speed on this machine: measured once for each machine and network, and stored.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use game::ObservationShape;
use inference::{
    BATCH_SIZES, Candidate, DEPTH_MAX, EngineCounts, Evaluator, LatentModel, Routed, Speed, Trial, choose_depth,
    doubling_sizes, try_out, try_out_latent,
};
use serde::{Deserialize, Serialize};
use weights::{Architecture, Manifest};

use crate::{Backend, Error, Host};

#[cfg(test)]
mod tests;

/// The time spent on measuring each batch size of each engine.
const TRIAL_TIME: Duration = Duration::from_millis(30);

/// The most threads that call a shared device while it is measured; more change nothing, because their requests merge.
const CALLERS_MAX: usize = 32;

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
    /// True if an engine merges the requests of all threads into batches for one device.
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

    /// The key of a measurement. On another machine or accelerator, or for another network or load, the speeds are
    /// measured again.
    fn key(&self, architecture: &Architecture) -> String {
        let Demand { threads, batch_max } = self.demand;
        let shared = self.choices.iter().filter(|choice| choice.is_shared);
        let models: String = shared
            .map(|choice| choice.backend.model().unwrap_or_else(|| "an accelerator".to_owned()))
            .map(|model| format!("; merged on {model}"))
            .collect();
        format!("{}{models}; {architecture:?}; {threads} threads, batches to {batch_max}", self.machine)
    }

    /// The speed of each evaluator, from the store or measured now.
    fn measurements(
        &self,
        manifest: &Manifest,
        bytes: &Bytes,
        choices: &[&Choice],
        evaluators: &mut [Box<dyn Evaluator>],
    ) -> Vec<Measurement> {
        let names: Vec<String> = evaluators.iter().map(|evaluator| evaluator.attributes().name.to_string()).collect();
        self.stored_or(manifest, names, || {
            (evaluators.iter_mut().zip(choices))
                .map(|(evaluator, choice)| self.measure(manifest, bytes, evaluator.as_mut(), choice))
                .collect()
        })
    }

    /// The speed of the recurrent steps of each model, from the store or measured now.
    fn latent_measurements(
        &self,
        manifest: &Manifest,
        bytes: &Bytes,
        choices: &[&Choice],
        models: &mut [Box<dyn LatentModel>],
    ) -> Vec<Measurement> {
        let names: Vec<String> = models.iter().map(|model| model.attributes().name.to_string()).collect();
        self.stored_or(manifest, names, || {
            (models.iter_mut().zip(choices))
                .map(|(model, choice)| self.measure_latent(manifest, bytes, model.as_mut(), choice))
                .collect()
        })
    }

    /// The stored measurements of the engines of these names; if one is missing, those that `measure` makes of all.
    fn stored_or(
        &self,
        manifest: &Manifest,
        names: Vec<String>,
        measure: impl FnOnce() -> Vec<Measurement>,
    ) -> Vec<Measurement> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let key = self.key(&manifest.architecture);
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
        let measured = measure();
        let has_failed = measured.iter().any(|measured| measured.speeds.is_empty());
        known.insert(key, names.into_iter().zip(measured.iter().cloned()).collect());
        // A device that failed this time may work at the next start.
        if !has_failed {
            self.speeds.save(&known);
        }
        measured
    }

    /// Measures the evaluations/s of all threads together.
    fn measure(
        &self,
        manifest: &Manifest,
        bytes: &Bytes,
        evaluator: &mut dyn Evaluator,
        choice: &Choice,
    ) -> Measurement {
        let name = evaluator.attributes().name;
        let threads = self.demand.threads;
        let (in_flight, trial, times) = if choice.is_shared {
            let others = 1..threads.min(CALLERS_MAX);
            let mut others: Vec<_> = others.map_while(|_| choice.backend.build(manifest, bytes).ok()).collect();
            let mut callers: Vec<&mut dyn Evaluator> = vec![evaluator];
            callers.extend(others.iter_mut().map(|other| &mut **other as &mut dyn Evaluator));
            let (in_flight, trial) = self.measure_shared(manifest, &mut callers, &*choice.backend);
            (in_flight, trial, 1.0)
        } else {
            let sizes = doubling_sizes(self.demand.batch_max);
            (1, self.try_out(manifest, &mut [evaluator], &sizes, TRIAL_TIME), threads as f64)
        };
        let all = |speed: &Speed| (speed.batch, speed.evaluations_per_second * times);
        let best = (trial.best() * times).round();
        tracing::info!(evaluator = &*name, evaluations_per_second = best, in_flight, "measured at its best batch");
        Measurement { in_flight, speeds: trial.speeds.iter().map(all).collect() }
    }

    /// Measures the recurrent steps/s of all threads together, in their largest batches. Models on a shared device are
    /// called by as many threads at once; those of the CPU each take a core.
    fn measure_latent(
        &self,
        manifest: &Manifest,
        bytes: &Bytes,
        model: &mut dyn LatentModel,
        choice: &Choice,
    ) -> Measurement {
        let Demand { threads, batch_max } = self.demand;
        let name = model.attributes().name;
        let callers_max = if choice.is_shared { threads.min(CALLERS_MAX) } else { 1 };
        let others = 1..callers_max;
        let mut others: Vec<_> = others.map_while(|_| choice.backend.build_latent(manifest, bytes).ok()).collect();
        let mut callers: Vec<&mut dyn LatentModel> = vec![model];
        callers.extend(others.iter_mut().map(|other| &mut **other as &mut dyn LatentModel));
        let trial = try_out_latent(&mut callers, position(manifest), &[batch_max], TRIAL_TIME, &*self.clock);
        if let Some((batch, why)) = &trial.failure {
            tracing::warn!(model = &*name, batch, why, "a learned model failed while it was measured");
        }
        let times = if choice.is_shared { 1.0 } else { threads as f64 };
        let steps_per_second = (trial.best() * times).round();
        tracing::info!(model = &*name, steps_per_second, "measured in its largest batches");
        let all = |speed: &Speed| (speed.batch, speed.evaluations_per_second * times);
        Measurement { in_flight: 1, speeds: trial.speeds.iter().map(all).collect() }
    }

    /// Measures a device that threads share: the best number of batches in flight with the largest requests, then a few
    /// smaller sizes of requests, all with as many callers as there are threads.
    fn measure_shared(
        &self,
        manifest: &Manifest,
        callers: &mut [&mut dyn Evaluator],
        backend: &dyn Backend,
    ) -> (usize, Trial) {
        let Demand { threads, batch_max } = self.demand;
        // Each size of the device selects its kernels first, which may take long.
        let merged_max = threads.saturating_mul(batch_max);
        for size in BATCH_SIZES.into_iter().filter(|&size| size <= merged_max) {
            self.try_out(manifest, &mut callers[..1], &[size], Duration::ZERO);
        }
        let (in_flight, largest) = choose_depth(DEPTH_MAX.min(threads), |depth| {
            backend.set_in_flight(depth);
            self.try_out(manifest, callers, &[batch_max], TRIAL_TIME)
        });
        backend.set_in_flight(in_flight);
        let mut smaller = [batch_max / 64, batch_max / 8].map(|size| size.max(1)).to_vec();
        smaller.retain(|&size| size < batch_max);
        let mut trial = self.try_out(manifest, callers, &smaller, TRIAL_TIME);
        trial.speeds.extend(largest.speeds);
        (in_flight, trial)
    }

    /// Measures evaluators at batches of the given sizes, and logs a failure.
    fn try_out(
        &self,
        manifest: &Manifest,
        evaluators: &mut [&mut dyn Evaluator],
        sizes: &[usize],
        time: Duration,
    ) -> Trial {
        let trial = try_out(evaluators, position(manifest), sizes, time, &*self.clock);
        if let Some((batch, why)) = &trial.failure {
            let evaluator = &*evaluators[0].attributes().name;
            tracing::warn!(evaluator, batch, why, "an evaluator failed while it was measured");
        }
        trial
    }

    /// Builds an evaluator with `build` on every engine that takes the weights, and routes between them; `None` if one
    /// of them is not ready.
    fn routed(
        &self,
        manifest: &Manifest,
        bytes: &Bytes,
        build: impl Fn(&dyn Backend) -> Result<Option<Box<dyn Evaluator>>, Error>,
    ) -> Result<Option<Box<dyn Evaluator>>, Error> {
        let (mut choices, mut evaluators, mut refused) = (Vec::new(), Vec::new(), None);
        for choice in &self.choices {
            match build(&*choice.backend) {
                Ok(None) => return Ok(None),
                Ok(Some(evaluator)) => {
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
        Ok(Some(Box::new(routed)))
    }

    fn announce(&self, name: &str) {
        let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        if chosen.as_deref() != Some(name) {
            tracing::info!(evaluator = name, "chosen for this network");
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

    fn engine_counts(&self) -> Option<EngineCounts> {
        self.choices.iter().find_map(|choice| choice.backend.engine_counts())
    }

    fn build(&self, manifest: &Manifest, bytes: &Bytes) -> Result<Box<dyn Evaluator>, Error> {
        let built = self.routed(manifest, bytes, |backend| backend.build(manifest, bytes).map(Some))?;
        Ok(built.expect("a build that waits gives an evaluator"))
    }

    /// Uses one engine at every batch size, because latent states stay where they were computed: the one that takes the
    /// most recurrent steps per second in the largest batches of all threads, which a search nearly always fills.
    fn build_latent(&self, manifest: &Manifest, bytes: &Bytes) -> Result<Box<dyn LatentModel>, Error> {
        let (mut choices, mut models, mut refused) = (Vec::new(), Vec::new(), None);
        for choice in &self.choices {
            match choice.backend.build_latent(manifest, bytes) {
                Ok(model) => {
                    choices.push(choice);
                    models.push(model);
                }
                Err(error) => {
                    tracing::debug!(backend = choice.backend.describe(), %error, "this engine does not take the weights");
                    refused.get_or_insert(error);
                }
            }
        }
        if models.len() > 1 {
            let measured = self.latent_measurements(manifest, bytes, &choices, &mut models);
            let speed = |index: usize| measured[index].speeds.last().map_or(0.0, |&(_, speed)| speed);
            // Among equals, the first choice is preferred.
            let fastest =
                (1..models.len()).fold(0, |best, index| if speed(index) > speed(best) { index } else { best });
            models.swap(0, fastest);
        }
        match models.into_iter().next() {
            Some(model) => {
                self.announce(&model.attributes().name);
                Ok(model)
            }
            None => Err(refused.unwrap_or_else(|| Error::NoLatentModel { engine: self.describe() })),
        }
    }

    fn try_build(&self, manifest: &Manifest, bytes: &Bytes) -> Result<Option<Box<dyn Evaluator>>, Error> {
        self.routed(manifest, bytes, |backend| backend.try_build(manifest, bytes))
    }
}

/// The shape of an observation and the number of actions.
fn position(manifest: &Manifest) -> (ObservationShape, usize) {
    let Architecture { planes, height, width, actions, .. } = manifest.architecture;
    (ObservationShape { planes, height, width }, actions)
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
