//! Choice between engines by speed on this machine. Speeds are measured once per machine, network and load, and stored.

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

/// Measuring time per batch size and engine.
const TRIAL_TIME: Duration = Duration::from_millis(30);

/// Maximum number of threads that call a shared device in a measurement. Further threads change nothing, because
/// requests merge.
const CALLERS_MAX: usize = 32;

/// The evaluation load of a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Demand {
    /// Number of threads, each with separate evaluators.
    pub(crate) threads: usize,
    /// Maximum batch size in positions: all leaves in all games of a thread.
    pub(crate) batch_max: usize,
}

/// A candidate engine.
pub(crate) struct Choice {
    pub(crate) backend: Box<dyn Backend>,
    /// True if the backend merges the requests of all threads into batches for one device.
    pub(crate) is_shared: bool,
}

/// The engines that support a weights version, with the networks that they have built.
struct Built<'a, N: ?Sized> {
    choices: Vec<&'a Choice>,
    networks: Vec<Box<N>>,
}

/// Several backends; each batch size uses the fastest backend.
pub(crate) struct Measured {
    choices: Vec<Choice>,
    demand: Demand,
    machine: String,
    speeds: Store,
    /// The last logged choice.
    chosen: Mutex<Option<String>>,
    clock: Arc<dyn Fn() -> Instant + Send + Sync>,
    /// Speeds known to this process. A measuring thread holds the mutex, so that all threads share the result.
    known: Mutex<Speeds>,
}

impl Measured {
    /// Creates the backend. The first of several equally fast choices is preferred.
    pub(crate) fn new(choices: Vec<Choice>, demand: Demand, host: Host) -> Self {
        let Host { clock, machine, speeds } = host;
        let (chosen, known) = (Mutex::default(), Mutex::default());
        Self { choices, demand, machine, speeds, chosen, clock: Arc::new(clock), known }
    }

    /// Returns the key of a measurement. Another machine, accelerator, network or load has another key, and so has an
    /// accelerator with graphs, so that the speeds are measured again.
    fn key(&self, architecture: &Architecture) -> String {
        let Demand { threads, batch_max } = self.demand;
        let shared = self.choices.iter().filter(|choice| choice.is_shared);
        let models: String = shared
            .map(|choice| {
                let model = choice.backend.model().unwrap_or_else(|| "an accelerator".to_owned());
                let has_graphs = choice.backend.graphs().is_some_and(|refusal| refusal.is_empty());
                format!("; merged on {model}{}", if has_graphs { " with graphs" } else { "" })
            })
            .collect();
        format!("{}{models}; {architecture:?}; {threads} threads, batches to {batch_max}", self.machine)
    }

    /// Returns the stored measurements of the engines `choices`, which have built `networks`. If one is missing,
    /// measures all engines with `measure` and stores the measurements. `name` returns the name of a network.
    fn measurements<N: ?Sized>(
        &self,
        manifest: &Manifest,
        choices: &[&Choice],
        networks: &mut [Box<N>],
        name: impl Fn(&N) -> Arc<str>,
        measure: impl Fn(&mut N, &Choice) -> Measurement,
    ) -> Vec<Measurement> {
        let names: Vec<String> = networks.iter().map(|network| name(network).to_string()).collect();
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
        let measured: Vec<Measurement> =
            networks.iter_mut().zip(choices).map(|(network, choice)| measure(network, choice)).collect();
        let has_failed = measured.iter().any(|measured| measured.speeds.is_empty());
        known.insert(key, names.into_iter().zip(measured.iter().cloned()).collect());
        // A failed measurement is not saved: the device may work at the next start.
        if !has_failed {
            self.speeds.save(&known);
        }
        measured
    }

