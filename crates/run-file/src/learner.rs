//! Defines the learner's sections of the run file, as written and as checked settings.

mod batch_targets;
mod boards;
mod group;
pub mod libtorch;
mod network;
mod trainer_settings;

use std::str::FromStr;
use std::time::Duration;

pub use ::network::SUPPORT_MAX;
use bridge::EnvironmentSection;
use game::{Game as _, Scoring, Spec};
use games::GameKind;
use inference::{DevicePreference, TrainingKernel, TrainingPrecision};
use proto::limits::{CREDIT_BATCHES_MAX, SAMPLES_PER_BATCH_MAX, UNROLL_STEPS_MAX};
use serde::{Deserialize, Serialize};
use service::config::{RunSection, Section as _};
use service::{ConfigError, SecuritySection};
use training::{MomentFormat, Recompute};
use transport::servers::Endpoints;
use weights::Architecture;

pub use self::boards::{Board, BoardSection};
pub use self::network::{ModelKind, NetworkPreset, NetworkSection};
pub use self::trainer_settings::trainer_settings;

/// Maximum number of threads that prepare batches.
const PREPARE_THREADS_MAX: usize = 64;
/// Maximum number of unrolled steps. Papers use 5 to 10; the time and memory of a training step grow with the number.
const UNROLLED_MAX: usize = 64;
/// Maximum number of held-out positions for the validation of weights.
const VALIDATION_POSITIONS_MAX: usize = 65_536;
/// Maximum number of training steps between publications. No run takes more steps, so a larger number is a typing
/// error.
const PUBLISH_STEPS_MAX: u64 = 1_000_000_000;
/// Maximum duration of a simulated training step, in microseconds: ten seconds.
const SIMULATED_STEP_US_MAX: u64 = 10_000_000;

/// The run file sections for the learner.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Game, seed and run directory.
    pub run: RunSection,
    /// Environment in Python, if `run.game` is a Python environment.
    pub environment: EnvironmentSection,
    /// Design and size of the network.
    pub network: NetworkSection,
    /// Training: batches, optimiser, schedule, losses, publications and checkpoints.
    pub learner: LearnerSection,
    /// Certificates and tokens of the learner's server and clients.
    pub security: SecuritySection,
}

