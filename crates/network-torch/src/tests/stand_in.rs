//! A stand-in for graphs of an accelerator, which computes recorded work again on the CPU, and a CPU with the faults of
//! an accelerator in training.
//!
//! In a program with the feature `doubles`, the environment variable [`FAULT`] makes `auto` choose this CPU for
//! training.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use inference::DevicePreference;
use tch::{Device, Tensor};

use crate::{Chosen, Error, Purpose, graph::Work};

/// Environment variable with the fault of the device on which a process under test trains, as
/// [`TrainingDevice::parse`] reads it.
const FAULT: &str = "ZEROFLEET_STAND_IN_FAULT";

/// The device of this process, if `auto` has chosen a stand-in.
static OF_PROCESS: OnceLock<TrainingDevice> = OnceLock::new();

/// Behaviour of a stand-in that does not work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing can be recorded.
    Capture,
    /// There is no memory for a recording.
    Memory,
    /// A replay computes wrong numbers.
    Replay,
}

/// Counts of a stand-in, shared by all clones.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) recorded: AtomicUsize,
    pub(crate) replayed: AtomicUsize,
}

/// Records and replays on the CPU.
#[derive(Debug, Clone, Default)]
pub(crate) struct StandIn {
    pub(crate) fault: Option<Fault>,
    pub(crate) counts: Arc<Counts>,
}

impl StandIn {
    /// Computes `work` once for the shapes of the outputs, which hold zeros.
    pub(crate) fn record(&self, work: Work<'_>) -> Result<Vec<Tensor>, Error> {
        let outputs = work()?;
        match self.fault {
            Some(Fault::Capture) => {
                Err(Error::Libtorch("CUDA error: operation not permitted when stream is capturing".to_owned()))
            }
            Some(Fault::Memory) => Err(Error::OutOfMemory { message: "CUDA out of memory".to_owned() }),
            _ => {
                self.counts.recorded.fetch_add(1, Ordering::Relaxed);
                outputs.iter().map(|output| Ok(output.f_zeros_like()?)).collect()
            }
        }
    }

    /// Computes `work` and copies the results into `outputs`.
    pub(crate) fn replay(&self, work: Work<'_>, outputs: &[Tensor]) -> Result<(), Error> {
        for (output, computed) in outputs.iter().zip(work()?) {
            let mut output = output.shallow_clone();
            output.f_copy_(&computed)?;
            if self.fault == Some(Fault::Replay) && output.is_floating_point() {
                let _ = output.f_add_scalar_(1.0)?;
            }
        }
        self.counts.replayed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// The CPU in place of an accelerator for training. The default stands in for nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct TrainingDevice {
    /// Records steps as graphs.
    pub(crate) recorder: Option<StandIn>,
    /// Number of steps without the fault.
    pub(crate) sound_steps: u64,
    /// Maximum positions in a pass that fits the memory, after the sound steps.
    pub(crate) memory_positions: Option<usize>,
    /// Whether the fault is that of a kernel, after which the device refuses all work.
    pub(crate) is_lost: bool,
}

impl TrainingDevice {
    /// Reads a fault: after a number of sound steps (`lost:STEPS`, `memory:STEPS:POSITIONS`), or of the first graph
    /// (`capture`, `memory_of_graphs`, `replay`). Returns `None` for any other text.
    fn parse(text: &str) -> Option<Self> {
        let recording = |fault| {
            let recorder = Some(StandIn { fault, ..StandIn::default() });
            Self { recorder, ..Self::default() }
        };
        let parts: Vec<&str> = text.split(':').collect();
        Some(match parts.as_slice() {
            ["lost", steps] => Self { sound_steps: steps.parse().ok()?, is_lost: true, ..recording(None) },
            ["memory", steps, positions] => {
                let (sound_steps, memory_positions) = (steps.parse().ok()?, Some(positions.parse().ok()?));
                Self { sound_steps, memory_positions, ..recording(None) }
            }
            ["capture"] => recording(Some(Fault::Capture)),
            ["memory_of_graphs"] => recording(Some(Fault::Memory)),
            ["replay"] => recording(Some(Fault::Replay)),
            _ => return None,
        })
    }

    /// Fails if a pass needs more than the memory, after `submitted` steps.
    pub(crate) fn allocate(&self, submitted: u64, positions: usize, statistics: &Tensor) -> Result<(), Error> {
        if submitted < self.sound_steps || self.memory_positions.is_none_or(|most| positions <= most) {
            return Ok(());
        }
        // As on a device: in the middle of the step, after the statistics have changed.
        tch::no_grad(|| statistics.shallow_clone().f_add_scalar_(1.0).map(drop))?;
        Err(Error::OutOfMemory { message: format!("no memory for {positions} positions") })
    }

    /// Fails once a step with the fault of a kernel has been submitted: CUDA reports the fault at a later call.
    pub(crate) fn synchronise(&self, submitted: u64) -> Result<(), Error> {
        if !self.is_lost || submitted <= self.sound_steps {
            return Ok(());
        }
        Err(Error::Libtorch("CUDA error: an illegal memory access was encountered".to_owned()))
    }
}

/// Returns the device of this process for training; the default without a stand-in.
pub(crate) fn of_process() -> TrainingDevice {
    OF_PROCESS.get().cloned().unwrap_or_default()
}

/// Returns the CPU as the device for training under `auto`, if the environment asks for a stand-in.
///
/// # Errors
/// [`Error::Device`] for an unknown fault.
#[expect(clippy::disallowed_methods, reason = "a supervisor starts the process, and passes the environment on")]
pub(crate) fn chosen(preference: DevicePreference, purpose: Purpose) -> Result<Option<Chosen>, Error> {
    if (preference, purpose) != (DevicePreference::Auto, Purpose::Training) {
        return Ok(None);
    }
    let Ok(fault) = std::env::var(FAULT) else { return Ok(None) };
    let Some(device) = TrainingDevice::parse(&fault) else {
        return Err(Error::Device { device: FAULT.to_owned(), reason: format!("unknown fault `{fault}`") });
    };
    let _ = OF_PROCESS.set(device);
    Ok(Some(Chosen { device: Device::Cpu, reason: format!("stands in for an accelerator, {fault}") }))
}
