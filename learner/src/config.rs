//! The learner's part of the run file: the sections as written, and the checked settings.

mod boards;
mod group;
mod network;
mod options;

use std::str::FromStr;
use std::time::Duration;

pub use ::network::SUPPORT_MAX;
use ::network::{ATTENTION_MAX, BLOCKS_MAX, CHANNELS_MAX, CODES_MAX, SQUEEZE_EXCITATION_MAX};
use bridge::EnvironmentSection;
use game::{Game as _, Scoring, Spec};
use games::GameKind;
use inference::{DevicePreference, TrainingKernel, TrainingPrecision};
use proto::limits::{CREDIT_BATCHES_MAX, SAMPLES_PER_BATCH_MAX, UNROLL_STEPS_MAX};
use proto::servers::Endpoints;
use serde::{Deserialize, Serialize};
use service::config::RunSection;
use service::{ConfigError, SecuritySection};
use weights::{Architecture, BlockKind};

pub use self::boards::{Board, BoardSection};
pub use self::network::{ModelKind, NetworkSection};

pub use self::options::{MomentsKind, NetworkPreset, RecomputeKind};

/// The most preparing threads.
const PREPARE_THREADS_MAX: usize = 64;
/// The most unrolled steps: 5 to 10 in the papers; time and memory of a training step grow with them.
const UNROLLED_MAX: usize = 64;
/// The most positions that weights are validated on.
const VALIDATION_POSITIONS_MAX: usize = 65_536;
/// The most steps from one publication to the next: those of a long run.
const PUBLISH_STEPS_MAX: u64 = 1_000_000_000;
/// The longest simulated step, in microseconds: ten seconds.
const SIMULATED_STEP_US_MAX: u64 = 10_000_000;

/// The sections of the run file that the learner reads.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The game, the seed and the run directory.
    pub run: RunSection,
    /// The environment in Python, if the game is one.
    pub environment: EnvironmentSection,
    /// The shape of the network.
    pub network: NetworkSection,
    /// The settings of training.
    pub learner: LearnerSection,
    /// TLS, tokens and the certificates that are trusted.
    pub security: SecuritySection,
}