    /// Measures the evaluations/s of all threads together: on a shared device by several threads at once, elsewhere by
    /// one thread, multiplied by the number of threads.
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
        tracing::info!(evaluator = &*name, evaluations_per_second = best, in_flight, "measured at the best batch size");
        Measurement { in_flight, speeds: trial.speeds.iter().map(all).collect() }
    }

    /// Measures the recurrent steps/s of all threads together, at the maximum batch size. On a shared device, several
    /// threads call models at once. On the CPU, where each model has a core, the speed of one model is multiplied by
    /// the number of threads.
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
        let merged_max = if choice.is_shared { threads.saturating_mul(batch_max) } else { 0 };
        for size in BATCH_SIZES.into_iter().filter(|&size| size <= merged_max) {
            // As for evaluators, the first batch of a size selects kernels.
            try_out_latent(&mut callers[..1], position(manifest), &[size], Duration::ZERO, &*self.clock);
        }
        let trial = try_out_latent(&mut callers, position(manifest), &[batch_max], TRIAL_TIME, &*self.clock);
        if let Some((batch, why)) = &trial.failure {
            tracing::warn!(model = &*name, batch, why, "learned model failed during measurement");
        }
        let times = if choice.is_shared { 1.0 } else { threads as f64 };
        let steps_per_second = (trial.best() * times).round();
        tracing::info!(model = &*name, steps_per_second, "measured at the largest batch size");
        let all = |speed: &Speed| (speed.batch, speed.evaluations_per_second * times);
        Measurement { in_flight: 1, speeds: trial.speeds.iter().map(all).collect() }
    }

    /// Measures a shared device with all `callers`: first the best number of batches in flight at the maximum request
    /// size, then two smaller request sizes.
    fn measure_shared(
        &self,
        manifest: &Manifest,
        callers: &mut [&mut dyn Evaluator],
        backend: &dyn Backend,
    ) -> (usize, Trial) {
        let Demand { threads, batch_max } = self.demand;
        // The first batch of each size selects kernels, which may take long, so that is done before the measurement.
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

    /// Measures evaluators at the given batch sizes for `time` each, and logs a failure.
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
            tracing::warn!(evaluator, batch, why, "evaluator failed during measurement");
        }
        trial
    }

    /// Builds a network with `build` on every engine that supports the weights, and returns these engines with the
    /// networks. Returns `None` if `build` returns `None` for an engine. `log` receives the engines without support.
    ///
    /// # Errors
    /// No engine supports the weights; the preferred engine gives the reason.
    fn built<N: ?Sized>(
        &self,
        build: impl Fn(&dyn Backend) -> Result<Option<Box<N>>, Error>,
        log: fn(String, &Error),
    ) -> Result<Option<Built<'_, N>>, Error> {
        let (mut choices, mut networks, mut refused) = (Vec::new(), Vec::new(), None);
        for choice in &self.choices {
            match build(&*choice.backend) {
                Ok(None) => return Ok(None),
                Ok(Some(network)) => {
                    choices.push(choice);
                    networks.push(network);
                }
                Err(error) => {
                    log(choice.backend.describe(), &error);
                    refused.get_or_insert(error);
                }
            }
        }
        match refused {
            Some(error) if networks.is_empty() => Err(error),
            _ => Ok(Some(Built { choices, networks })),
        }
    }

    /// Builds an evaluator with `build` on every engine that supports the weights, and routes between the evaluators.
    /// Returns `None` if `build` returns `None` for an engine.
    fn routed(
        &self,
        manifest: &Manifest,
        bytes: &Bytes,
        build: impl Fn(&dyn Backend) -> Result<Option<Box<dyn Evaluator>>, Error>,
    ) -> Result<Option<Box<dyn Evaluator>>, Error> {
        let log =
            |backend: String, error: &Error| tracing::warn!(backend, %error, "engine does not support the weights");
        let Some(Built { choices, networks: mut evaluators }) = self.built(build, log)? else { return Ok(None) };
        let measured = self.measurements(
            manifest,
            &choices,
            &mut evaluators[..],
            |evaluator| evaluator.attributes().name,
            |evaluator, choice| self.measure(manifest, bytes, evaluator, choice),
        );
        for (choice, measured) in choices.iter().zip(&measured) {
            choice.backend.set_in_flight(measured.in_flight);
        }
        let candidate = |(evaluator, measured): (_, &Measurement)| Candidate { evaluator, speeds: measured.speeds() };
        let candidates = evaluators.into_iter().zip(&measured).map(candidate).collect();
        let report = Box::new(|trouble: String| tracing::warn!(trouble, "evaluator failed"));
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
            tracing::info!(evaluator = name, "evaluator chosen for this network");
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

    fn graphs(&self) -> Option<String> {
        self.choices.iter().find_map(|choice| choice.backend.graphs())
    }

    fn build(&self, manifest: &Manifest, bytes: &Bytes) -> Result<Box<dyn Evaluator>, Error> {
        let built = self.routed(manifest, bytes, |backend| backend.build(manifest, bytes).map(Some))?;
        Ok(built.expect("a build that waits gives an evaluator"))
    }

    /// Uses one engine at every batch size, because latent states stay on the device that computed them. The fastest
    /// engine in recurrent steps/s at the maximum batch size is used, since a search nearly always fills a batch.
    fn build_latent(&self, manifest: &Manifest, bytes: &Bytes) -> Result<Box<dyn LatentModel>, Error> {
        let log =
            |backend: String, error: &Error| tracing::debug!(backend, %error, "engine does not support the weights");
        let built = self.built(|backend| backend.build_latent(manifest, bytes).map(Some), log)?;
        let Built { choices, networks: mut models } = built.expect("a learned model is built in every call");
        if models.len() > 1 {
            let measured = self.measurements(
                manifest,
                &choices,
                &mut models[..],
                |model| model.attributes().name,
                |model, choice| self.measure_latent(manifest, bytes, model, choice),
            );
            let speed = |index: usize| measured[index].speeds.last().map_or(0.0, |&(_, speed)| speed);
            // The first of several equally fast choices is preferred.
            let fastest =
                (1..models.len()).fold(0, |best, index| if speed(index) > speed(best) { index } else { best });
            models.swap(0, fastest);
        }
        let model = models.swap_remove(0);
        self.announce(&model.attributes().name);
        Ok(model)
    }

    fn try_build(&self, manifest: &Manifest, bytes: &Bytes) -> Result<Option<Box<dyn Evaluator>>, Error> {
        self.routed(manifest, bytes, |backend| backend.try_build(manifest, bytes))
    }
}

