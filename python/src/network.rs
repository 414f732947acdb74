//! The class `Network`: a weights version on the CPU of this process, for calls from Python and for searches.
//!
//! Arrays cross the border to Python as bytes, so that the extension does not depend on the ABI of NumPy.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use evaluators::{Backend, BatchMax, Calibration, Host, Store, Threads};
use game::{Action, Game as _, ObservationShape};
use games::GameKind;
use inference::{
    Batch, DevicePreference, Evaluator, LatentModel, LatentPredictions, PrecisionPreference, Predictions, Slot, Unroll,
};
use network_cpu::KernelPreference;
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use weights::{Architecture, Digest, Manifest, Model, WeightsVersion};

use crate::errors::{Error, failed, rejected};

/// Maximum batch size in positions.
const BATCH_MAX: usize = 256;
/// Maximum batch size of networks with latent states: no call without a check for Ctrl-C is long.
const LATENT_BATCH_MAX: usize = 32;

/// Arrays of little-endian float32 values.
type Arrays<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// A weights version in memory. Searches share it with the class [`Network`].
pub(crate) struct Loaded {
    pub(crate) manifest: Manifest,
    bytes: Bytes,
    backend: Arc<dyn Backend>,
    /// Instances that no call uses. There are as many instances as calls at the same time.
    idle: Mutex<Vec<evaluators::Network>>,
}

impl Loaded {
    /// Checks the weights against the manifest, and builds an instance.
    fn new(manifest: &str, weights: &[u8], precision: &str, board: Option<&str>) -> PyResult<Self> {
        let precision = match precision {
            "f32" => PrecisionPreference::F32,
            "bf16" => PrecisionPreference::Bf16,
            "auto" => PrecisionPreference::Auto,
            other => return Err(rejected(format!("`{other}` is not a precision: expected f32, bf16 or auto"))),
        };
        let invalid =
            |error: serde_json::Error| Error::new_err(format!("the manifest of the weights is invalid: {error}"));
        let mut manifest: Manifest = serde_json::from_str(manifest).map_err(invalid)?;
        if let Some(board) = board {
            let game: GameKind = board.parse().map_err(|error: games::Error| failed(&error))?;
            manifest = evaluators::suited(&manifest, game.rules().spec()).map_err(|error| failed(&error))?;
        }
        if Digest::of(weights) != manifest.digest {
            let version = manifest.version;
            let reason = format!("weights {version} are damaged: the digest differs from the manifest");
            return Err(Error::new_err(reason));
        }
        let (backend, bytes) = (backend(precision)?, Bytes::copy_from_slice(weights));
        let loaded = Self { manifest, bytes, backend, idle: Mutex::default() };
        loaded.put_back(loaded.take()?);
        Ok(loaded)
    }

    /// Returns an idle instance, or builds one: instances share the weights.
    pub(crate) fn take(&self) -> PyResult<evaluators::Network> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let build = || self.backend.build_network(&self.manifest, &self.bytes).map_err(|error| failed(&error));
        idle.map_or_else(build, Ok)
    }

    /// Keeps an instance for later calls.
    pub(crate) fn put_back(&self, network: evaluators::Network) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(network);
    }
}

/// Returns the backend for one thread of this CPU.
fn backend(precision: PrecisionPreference) -> PyResult<Arc<dyn Backend>> {
    let wanted = evaluators::Settings {
        device: DevicePreference::Cpu,
        precision,
        kernel: KernelPreference::Auto,
        // A position always gets the same evaluation.
        calibration: Calibration::Off,
        threads: Threads::exactly(1),
        batch_max: BatchMax::exactly(BATCH_MAX),
        torch_build: "the programs of zerofleet have it in builds with --features torch",
    };
    let host = Host { clock: Instant::now, machine: "python".to_owned(), speeds: Store::none() };
    evaluators::choose(&wanted, host).map(|chosen| chosen.backend).map_err(|error| failed(&error))
}

