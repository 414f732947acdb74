mod accelerator;
mod graphs;
mod guarded;
mod staging;

use std::sync::{Arc, Mutex, OnceLock, PoisonError, TryLockError};
use std::time::Instant;

use game::{ObservationShape, Outcome};
use inference::{
    Attributes, BATCH_SIZES, Batch, BatchingEngine, EngineCounts, EngineSettings, Evaluator, LatentModel,
    LoadedNetwork, Predictions, Weights,
};
use tch::Device;
use weights::{Architecture, Manifest, Model, WeightsVersion};

use crate::{
    Chosen, ChosenPrecision, DevicePreference, Error, LibtorchLatent, Network, PrecisionPreference, Purpose,
    batch_sizes::{CHUNK, CHUNK_ACCELERATED, MAX_BATCH, padded},
    choose_device, choose_precision, fusing, gpu,
    graph::Recorder,
    layout, process,
    rules::device_name,
};
pub(crate) use accelerator::{Accelerator, Prepared};
use graphs::Graphs;
use guarded::{Guarded, Reports};
use inference::Precision;
pub(crate) use staging::Staging;

/// Weights that libtorch evaluates in the calling thread: batch norms folded, channels last, no gradients. Numbers that
/// float16 cannot hold make the evaluator continue in float32.
///
/// Belongs to one thread at a time. On the CPU a second thread builds a separate evaluator from the same bytes; on an
/// accelerator [`Libtorch`] merges the requests of several threads instead.
#[derive(Debug)]
pub struct LibtorchEvaluator {
    guarded: Guarded,
    network: LoadedNetwork,
    chunk: usize,
    /// `[B, H, W, C]`, the order of the convolutions, with B padded.
    observations: Staging,
    /// `[B, A + 3]`: policy and value together, so that one copy transfers both.
    logits: Vec<f32>,
}

impl LibtorchEvaluator {
    /// Builds the network of `architecture` from the bytes of a published version.
    ///
    /// # Errors
    /// Fails if the bytes do not match the architecture exactly; the error names the tensor.
    pub fn new(
        architecture: &Architecture,
        version: WeightsVersion,
        bytes: &[u8],
        device: Device,
        precision: Precision,
    ) -> Result<Self, Error> {
        process::apply();
        Self::from_network(&Network::from_safetensors(architecture, bytes, device)?, version, precision)
    }

    /// Copies the current weights of `network`.
    ///
    /// # Errors
    /// [`Error::Libtorch`] if the device fails.
    pub fn from_network(network: &Network, version: WeightsVersion, precision: Precision) -> Result<Self, Error> {
        Self::reporting(network, version, precision, Reports::default())
    }

    fn reporting(
        network: &Network,
        version: WeightsVersion,
        precision: Precision,
        reports: Reports,
    ) -> Result<Self, Error> {
        let device = network.device();
        let chunk = if device == Device::Cpu { CHUNK } else { CHUNK_ACCELERATED };
        Ok(Self {
            guarded: Guarded::on_host(network, version, (device, precision), reports)?.moved_to(device)?,
            network: loaded(network.architecture(), version, (device, precision), chunk),
            chunk,
            observations: Staging::new(device),
            logits: Vec::new(),
        })
    }

    /// Evaluates the positions from `from` on, at most a chunk, and writes the logits.
    fn compute(&mut self, batch: &Batch, from: usize, positions: usize) -> Result<(), Error> {
        let _guard = tch::no_grad_guard();
        let (row, padded) = (self.network.shape.len(), padded(positions));
        // If this fails, the device may still read from the buffer, which is then not used again.
        let device = self.observations.device;
        let mut staging = std::mem::replace(&mut self.observations, Staging::new(device));
        let (staged, padding) = staging.numbers(padded * row)?.split_at_mut(positions * row);
        write_rows(self.network.shape, &batch.observations()[from * row..(from + positions) * row], staged);
        padding.fill(0.0);
        let observations = staging.tensor(padded * row)?;
        let logits = self.guarded.current().forward(&observations, padded)?;
        self.logits.resize(padded * (self.network.actions + Outcome::RESULTS), 0.0);
        let len = self.logits.len();
        logits.f_copy_data(&mut self.logits, len)?;
        self.guarded.check(&mut self.logits, &observations, padded)?;
        self.observations = staging;
        Ok(())
    }
}

impl Evaluator for LibtorchEvaluator {
    fn attributes(&self) -> Attributes {
        self.network.attributes.clone()
    }