service::section! {
    /// The section `[learner]`: training, data sources, publications and checkpoints.
    #[serde(deny_unknown_fields)]
    pub struct LearnerSection {
        /// Addresses of the replay servers, separated by commas, such as `http://127.0.0.1:7001`. Every address of a
        /// host name counts as a server; host names are resolved again every few seconds.
        replay: String = "http://127.0.0.1:7001".into(), page "protocol.md#several-replay-servers";
        /// Addresses of all learners that train this run together, including this learner, separated by commas:
        /// `http://10.0.0.1:7002,http://10.0.0.2:7002`. Each training step then combines one batch per learner.
        /// Training in a group requires libtorch. Empty: this learner trains alone.
        group: String = String::new(), page "cluster.md#several-learners";
        /// Position of this learner's address in `group`, starting at 0.
        index: usize = 0;
        /// True if the network between the learners in `group` is trusted. The learners exchange gradients and states
        /// without encryption or credentials, so the default false rejects any address in `group` that is not on
        /// loopback.
        group_trusted: bool = false, page "security.md#learners-that-train-together";
        /// Maximum time to wait for the other learners of the group in a training step, in seconds. It must exceed the
        /// duration of a step. A learner that takes longer leaves the group, and may join again later.
        // With one second to call the roll, a new group forms within 10 s.
        group_timeout_seconds: f64 = 8.0, in 0.1..=3600.0;
        /// Library for sums over the learners in a group: `auto`, `gloo` or `nccl`. `auto` selects NCCL if every
        /// learner has a separate CUDA device and NCCL can be loaded, otherwise Gloo; the reason is logged. An
        /// explicitly named library that cannot be used is an error.
        collective: CollectiveKind = CollectiveKind::Auto;
        /// Device for training: `auto`, `cpu`, `cuda`, `cuda:1` or `mps`. `auto` times training steps with the run's
        /// network and batch size on the CPU and the first accelerator, and selects the faster device. An explicitly
        /// named device that cannot be used is an error.
        device: DevicePreference = DevicePreference::Auto, page "devices.md";
        /// Precision of the forward and backward pass: `auto`, `f32`, `bf16`, `f16` or `adaptive`; parameters are
        /// always float32. `f16` uses loss scaling. `adaptive` is `bf16`, or `f16` on a GPU without bfloat16; every 500
        /// steps, it compares the gradient of each layer with the float32 gradient, and layers with an error above 5 %
        /// return to float32. `auto` selects `adaptive` if the lower precision trains faster, otherwise `f32`.
        precision: TrainingPrecision = TrainingPrecision::Auto, page "devices.md#the-precision-of-training";
        /// Training backend: `auto` or `libtorch`. On a CPU with AVX2 or AVX-512, `auto` trains with built-in kernels,
        /// in float32 or, with AVX-512 BF16 or AMX, in bfloat16, as `precision` selects. Otherwise `auto` trains with
        /// libtorch.
        kernel: TrainingKernel = TrainingKernel::Auto;
        /// Number of threads for a training step, or for each libtorch operation. 0: one thread, or in
        /// `zerofleet train` on a CPU the learner's share of the cores.
        threads: usize = 0, page "devices.md#cores";
        /// Number of positions per training step; at most what `replay.error_items` allows to sample at once.
        batch_size: usize = 256, in 1..=SAMPLES_PER_BATCH_MAX;
        /// Number of batches requested from the replay servers ahead of the training step.
        prefetch_batches: usize = 4, in 1..=CREDIT_BATCHES_MAX as usize;
        /// Number of threads that convert samples to training batches. 0: one thread on a CPU, or up to 4 threads with
        /// an accelerator. The number of threads does not affect the content of batches.
        prepare_threads: usize = 0, in 0..=PREPARE_THREADS_MAX;
        /// Maximum number of positions per forward and backward pass. A larger batch is divided into micro-batches, and
        /// the gradients are added; batch norm statistics are separate for each micro-batch. 0: a batch is divided only
        /// if the device has too little memory.
        micro_batch: usize = 0, in 0..=SAMPLES_PER_BATCH_MAX;
        /// Duration of a simulated training step without computation, in microseconds, to benchmark the other parts of
        /// a run. 0: training steps are real.
        simulated_step_us: u64 = 0, in 0..=SIMULATED_STEP_US_MAX;
        /// Activations to recompute in the backward pass instead of keeping them, which saves memory: `none`, or
        /// `blocks`, the activations within segments of residual blocks.
        recompute: Recompute = Recompute::None, page "devices.md#the-memory-of-training";
        /// Optimiser: `adamw`, `lion`, `muon` or `sgd`. `muon` updates the matrices of hidden layers, and updates all
        /// other parameters as `adamw` does. A run keeps its optimiser.
        optimiser: OptimiserKind = OptimiserKind::Adamw, page "networks.md#muon";
        /// Number format of the optimiser's moments: `f32`, `bf16`, or `int8`, which has 8 bits per value and a scale
        /// per 256 values.
        moments: MomentFormat = MomentFormat::F32;
        /// Peak learning rate, which is reached after the warm-up.
        learning_rate: f64 = 2e-3, in 0.0..=10.0;
        /// Number of training steps over which the learning rate grows linearly from zero to the peak.
        warm_up_steps: u64 = 100;
        /// Unit of the learning rate schedule: `minutes` of running time, accumulated across restarts, or `positions`
        /// in training steps, which gives the same schedule on every machine.
        schedule: ScheduleKind = ScheduleKind::Minutes;
        /// With `schedule = "minutes"`: length of the schedule, in minutes of running time; `zerofleet train` sets
        /// `--minutes`.
        schedule_minutes: f64 = 15.0, in 1e-3..=1e9;
        /// With `schedule = "positions"`: length of the schedule, as the number of positions in training steps.
        schedule_positions: u64 = 2_000_000, in 1..;
        /// Shape of the learning rate over the schedule: `cosine` decays from the peak to a floor, and `constant` keeps
        /// the peak.
        learning_rate_decay: DecayKind = DecayKind::Cosine;
        /// With the decay `cosine`: learning rate at the end of the schedule, as a share of the peak.
        learning_rate_ratio_min: f64 = 0.05, in 0.0..=1.0;
        /// Decoupled weight decay of convolution and linear weights with `adamw`, `lion` and `muon`.
        // As in the AdamW paper, where only the learning rate multiplies the decay.
        weight_decay: f64 = 1e-2, in 0.0..=10.0;
        /// Momentum of `sgd` and `muon`; the publication of `muon` uses 0.95.
        // As in AlphaZero.
        momentum: f64 = 0.9, in 0.0..=0.9999;
        /// L2 penalty on convolution and linear weights with `sgd`, added to the gradient.
        l2: f64 = 1e-4, in 0.0..=10.0;
        /// Maximum norm of the gradient over all parameters; a larger gradient is scaled down to this norm.
        gradient_clip_norm: f64 = 5.0, in 1e-9..=1e9;
        /// Decay per training step of the exponential moving average of weights, which is published.
        ema_decay: f64 = 0.99, in 0.0..=0.999_999;
        /// Share of the schedule after which the published weights are an equally weighted average of all later weights
        /// (stochastic weight averaging). 1 keeps the exponential moving average throughout.
        swa_start: f64 = 1.0, in 0.0..=1.0;
        /// Weight of the value loss relative to the policy loss.
        value_loss_weight: f64 = 1.0, in 0.0..=1e3;
        /// With `muzero` and `stochastic_muzero`: weight of the consistency loss between unrolled latent states and the
        /// latent states of the subsequent observations (Ye et al. 2021). The paper uses 2; 0 disables the loss. A run
        /// cannot change between 0 and a positive weight, because checkpoints contain the heads of this loss.
        consistency_loss_weight: f64 = 0.0, in 0.0..=1e3, page "muzero.md#consistency-loss";
        /// Temperature T of policy targets: target probabilities are raised to the power 1 / T, so values above 1 give
        /// softer targets.
        policy_target_temperature: f32 = 1.0, in 0.01..=100.0;
        /// Share of the search's root value in the value target in games scored by outcome. The game outcome has the
        /// remaining share.
        search_value_share: f32 = 0.25, in 0.0..=1.0;
        /// With `muzero` and `stochastic_muzero`: K, the number of steps to unroll the dynamics from each position.
        // As in MuZero, for Atari.
        unroll_steps: usize = 5, in 1..=UNROLLED_MAX;
        /// In games scored by rewards: n of the n-step return, the number of rewards before the bootstrapped search
        /// value; 0 sums the rewards of the whole episode (Monte Carlo). `td_steps` and `unroll_steps` together are at
        /// most 1,024.
        td_steps: usize = 10, in 0..=UNROLL_STEPS_MAX;
        /// Share of trajectories that are held out from training and used to validate published weights. A hash of the
        /// trajectory id selects the trajectories. 0 trains on all trajectories.
        // Enough games to detect overfitting, at the cost of 2 % of the samples.
        validation_share: f64 = 0.02, in 0.0..=0.5, page "observability.md#overfitting";
        /// Maximum number of positions for validating published weights: the latest samples of held-out trajectories.
        // The measured shares have an error of about 1 %; evaluation with the default network takes less than a
        // second.
        validation_positions: usize = 2048, in 1..=VALIDATION_POSITIONS_MAX;
        /// Exponent of the importance weights that correct for sampling by priority, from 0 (no correction) to 1 (full
        /// correction). It has no effect on uniform sampling.
        // As in MuZero.
        importance_exponent: f64 = 1.0, in 0.0..=1.0;
        /// True to write TensorBoard event files. `zerofleet train` writes to the run directory, the learner to the
        /// subdirectories `learner` and `validation`.
        event_files: bool = true, page "observability.md#tensorboard";
        /// Number of weights publications from one publication with histograms of weights and gradients to the next; 0
        /// writes no histograms.
        // Every hundred seconds with the default publication interval.
        histogram_publications: u64 = 10;
        /// Minimum time between publications of weights, in seconds; without a new training step, nothing is published.
        publish_interval_seconds: f64 = 10.0, in 0.01..=86_400.0;
        /// Number of training steps between weights publications, which occur at exact multiples, independent of the
        /// clock. 0: `publish_interval_seconds` decides.
        publish_interval_steps: u64 = 0, in 0..=PUBLISH_STEPS_MAX;
        /// Number of latest published weights versions to keep on disk.
        versions_kept: usize = 4, in 1.., page "matches.md#versions-that-a-run-keeps";
        /// Minimum time between checkpoints, in seconds; without a new training step, no checkpoint is written.
        checkpoint_interval_seconds: f64 = 30.0, in 0.01..=86_400.0;
        /// Number of latest checkpoints to keep on disk.
        checkpoints_kept: usize = 3, in 1..;
        /// Number of older checkpoints to keep in addition, spread over the run on a logarithmic scale, so that
        /// training can restart from an earlier state.
        checkpoints_spread: usize = 4;
        /// Weights with which a new run begins: a model folder, or the manifest of exported weights. The network takes
        /// every tensor with the same name and shape; all other tensors are initialised from `run.seed`. A run with a
        /// checkpoint ignores the key. `zerofleet train --weights` sets it. Empty: all tensors are initialised.
        initial_weights: String = String::new(), page "networks.md#begin-with-other-weights";
        /// True to continue a checkpoint of a network with fewer blocks or channels in the larger network of the run
        /// file, which initially computes the same outputs. False rejects such a checkpoint.
        grow: bool = false, page "networks.md#growing";
        /// Relative frequencies of training steps on each board, with the board of `run.game` first: `[2.0, 1.0]`
        /// trains on the first board in two thirds of the steps. Empty: equal frequencies.
        board_weights: Vec<f64> = Vec::new(), in 1e-3..=1e3;
        /// Boards in addition to the board of `run.game`, each with addresses of replay servers. `zerofleet train` sets
        /// this key from `run.boards`.
        boards: Vec<BoardSection> = Vec::new();
    }
}

