use serde::Serialize;

use super::compare::Compared;
use super::engine::Engine;
use super::ratio::Ratio;
use crate::Turn;

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The model of the CPU, as the system calls it.
    pub cpu: String,
    /// Instruction set and operating system.
    pub target: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Threads, each with an engine of its own that computes on one thread.
    pub threads: usize,
    /// How long each measurement took.
    pub seconds: f64,
    /// How often everything was measured.
    pub repeats: usize,
    /// Which of the turns counts.
    pub turn: Turn,
    /// Batches that take longer than this were left out.
    pub batch_seconds_max: f64,
    /// The seed.
    pub seed: u64,
    /// Versions of the engines that Python runs, or why there are none; `None` if nobody asked for them.
    pub peers: Option<String>,
    /// What the ratios are to.
    pub compared: Option<Compared>,
    /// By network.
    pub networks: Vec<NetworkReport>,
}

/// One network.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NetworkReport {
    /// Its size.
    pub network: String,
    /// Useful multiply-adds of one position; `None` if the kernel does not take the network.
    pub multiply_adds: Option<usize>,
    /// The path that the kernel chooses.
    pub chosen: Option<Engine>,
    /// Why that one, or why none.
    pub reason: String,
    /// What was measured.
    pub engines: Vec<EngineReport>,
    /// The kernel over the others.
    pub ratios: Vec<Ratio>,
}

/// One engine on one network.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EngineReport {
    /// Which.
    pub engine: Engine,
    /// Multiply-adds/s from registers alone, over all threads: what bounds this path. Paths of the kernel only.
    pub peak: Option<f64>,
    /// By batch size, ascending.
    pub speeds: Vec<Speed>,
    /// Where the time goes, by batch size. Paths of the kernel only.
    pub layers: Vec<LayerTimes>,
    /// Why there is no more than that.
    pub not_measured: Option<String>,
}

/// How fast an engine answers batches.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Speed {
    /// Positions in each batch.
    pub batch: usize,
    /// Over all threads.
    pub evaluations_per_second: f64,
    /// Multiply-adds/s of nine taps, of those that matter to the answer, over the peak; above 1 where filtering saves many.
    pub share_of_peak: Option<f64>,
    /// Evaluations/s over those of the earlier report, if it has the same.
    pub ratio: Option<f64>,
}

/// Nanoseconds that one thread spends on a position, by part of the network, while the others work too.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LayerTimes {
    /// Positions in each batch.
    pub batch: usize,
    /// Observations into planes.
    pub observe_ns: f64,
    /// The first convolution.
    pub stem_ns: f64,
    /// Each residual block: two convolutions.
    pub block_ns: Vec<f64>,
    /// The convolution in front of both heads.
    pub heads_ns: f64,
    /// The layers of the heads.
    pub layers_ns: f64,
}

impl NetworkReport {
    /// Every batch size at which something was measured, ascending.
    #[must_use]
    pub fn batches(&self) -> Vec<usize> {
        let speeds = self.engines.iter().flat_map(|engine| &engine.speeds);
        let mut batches: Vec<usize> = speeds.map(|speed| speed.batch).collect();
        batches.sort_unstable();
        batches.dedup();
        batches
    }
}

impl EngineReport {
    /// Evaluations/s at a batch size.
    #[must_use]
    pub fn at(&self, batch: usize) -> Option<f64> {
        self.speeds.iter().find(|speed| speed.batch == batch).map(|speed| speed.evaluations_per_second)
    }

    /// Evaluations/s at the batch size where they are most.
    #[must_use]
    pub fn best(&self) -> Option<f64> {
        self.speeds.iter().map(|speed| speed.evaluations_per_second).max_by(f64::total_cmp)
    }
}

impl LayerTimes {
    /// The mean of the residual blocks; 0 without any.
    #[must_use]
    pub fn mean_block_ns(&self) -> f64 {
        self.block_ns.iter().sum::<f64>() / self.block_ns.len().max(1) as f64
    }
}
