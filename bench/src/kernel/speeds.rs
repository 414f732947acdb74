//! The speeds of the engines on one network.

use super::engine::Engine;
use super::ratio::Ratio;

/// One network.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NetworkSpeeds {
    /// Its size.
    pub(super) network: String,
    /// Useful multiply-adds of one position; `None` if the kernel does not take the network.
    pub(super) multiply_adds: Option<usize>,
    /// The path that the kernel chooses.
    pub(super) chosen: Option<Engine>,
    /// The reason for that path, or for none.
    pub(super) reason: String,
    /// Its engines.
    pub(super) engines: Vec<EngineSpeeds>,
    /// The kernel over the others.
    pub(super) ratios: Vec<Ratio>,
}

/// One engine on one network.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct EngineSpeeds {
    /// The engine.
    pub(super) engine: Engine,
    /// Multiply-adds/s from registers alone, over all threads: what bounds this path. Paths of the kernel only.
    pub(super) peak: Option<f64>,
    /// By batch size, ascending.
    pub(super) speeds: Vec<Speed>,
    /// The time spent in each layer, by batch size. Paths of the kernel only.
    pub(super) layers: Vec<LayerTimes>,
    /// The reason why no more was measured.
    pub(super) not_measured: Option<String>,
}

/// The speed at which an engine answers batches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Speed {
    /// Positions in each batch.
    pub(super) batch: usize,
    /// Over all threads.
    pub(super) evaluations_per_second: f64,
    /// Multiply-adds/s of nine taps, of those that matter to the answer, over the peak; above 1 where filtering saves
    /// many.
    pub(super) share_of_peak: Option<f64>,
}

/// Nanoseconds that one thread spends on a position, by part of the network, while the others work too.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct LayerTimes {
    /// Positions in each batch.
    pub(super) batch: usize,
    /// Observations into planes.
    pub(super) observe_ns: f64,
    /// The first convolution.
    pub(super) stem_ns: f64,
    /// Each residual block: two convolutions.
    pub(super) block_ns: Vec<f64>,
    /// The convolution in front of both heads.
    pub(super) heads_ns: f64,
    /// The layers of the heads.
    pub(super) layers_ns: f64,
}

impl EngineSpeeds {
    /// Evaluations/s at a batch size.
    pub(super) fn at(&self, batch: usize) -> Option<f64> {
        self.speeds.iter().find(|speed| speed.batch == batch).map(|speed| speed.evaluations_per_second)
    }

    /// Evaluations/s at the batch size where they are most.
    pub(super) fn best(&self) -> Option<f64> {
        self.speeds.iter().map(|speed| speed.evaluations_per_second).max_by(f64::total_cmp)
    }
}

impl LayerTimes {
    /// The mean of the residual blocks; 0 without any.
    pub(super) fn mean_block_ns(&self) -> f64 {
        self.block_ns.iter().sum::<f64>() / self.block_ns.len().max(1) as f64
    }
}