/// The setting `learner.schedule`: the unit of the learning rate schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleKind {
    /// Running time of the learner, in minutes.
    Minutes,
    /// Number of positions in training steps.
    Positions,
}

/// The setting `learner.learning_rate_decay`: the shape of the learning rate over the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecayKind {
    /// Half a cosine from the peak to the floor.
    Cosine,
    /// No decay after warm-up.
    Constant,
}

/// Length of the learning rate schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schedule {
    /// Running time of the learner.
    Time(Duration),
    /// Number of positions in training steps.
    Positions(u64),
}

impl Schedule {
    /// Returns the completed fraction of the schedule, which exceeds 1 after the end.
    #[must_use]
    pub fn progress(self, elapsed_seconds: f64, positions: u64) -> f64 {
        match self {
            Self::Time(length) => elapsed_seconds / length.as_secs_f64(),
            Self::Positions(length) => positions as f64 / length.max(1) as f64,
        }
    }
}

/// The setting `learner.optimiser`: the update rule for parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptimiserKind {
    /// Adam with decoupled weight decay.
    Adamw,
    /// Lion: the sign of the momentum interpolated with the gradient, with decoupled weight decay.
    Lion,
    /// Muon: orthogonalised momentum for the matrices of hidden layers, AdamW for all other parameters.
    Muon,
    /// Stochastic gradient descent with momentum.
    Sgd,
}