/// The section `[learner]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LearnerSection {
    /// The addresses of the replay servers: `http://127.0.0.1:7001`, or several, separated by commas. Each address that
    /// a host name resolves to is a server, and names are resolved again every few seconds.
    pub replay: String,
    /// The addresses of all learners that train this run together, of this one too, separated by commas; empty: it
    /// trains alone. Each address is that of one learner: `http://10.0.0.1:7002,http://10.0.0.2:7002`. Every training
    /// step is computed from one batch of each learner of the group. It needs libtorch.
    pub group: String,
    /// This learner's place in `group`, from 0.
    pub index: usize,
    /// Whether the network between the learners of `group` is trusted. Gradients and states pass there without
    /// encryption and credentials, so that addresses off loopback are refused without it.
    pub group_trusted: bool,
    /// The longest time that a learner waits in a step for the others of its group, in seconds: longer than a step
    /// takes. One that does not come in it is left out until it asks for a place again.
    pub group_timeout_seconds: f64,
    /// The library with which the learners of a group sum: `auto`, `gloo` or `nccl`. `auto` takes NCCL where every
    /// learner trains on a CUDA device of its own and NCCL can be loaded, else Gloo; the log names the reason. A named
    /// library that cannot be used is an error.
    pub collective: CollectiveKind,
    /// `auto`, `cpu`, `cuda`, `cuda:1` or `mps`. `auto` measures the CPU against the first accelerator with training
    /// steps of the run's network and batch; a named device that cannot be used is an error.
    pub device: DevicePreference,
    /// `auto`, `f32`, `bf16`, `f16` or `adaptive`: the forward and backward pass; parameters are always float32. `f16`
    /// scales the loss. `adaptive` is `bf16`, or `f16` on a GPU without it, and compares the gradient of each layer
    /// with that in float32 every 500 steps: a layer that is off by more than 5 % goes back to float32. `auto` is `f32`
    /// or `adaptive`.
    pub precision: TrainingPrecision,
    /// The backend of training: `libtorch`, or `auto`. The latter trains on a CPU with kernels that need no libtorch:
    /// in bfloat16 with AVX-512 BF16 or matrix tiles (AMX), which `precision = "auto"` takes, and in float32 with AVX2
    /// or AVX-512.
    pub kernel: TrainingKernel,
    /// Threads of a training step, or of one libtorch operation; 0: one, or the learner's share of the cores in
    /// `zerofleet train`.
    pub threads: usize,
    /// Positions per training step.
    pub batch_size: usize,
    /// Batches requested ahead of the training step.
    pub prefetch_batches: usize,
    /// Threads that make training batches of samples; 0: one for a learner on the CPU, up to 4 for one with an
    /// accelerator. Their number changes no batch.
    pub prepare_threads: usize,
    /// Positions that are run through the network at once. A larger batch is divided into micro-batches whose gradients
    /// are added; each has its own statistics of batch norms. 0: a batch is divided only if the device has too little
    /// memory for it.
    pub micro_batch: usize,
    /// The time of a simulated training step, in microseconds, which computes nothing: a benchmark of everything around
    /// training. 0: steps are real.
    pub simulated_step_us: u64,
    /// Activations that are computed again in the backward pass instead of being kept: `none`, or `blocks`, those
    /// within segments of residual blocks.
    pub recompute: RecomputeKind,
    /// `adamw`, `lion`, `muon` or `sgd`. `muon` steps the matrices of hidden layers, and all else as `adamw` does.
    pub optimiser: OptimiserKind,
    /// The storage of the optimiser's moments: `f32`, `bf16`, or `int8`, 8 bits with a scale for each 256 numbers.
    pub moments: MomentsKind,
    /// The learning rate after warm-up.
    pub learning_rate: f64,
    /// Steps over which the learning rate grows from zero.
    pub warm_up_steps: u64,
    /// The measure of the schedule: `minutes` that the learner has run, whose clock continues across restarts, or
    /// `positions` that it has trained on, which are the same on every machine.
    pub schedule: ScheduleKind,
    /// The length of a schedule of `minutes`.
    pub schedule_minutes: f64,
    /// The length of a schedule of `positions`.
    pub schedule_positions: u64,
    /// The learning rate over the schedule: `cosine` and `linear` fall from the peak to the floor, `steps` multiplies
    /// it at some places, `constant` leaves it.
    pub learning_rate_decay: DecayKind,
    /// Of `cosine` and `linear`: the learning rate at the end of the schedule, as a share of its peak.
    pub learning_rate_ratio_min: f64,
    /// Of `steps`: the places, as shares of the schedule.
    pub learning_rate_steps: Vec<f64>,
    /// Of `steps`: the factor of the learning rate at each place.
    pub learning_rate_step_factor: f64,
    /// Decoupled weight decay of `adamw`, `lion` and `muon` on convolution and linear weights.
    pub weight_decay: f64,
    /// Momentum of `sgd` and `muon`; 0.95 as published for the latter.
    pub momentum: f64,
    /// L2 penalty of `sgd` on convolution and linear weights, a part of the gradient.
    pub l2: f64,
    /// Gradients are scaled down to this norm.
    pub gradient_clip_norm: f64,
    /// Decay per step of the moving average of weights that is published.
    pub ema_decay: f64,
    /// The share of the schedule after which the published average holds all weights since then with equal shares
    /// (stochastic weight averaging); 1 keeps it exponential.
    pub swa_start: f64,
    /// Weight of the value loss beside the policy loss.
    pub value_loss_weight: f64,
    /// Of `muzero` and `stochastic_muzero`: weight of the consistency loss, which compares unrolled latent states with
    /// those of the observations that followed (Ye et al. 2021); 2 as published, 0 leaves it out. A run keeps it 0 or
    /// above 0: checkpoints hold its heads.
    pub consistency_loss_weight: f64,
    /// The share of the uniform distribution in targets of policies, over legal actions, and of win, draw and loss
    /// (label smoothing).
    pub label_smoothing: f32,
    /// The temperature T of policy targets, which are raised to the power 1 / T: above 1 they are softer.
    pub policy_target_temperature: f32,
    /// The share of the search's root value in the value target of games scored by their outcome; the rest is the
    /// outcome.
    pub search_value_share: f32,
    /// Of `muzero`: K, the number of steps that the dynamics are unrolled from each position.
    pub unroll_steps: usize,
    /// In environments scored by rewards: n, the number of rewards in a value target before the search's
    /// value of the step that follows them; 0: all rewards to the end of the episode (Monte Carlo). Together with
    /// `unroll_steps` it is limited by the steps that a replay server cuts for one sample.
    pub td_steps: usize,
    /// The share of trajectories that are held out: they are never trained on, and published weights are validated on
    /// them. A hash of the trajectory's id decides. 0 trains on all.
    pub validation_share: f64,
    /// The most positions that weights are validated on: the newest samples of held-out trajectories.
    pub validation_positions: usize,
    /// The exponent of the importance weights that correct for draws by priority: 1 corrects fully, 0 not at all. It
    /// has no effect on uniform draws.
    pub importance_exponent: f64,
    /// Whether the run writes TensorBoard's event files: `zerofleet train` into the run directory, the learner into its
    /// folders `learner` and `validation`.
    pub event_files: bool,
    /// Publications from one that writes histograms of weights and gradients to the next; 0 writes none.
    pub histogram_publications: u64,
    /// Interval at which weights are published, if a step was taken.
    pub publish_interval_seconds: f64,
    /// Weights are published after each training step that is a multiple of this, whatever the clock shows; 0: by
    /// `publish_interval_seconds`.
    pub publish_interval_steps: u64,
    /// Published versions kept on disk.
    pub versions_kept: usize,
    /// Interval at which checkpoints are written, if a step was taken.
    pub checkpoint_interval_seconds: f64,
    /// The newest checkpoints, which are kept on disk.
    pub checkpoints_kept: usize,
    /// Older checkpoints that are kept in addition, spread over the run on a logarithmic scale, to continue from an
    /// earlier one.
    pub checkpoints_spread: usize,
    /// Continues a checkpoint of fewer blocks or channels in the network of the run file, which computes the same at
    /// first; without it such a checkpoint is refused.
    pub grow: bool,
    /// How often training steps are taken on each board of a run on several, that of `run.game` first: `[2.0, 1.0]`
    /// takes two thirds of them there. Empty: equally often.
    pub board_weights: Vec<f64>,
    /// The boards beside that of `run.game` with their replay servers, which `zerofleet train` sets for those of
    /// `run.boards`.
    pub boards: Vec<BoardSection>,
}