    fn evaluate(&mut self, batch: &Batch, predictions: &mut Predictions) -> Result<(), inference::Error> {
        predictions.clear();
        let LoadedNetwork { shape, actions, .. } = self.network;
        batch.check(shape, actions, MAX_BATCH)?;
        process::apply();
        for from in (0..batch.len()).step_by(self.chunk) {
            let positions = self.chunk.min(batch.len() - from);
            self.compute(batch, from, positions)?;
            for (i, row) in self.logits.chunks_exact(actions + Outcome::RESULTS).take(positions).enumerate() {
                let (policy, wdl) = row.split_at(actions);
                if !predictions.push_logits(policy, batch.legal(from + i), [wdl[0], wdl[1], wdl[2]]) {
                    let weights_version = self.network.attributes.weights_version;
                    return Err(inference::Error::NotFinite { weights_version });
                }
            }
        }
        Ok(())
    }
}

/// Returns the attributes of a network on a device.
fn loaded(
    architecture: &Architecture,
    version: WeightsVersion,
    (device, precision): (Device, Precision),
    preferred_batch: usize,
) -> LoadedNetwork {
    let &Architecture { planes, height, width, actions, .. } = architecture;
    LoadedNetwork {
        attributes: Attributes {
            name: format!("libtorch {} {precision}", device_name(device)).into(),
            weights_version: version.0,
            preferred_batch,
            max_batch: MAX_BATCH,
        },
        shape: ObservationShape { planes, height, width },
        actions,
        write_rows,
    }
}

/// Copies observations `[B, C, H, W]` as `[B, H, W, C]`.
fn write_rows(shape: ObservationShape, observations: &[f32], to: &mut [f32]) {
    layout::channels_last(observations, shape.planes, shape.height * shape.width, to);
}

/// Batches in flight on an accelerator before any measurement: one is computed, the next one is queued.
const IN_FLIGHT: usize = 2;

/// Builds evaluators for the threads of a process: the device is chosen at once, the precision when the first
/// evaluator is built.
///
/// On the CPU every evaluator and learned model computes in the calling thread: libtorch's own threads would wait for
/// each other. On an accelerator one engine, which outlives weights versions, merges the requests of all threads.
#[derive(Debug)]
pub struct Libtorch {
    device: Chosen,
    /// On an accelerator, the last requested version on each requested board of the game: other threads request the
    /// same versions.
    newest: Mutex<Vec<(Manifest, Weights<Accelerator>)>>,
    /// Present on an accelerator only.
    engine: Option<Engine>,
    reports: Reports,
    preference: PrecisionPreference,
    precision: OnceLock<ChosenPrecision>,
    clock: fn() -> Instant,
}

/// Engine of an accelerator.
struct Engine {
    engine: BatchingEngine<Accelerator>,
    reports: Reports,
    /// Reason for evaluation without graphs.
    refusal: Arc<OnceLock<String>>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.engine.fmt(f)
    }
}

impl Engine {
    fn start(
        device: Device,
        in_flight_max: usize,
        clock: fn() -> Instant,
        recorder: Result<Recorder, String>,
    ) -> Result<Self, Error> {
        let (reports, refusal) = (Reports::default(), Arc::default());
        let graphs = Graphs::new(recorder, Arc::clone(&refusal), reports.clone());
        let of_engine = reports.clone();
        let name = device_name(device);
        let settings = EngineSettings {
            device: name.as_str().into(),
            batch_sizes: BATCH_SIZES.to_vec(),
            in_flight: IN_FLIGHT,
            in_flight_max,
            clock: Box::new(clock),
            report: Box::new(move |text| of_engine.send(text)),
        };
        let failed = |error: std::io::Error| Error::Device { device: name, reason: error.to_string() };
        let engine = BatchingEngine::start(Accelerator::new(device, graphs), settings).map_err(failed)?;
        Ok(Self { engine, reports, refusal })
    }
}

impl Libtorch {
    /// Chooses the device like [`choose_device`]; `clock` times batches, and precisions when they are measured.
    ///
    /// # Errors
    /// [`Error::Device`] for a configured device that cannot be used.
    pub fn new(
        device: DevicePreference,
        preference: PrecisionPreference,
        clock: fn() -> Instant,
    ) -> Result<Self, Error> {
        let device = choose_device(device, Purpose::Inference)?;
        if device.device == Device::Cpu {
            process::set_threads(1);
            return Ok(Self::on(device, None, preference, clock));
        }
        let recorder = Recorder::of(device.device, Purpose::Inference);
        let engine = Engine::start(device.device, accelerator::in_flight_max(device.device), clock, recorder)?;
        Ok(Self::on(device, Some(engine), preference, clock))
    }