/// The setting `learner.collective`: the library for sums over the learners in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CollectiveKind {
    /// NCCL if it can be used, otherwise Gloo.
    Auto,
    /// Gloo, in host memory.
    Gloo,
    /// NCCL, in the memory of NVIDIA GPUs.
    Nccl,
}

/// The checked configuration, in domain types.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The game with the size of the first board.
    pub game: GameKind,
    /// Run directory, and the seed for initial weights and random symmetries.
    pub run: RunSection,
    /// Settings of the network.
    pub network: NetworkSection,
    /// Training settings, with checked ranges.
    pub learner: LearnerSection,
    /// Addresses of the replay servers for `game`.
    pub replay: Endpoints,
    /// Boards in addition to the board of `game`, with replay servers and network architectures.
    pub boards: Vec<Board>,
    /// Relative frequencies of training steps on all boards, starting with the board of `game`.
    pub board_weights: Vec<f64>,
    /// Endpoints of the learners in the group, including this learner; empty if this learner trains alone.
    pub group: Vec<String>,
    /// Maximum time to wait for other learners in a training step.
    pub group_timeout: Duration,
    /// Length of the learning rate schedule.
    pub schedule: Schedule,
    /// Minimum time between publications of weights.
    pub publish_interval: Duration,
    /// Minimum time between checkpoints.
    pub checkpoint_interval: Duration,
    /// Duration of simulated training steps; `None` if training steps are real.
    pub simulated_step: Option<Duration>,
}