/// A network of one weights version, evaluated on the CPU.
#[pyclass(frozen, module = "zerofleet._zerofleet")]
pub(crate) struct Network {
    pub(crate) loaded: Arc<Loaded>,
}

#[pymethods]
impl Network {
    /// Loads weights: the manifest as JSON, and the safetensors file. A network with pooled heads fits other boards.
    #[new]
    #[pyo3(signature = (manifest_json, weights, precision = "f32", board = None))]
    fn new(
        py: Python<'_>,
        manifest_json: &str,
        weights: &[u8],
        precision: &str,
        board: Option<&str>,
    ) -> PyResult<Self> {
        let loaded = py.detach(|| Loaded::new(manifest_json, weights, precision, board))?;
        Ok(Self { loaded: Arc::new(loaded) })
    }

    /// Returns the manifest of weights as JSON, for an architecture as JSON.
    #[staticmethod]
    #[pyo3(name = "_manifest", signature = (architecture_json, weights, version = 1, training_step = 0))]
    fn manifest(
        py: Python<'_>,
        architecture_json: &str,
        weights: &[u8],
        version: u64,
        training_step: u64,
    ) -> PyResult<String> {
        let invalid = |error: serde_json::Error| Error::new_err(format!("the architecture is invalid: {error}"));
        let architecture: Architecture = serde_json::from_str(architecture_json).map_err(invalid)?;
        let manifest = py.detach(|| Manifest::of(weights, WeightsVersion(version), training_step, architecture));
        serde_json::to_string_pretty(&manifest).map_err(|error| failed(&error))
    }

    /// Name of the game, with the board.
    #[getter]
    fn game(&self) -> &str {
        &self.loaded.manifest.architecture.game
    }

    /// Weights version.
    #[getter]
    fn version(&self) -> u64 {
        self.loaded.manifest.version.0
    }

    /// Training step after which the version was published.
    #[getter]
    fn training_step(&self) -> u64 {
        self.loaded.manifest.training_step
    }

    /// Architecture of the network as JSON.
    #[getter]
    fn architecture(&self) -> PyResult<String> {
        serde_json::to_string(&self.loaded.manifest.architecture).map_err(|error| failed(&error))
    }

    /// Model: alphazero, alphazero_returns, muzero or stochastic_muzero.
    #[getter]
    fn model(&self) -> &'static str {
        self.loaded.manifest.architecture.model.name()
    }

    /// Evaluates observations, float32 `[B, C, H, W]`, with legal actions, one byte each, `[B, A]`. A muzero network
    /// also evaluates the states after K actions, uint16 `[B, K]`, in the learned model.
    ///
    /// Returns priors `[B, K + 1, A]`, values `[B, K + 1]` for the player to move, rewards `[B, K]`, and win, draw and
    /// loss `[B, 3]`, which are empty unless the model is alphazero.
    #[pyo3(name = "_evaluate")]
    fn evaluate<'py>(
        &self,
        py: Python<'py>,
        observations: &[u8],
        legal: &[u8],
        actions: &[u8],
    ) -> PyResult<Arrays<'py>> {
        let positions = Positions::new(&self.loaded.manifest.architecture, observations, legal)?;
        let (actions, rest) = actions.as_chunks::<2>();
        let actions: Vec<Action> = actions.iter().map(|&action| Action(u16::from_le_bytes(action))).collect();
        let steps = actions.len().checked_div(positions.len()).unwrap_or(0);
        if !rest.is_empty() || actions.len() != steps * positions.len() {
            return Err(rejected("actions must be uint16 of the shape [B, K]"));
        }
        if let Some(action) = actions.iter().find(|action| action.index() >= positions.actions) {
            return Err(rejected(format!("{action} must be below {}", positions.actions)));
        }
        if steps > 0 && self.model() != "muzero" {
            return Err(rejected(format!("actions need a muzero network, not {}", self.model())));
        }
        let Outputs { priors, values, rewards, wdl, .. } = self.outputs(py, &positions, &actions, steps)?;
        Ok((bytes_of(py, &priors)?, bytes_of(py, &values)?, bytes_of(py, &rewards)?, bytes_of(py, &wdl)?))
    }

    fn __repr__(&self) -> String {
        format!("Network(game='{}', model='{}', version={})", self.game(), self.model(), self.version())
    }
}

