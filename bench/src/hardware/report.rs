use serde::{Deserialize, Serialize};

use super::recommend;
use super::setting::Setting;
use super::words::in_words;
use crate::Turn;
use crate::search::Compared;

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The model of the CPU, as the system calls it.
    pub cpu: String,
    /// Instruction set and operating system.
    pub target: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Threads of those settings that have more than one.
    pub threads: usize,
    /// Devices that were measured, the CPU first.
    pub devices: Vec<String>,
    /// Devices that were not, each with the reason.
    pub missing: Vec<String>,
    /// How long each measurement took.
    pub seconds: f64,
    /// How often everything was measured.
    pub repeats: usize,
    /// Which of the turns counts.
    pub turn: Turn,
    /// Sizes at which one call takes longer than this were left out.
    pub call_seconds_max: f64,
    /// The seed.
    pub seed: u64,
    /// What the ratios are to.
    pub compared: Option<Compared>,
    /// Matrix products, vector operations, networks.
    pub workloads: Vec<WorkloadReport>,
}

/// One workload in every setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkloadReport {
    /// What sizes and speeds are of.
    pub kind: Kind,
    /// Which of its kind.
    pub workload: String,
    /// Everything that it was computed in.
    pub settings: Vec<SettingReport>,
    /// What to use; `None` if nothing was measured.
    pub recommended: Option<Recommended>,
    /// From where on each accelerator is faster than the CPU.
    pub wins: Vec<Win>,
    /// The same for people.
    pub in_words: String,
}

/// What a workload is made of: what its sizes are, and what its speeds count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Rows of square matrices; multiply-adds.
    MatrixProduct,
    /// Elements of vectors; bytes read and written.
    VectorOperation,
    /// Positions of a batch; evaluations.
    Network,
}

/// One setting of one workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SettingReport {
    /// What computed, and how.
    #[serde(flatten)]
    pub setting: Setting,
    /// By size, ascending.
    pub speeds: Vec<Speed>,
    /// Why there are no more of them.
    pub not_measured: Option<String>,
}

/// How fast a setting is at a size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Speed {
    /// Rows, elements or positions.
    pub size: usize,
    /// From a call to its answer.
    pub latency_us: f64,
    /// Multiply-adds, bytes or evaluations, over all evaluators.
    pub per_second: f64,
    /// Over the fastest setting of the CPU at this size, if there is one.
    pub speed_up: Option<f64>,
    /// Over the speed of the earlier report, if it has the same.
    pub ratio: Option<f64>,
}

/// The setting to use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recommended {
    /// What is to compute, and how.
    #[serde(flatten)]
    pub setting: Setting,
    /// At which size.
    pub size: usize,
    /// What it reached there.
    pub per_second: f64,
    /// How long a call took there.
    pub latency_us: f64,
}

/// Where an accelerator is faster than the CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Win {
    /// The accelerator, in whichever precision is faster.
    pub device: String,
    /// The least size from which on it is faster than every setting of the CPU; `None` if it is not at the largest.
    pub from: Option<usize>,
}

impl Kind {
    /// What its sizes are.
    #[must_use]
    pub fn sizes(self) -> &'static str {
        match self {
            Self::MatrixProduct => "side",
            Self::VectorOperation => "elements",
            Self::Network => "batch",
        }
    }

    /// What its speeds are told in.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::MatrixProduct => "10⁹ multiply-adds/s",
            Self::VectorOperation => "GB/s",
            Self::Network => "evaluations/s",
        }
    }

    /// A speed in [`unit`](Self::unit)s.
    #[must_use]
    pub fn in_units(self, per_second: f64) -> f64 {
        match self {
            Self::MatrixProduct | Self::VectorOperation => per_second / 1e9,
            Self::Network => per_second,
        }
    }
}

impl WorkloadReport {
    /// What follows from the speeds is added to them.
    pub(super) fn new(kind: Kind, workload: String, mut settings: Vec<SettingReport>) -> Self {
        recommend::add_speed_ups(&mut settings);
        let (recommended, wins) = (recommend::recommended(&settings), recommend::wins(&settings));
        let in_words = in_words(kind, recommended.as_ref(), &wins);
        Self { kind, workload, settings, recommended, wins, in_words }
    }

    /// Every size at which something was measured, ascending.
    #[must_use]
    pub fn sizes(&self) -> Vec<usize> {
        let speeds = self.settings.iter().flat_map(|setting| &setting.speeds);
        let mut sizes: Vec<usize> = speeds.map(|speed| speed.size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}

impl SettingReport {
    /// What was measured at a size.
    #[must_use]
    pub fn at(&self, size: usize) -> Option<&Speed> {
        self.speeds.iter().find(|speed| speed.size == size)
    }
}
