//! A stand-in for an accelerator that evaluates, with faults, for tests of whole processes.
//!
//! The engine of accelerators merges the requests for a device that computes equal logits for every position. In a
//! program with the feature `doubles`, the environment variable [`FAULT`] makes `auto` choose this device alone.

use std::time::Instant;

use bytes::Bytes;
use game::{ObservationShape, Outcome};
use inference::{
    Attributes, BATCH_SIZES, BatchingEngine, Device, DeviceError, DevicePreference, EngineCounts, EngineSettings,
    Evaluator, LoadedNetwork,
};
use weights::{Architecture, Manifest};

use crate::measured::Choice;
use crate::{Backend, Error, Invalid};

/// Environment variable with the fault of the device on which a process under test evaluates, as [`StandIn::parse`]
/// reads it.
const FAULT: &str = "ZEROFLEET_STAND_IN_FAULT";
/// Name of the device and of the evaluators.
const NAME: &str = "stand-in";

/// A fault of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The device is lost.
    Lost,
    /// Batches of more positions do not fit the memory.
    Memory(usize),
}

/// A device that has the fault from a weights version on.
struct StandIn {
    fault: Fault,
    from_version: u64,
}

/// A weights version: the numbers in an observation and in the logits of a position.
#[derive(Debug, Clone, Copy)]
struct Loaded {
    version: u64,
    observation: usize,
    logits: usize,
}

impl StandIn {
    /// Reads a fault from a weights version on: `lost:VERSION` or `memory:VERSION:POSITIONS`. Returns `None` for any
    /// other text.
    fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split(':').collect();
        let (fault, version) = match parts.as_slice() {
            ["lost", version] => (Fault::Lost, version),
            ["memory", version, positions] => (Fault::Memory(positions.parse().ok()?), version),
            _ => return None,
        };
        Some(Self { fault, from_version: version.parse().ok()? })
    }
}

impl Device for StandIn {
    type Prepared = Loaded;
    type Weights = Loaded;
    type InFlight = (Loaded, usize);

    fn load(&mut self, prepared: Loaded) -> Result<Loaded, DeviceError> {
        Ok(prepared)
    }

    fn submit(
        &mut self,
        weights: &Loaded,
        _kind: usize,
        size: usize,
        stage: &mut dyn FnMut(&mut [f32]),
    ) -> Result<(Loaded, usize), DeviceError> {
        stage(&mut vec![0.0; size * weights.observation]);
        match self.fault {
            Fault::Memory(most) if weights.version >= self.from_version && size > most => {
                Err(DeviceError::OutOfMemory(format!("no memory for {size} positions")))
            }
            _ => Ok((*weights, size)),
        }
    }

    /// Fails in place of the call that has submitted the batch, as CUDA does.
    fn wait(&mut self, (weights, size): (Loaded, usize), read: &mut dyn FnMut(&[f32])) -> Result<(), DeviceError> {
        if self.fault == Fault::Lost && weights.version >= self.from_version {
            return Err(DeviceError::Failed("CUDA error: an illegal memory access was encountered".to_owned()));
        }
        read(&vec![0.0; size * weights.logits]);
        Ok(())
    }
}

/// The engine of the device.
struct Engine(BatchingEngine<StandIn>);

impl Backend for Engine {
    fn describe(&self) -> String {
        NAME.to_owned()
    }

    fn build(&self, manifest: &Manifest, _: &Bytes) -> Result<Box<dyn Evaluator>, Error> {
        let &Architecture { planes, height, width, actions, .. } = &manifest.architecture;
        let (shape, version) = (ObservationShape { planes, height, width }, manifest.version.0);
        let attributes =
            Attributes { name: NAME.into(), weights_version: version, preferred_batch: 64, max_batch: 4096 };
        let network = LoadedNetwork { attributes, shape, actions, write_rows };
        let prepared = Loaded { version, observation: shape.len(), logits: actions + Outcome::RESULTS };
        let weights = self.0.load(prepared, network).map_err(|error| Error::Other(error.to_string()))?;
        Ok(Box::new(weights.evaluator()))
    }

    fn set_in_flight(&self, depth: usize) {
        self.0.set_in_flight(depth);
    }

    fn engine_counts(&self) -> Option<EngineCounts> {
        Some(self.0.counts())
    }
}

fn write_rows(_: ObservationShape, observations: &[f32], to: &mut [f32]) {
    to.copy_from_slice(observations);
}

/// Returns the device as the only engine under `auto`, if the environment asks for a stand-in.
///
/// # Errors
/// [`Invalid`] for an unknown fault, or if the system cannot start a thread.
#[expect(clippy::disallowed_methods, reason = "a supervisor starts the process, and passes the environment on")]
pub(crate) fn chosen(device: DevicePreference, clock: fn() -> Instant) -> Result<Option<Choice>, Invalid> {
    if device != DevicePreference::Auto {
        return Ok(None);
    }
    let Ok(fault) = std::env::var(FAULT) else { return Ok(None) };
    let invalid = |reason: String| Invalid { setting: "device", reason };
    let device = StandIn::parse(&fault).ok_or_else(|| invalid(format!("unknown fault `{fault}`")))?;
    let settings = EngineSettings {
        device: NAME.into(),
        batch_sizes: BATCH_SIZES.to_vec(),
        in_flight: 2,
        in_flight_max: 3,
        clock: Box::new(clock),
        report: Box::new(|trouble: String| tracing::warn!(trouble, "device settings changed")),
    };
    let engine = BatchingEngine::start(device, settings).map_err(|error| invalid(error.to_string()))?;
    Ok(Some(Choice { backend: Box::new(Engine(engine)), is_shared: true }))
}