    fn on(device: Chosen, engine: Option<Engine>, preference: PrecisionPreference, clock: fn() -> Instant) -> Self {
        let reports = engine.as_ref().map(|engine| engine.reports.clone()).unwrap_or_default();
        Self { device, newest: Mutex::default(), engine, reports, preference, precision: OnceLock::new(), clock }
    }

    /// Sends texts about the device, such as batches beyond the memory or weights beyond float16, to `report`.
    #[must_use]
    pub fn report_to(self, report: impl Fn(String) + Send + Sync + 'static) -> Self {
        self.reports.send_to(report);
        self
    }

    /// Returns whether the device is an accelerator.
    #[must_use]
    pub fn is_accelerated(&self) -> bool {
        self.engine.is_some()
    }

    /// Sets the maximum batches in flight on an accelerator; on the CPU it is always one per thread.
    pub fn set_in_flight(&self, depth: usize) {
        if let Some(Engine { engine, .. }) = &self.engine {
            engine.set_in_flight(depth);
        }
    }

    /// Returns the maximum batches in flight on an accelerator; `None` on the CPU.
    #[must_use]
    pub fn in_flight(&self) -> Option<usize> {
        self.engine.as_ref().map(|Engine { engine, .. }| engine.in_flight())
    }

    /// Returns the counters of the engine of an accelerator; `None` on the CPU.
    #[must_use]
    pub fn counts(&self) -> Option<EngineCounts> {
        self.engine.as_ref().map(|Engine { engine, .. }| engine.counts())
    }

    /// Returns the reason why batches on a CUDA device are evaluated without graphs, empty if graphs are used; `None`
    /// on other devices.
    #[must_use]
    pub fn graphs(&self) -> Option<String> {
        let Engine { refusal, .. } = self.engine.as_ref().filter(|_| self.device.device.is_cuda())?;
        Some(refusal.get().cloned().unwrap_or_default())
    }

    /// Returns the model name of the accelerator, such as `NVIDIA H100 80GB HBM3`; `None` on the CPU, and if it
    /// cannot be read.
    #[must_use]
    pub fn model(&self) -> Option<String> {
        match self.device.device {
            Device::Cuda(index) => gpu::name(index).ok(),
            _ => None,
        }
    }

    /// Returns a human-readable description: device and precision with the reasons for the choice. On an accelerator
    /// also the maximum batches in flight, the use of graphs and, once weights are loaded, the implementation of
    /// convolutions. Measures the precision if that has not been done yet.
    #[must_use]
    pub fn describe(&self) -> String {
        let precision = self.precision().map_or_else(|error| error.to_string(), ToString::to_string);
        let in_flight = self.in_flight().map_or(String::new(), |depth| format!(", {depth} in flight"));
        let graphs = self.graphs().map_or_else(String::new, |refusal| match refusal.as_str() {
            "" => ", CUDA graphs".to_owned(),
            reason => format!(", no CUDA graphs ({reason})"),
        });
        let fusing = fusing::description(self.device.device).map_or(String::new(), |fusing| format!(", {fusing}"));
        format!("libtorch on {}, {precision}{in_flight}{graphs}{fusing}", self.device)
    }

    /// Builds an evaluator of a published version for one thread. On an accelerator the first thread prepares the
    /// weights for all threads, which wait for it.
    ///
    /// # Errors
    /// Fails if the weights do not match the architecture in the manifest, or if the device fails.
    pub fn evaluator(&self, manifest: &Manifest, bytes: &[u8]) -> Result<Box<dyn Evaluator>, Error> {
        match &self.engine {
            None => self.evaluator_of_thread(manifest, bytes),
            Some(engine) => {
                let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
                self.merged_evaluator(engine, &mut newest, manifest, bytes)
            }
        }
    }

    /// Builds an evaluator like [`evaluator`](Self::evaluator), or returns `None` while another thread prepares
    /// weights.
    ///
    /// # Errors
    /// The same as [`evaluator`](Self::evaluator).
    pub fn try_evaluator(&self, manifest: &Manifest, bytes: &[u8]) -> Result<Option<Box<dyn Evaluator>>, Error> {
        let Some(engine) = &self.engine else { return self.evaluator_of_thread(manifest, bytes).map(Some) };
        let mut newest = match self.newest.try_lock() {
            Ok(newest) => newest,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(None),
        };
        self.merged_evaluator(engine, &mut newest, manifest, bytes).map(Some)
    }

