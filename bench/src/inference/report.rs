use serde::{Deserialize, Serialize};

use crate::Turn;
use crate::latency::Latency;

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The model of the CPU, as the system calls it.
    pub cpu: String,
    /// Instruction set and operating system.
    pub target: String,
    /// Cores that server and clients share.
    pub cores: usize,
    /// The game.
    pub game: String,
    /// Residual blocks of the network.
    pub blocks: usize,
    /// Its channels.
    pub channels: usize,
    /// What evaluated.
    pub evaluator: String,
    /// Threads that evaluated, in a process and in the server.
    pub threads: usize,
    /// Positions in an ask, and in a batch in a process.
    pub batch: usize,
    /// Asks that the client had unanswered.
    pub in_flight: usize,
    /// Settings of the server beside the defaults.
    pub sets: Vec<String>,
    /// How long each measurement took.
    pub seconds: f64,
    /// How often everything was measured.
    pub repeats: usize,
    /// Which of the turns counts.
    pub turn: Turn,
    /// The seed.
    pub seed: u64,
    /// The evaluator in a process, all threads.
    pub in_process_evaluations_per_second: f64,
    /// The fast path.
    pub fast: ShareReport,
    /// `ModelInfer` of the Open Inference Protocol.
    pub model_infer: ShareReport,
    /// By number of callers.
    pub callers: Vec<CallersReport>,
    /// While too much is asked.
    pub overload: OverloadReport,
}

/// One way to the server, fully used.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ShareReport {
    /// Positions answered.
    pub evaluations_per_second: f64,
    /// That over what the evaluator does in a process.
    pub share_of_in_process: f64,
    /// How long an ask took.
    pub latency: Latency,
}

/// Callers that ask for one position at a time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CallersReport {
    /// How many.
    pub callers: usize,
    /// Positions answered, of all of them.
    pub positions_per_second: f64,
    /// How long an ask took.
    pub latency: Latency,
}

/// More is asked than can be answered in time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OverloadReport {
    /// How many ask at the same time.
    pub callers: usize,
    /// Within how many milliseconds answers are wanted.
    pub deadline_ms: u64,
    /// Positions answered.
    pub evaluations_per_second: f64,
    /// How long answered asks took.
    pub latency: Latency,
    /// Asks that were refused at once, of all.
    pub refused_share: f64,
    /// Asks whose time was up while they waited, of all.
    pub expired_share: f64,
}