/// The setting `learner.schedule`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleKind {
    /// By the clock.
    Minutes,
    /// By the positions of training steps.
    Positions,
}

/// The setting `learner.learning_rate_decay`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecayKind {
    /// Half a cosine.
    Cosine,
    /// A line.
    Linear,
    /// A factor at some places.
    Steps,
    /// None.
    Constant,
}

/// The length of a run's schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schedule {
    /// As time that the learner runs.
    Time(Duration),
    /// As positions of training steps.
    Positions(u64),
}

impl Schedule {
    /// Returns the share of the schedule that has passed, which may be above 1.
    #[must_use]
    pub fn progress(self, elapsed_seconds: f64, positions: u64) -> f64 {
        match self {
            Self::Time(length) => elapsed_seconds / length.as_secs_f64(),
            Self::Positions(length) => positions as f64 / length.max(1) as f64,
        }
    }
}

/// The setting `learner.optimiser`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptimiserKind {
    /// Adam with decoupled weight decay.
    Adamw,
    /// The sign of a mean of gradients, with decoupled weight decay.
    Lion,
    /// Orthogonal momentum for the matrices of hidden layers, AdamW for the rest.
    Muon,
    /// Stochastic gradient descent with momentum.
    Sgd,
}

/// The library with which the learners of a group sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CollectiveKind {
    /// NCCL where it can be used, else Gloo.
    Auto,
    /// Gloo, in the memory of the hosts.
    Gloo,
    /// NCCL, in the memory of GPUs of NVIDIA.
    Nccl,
}