    /// Builds the learned model of a published MuZero version, for one thread. On an accelerator the first thread
    /// prepares the weights for all threads, and one pool holds the latent states of all threads. A model keeps latent
    /// states, so that it could not change from float16 to float32: it is in float32 from the start.
    ///
    /// # Errors
    /// The same as [`evaluator`](Self::evaluator).
    pub fn latent_model(&self, manifest: &Manifest, bytes: &[u8]) -> Result<Box<dyn LatentModel>, Error> {
        let (device, precision) = (self.device.device, self.precision_of_models()?);
        let Manifest { architecture, version, .. } = manifest;
        Ok(Box::new(match &self.engine {
            Some(_) if architecture.model == Model::Alphazero => {
                return Err(::network::Error::Model { expected: "muzero" }.into());
            }
            Some(engine) => {
                let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
                let weights = self.merged(engine, &mut newest, manifest, bytes)?;
                let attributes = loaded(architecture, *version, (device, precision), CHUNK_ACCELERATED).attributes;
                LibtorchLatent::merged(architecture, precision, attributes, weights)
            }
            None => LibtorchLatent::new(architecture, *version, bytes, device, precision)?,
        }))
    }

    fn evaluator_of_thread(&self, manifest: &Manifest, bytes: &[u8]) -> Result<Box<dyn Evaluator>, Error> {
        process::apply();
        let network = Network::from_safetensors(&manifest.architecture, bytes, self.device.device)?;
        let (precision, reports) = (self.precision()?.precision, self.reports.clone());
        Ok(Box::new(LibtorchEvaluator::reporting(&network, manifest.version, precision, reports)?))
    }

    fn merged_evaluator(
        &self,
        engine: &Engine,
        newest: &mut Vec<(Manifest, Weights<Accelerator>)>,
        manifest: &Manifest,
        bytes: &[u8],
    ) -> Result<Box<dyn Evaluator>, Error> {
        if manifest.architecture.model != Model::Alphazero {
            return Err(::network::Error::Model { expected: "alphazero" }.into());
        }
        Ok(Box::new(self.merged(engine, newest, manifest, bytes)?.evaluator()))
    }

    /// Returns weights on the engine. `newest` stays locked while weights are prepared and copied to the device,
    /// because other threads need the same weights.
    fn merged(
        &self,
        Engine { engine, .. }: &Engine,
        newest: &mut Vec<(Manifest, Weights<Accelerator>)>,
        manifest: &Manifest,
        bytes: &[u8],
    ) -> Result<Weights<Accelerator>, Error> {
        if let Some((_, weights)) = newest.iter().find(|(loaded, _)| loaded == manifest) {
            return Ok(weights.clone());
        }
        process::apply();
        let Manifest { architecture, version, .. } = manifest;
        let (device, precision) = (self.device.device, self.precision()?.precision);
        let network = Network::from_safetensors(architecture, bytes, Device::Cpu)?;
        let prepared = match architecture.model {
            Model::Alphazero => {
                let guarded = Guarded::on_host(&network, *version, (device, precision), self.reports.clone())?;
                Prepared::Evaluator(Box::new(guarded))
            }
            _ => Prepared::Latent(Box::new(network), self.precision_of_models()?),
        };
        let network = loaded(architecture, *version, (device, precision), CHUNK_ACCELERATED);
        let weights = engine
            .load(prepared, network)
            .map_err(|error| Error::Device { device: device_name(device), reason: error.to_string() })?;
        newest.retain(|(loaded, _)| (loaded.version, &loaded.digest) == (manifest.version, &manifest.digest));
        newest.push((manifest.clone(), weights.clone()));
        Ok(weights)
    }

    fn precision_of_models(&self) -> Result<Precision, Error> {
        Ok(match self.precision()?.precision {
            Precision::F16 => Precision::F32,
            precision => precision,
        })
    }

    fn precision(&self) -> Result<&ChosenPrecision, Error> {
        if let Some(precision) = self.precision.get() {
            return Ok(precision);
        }
        let device = self.device.device;
        let precision = choose_precision(self.preference, device, &mut || (self.clock)())?;
        Ok(self.precision.get_or_init(|| precision))
    }
}

#[cfg(test)]
mod tests;