impl Network {
    /// Evaluates positions, and `steps` actions after each, in batches without the interpreter lock. Between batches
    /// Ctrl-C raises an error.
    fn outputs(
        &self,
        py: Python<'_>,
        positions: &Positions<'_>,
        actions: &[Action],
        steps: usize,
    ) -> PyResult<Outputs> {
        let mut network = py.detach(|| self.loaded.take())?;
        let attributes = network.attributes();
        let is_latent = self.loaded.manifest.architecture.model != Model::Alphazero;
        let batch_max = if is_latent { LATENT_BATCH_MAX } else { BATCH_MAX };
        let batch_size = attributes.preferred_batch.min(attributes.max_batch).clamp(1, batch_max);
        let mut outputs = Outputs::new(positions, steps)?;
        for first in (0..positions.len()).step_by(batch_size) {
            py.check_signals()?;
            let batch = positions.batch(first..(first + batch_size).min(positions.len()))?;
            py.detach(|| match &mut network {
                evaluators::Network::Evaluator(evaluator) => outputs.evaluate(evaluator.as_mut(), &batch, first),
                evaluators::Network::Latent(model) => outputs.unroll(model.as_mut(), &batch, first, actions),
            })?;
        }
        self.loaded.put_back(network);
        Ok(outputs)
    }
}

/// Positions from Python with checked lengths.
struct Positions<'a> {
    shape: ObservationShape,
    /// A, the number of actions.
    actions: usize,
    /// Observations `[B, C, H, W]`, as little-endian float32.
    values: &'a [[u8; 4]],
    /// Nonzero for legal actions, `[B, A]`.
    legal: &'a [u8],
}

impl<'a> Positions<'a> {
    fn new(architecture: &Architecture, observations: &'a [u8], legal: &'a [u8]) -> PyResult<Self> {
        let &Architecture { planes, height, width, actions, .. } = architecture;
        let shape = ObservationShape { planes, height, width };
        let (values, rest) = observations.as_chunks::<4>();
        if !rest.is_empty() || !values.len().is_multiple_of(shape.len()) {
            let expected = format!("observations must be float32 of the shape [B, {planes}, {height}, {width}]");
            return Err(rejected(format!("{expected}, got {} bytes", observations.len())));
        }
        let positions = Self { shape, actions, values, legal };
        if legal.len() != positions.len().saturating_mul(actions) {
            let expected = format!("legal actions must be one byte each of the shape [{}, {actions}]", positions.len());
            return Err(rejected(format!("{expected}, got {} bytes", legal.len())));
        }
        Ok(positions)
    }

    /// Returns B, the number of positions.
    fn len(&self) -> usize {
        self.values.len() / self.shape.len()
    }

    /// Returns the batch of the positions in `range`.
    fn batch(&self, range: Range<usize>) -> PyResult<Batch> {
        let mut batch = Batch::new(self.shape);
        for position in range {
            let flags = &self.legal[position * self.actions..][..self.actions];
            let legal = (0..=u16::MAX).zip(flags).filter(|(_, flag)| **flag != 0).map(|(action, _)| Action(action));
            let legal: Vec<Action> = legal.collect();
            if legal.is_empty() {
                return Err(rejected(format!("position {position} has no legal action")));
            }
            let values = &self.values[position * self.shape.len()..][..self.shape.len()];
            let mut is_finite = true;
            batch.push(&legal, |planes| {
                for (plane, value) in planes.iter_mut().zip(values) {
                    *plane = f32::from_le_bytes(*value);
                    is_finite &= plane.is_finite();
                }
            });
            if !is_finite {
                return Err(rejected(format!("the observation of position {position} is not finite")));
            }
        }
        Ok(batch)
    }
}

