//! The speeds of one workload by setting and size.

use super::setting::Setting;
use crate::report::Unit;

/// The kind of a workload, which decides what sizes and speeds count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Rows of square matrices; multiply-adds.
    MatrixProduct,
    /// Elements of vectors; bytes read and written.
    VectorOperation,
    /// Positions of a batch; evaluations.
    Network,
}

/// One setting of one workload.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SettingSpeeds {
    /// The setting.
    pub(super) setting: Setting,
    /// By size, ascending.
    pub(super) speeds: Vec<Speed>,
    /// The reason why there are no more.
    pub(super) not_measured: Option<String>,
}

/// The speed of a setting at a size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Speed {
    /// Rows, elements or positions.
    pub(super) size: usize,
    /// From a call to its answer.
    pub(super) latency_us: f64,
    /// Multiply-adds, bytes or evaluations, over all evaluators.
    pub(super) per_second: f64,
    /// Over the fastest setting of the CPU at this size, if there is one.
    pub(super) speed_up: Option<f64>,
}

/// The setting to use.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Recommended {
    /// The setting to use.
    pub(super) setting: Setting,
    /// The size to use it at.
    pub(super) size: usize,
    /// Its speed there.
    pub(super) per_second: f64,
    /// The time of a call there.
    pub(super) latency_us: f64,
}

/// A point from which an accelerator is faster than the CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Win {
    /// The accelerator, in whichever precision is faster.
    pub(super) device: String,
    /// The least size from which on it is faster than every setting of the CPU; `None` if it is not at the largest.
    pub(super) from: Option<usize>,
}

impl Kind {
    /// The name of its sizes.
    pub(super) fn sizes(self) -> &'static str {
        match self {
            Self::MatrixProduct => "side",
            Self::VectorOperation => "elements",
            Self::Network => "batch",
        }
    }

    /// The metric of its speeds.
    pub(super) fn metric(self) -> &'static str {
        match self {
            Self::MatrixProduct => "multiply-adds/s",
            Self::VectorOperation => "bytes/s",
            Self::Network => "evaluations/s",
        }
    }

    /// The unit of its speeds.
    pub(super) fn unit(self) -> Unit {
        match self {
            Self::MatrixProduct | Self::Network => Unit::PerSecond,
            Self::VectorOperation => Unit::BytesPerSecond,
        }
    }
}

impl SettingSpeeds {
    /// The speed at a size.
    pub(super) fn at(&self, size: usize) -> Option<&Speed> {
        self.speeds.iter().find(|speed| speed.size == size)
    }
}
