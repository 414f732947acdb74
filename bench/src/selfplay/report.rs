use serde::{Deserialize, Serialize};

use crate::Turn;

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
    /// What self-play evaluated with.
    pub engine: String,
    /// Where libtorch ran and in which precision, and why.
    pub libtorch_engine: String,
    /// Batches of libtorch that could be under way at once; none on a CPU, where each thread computes by itself.
    #[serde(default)]
    pub in_flight: Option<usize>,
    /// Threads of all sides.
    pub threads: usize,
    /// Whether each of them stayed on a cpu of its own.
    #[serde(default)]
    pub pinned: bool,
    /// Games in each thread.
    pub games: usize,
    /// Leaves of one game in one batch.
    pub leaves: usize,
    /// Simulations of every move.
    pub simulations: u32,
    /// How long each turn took.
    pub seconds: f64,
    /// How many turns there were.
    pub repeats: usize,
    /// Which of them counts.
    pub turn: Turn,
    /// The seed.
    pub seed: u64,
    /// The evaluator of self-play alone, by batch size.
    pub evaluator: Vec<EvaluatorSpeed>,
    /// libtorch alone, by batch size.
    pub libtorch: Vec<EvaluatorSpeed>,
    /// Self-play without cache and reuse, the turn by evaluations/s.
    pub plain: Option<SelfplaySpeed>,
    /// Self-play as a run plays, the turn by positions/s.
    pub whole: SelfplaySpeed,
    /// Evaluations/s of plain self-play over those of its evaluator alone at its best batch size.
    pub share: Option<f64>,
    /// The same over those of libtorch alone.
    pub share_of_libtorch: Option<f64>,
    /// The most memory that the process ever held, where the system tells.
    pub peak_memory_bytes: Option<u64>,
    /// The ratios to an earlier report.
    pub compared: Option<Compared>,
}

/// How fast an evaluator alone is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EvaluatorSpeed {
    /// Positions in each batch.
    pub batch: usize,
    /// Over all threads.
    pub evaluations_per_second: f64,
}

/// How fast self-play is, over all threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SelfplaySpeed {
    /// Positions the evaluator answered.
    pub evaluations_per_second: f64,
    /// Simulations completed, with those that needed no evaluation.
    pub simulations_per_second: f64,
    /// Positions searched and played on from: moves.
    pub positions_per_second: f64,
    /// Episodes finished.
    pub games_per_second: f64,
    /// Positions in a batch, on average.
    pub mean_batch: f64,
    /// The same over the positions that a batch could have had: leaves of all games of a thread.
    pub batch_fill: f64,
    /// Hits over lookups; 0 without a cache.
    pub cache_hit_share: f64,
    /// Memory of the experience of a position, as it was kept; 0 if no episode was finished.
    pub experience_bytes_per_position: f64,
}

/// Ratios of this report's speeds to those of an earlier one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// Its file, as it was named.
    pub file: String,
    /// The model of its CPU.
    pub cpu: String,
    /// Evaluations/s of the evaluator alone at its best batch size.
    pub evaluator: Option<f64>,
    /// Evaluations/s of plain self-play.
    pub plain: Option<f64>,
    /// Positions/s of whole self-play.
    pub whole: Option<f64>,
}