impl Config {
    /// Checks the range of every key, and converts the configuration to settings.
    ///
    /// # Errors
    /// [`ConfigError`] names the first invalid key and the valid range.
    pub fn settings(&self) -> Result<Settings, ConfigError> {
        let Self { run, environment, network, learner, security } = self;
        run.check_ranges("run")?;
        network.check_ranges("network")?;
        learner.check_ranges("learner")?;
        network.check_design()?;
        let steps_max = UNROLL_STEPS_MAX - learner.unroll_steps;
        ConfigError::within("learner.td_steps", learner.td_steps, 0..=steps_max)?;
        let group = group::learners(learner, security)?;
        security.check_endpoint("learner.replay", &learner.replay)?;
        let game = bridge::config::game(run, environment)?;
        self.check_game(game.rules().spec())?;
        self.check_model()?;
        let (boards, board_weights) = (boards::of(self, &game)?, boards::weights(learner)?);
        Ok(Settings {
            game,
            run: run.clone(),
            network: network.clone(),
            learner: learner.clone(),
            replay: parsed("learner.replay", &learner.replay)?,
            boards,
            board_weights,
            group,
            group_timeout: Duration::from_secs_f64(learner.group_timeout_seconds),
            schedule: match learner.schedule {
                ScheduleKind::Minutes => Schedule::Time(Duration::from_secs_f64(learner.schedule_minutes * 60.0)),
                ScheduleKind::Positions => Schedule::Positions(learner.schedule_positions),
            },
            publish_interval: Duration::from_secs_f64(learner.publish_interval_seconds),
            checkpoint_interval: Duration::from_secs_f64(learner.checkpoint_interval_seconds),
            simulated_step: (learner.simulated_step_us > 0).then(|| Duration::from_micros(learner.simulated_step_us)),
        })
    }
}

impl Settings {
    /// Returns the architecture of the network to train.
    #[must_use]
    pub fn architecture(&self) -> Architecture {
        self.network.architecture_of(&self.game.rules())
    }
}

impl Config {
    /// Checks that keys for learned dynamics are set only for a model with dynamics.
    fn check_model(&self) -> Result<(), ConfigError> {
        if self.learner.consistency_loss_weight > 0.0 && self.network.model == ModelKind::Alphazero {
            let reason = "compares unrolled states of muzero, and alphazero unrolls none; leave it out, or set \
                          network.model to muzero";
            return Err(ConfigError::invalid("learner.consistency_loss_weight", reason));
        }
        Ok(())
    }

    /// Checks that the model, the discount and the return length suit this game.
    fn check_game(&self, spec: &Spec) -> Result<(), ConfigError> {
        let Self { run: RunSection { discount, .. }, network: NetworkSection { model, .. }, learner, .. } = self;
        let name = &spec.name;
        if spec.scoring == Scoring::Outcome && *discount < 1.0 {
            let reason = format!("must be 1 in {name}, which is scored by outcome, got {discount}");
            return Err(ConfigError::invalid("run.discount", reason));
        }
        if *model != ModelKind::Alphazero || spec.scoring == Scoring::Rewards {
            self.network.check_default_design(&spec.name)?;
        }
        self.network.check_heads(spec)?;
        if *model == ModelKind::Alphazero && spec.recording.is_some() {
            let reason =
                format!("alphazero needs the rules of {name}, which are not in this program; set it to muzero");
            return Err(ConfigError::invalid("network.model", reason));
        }
        let needs_whole_episodes = spec.scoring == Scoring::Rewards && learner.td_steps == 0;
        if needs_whole_episodes && spec.max_plies > UNROLL_STEPS_MAX + 1 {
            let reason = format!(
                "0 needs whole episodes, but a sample holds at most {} of {} steps of {name}; set a number of steps",
                UNROLL_STEPS_MAX + 1,
                spec.max_plies
            );
            return Err(ConfigError::invalid("learner.td_steps", reason));
        }
        Ok(())
    }
}

