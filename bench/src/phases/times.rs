//! The time of a run by threads, phases and processes.

use std::fmt;

/// Threads that do the same.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Threads {
    /// Their kind.
    pub(crate) name: ThreadsName,
    /// Number of them.
    pub(crate) count: usize,
    /// CPU time of all of them; unknown where the system has no figure.
    pub(crate) cpu_seconds: Option<f64>,
    /// Their time by phase.
    pub(crate) phases: Vec<PhaseTime>,
}

impl Threads {
    /// The share of their time that went into a phase.
    pub(super) fn wall_share(&self, phase: Phase) -> f64 {
        self.phases.iter().filter(|time| time.phase == phase).map(|time| time.wall_share).sum()
    }
}

/// A kind of threads with phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThreadsName {
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
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PhaseTime {
    /// The phase.
    pub(crate) phase: Phase,
    /// Summed over the threads.
    pub(crate) seconds: f64,
    /// Of the time of the threads.
    pub(crate) wall_share: f64,
    /// Of the CPU time of all processes: that of the threads is divided among their phases by the time these took, and
    /// waiting takes none.
    pub(crate) cpu_share: Option<f64>,
}

/// A part of the time of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
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
    /// The rest, with rounds that had not ended with the window.
    Other,
}

impl Phase {
    /// True if the thread waits in it.
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

/// The resources that a process used.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Process {
    /// Its name.
    pub(crate) name: String,
    /// CPU time; unknown where the system has no figure, as all that follows.
    pub(crate) cpu_seconds: Option<f64>,
    /// Of the CPU time of all processes.
    pub(crate) cpu_share: Option<f64>,
    /// CPU time of threads that have no phases: sockets and timers, in actors the upload, in the learner the stream of
    /// samples and the serving of weights.
    pub(crate) sockets_cpu_seconds: Option<f64>,
    /// Its resident memory at the end.
    pub(crate) memory_bytes: Option<u64>,
}

/// The work done per second.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Rates {
    /// Episodes finished.
    pub(crate) games_per_second: Option<f64>,
    /// Moves made.
    pub(crate) positions_per_second: Option<f64>,
    /// Positions that went through the network in self-play.
    pub(crate) evaluations_per_second: Option<f64>,
    /// Simulations completed.
    pub(crate) simulations_per_second: Option<f64>,
    /// Positions in a batch of self-play, on average.
    pub(crate) mean_batch: Option<f64>,
    /// Training steps.
    pub(crate) steps_per_second: Option<f64>,
    /// Positions trained on.
    pub(crate) training_positions_per_second: Option<f64>,
    /// Items in the window at the end.
    pub(crate) window_items: Option<f64>,
    /// The share of the time in which the rate limiter held up inserts.
    pub(crate) insert_wait_share: Option<f64>,
    /// The share of the time in which it held up samples.
    pub(crate) sample_wait_share: Option<f64>,
}