impl Default for LearnerSection {
    fn default() -> Self {
        Self {
            replay: "http://127.0.0.1:7001".into(),
            group: String::new(),
            index: 0,
            group_trusted: false,
            // With the second in which a roll is called, a group is formed anew within 10 s.
            group_timeout_seconds: 8.0,
            collective: CollectiveKind::Auto,
            device: DevicePreference::Auto,
            precision: TrainingPrecision::Auto,
            kernel: TrainingKernel::Auto,
            threads: 0,
            batch_size: 256,
            prefetch_batches: 4,
            prepare_threads: 0,
            micro_batch: 0,
            simulated_step_us: 0,
            recompute: RecomputeKind::None,
            optimiser: OptimiserKind::Adamw,
            moments: MomentsKind::F32,
            learning_rate: 2e-3,
            warm_up_steps: 100,
            schedule: ScheduleKind::Minutes,
            schedule_minutes: 15.0,
            schedule_positions: 2_000_000,
            learning_rate_decay: DecayKind::Cosine,
            learning_rate_ratio_min: 0.05,
            // The values of AlphaGo Zero's successors: a tenth at a half and at three quarters.
            learning_rate_steps: vec![0.5, 0.75],
            learning_rate_step_factor: 0.1,
            // The value in AdamW's paper; its decay is multiplied by the learning rate alone.
            weight_decay: 1e-2,
            // The values of AlphaZero.
            momentum: 0.9,
            l2: 1e-4,
            gradient_clip_norm: 5.0,
            ema_decay: 0.99,
            swa_start: 1.0,
            value_loss_weight: 1.0,
            consistency_loss_weight: 0.0,
            label_smoothing: 0.0,
            policy_target_temperature: 1.0,
            search_value_share: 0.25,
            // The values of MuZero, for Atari.
            unroll_steps: 5,
            td_steps: 10,
            // As many games as are enough to see overfitting, at the price of every fiftieth sample.
            validation_share: 0.02,
            // Shares are within about 1 %, and evaluation takes less than a second with the default network.
            validation_positions: 2048,
            // The value of MuZero.
            importance_exponent: 1.0,
            event_files: true,
            // With the default interval of publications, every hundred seconds.
            histogram_publications: 10,
            publish_interval_seconds: 10.0,
            publish_interval_steps: 0,
            versions_kept: 4,
            checkpoint_interval_seconds: 30.0,
            checkpoints_kept: 3,
            checkpoints_spread: 4,
            grow: false,
            board_weights: Vec::new(),
            boards: Vec::new(),
        }
    }
}

/// The checked configuration, in domain types.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The game.
    pub game: GameKind,
    /// The run directory, and the seed of the initial weights and the draws of symmetries.
    pub run: RunSection,
    /// The network.
    pub network: NetworkSection,
    /// The settings of training, with checked ranges.
    pub learner: LearnerSection,
    /// The addresses of the replay servers of `game`.
    pub replay: Endpoints,
    /// The boards that are trained on beside that of `game`.
    pub boards: Vec<Board>,
    /// The weights of all boards in the order of training steps, that of `game` first.
    pub board_weights: Vec<f64>,
    /// The endpoints of the learners of the group, this one included; empty if it trains alone.
    pub group: Vec<String>,
    /// The longest time that a learner waits in a step for the others.
    pub group_timeout: Duration,
    /// The length of the schedule.
    pub schedule: Schedule,
    /// The interval at which weights are published.
    pub publish_interval: Duration,
    /// The interval at which checkpoints are written.
    pub checkpoint_interval: Duration,
    /// The duration of simulated steps; `None` if steps are real.
    pub simulated_step: Option<Duration>,
}