fn parsed<T: FromStr<Err: std::fmt::Display>>(key: &str, text: &str) -> Result<T, ConfigError> {
    text.parse().map_err(|error| ConfigError::invalid(key, error))
}

#[cfg(test)]
mod tests {
    use game::{Dynamics, ObservationShape, Players, Recording};

    use super::*;

    #[test]
    fn an_invalid_batch_size_or_replay_address_is_refused_by_its_key() {
        let refused = |learner| Config { learner, ..Config::default() }.settings().unwrap_err().to_string();
        let error = refused(LearnerSection { batch_size: 4097, ..LearnerSection::default() });
        assert!(error.contains("learner.batch_size") && error.contains("must be from 1 to 4096"), "{error}");
        let error = refused(LearnerSection { prepare_threads: 65, ..LearnerSection::default() });
        assert!(error.contains("learner.prepare_threads") && error.contains("must be from 0 to 64"), "{error}");
        let error = refused(LearnerSection { micro_batch: 4097, ..LearnerSection::default() });
        assert!(error.contains("learner.micro_batch") && error.contains("must be from 0 to 4096"), "{error}");
        let error = refused(LearnerSection { replay: "127.0.0.1:7001".to_owned(), ..LearnerSection::default() });
        assert!(error.contains("learner.replay") && error.contains("http://host:port"), "{error}");
    }

    /// Returns the spec of a single-player game with rewards and episodes of `max_plies` steps.
    fn environment(dynamics: Dynamics, max_plies: usize) -> Spec {
        let observation = ObservationShape { planes: 4, height: 1, width: 1 };
        let board = Spec::board("cart_pole".to_owned(), 2, observation, max_plies);
        Spec { players: Players::One, scoring: Scoring::Rewards, dynamics, ..board }
    }

    /// Returns the error for a run with this model, game and changed keys; `fine` if the configuration is valid.
    fn checked(model: ModelKind, spec: &Spec, set: impl FnOnce(&mut Config)) -> String {
        let mut config = Config { network: NetworkSection { model, ..NetworkSection::default() }, ..Config::default() };
        set(&mut config);
        config.check_game(spec).map_or_else(|error| error.to_string(), |()| "fine".to_owned())
    }

    #[test]
    fn every_model_learns_every_game_but_alphazero_one_without_rules() {
        let of = |model, spec: &Spec| checked(model, spec, |_| {});
        let rewards = environment(Dynamics::Deterministic, 500);
        let board = Spec::board("any".to_owned(), 9, ObservationShape { planes: 2, height: 3, width: 3 }, 9);
        let chance = Spec { dynamics: Dynamics::Stochastic, ..board.clone() };
        let outside = Spec { recording: Some(Recording { stack: 1 }), ..rewards.clone() };
        let refused = of(ModelKind::Alphazero, &outside);
        assert!(refused.contains("network.model") && refused.contains("needs the rules of cart_pole"), "{refused}");
        for spec in [&rewards, &chance, &board] {
            assert_eq!(of(ModelKind::Alphazero, spec), "fine", "{spec:?}");
        }
        for spec in [&rewards, &chance, &board, &outside] {
            assert_eq!(of(ModelKind::Muzero, spec), "fine", "{spec:?}");
        }
    }

