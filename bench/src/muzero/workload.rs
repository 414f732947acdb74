//! The work that all rows of a part have in common: game, network, searches and updates.

use anyhow::ensure;
use game::Spec;
use games::GameKind;
use network_torch::DevicePreference;
use selfplay::Settings;
use targets::Unroll;
use weights::{Architecture, Model};

use crate::machine;

/// The number of rewards in a return.
const TD_STEPS: usize = 10;
/// The discount of values, in steps.
pub(super) const DISCOUNT: f32 = 0.997;
/// Values and rewards are categorical over the integers from −20 to 20, after the transform of values.
const SUPPORT: usize = 20;

/// Options of the work.
#[derive(Debug, Clone, PartialEq, clap::Args)]
pub struct Workload {
    /// Hidden units or channels [default: 128 for vectors, 32 for planes, as in the presets].
    #[arg(long)]
    pub channels: Option<usize>,
    /// Residual blocks [default: 1 for vectors, 2 for planes].
    #[arg(long)]
    pub blocks: Option<usize>,
    /// Simulations of every step.
    #[arg(long, default_value_t = 32)]
    pub simulations: u32,
    /// Simulations of one search in one batch; 16 of 256 environments are batches of 4,096.
    #[arg(long, default_value_t = 1)]
    pub leaves: usize,
    /// Steps of environments in an iteration of the training loop.
    #[arg(long, default_value_t = 256)]
    pub steps: usize,
    /// Positions of an update, one in each iteration.
    #[arg(long, default_value_t = 256)]
    pub batch: usize,
    /// Steps that an update unrolls from each position.
    #[arg(long, default_value_t = 5)]
    pub unroll_steps: usize,
    /// Positions that the replay holds; it is filled before the measurement.
    #[arg(long, default_value_t = 20_000)]
    pub positions: usize,
    /// Iterations from one publication of weights to the next.
    #[arg(long, default_value_t = 10)]
    pub publish_iterations: u64,
    /// Threads that search; 0 is one per core.
    #[arg(long, default_value_t = 0)]
    pub threads: usize,
    /// Threads of an operation of libtorch, in all loops; 0 is one per core, which only pays on idle cores.
    #[arg(long, default_value_t = 1)]
    pub libtorch_threads: usize,
    /// The device of updates.
    #[arg(long, default_value = "cpu")]
    pub training_device: DevicePreference,
    /// The duration of the measurement of a variant, which also lasts for two iterations at least.
    #[arg(long, default_value_t = 8.0)]
    pub loop_seconds: f64,
    /// The seed of weights, environments and all draws.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// The precision of updates, which is an optimisation of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::Args)]
pub struct TrainingPrecision {
    /// The precision of updates: `auto` for the fastest one of the device, `f32`, `bf16` or `f16`.
    #[arg(long, default_value = "auto")]
    pub training_precision: inference::TrainingPrecision,
}

impl Workload {
    /// Checks the numbers.
    ///
    /// # Errors
    /// The first option out of range.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let Self { leaves, steps, batch, unroll_steps, positions, publish_iterations, .. } = *self;
        for (option, value) in [
            ("--leaves", leaves),
            ("--steps", steps),
            ("--batch", batch),
            ("--unroll-steps", unroll_steps),
            ("--positions", positions),
            ("--simulations", self.simulations as usize),
        ] {
            ensure!(value > 0, "{option} must be at least 1");
        }
        ensure!(publish_iterations > 0, "--publish-iterations must be at least 1");
        ensure!(self.loop_seconds.is_finite() && self.loop_seconds >= 0.0, "--loop-seconds must be at least 0");
        Ok(())
    }

    /// The network for a game.
    pub(super) fn architecture(&self, spec: &Spec) -> Architecture {
        let shape = spec.observation;
        let is_vector = shape.height == 1 && shape.width == 1;
        let (channels, blocks) = if is_vector { (128, 1) } else { (32, 2) };
        Architecture {
            game: spec.name.clone(),
            planes: shape.planes,
            height: shape.height,
            width: shape.width,
            actions: spec.actions,
            channels: self.channels.unwrap_or(channels),
            blocks: self.blocks.unwrap_or(blocks),
            squeeze_excitation: 0,
            global_pooling: 0,
            design: weights::Design::default(),
            model: Model::muzero(SUPPORT),
        }
    }

    /// The settings of `environments` that advance together.
    pub(super) fn settings(&self, environments: usize) -> Settings {
        Settings {
            games: environments,
            leaves_per_tree: self.leaves,
            full_simulations: self.simulations,
            full_search_probability: 1.0,
            ..Settings::default()
        }
    }

    pub(super) fn unroll(&self) -> Unroll {
        let discount = f64::from(DISCOUNT);
        Unroll {
            unroll_steps: self.unroll_steps,
            td_steps: TD_STEPS,
            discount,
            search_value_share: 0.0,
            next_observations: false,
        }
    }

    /// The numbers of environments of the threads.
    pub(super) fn shares(&self, environments: usize) -> Vec<usize> {
        let threads = machine::threads(self.threads).min(environments);
        (0..threads).map(|thread| (environments + thread) / threads).collect()
    }

    /// The options as words, for another process.
    pub(super) fn words(&self, game: &GameKind) -> Vec<String> {
        let Self { channels, blocks, simulations, leaves, steps, batch, unroll_steps, positions, .. } = self;
        let Self { publish_iterations, threads, libtorch_threads, training_device, loop_seconds, seed, .. } = self;
        let size =
            |name: &str, number: &Option<usize>| number.map_or(String::new(), |number| format!("--{name} {number}"));
        let (channels, blocks) = (size("channels", channels), size("blocks", blocks));
        let text = format!(
            "--game {game} {channels} {blocks} --simulations {simulations} --leaves {leaves} --steps {steps} --batch {batch} \
             --unroll-steps {unroll_steps} --positions {positions} --publish-iterations {publish_iterations} --threads \
             {threads} --libtorch-threads {libtorch_threads} --training-device {training_device} --loop-seconds \
             {loop_seconds} --seed {seed}"
        );
        text.split_whitespace().map(str::to_owned).collect()
    }
}