/// Outputs for B positions, each followed by K steps in the learned model.
struct Outputs {
    /// A, the number of actions.
    actions: usize,
    /// K, the number of steps.
    steps: usize,
    /// Priors `[B, K + 1, A]`.
    priors: Vec<f32>,
    /// Values `[B, K + 1]`.
    values: Vec<f32>,
    /// Rewards `[B, K]`.
    rewards: Vec<f32>,
    /// Win, draw and loss, `[B, 3]`; empty if the network does not predict them.
    wdl: Vec<f32>,
}

impl Outputs {
    fn new(positions: &Positions<'_>, steps: usize) -> PyResult<Self> {
        let (actions, rows) = (positions.actions, positions.len().saturating_mul(steps + 1));
        Ok(Self {
            actions,
            steps,
            priors: zeros(rows.saturating_mul(actions))?,
            values: zeros(rows)?,
            rewards: zeros(rows - positions.len())?,
            wdl: Vec::new(),
        })
    }

    /// Evaluates a batch, in which position 0 is position `first` of all.
    fn evaluate(&mut self, evaluator: &mut dyn Evaluator, batch: &Batch, first: usize) -> PyResult<()> {
        let mut predictions = Predictions::new();
        evaluator.evaluate(batch, &mut predictions).map_err(|error| failed(&error))?;
        for index in 0..batch.len() {
            let row = &mut self.priors[(first + index) * self.actions..][..self.actions];
            for (action, prior) in batch.legal(index).iter().zip(predictions.priors(index)) {
                row[action.index()] = *prior;
            }
            self.values[first + index] = predictions.value(index);
        }
        self.wdl.extend(predictions.wdl().iter().flat_map(|wdl| [wdl.win, wdl.draw, wdl.loss]));
        Ok(())
    }

    /// Evaluates a batch and the actions `[B, K]` in the learned model. The states of a step replace the states before
    /// the previous step.
    fn unroll(&mut self, model: &mut dyn LatentModel, batch: &Batch, first: usize, actions: &[Action]) -> PyResult<()> {
        let mut predictions = LatentPredictions::default();
        let slots: Vec<Slot> = (0..).take(2 * batch.len()).map(Slot).collect();
        let (mut from, mut to) = slots.split_at(batch.len());
        model.reserve(slots.len()).map_err(|error| failed(&error))?;
        model.initial(batch, from, &mut predictions).map_err(|error| failed(&error))?;
        self.record(&predictions, first, 0);
        for step in 0..self.steps {
            Python::attach(|py| py.check_signals())?;
            let taken = from.iter().zip(to).enumerate().map(|(index, (&from, &to))| {
                let action = actions[(first + index) * self.steps + step];
                Unroll { from, action, to }
            });
            model.recurrent(&taken.collect::<Vec<_>>(), &mut predictions).map_err(|error| failed(&error))?;
            self.record(&predictions, first, step + 1);
            (from, to) = (to, from);
        }
        Ok(())
    }

    /// Stores the predictions for a batch after `step` steps.
    fn record(&mut self, predictions: &LatentPredictions, first: usize, step: usize) {
        for index in 0..predictions.len() {
            let row = (first + index) * (self.steps + 1) + step;
            self.priors[row * self.actions..][..self.actions].copy_from_slice(predictions.priors(index));
            self.values[row] = predictions.value(index);
            if step > 0 {
                self.rewards[(first + index) * self.steps + step - 1] = predictions.reward(index);
            }
        }
    }
}

/// Returns zeros, or an error if there is too little memory.
fn zeros(len: usize) -> PyResult<Vec<f32>> {
    let mut values = Vec::new();
    values.try_reserve_exact(len).map_err(|error| PyMemoryError::new_err(error.to_string()))?;
    values.resize(len, 0.0);
    Ok(values)
}

/// Returns values as little-endian bytes.
fn bytes_of<'py>(py: Python<'py>, values: &[f32]) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, size_of_val(values), |bytes| {
        for (bytes, value) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(values) {
            *bytes = value.to_le_bytes();
        }
        Ok(())
    })
}
