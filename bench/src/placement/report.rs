use serde::{Deserialize, Serialize};

use crate::accelerator::Accelerator;
use crate::phases::{Compared, Rates};

/// What lies where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The model of the CPU, as the system calls it.
    pub cpu: String,
    /// Instruction set and operating system.
    pub target: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// The game.
    pub game: String,
    /// Residual blocks and channels of the tower.
    pub network: String,
    /// What was set beside the run file.
    pub sets: Vec<String>,
    /// Self-play processes.
    pub actors: usize,
    /// Self-play threads of each, with an evaluator each.
    pub actor_threads: usize,
    /// Threads of one operation of the learner on the CPU; 0 leaves it to libtorch.
    pub learner_threads: usize,
    /// How long was measured.
    pub seconds: f64,
    /// What the ratios are to.
    #[serde(default)]
    pub compared: Option<Compared>,
    /// What accelerators did, for all programs of the machine; none, if there is none to ask.
    pub accelerators: Vec<Accelerator>,
    /// What lies on which device, from the rules to the weights.
    pub tensors: Vec<Placed>,
    /// What is copied between devices.
    pub transfers: Transfers,
    /// What processes hold of the machine's memory.
    pub processes: Vec<ProcessMemory>,
    /// How much was done.
    pub rates: Rates,
    /// The same with everything on the CPU, if it was not there already.
    pub rates_on_the_cpu: Option<Rates>,
}

impl Report {
    /// Whether anything on the way lies elsewhere than on the CPU.
    pub(super) fn is_accelerated(&self) -> bool {
        self.tensors.iter().any(|placed| placed.device.as_deref().is_some_and(|device| device != CPU))
    }
}

/// The device of whatever an accelerator does not hold.
pub(super) const CPU: &str = "cpu";

/// Something a run computes with, and where it lies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// What it is.
    pub what: String,
    /// The process that holds it.
    pub process: String,
    /// As configuration writes it; unknown if the process did not tell.
    pub device: Option<String>,
    /// What computes with it.
    pub computed_by: Option<String>,
}

/// What is copied between devices: computed from what was done, not measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Transfers {
    /// Batches of the learner that go to its device; 0 on a CPU.
    pub training_batches_per_second: Option<f64>,
    /// Bytes of those.
    pub training_bytes_per_second: Option<f64>,
    /// Batches of self-play that go to their device and come back as answers; 0 on a CPU.
    pub evaluated_batches_per_second: Option<f64>,
    /// Bytes of those, both ways.
    pub evaluated_bytes_per_second: Option<f64>,
}

/// What a process holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessMemory {
    /// Its name.
    pub name: String,
    /// All its threads, also those of sockets; unknown where the system does not tell.
    pub threads: Option<usize>,
    /// Of the machine's memory; unknown where the system does not tell.
    pub memory_bytes: Option<u64>,
}
