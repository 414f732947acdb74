//! The work of a training loop: network, searches, engines and updates.

use std::str::FromStr;

use game::{ObservationShape, Spec};
use network_cpu::KernelPreference;
use network_torch::{DevicePreference, PrecisionPreference};
use selfplay::Settings;
use targets::Unroll;
use weights::{Architecture, Model};

use crate::network::NetworkSize;

/// Number of rewards in an n-step return.
const TD_STEPS: usize = 10;
/// Steps that an update unrolls from each position.
pub(super) const UNROLL_STEPS: usize = 5;
/// Discount of values per step.
pub(super) const DISCOUNT: f32 = 0.997;
/// Values and rewards are categorical over the integers from −20 to 20, after the value transform.
pub(super) const SUPPORT: usize = 20;

/// Options for the work of training loops.
#[derive(Debug, Clone, PartialEq, clap::Args, serde::Serialize)]
pub struct Workload {
    /// Hidden units or channels [default: 128 for vectors, 32 for planes].
    ///
    /// The presets of the games have the same values.
    #[arg(long)]
    pub channels: Option<usize>,
    /// Residual blocks [default: 1 for vectors, 2 for planes].
    #[arg(long)]
    pub blocks: Option<usize>,
    /// Number of environments that advance together, over all threads.
    #[arg(long, default_value_t = 256, value_parser = positive::<usize>)]
    pub environments: usize,
    /// Simulations per step.
    #[arg(long, default_value_t = 32, value_parser = positive::<u32>)]
    pub simulations: u32,
    /// Number of leaves per search in a batch.
    ///
    /// With 16 leaves, 256 environments make batches of 4,096.
    #[arg(long, default_value_t = 1, value_parser = positive::<usize>)]
    pub leaves: usize,
    /// Number of environment steps per iteration of the training loop.
    #[arg(long, default_value_t = 256, value_parser = positive::<usize>)]
    pub steps: usize,
    /// Batch size of the update in each iteration.
    #[arg(long, default_value_t = 256, value_parser = positive::<usize>)]
    pub batch: usize,
    /// Replay size in positions; filled before the measurement.
    #[arg(long, default_value_t = 20_000, value_parser = positive::<usize>)]
    pub positions: usize,
    /// Number of iterations between two publications of weights.
    #[arg(long, default_value_t = 10, value_parser = positive::<usize>)]
    pub publish_iterations: usize,
    /// Search threads; 0 for one per core.
    #[arg(long, default_value_t = 0)]
    pub threads: usize,
    /// Device for evaluations: `cpu`, `cuda`, `cuda:1` or `mps`.
    #[arg(long, default_value = "cpu")]
    pub device: DevicePreference,
    /// Precision of evaluations: `auto`, `f32` or `bf16`.
    #[arg(long, default_value = "auto")]
    pub precision: PrecisionPreference,
    /// CPU engine to evaluate with: `auto`, `libtorch`, or a kernel such as `avx512-bf16`.
    ///
    /// `auto` selects the fastest path of the CPU kernel.
    #[arg(long, default_value = "auto")]
    pub kernel: KernelPreference,
    /// Device for updates: `cpu`, `cuda`, `cuda:1` or `mps`.
    #[arg(long, default_value = "cpu")]
    pub training_device: DevicePreference,
    /// Precision of updates: `auto`, `f32`, `bf16` or `f16`.
    ///
    /// `auto` selects the fastest precision of the device.
    #[arg(long, default_value = "auto")]
    pub training_precision: inference::TrainingPrecision,
    /// Duration of each loop in seconds, or of two iterations if longer.
    #[arg(long, default_value_t = 8.0)]
    pub loop_seconds: f64,
}

/// Parses a number above 0.
pub(super) fn positive<N: FromStr + Default + PartialOrd>(text: &str) -> Result<N, &'static str> {
    text.parse().ok().filter(|number| *number > N::default()).ok_or("expected a number of at least 1")
}

impl Workload {
    /// Returns the network architecture for a game.
    pub(super) fn architecture(&self, spec: &Spec) -> Architecture {
        let ObservationShape { planes, height, width } = spec.observation;
        let (channels, blocks) = if (height, width) == (1, 1) { (128, 1) } else { (32, 2) };
        let (channels, blocks) = (self.channels.unwrap_or(channels), self.blocks.unwrap_or(blocks));
        let size = NetworkSize { blocks, channels, height, width };
        let (game, actions, model) = (spec.name.clone(), spec.actions, Model::Muzero { support: SUPPORT });
        Architecture { game, planes, actions, model, ..size.architecture() }
    }

    /// Returns the settings of `environments` that advance together.
    pub(super) fn settings(&self, environments: usize) -> Settings {
        Settings {
            games: environments,
            leaves_per_tree: self.leaves,
            full_simulations: self.simulations,
            full_search_probability: 1.0,
            ..Settings::default()
        }
    }
}

/// Returns the unroll settings for the targets of updates.
pub(super) fn unroll() -> Unroll {
    let discount = f64::from(DISCOUNT);
    Unroll { unroll_steps: UNROLL_STEPS, td_steps: TD_STEPS, discount, ..Unroll::default() }
}