impl Config {
    /// Checks ranges and parses names.
    ///
    /// # Errors
    /// Names the key and the range it must lie in.
    pub fn settings(&self) -> Result<Settings, ConfigError> {
        let Self { run, environment, network, learner, security } = self;
        ConfigError::within("network.channels", network.channels, 1..=CHANNELS_MAX)?;
        ConfigError::within("network.attention", network.attention, 0..=ATTENTION_MAX)?;
        ConfigError::within("network.attention_heads", network.attention_heads, 1..=CHANNELS_MAX)?;
        ConfigError::within("network.blocks", network.blocks, usize::from(network.attention == 0)..=BLOCKS_MAX)?;
        ConfigError::within("network.squeeze_excitation", network.squeeze_excitation, 0..=SQUEEZE_EXCITATION_MAX)?;
        ConfigError::within("network.support", network.support, 1..=SUPPORT_MAX)?;
        ConfigError::within("network.chance_codes", network.chance_codes, 1..=CODES_MAX)?;
        if network.block == BlockKind::Bottleneck && !network.size()[0].is_multiple_of(2) {
            let reason = format!("{} is odd, and bottleneck blocks halve it", network.size()[0]);
            return Err(ConfigError::invalid("network.channels", reason));
        }
        network.check_attention_and_norm()?;
        let inner = network.block.inner_channels(network.size()[0]);
        ConfigError::within("network.global_pooling", network.global_pooling, 0..=inner - 1)?;
        ConfigError::within("learner.batch_size", learner.batch_size, 1..=SAMPLES_PER_BATCH_MAX)?;
        ConfigError::within("learner.prefetch_batches", learner.prefetch_batches, 1..=CREDIT_BATCHES_MAX as usize)?;
        ConfigError::within("learner.prepare_threads", learner.prepare_threads, 0..=PREPARE_THREADS_MAX)?;
        ConfigError::within("learner.micro_batch", learner.micro_batch, 0..=SAMPLES_PER_BATCH_MAX)?;
        ConfigError::within("learner.simulated_step_us", learner.simulated_step_us, 0..=SIMULATED_STEP_US_MAX)?;
        ConfigError::within("learner.learning_rate", learner.learning_rate, 0.0..=10.0)?;
        ConfigError::within("learner.learning_rate_ratio_min", learner.learning_rate_ratio_min, 0.0..=1.0)?;
        ConfigError::within("learner.schedule_minutes", learner.schedule_minutes, 1e-3..=1e9)?;
        ConfigError::within("learner.schedule_positions", learner.schedule_positions, 1..=u64::MAX)?;
        for &place in &learner.learning_rate_steps {
            ConfigError::within("learner.learning_rate_steps", place, 0.0..=1.0)?;
        }
        ConfigError::within("learner.learning_rate_step_factor", learner.learning_rate_step_factor, 1e-9..=1.0)?;
        ConfigError::within("learner.swa_start", learner.swa_start, 0.0..=1.0)?;
        ConfigError::within("learner.label_smoothing", learner.label_smoothing, 0.0..=0.99)?;
        ConfigError::within("learner.policy_target_temperature", learner.policy_target_temperature, 0.01..=100.0)?;
        ConfigError::within("learner.weight_decay", learner.weight_decay, 0.0..=10.0)?;
        ConfigError::within("learner.momentum", learner.momentum, 0.0..=0.9999)?;
        ConfigError::within("learner.l2", learner.l2, 0.0..=10.0)?;
        ConfigError::within("learner.gradient_clip_norm", learner.gradient_clip_norm, 1e-9..=1e9)?;
        ConfigError::within("learner.ema_decay", learner.ema_decay, 0.0..=0.999_999)?;
        ConfigError::within("learner.value_loss_weight", learner.value_loss_weight, 0.0..=1e3)?;
        ConfigError::within("learner.consistency_loss_weight", learner.consistency_loss_weight, 0.0..=1e3)?;
        ConfigError::within("learner.search_value_share", learner.search_value_share, 0.0..=1.0)?;
        ConfigError::within("learner.unroll_steps", learner.unroll_steps, 1..=UNROLLED_MAX)?;
        ConfigError::within("learner.td_steps", learner.td_steps, 0..=UNROLL_STEPS_MAX - learner.unroll_steps)?;
        ConfigError::within("learner.validation_share", learner.validation_share, 0.0..=0.5)?;
        ConfigError::within(
            "learner.validation_positions",
            learner.validation_positions,
            1..=VALIDATION_POSITIONS_MAX,
        )?;
        ConfigError::within("learner.importance_exponent", learner.importance_exponent, 0.0..=1.0)?;
        ConfigError::within("learner.publish_interval_seconds", learner.publish_interval_seconds, 0.01..=86_400.0)?;
        ConfigError::within("learner.publish_interval_steps", learner.publish_interval_steps, 0..=PUBLISH_STEPS_MAX)?;
        ConfigError::within(
            "learner.checkpoint_interval_seconds",
            learner.checkpoint_interval_seconds,
            0.01..=86_400.0,
        )?;
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
    /// Returns the network that is trained.
    #[must_use]
    pub fn architecture(&self) -> Architecture {
        self.network.architecture_of(&self.game.rules())
    }
}

impl Config {
    /// Checks that the settings of learned dynamics are only set for a model that has some.
    fn check_model(&self) -> Result<(), ConfigError> {
        let NetworkSection { model, value_prefix, .. } = self.network;
        let is_set = [
            ("network.value_prefix", value_prefix, "is a reward head of muzero, and alphazero predicts no rewards"),
            (
                "learner.consistency_loss_weight",
                self.learner.consistency_loss_weight > 0.0,
                "compares the states that muzero unrolls, and alphazero unrolls none",
            ),
        ];
        if let Some((key, _, reason)) =
            is_set.into_iter().find(|(_, is_set, _)| *is_set && model == ModelKind::Alphazero)
        {
            return Err(ConfigError::invalid(key, format!("{reason}: leave it out or set network.model to muzero")));
        }
        if value_prefix && model == ModelKind::StochasticMuzero {
            let reason = "is a reward head of muzero that stochastic_muzero does not have: leave it out or set \
                          network.model to muzero";
            return Err(ConfigError::invalid("network.value_prefix", reason));
        }
        Ok(())
    }