/// Returns the observation shape and the number of actions.
fn position(manifest: &Manifest) -> (ObservationShape, usize) {
    let Architecture { planes, height, width, actions, .. } = manifest.architecture;
    (ObservationShape { planes, height, width }, actions)
}

/// Measured speeds by `Measured::key`, then by evaluator name.
type Speeds = BTreeMap<String, BTreeMap<String, Measurement>>;

/// Speed of one evaluator or learned model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Measurement {
    /// Batches in flight on a shared device; else 1.
    in_flight: usize,
    /// Batch sizes, each with the evaluations/s (or recurrent steps/s) of all threads at `in_flight`.
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
    /// Creates a store from two functions. `read` returns the text last passed to `write`, or `None`. Both functions
    /// should log failures; lost speeds are measured again.
    pub fn new(
        read: impl Fn() -> Option<Vec<u8>> + Send + Sync + 'static,
        write: impl Fn(&[u8]) + Send + Sync + 'static,
    ) -> Self {
        Self { read: Box::new(read), write: Box::new(write) }
    }

    /// Creates a store that keeps nothing, so that every start measures the speeds.
    #[must_use]
    pub fn none() -> Self {
        Self::new(|| None, |_| ())
    }

    fn load(&self) -> Speeds {
        let Some(text) = (self.read)() else { return Speeds::default() };
        serde_json::from_slice(&text).unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read stored speeds; measuring again");
            Speeds::default()
        })
    }

    fn save(&self, speeds: &Speeds) {
        match serde_json::to_vec_pretty(speeds) {
            Ok(text) => (self.write)(&text),
            Err(error) => tracing::warn!(%error, "cannot store measured speeds"),
        }
    }
}
