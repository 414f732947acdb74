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
    /// Steps of a trajectory, each of which is a position to sample.
    pub steps: usize,
    /// Samples in a batch.
    pub batch: usize,
    /// Steps that a sample unrolls.
    pub unroll: usize,
    /// Trajectories that each writer has unacknowledged.
    pub in_flight: usize,
    /// Settings of the servers beside the defaults.
    pub sets: Vec<String>,
    /// How long each measurement took.
    pub seconds: f64,
    /// How often everything was measured.
    pub repeats: usize,
    /// Which of the turns counts.
    pub turn: Turn,
    /// The seed.
    pub seed: u64,
    /// What the ratios are to.
    pub compared: Option<Compared>,
    /// By number of writers.
    pub writers: Vec<WritersReport>,
    /// By size of the table, ascending.
    pub sizes: Vec<SizeReport>,
    /// Beside a sampler that stalls, if that was asked for.
    #[serde(default)]
    pub stall: Option<StallReport>,
}

/// An earlier report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    /// Its file, as it was named.
    pub file: String,
    /// The model of its CPU.
    pub cpu: String,
}

/// What a number of writers makes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WritersReport {
    /// How many, each with a connection of its own.
    pub writers: usize,
    /// Trajectories acknowledged, over all writers, nobody sampling.
    pub inserts_per_second: f64,
    /// From handing a trajectory in to its acknowledgement, with one unacknowledged by each writer.
    pub insert_latency: Latency,
    /// Samples of one sampler, nobody inserting.
    pub samples_per_second: f64,
    /// From one batch to the next.
    pub sample_latency: Latency,
    /// Samples of one sampler while all writers insert as fast as they can.
    pub samples_per_second_beside_writers: f64,
    /// From one batch to the next meanwhile.
    pub sample_latency_beside_writers: Latency,
    /// Inserts/s over those of the earlier report, if it has the same.
    pub inserts_ratio: Option<f64>,
    /// Samples/s, nobody inserting, over those of the earlier report.
    pub samples_ratio: Option<f64>,
}

/// What a table of some size makes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SizeReport {
    /// Positions held.
    pub positions: u64,
    /// Bytes of the log on disk.
    pub log_bytes: u64,
    /// Samples of one sampler, nobody inserting.
    pub samples_per_second: f64,
    /// From one batch to the next.
    pub sample_latency: Latency,
    /// How long the server took to drain.
    pub drain_seconds: f64,
    /// How long it took from starting again until it answered, everything restored.
    pub restart_seconds: f64,
    /// Samples/s over those of the earlier report, if it has the same.
    pub samples_ratio: Option<f64>,
}

/// What others make while a sampler has asked for all it may have and reads nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StallReport {
    /// How long each was measured.
    pub seconds: f64,
    /// Of one writer beside a sampler that draws, nobody stalling.
    pub inserts_per_second: f64,
    /// The same with one that stalls.
    pub inserts_per_second_beside: f64,
    /// Of the sampler that draws, nobody stalling.
    pub samples_per_second: f64,
    /// The same with one that stalls.
    pub samples_per_second_beside: f64,
    /// Resident memory of server and clients before the stall; `None` where the system does not tell.
    pub memory_bytes: Option<u64>,
    /// At its end.
    pub memory_bytes_beside: Option<u64>,
}