    /// Checks that the model can learn this game, with this discount and these returns.
    fn check_game(&self, spec: &Spec) -> Result<(), ConfigError> {
        let Self { run: RunSection { discount, .. }, network: NetworkSection { model, .. }, learner, .. } = self;
        let name = &spec.name;
        if !(*discount > 0.0 && *discount <= 1.0) {
            return Err(ConfigError::invalid("run.discount", format!("{discount} is not above 0 and at most 1")));
        }
        if spec.scoring == Scoring::Outcome && *discount < 1.0 {
            let reason = format!("must be 1 in {name}, which is scored by its outcome, got {discount}");
            return Err(ConfigError::invalid("run.discount", reason));
        }
        if *model != ModelKind::Alphazero || spec.scoring == Scoring::Rewards {
            self.network.check_default_design(&spec.name)?;
        }
        self.network.check_heads(spec)?;
        if *model == ModelKind::Alphazero && spec.recording.is_some() {
            let reason =
                format!("alphazero searches by the rules, and those of {name} are not known: set it to muzero");
            return Err(ConfigError::invalid("network.model", reason));
        }
        let needs_whole_episodes = spec.scoring == Scoring::Rewards && learner.td_steps == 0;
        if needs_whole_episodes && spec.max_plies > UNROLL_STEPS_MAX + 1 {
            let reason = format!(
                "0 needs whole episodes, and a sample holds at most {} steps of the {} of {name}: set a number of \
                 steps",
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

    /// A game for one player with rewards, of episodes of this length.
    fn environment(dynamics: Dynamics, max_plies: usize) -> Spec {
        let observation = ObservationShape { planes: 4, height: 1, width: 1 };
        let board = Spec::board("cart_pole".to_owned(), 2, observation, max_plies);
        Spec { players: Players::One, scoring: Scoring::Rewards, dynamics, ..board }
    }

    /// Checks a run of this model and game with these settings.
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
        assert!(refused.contains("network.model") && refused.contains("those of cart_pole are not known"), "{refused}");
        for spec in [&rewards, &chance, &board] {
            assert_eq!(of(ModelKind::Alphazero, spec), "fine", "{spec:?}");
        }
        for spec in [&rewards, &chance, &board, &outside] {
            assert_eq!(of(ModelKind::Muzero, spec), "fine", "{spec:?}");
        }
    }

    #[test]
    fn the_switches_of_efficientzero_are_off_by_default_and_refused_by_their_keys_without_a_learned_model() {
        type Set = fn(&mut Config);
        let of = |model, set: Set| {
            let network = NetworkSection { model, ..NetworkSection::default() };
            let mut config = Config { network, ..Config::default() };
            set(&mut config);
            config.settings().map(drop).map_err(|error| error.to_string())
        };
        let switches: [(&str, Set); 2] = [
            ("network.value_prefix", |config| config.network.value_prefix = true),
            ("learner.consistency_loss_weight", |config| config.learner.consistency_loss_weight = 2.0),
        ];
        for (key, set) in switches {
            let refused = of(ModelKind::Alphazero, set).unwrap_err();
            assert!(refused.contains(key) && refused.contains("set network.model to muzero"), "{refused}");
            assert_eq!(of(ModelKind::Muzero, set), Ok(()));
        }
        assert_eq!(of(ModelKind::Alphazero, |_| {}), Ok(()));
        let [(_, prefix), (_, consistency)] = switches;
        let refused = of(ModelKind::StochasticMuzero, prefix).unwrap_err();
        assert!(refused.contains("network.value_prefix") && refused.contains("network.model"), "{refused}");
        assert_eq!(of(ModelKind::StochasticMuzero, consistency), Ok(()));
        let refused = of(ModelKind::Muzero, |config| config.learner.consistency_loss_weight = -1.0).unwrap_err();
        assert!(refused.contains("learner.consistency_loss_weight") && refused.contains("from 0"), "{refused}");
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
            let refused = of(discount, &environment);
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
