use std::fmt;

use serde::{Deserialize, Serialize};

use super::cost::Cost;
use crate::accelerator::Accelerator;
use fleet::bottleneck::Bottleneck;

/// What was measured.
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
    /// Self-play threads of each.
    pub actor_threads: usize,
    /// What self-play evaluates with.
    pub evaluator: Option<String>,
    /// What the learner trains on.
    pub learner_device: Option<String>,
    /// In which precision.
    pub learner_precision: Option<String>,
    /// How long was measured.
    pub seconds: f64,
    /// How long was waited before that, from the first training step on.
    pub warm_up_seconds: f64,
    /// What the changes are to.
    pub compared: Option<Compared>,
    /// Where the time of threads went.
    pub threads: Vec<Threads>,
    /// Whether anything is copied between devices, and where that is counted.
    pub transfers: String,
    /// What accelerators did, for all programs of the machine; none, if there is none to ask.
    pub accelerators: Vec<Accelerator>,
    /// What processes took.
    pub processes: Vec<Process>,
    /// How much was done.
    pub rates: Rates,
    /// What holds up everything else.
    pub bottleneck: Bottleneck,
    /// What a longer run would take.
    pub cost: Cost,
}

/// An earlier report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// Its file, as it was named.
    pub file: String,
    /// The model of its CPU.
    pub cpu: String,
    /// Moves of self-play per second over those of the earlier report.
    pub positions_ratio: Option<f64>,
    /// Positions trained on per second over those of the earlier report.
    pub training_positions_ratio: Option<f64>,
}

/// Threads that do the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Threads {
    /// What they do.
    pub name: ThreadsName,
    /// How many there are.
    pub count: usize,
    /// CPU time of all of them; unknown where the system does not tell.
    pub cpu_seconds: Option<f64>,
    /// Where their time went.
    pub phases: Vec<PhaseTime>,
}

impl Threads {
    /// The share of their time that went into a phase.
    pub(super) fn wall_share(&self, phase: Phase) -> f64 {
        self.phases.iter().filter(|time| time.phase == phase).map(|time| time.wall_share).sum()
    }
}

/// Which threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThreadsName {
    /// Those of the actors that play.
    SelfPlay,
    /// The learner's, which makes batches of samples.
    Preparing,
    /// The learner's, which trains.
    Training,
}

impl fmt::Display for ThreadsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SelfPlay => "self-play",
            Self::Preparing => "preparing",
            Self::Training => "training",
        })
    }
}

/// The time that went into a phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseTime {
    /// Which.
    pub phase: Phase,
    /// Summed over the threads.
    pub seconds: f64,
    /// Of the time of the threads.
    pub wall_share: f64,
    /// Of the CPU time of all processes: that of the threads is divided among their phases by the time these took, and
    /// waiting takes none.
    pub cpu_share: Option<f64>,
    /// `wall_share` less that of the earlier report.
    pub wall_share_change: Option<f64>,
}

/// What a thread spends time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Descents to leaves, with the rules, the cache and the moves played.
    Selection,
    /// Expansion and backup of what a batch answered.
    Expansion,
    /// Planes of the positions of a batch.
    Observation,
    /// The evaluator.
    Evaluation,
    /// Handing over finished episodes.
    Upload,
    /// Making evaluators of new weights.
    Loading,
    /// The replay server takes no more: the learner is behind.
    WaitingForReplay,
    /// There is nothing to evaluate with.
    WaitingForWeights,
    /// No samples are there to make a batch of.
    WaitingForSamples,
    /// Positions replayed, targets made.
    Preparation,
    /// The training thread has enough batches.
    WaitingForTraining,
    /// The training thread has no batch.
    Sampling,
    /// The batch put in order, on a CPU.
    Staging,
    /// The batch put in order and copied to the accelerator.
    Transfer,
    /// The network and its losses.
    Forward,
    /// Gradients.
    Backward,
    /// The update of the weights and their average.
    Optimiser,
    /// A weights version written and served.
    Publication,
    /// A checkpoint written.
    Checkpoint,
    /// What nobody measures, or had not ended with the window.
    Other,
}

impl Phase {
    /// Whether nothing is done in it.
    pub(super) fn is_idle(self) -> bool {
        let waits =
            [Self::WaitingForReplay, Self::WaitingForWeights, Self::WaitingForSamples, Self::WaitingForTraining];
        waits.contains(&self) || matches!(self, Self::Sampling | Self::Other)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Selection => "selection",
            Self::Expansion => "expansion",
            Self::Observation => "observation",
            Self::Evaluation => "evaluation",
            Self::Upload => "experience upload",
            Self::Loading => "taking new weights",
            Self::WaitingForReplay => "waiting for the learner",
            Self::WaitingForWeights => "waiting for weights",
            Self::WaitingForSamples => "waiting for samples",
            Self::Preparation => "preparation",
            Self::WaitingForTraining => "waiting for training",
            Self::Sampling => "sampling (waiting for a batch)",
            Self::Staging => "staging",
            Self::Transfer => "transfer",
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Optimiser => "optimiser",
            Self::Publication => "publication",
            Self::Checkpoint => "checkpoint",
            Self::Other => "other",
        })
    }
}

/// What a process took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Its name.
    pub name: String,
    /// CPU time; unknown where the system does not tell, as all that follows.
    pub cpu_seconds: Option<f64>,
    /// Of the CPU time of all processes.
    pub cpu_share: Option<f64>,
    /// CPU time of threads that have no phases: sockets and timers, in actors the upload, in the learner the stream of
    /// samples and the serving of weights.
    pub sockets_cpu_seconds: Option<f64>,
    /// What it held of the memory at the end.
    pub memory_bytes: Option<u64>,
}

/// How much was done.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Rates {
    /// Episodes finished.
    pub games_per_second: Option<f64>,
    /// Moves made.
    pub positions_per_second: Option<f64>,
    /// Positions that went through the network in self-play.
    pub evaluations_per_second: Option<f64>,
    /// Simulations completed.
    pub simulations_per_second: Option<f64>,
    /// Positions in a batch of self-play, on average.
    pub mean_batch: Option<f64>,
    /// Training steps.
    pub steps_per_second: Option<f64>,
    /// Positions trained on.
    pub training_positions_per_second: Option<f64>,
    /// Items in the window at the end.
    pub window_items: Option<f64>,
    /// The share of the time in which the rate limiter held up inserts.
    pub insert_wait_share: Option<f64>,
    /// The share of the time in which it held up samples.
    pub sample_wait_share: Option<f64>,
}