    #[test]
    fn the_consistency_loss_is_off_by_default_and_refused_by_its_key_without_a_learned_model() {
        let of = |model, consistency_loss_weight| {
            let network = NetworkSection { model, ..NetworkSection::default() };
            let learner = LearnerSection { consistency_loss_weight, ..LearnerSection::default() };
            let config = Config { network, learner, ..Config::default() };
            config.settings().map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(LearnerSection::default().consistency_loss_weight, 0.0);
        assert_eq!(of(ModelKind::Alphazero, 0.0), Ok(()));
        let refused = of(ModelKind::Alphazero, 2.0).unwrap_err();
        let [key, advice] = ["learner.consistency_loss_weight", "set network.model to muzero"];
        assert!(refused.contains(key) && refused.contains(advice), "{refused}");
        assert_eq!(of(ModelKind::Muzero, 2.0), Ok(()));
        assert_eq!(of(ModelKind::StochasticMuzero, 2.0), Ok(()));
        let refused = of(ModelKind::Muzero, -1.0).unwrap_err();
        assert!(refused.contains(key) && refused.contains("from 0"), "{refused}");
    }

    #[test]
    fn returns_longer_than_a_sample_are_refused_by_their_key() {
        let of = |max_plies, td_steps| {
            let set = |config: &mut Config| config.learner.td_steps = td_steps;
            checked(ModelKind::Muzero, &environment(Dynamics::Deterministic, max_plies), set)
        };
        assert_eq!((of(UNROLL_STEPS_MAX + 1, 0), of(usize::MAX, 1)), ("fine".to_owned(), "fine".to_owned()));
        let refused = of(UNROLL_STEPS_MAX + 2, 0);
        assert!(refused.contains("learner.td_steps") && refused.contains("needs whole episodes"), "{refused}");
        let refused = |unroll_steps, td_steps| {
            let learner = LearnerSection { unroll_steps, td_steps, ..LearnerSection::default() };
            Config { learner, ..Config::default() }.settings().map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(refused(5, UNROLL_STEPS_MAX - 5), Ok(()));
        assert!(refused(5, UNROLL_STEPS_MAX - 4).unwrap_err().contains("learner.td_steps"));
        for unroll_steps in [0, UNROLLED_MAX + 1] {
            assert!(refused(unroll_steps, 1).unwrap_err().contains("learner.unroll_steps"));
        }
    }

    #[test]
    fn a_discount_is_above_zero_at_most_one_and_one_on_boards() {
        let of = |discount, spec: &Spec| {
            checked(ModelKind::Muzero, spec, |config: &mut Config| config.run.discount = discount)
        };
        let environment = environment(Dynamics::Stochastic, 500);
        assert_eq!([0.5, 0.997, 1.0].map(|discount| of(discount, &environment)), ["fine", "fine", "fine"]);
        for discount in [0.0, -1.0, 1.01, f32::NAN] {
            let run = RunSection { discount, ..RunSection::default() };
            let refused = run.check_ranges("run").unwrap_err().to_string();
            assert!(refused.contains("run.discount") && refused.contains("above 0 and at most 1"), "{refused}");
        }
        let board = Spec::board("any".to_owned(), 9, ObservationShape { planes: 2, height: 3, width: 3 }, 9);
        let refused = of(0.9, &board);
        assert!(refused.contains("run.discount") && refused.contains("must be 1 in any"), "{refused}");
    }

    #[test]
    fn several_replay_servers_are_taken_and_a_wrong_one_is_named() {
        let answered = |replay: &str| {
            let learner = LearnerSection { replay: replay.to_owned(), ..LearnerSection::default() };
            Config { learner, ..Config::default() }.settings().map(|settings| settings.replay.to_string())
        };
        assert_eq!(answered("http://a:7001, http://b:7001").unwrap(), "http://a:7001,http://b:7001");
        let error = answered("http://a:7001,b:7001").unwrap_err().to_string();
        assert!(error.contains("learner.replay") && error.contains("`b:7001`"), "{error}");
    }

    #[test]
    fn another_kernel_or_optimiser_is_refused_with_those_there_are() {
        let kernel = |text: &str| serde_json::from_str::<TrainingKernel>(text).map_err(|error| error.to_string());
        assert_eq!(kernel("\"libtorch\""), Ok(TrainingKernel::Libtorch));
        let error = kernel("\"amx-bf16\"").unwrap_err();
        assert!(error.contains("expected `auto` or `libtorch`"), "{error}");
        let error = serde_json::from_str::<OptimiserKind>("\"adam\"").unwrap_err().to_string();
        assert!(error.contains("expected one of `adamw`, `lion`, `muon`, `sgd`"), "{error}");
    }
}
