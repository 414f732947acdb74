//! Defines the actor's sections of the run file, as written and as checked settings.

use std::path::PathBuf;
use std::time::Duration;

use bridge::EnvironmentSection;
use evaluators::Threads;
use game::Game as _;
use games::GameKind;
use inference::{DevicePreference, PrecisionPreference};
use network_cpu::KernelPreference;
use proto::limits::UNACKNOWLEDGED_MAX;
use serde::{Deserialize, Serialize};
use service::config::{RunSection, Section as _};
use service::{ConfigError, SecuritySection};
use transport::InvalidEndpoint;
use transport::servers::Endpoints;

use crate::search::SearchSection;
use crate::selfplay::{GAMES_MAX, SelfplaySection};

/// Value of `actor.kernel` that selects simulated predictions.
const SIMULATED: &str = "simulated";

/// Maximum number of threads: more than any machine has cores.
const THREADS_MAX: usize = 1024;
/// Maximum drain time, in seconds, since stopping a process must not take hours.
const DRAIN_SECONDS_MAX: f64 = 3600.0;
/// Longest tolerated outage of a server, in seconds. For an unlimited outage, configure a single replay server.
const AWAY_SECONDS_MAX: f64 = 86_400.0;

/// Number of positions in progress that keep an accelerator busy: three batches of 2,048. One batch is computed, one
/// waits in the queue, and one is gathered by searches.
const ACCELERATOR_POSITIONS: usize = 3 * 2048;
/// Divisor of the memory, which gives the part that search trees may use with an accelerator. The learner and the
/// replay server need the rest.
const TREES_MEMORY_DIVISOR: u64 = 4;
/// Memory of a tree node without its outgoing edges, in bytes: the node, the edge from the parent, and a game state.
const NODE_BYTES: u64 = 512;
/// Memory of one edge, in bytes.
const EDGE_BYTES: u64 = 24;

/// Maximum of `reanalysis.share`. Reanalysis follows self-play, so an actor without self-play would search nothing.
const REANALYSIS_SHARE_MAX: f64 = 0.95;
/// Maximum simulated delay, in microseconds, which is slower than any accelerator.
const SIMULATED_DELAY_US_MAX: u64 = 10_000_000;

/// The run file sections for an actor.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Game, seed and run directory.
    pub run: RunSection,
    /// Environment in Python, if `run.game` is a Python environment.
    pub environment: EnvironmentSection,
    /// Settings of tree search.
    pub search: SearchSection,
    /// Settings of episodes.
    pub selfplay: SelfplaySection,
    /// Settings of this process.
    pub actor: ActorSection,
    /// Searches of stored trajectories with the latest weights.
    pub reanalysis: ReanalysisSection,
    /// Trusted certificate authorities, and the credentials of this process.
    pub security: SecuritySection,
}

service::section! {
    /// The section `[actor]`: identity, threads, connections and evaluator.
    #[serde(deny_unknown_fields)]
    pub struct ActorSection {
        /// Id of this actor. Every trajectory id contains it, so no two actors may share an id, and a restarted actor
        /// must keep the same id. With `identity = "claimed"`, this key has no effect.
        id: u64 = 0;
        /// Source of the actor id. `fixed`: the actor has the id `actor.id`. `claimed`: at the start, the process takes
        /// over the id and the unacknowledged trajectories of an actor in the run directory that no process currently
        /// runs, or becomes a new actor if there is none. Any number of replicas can thus share one configuration.
        identity: Identity = Identity::Fixed, page "cluster.md#scaling";
        /// Number of self-play threads, each with one evaluator. 0: one per core, but at least two with an accelerator;
        /// with an inference server two per core, so that one thread searches while the other waits for a batch. Under
        /// `zerofleet train`, some cores are reserved for other processes.
        threads: usize = 0, in 0..=THREADS_MAX;
        /// Number of games per thread if an accelerator evaluates, in place of `selfplay.games`, which is too small for
        /// an accelerator. 0: enough games to keep three batches of 2,048 positions in progress over all threads, with
        /// search trees in at most a quarter of the memory.
        accelerator_games: usize = 0, in 0..=GAMES_MAX, page "devices.md#games-on-an-accelerator";
        /// Addresses of the replay servers, separated by commas, such as `http://127.0.0.1:7001`. Every address of a
        /// host name counts as a server; host names are resolved again every few seconds.
        replay: String = "http://127.0.0.1:7001".into(), page "protocol.md#several-replay-servers";
        /// Time in seconds for which a replay server may be unreachable, or acknowledge nothing, before the actor
        /// writes to another replay server.
        // A restart of the server is faster, and waiting longer would require storage for trajectories in flight.
        replay_away_seconds_max: f64 = 10.0, in 0.0..=AWAY_SECONDS_MAX;
        /// Address of the weights: the learner's, such as `http://127.0.0.1:7002`, or the arena's if `arena.gate` is
        /// set.
        learner: String =
            "http://127.0.0.1:7002".into(), page "matches.md#a-version-that-is-weaker-than-an-earlier-one";
        /// Time in seconds for which the learner may be unreachable before self-play pauses, because newer weights may
        /// exist; 0: self-play never pauses.
        // Games with older weights are still useful, and the replay server rejects stale games.
        weights_away_seconds_max: f64 = 0.0, in 0.0..=AWAY_SECONDS_MAX;
        /// Addresses of the inference servers for this actor, separated by commas, such as `http://127.0.0.1:7003`.
        /// Every address of a host name counts as a server, and actors are spread over the servers. Empty: the actor
        /// evaluates positions itself.
        inference: String = String::new(), page "protocol.md#several-inference-servers";
        /// True to evaluate positions in the actor while the inference server is unreachable or rejects requests; false
        /// to pause self-play.
        inference_fallback: bool = true;
        /// Device for evaluation: `auto`, `cpu`, `cuda`, `cuda:1` or `mps`. `auto` times the run's network on the CPU
        /// and the first accelerator, and selects the faster device. An explicitly named device that cannot be used is
        /// an error.
        device: DevicePreference = DevicePreference::Auto, page "devices.md";
        /// Precision of evaluation: `auto`, `f32`, `bf16`, in libtorch `f16` or, with the CPU kernel, `int8`. `f16` is
        /// for GPUs without bfloat16, where `auto` selects it if it is faster than `f32`. `int8` is calibrated on
        /// self-play positions, and used only while the predictions match floating point. `auto` selects `int8` if it
        /// is at least 1.25 times as fast as floating point.
        precision: PrecisionPreference = PrecisionPreference::Auto, page "devices.md#the-precision-of-evaluation";
        /// Evaluator on a CPU: `auto`, `libtorch`, a variant of the CPU kernel (`amx-bf16`, `avx512-bf16`,
        /// `avx512-f32`, `avx2-f32`, `neon-f32`, `portable-f32`), or `simulated`: predictions without a network, for
        /// fleet benchmarks, with meaningless games.
        kernel: Kernel = Kernel::Network(KernelPreference::Auto);
        /// Duration of a batch with `kernel = "simulated"`, in microseconds. With every other kernel it must be 0, so
        /// that an accidental setting is rejected.
        simulated_delay_us: u64 = 0, in 0..=SIMULATED_DELAY_US_MAX;
        /// Capacity of the prediction cache shared by all threads, in positions; 0 disables the cache.
        // A cached Connect Four prediction takes about a hundred bytes, which makes about 25 MB.
        cache_positions: usize = 250_000;
        /// Number of unacknowledged trajectories at which self-play pauses until a replay server acknowledges some.
        unacknowledged_max: usize = 64, in 1..=UNACKNOWLEDGED_MAX;
        /// Maximum size of a weights version, in bytes; larger weights are rejected.
        weights_bytes_max: u64 = 1 << 30;
        /// Maximum time to wait for acknowledgements before the actor exits, in seconds. Trajectories without an
        /// acknowledgement are saved for the next start.
        drain_seconds: f64 = 3.0, in 0.0..=DRAIN_SECONDS_MAX;
    }
}

service::section! {
    /// The section `[reanalysis]`: repeated search of stored trajectories with the latest weights (MuZero Reanalyze).
    #[serde(deny_unknown_fields)]
    pub struct ReanalysisSection {
        /// Share of an actor's simulations spent on searching stored trajectories again; 0 disables reanalysis.
        // Off: the gain depends on the time of a trajectory in the window, and the cost is certain.
        share: f64 = 0.0, in 0.0..=REANALYSIS_SHARE_MAX;
        /// Simulations of a full search in reanalysis; 0 uses `selfplay.full_simulations`. Fast searches revise only
        /// the value, and use `selfplay.fast_simulations`.
        simulations: u32 = 0;
    }
}

/// The value of `actor.kernel`: an inference engine, or simulated predictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Kernel {
    /// A network evaluates positions with this engine.
    Network(KernelPreference),
    /// Predictions are simulated without a network, after a delay of `actor.simulated_delay_us`.
    Simulated,
}

impl Kernel {
    /// Returns true if this kernel never evaluates on an accelerator.
    #[must_use]
    pub fn is_of_cpu(self) -> bool {
        matches!(self, Self::Simulated | Self::Network(KernelPreference::Only(_)))
    }
}

inference::configured_as_text!(Kernel);

impl std::fmt::Display for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Network(preference) => preference.fmt(f),
            Self::Simulated => f.write_str(SIMULATED),
        }
    }
}

impl std::str::FromStr for Kernel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == SIMULATED { Ok(Self::Simulated) } else { text.parse().map(Self::Network) }
    }
}

/// The source of an actor's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    /// The configured id, `actor.id`.
    Fixed,
    /// The id of an actor in the run directory that no process currently runs, or else a new id.
    Claimed,
}

/// The checked configuration, in domain types.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The game, with the rules or the Python environment.
    pub game: GameKind,
    /// Settings of the Python environments in each thread; `None` if the game runs in this process.
    pub environment: Option<bridge::Settings>,
    /// Run directory, which also holds the state of the actor.
    pub directory: PathBuf,
    /// Seed for all random numbers.
    pub seed: u64,
    /// The discount γ for each step, which applies to rewards and values in a learned model.
    pub discount: f32,
    /// Settings of episodes.
    pub selfplay: selfplay::Settings,
    /// Settings of this process, with checked ranges.
    pub actor: ActorSection,
    /// Settings of reanalysis, with checked ranges.
    pub reanalysis: ReanalysisSection,
    /// Endpoints from `actor.replay`.
    pub replay: Endpoints,
    /// Checked value of `actor.replay_away_seconds_max`.
    pub replay_away_max: Duration,
    /// Checked value of `actor.weights_away_seconds_max`; `None` if 0, which means unlimited.
    pub weights_away_max: Option<Duration>,
    /// Checked value of `actor.drain_seconds`.
    pub drain: Duration,
    /// Number of self-play threads for each kind of evaluator.
    pub threads: Threads,
}

impl Config {
    /// Checks the sections and converts them.
    ///
    /// # Errors
    /// [`ConfigError`] names the first invalid key.
    pub fn settings(&self) -> Result<Settings, ConfigError> {
        self.run.check_ranges("run")?;
        let game = bridge::config::game(&self.run, &self.environment)?;
        let selfplay = self.selfplay.settings(self.search.settings()?)?;
        let environment = match game {
            GameKind::Recorded(_) => Some(self.environment.settings(&self.run, selfplay.games)?),
            _ => None,
        };
        let actor = self.actor.clone();
        actor.check()?;
        self.reanalysis.check_ranges("reanalysis")?;
        self.security.check_endpoint("actor.replay", &actor.replay)?;
        self.security.check_endpoint("actor.learner", &actor.learner)?;
        if !actor.inference.is_empty() {
            self.security.check_endpoint("actor.inference", &actor.inference)?;
        }
        let per_core = if actor.inference.is_empty() { 1 } else { 2 };
        let machine = per_core * std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Settings {
            game,
            environment,
            directory: self.run.directory.clone(),
            seed: self.run.seed,
            discount: self.run.discount,
            selfplay,
            replay: endpoints("actor.replay", &actor.replay)?,
            replay_away_max: Duration::from_secs_f64(actor.replay_away_seconds_max),
            weights_away_max: (actor.weights_away_seconds_max > 0.0)
                .then(|| Duration::from_secs_f64(actor.weights_away_seconds_max)),
            drain: Duration::from_secs_f64(actor.drain_seconds),
            threads: threads(actor.threads, machine),
            actor,
            reanalysis: self.reanalysis.clone(),
        })
    }
}

impl Settings {
    /// Returns the number of games per thread, for `threads` self-play threads with an accelerator and `memory_bytes`
    /// of memory for the process. Too little memory reduces the number, but not below `selfplay.games`. Environments in
    /// Python always use `selfplay.games`.
    #[must_use]
    pub fn accelerator_games(&self, threads: usize, memory_bytes: u64) -> usize {
        if self.environment.is_some() {
            // Each game is an environment in a Python process.
            return self.selfplay.games;
        }
        if self.actor.accelerator_games > 0 {
            return self.actor.accelerator_games;
        }
        let positions = ACCELERATOR_POSITIONS.div_ceil(threads.max(1));
        let wanted = positions.div_ceil(self.selfplay.leaves_per_tree.max(1));
        let fitting = memory_bytes / TREES_MEMORY_DIVISOR / self.tree_bytes().max(1) / threads.max(1) as u64;
        let fitting = usize::try_from(fitting).unwrap_or(usize::MAX).max(self.selfplay.games);
        wanted.min(fitting)
    }

    /// Returns the self-play settings for the searches of reanalysis.
    #[must_use]
    pub fn reanalysis_searches(&self) -> selfplay::Settings {
        let mut searches = self.selfplay.clone();
        if self.reanalysis.simulations > 0 {
            searches.full_simulations = self.reanalysis.simulations;
        }
        // Deeper searches are for self-play that would otherwise wait for the learner, not for reanalysis.
        searches.full_simulations_max = 0;
        searches
    }

    /// Returns an estimate of the memory for one game's search tree, in bytes: after a move, the tree holds the nodes
    /// of the reused subtree and of the new search.
    fn tree_bytes(&self) -> u64 {
        let actions = self.game.rules().spec().actions;
        let simulations = self.selfplay.full_simulations.max(self.selfplay.full_simulations_max);
        2 * u64::from(simulations) * (NODE_BYTES + EDGE_BYTES * actions as u64)
    }
}

impl ActorSection {
    /// Checks that `actor.kernel`, `actor.simulated_delay_us` and `actor.inference` are consistent.
    fn check_kernel(&self) -> Result<(), ConfigError> {
        let invalid = |reason: String| Err(ConfigError::invalid("actor.simulated_delay_us", reason));
        match (self.kernel, self.simulated_delay_us) {
            (Kernel::Network(_), 0) => Ok(()),
            (Kernel::Network(_), _) => invalid(format!("is set, but actor.kernel is not `{SIMULATED}`")),
            (Kernel::Simulated, _) if !self.inference.is_empty() => Err(ConfigError::invalid(
                "actor.kernel",
                format!("is `{SIMULATED}`, but actor.inference names a server"),
            )),
            (Kernel::Simulated, 0) => invalid(format!("must be at least 1 if actor.kernel is `{SIMULATED}`")),
            (Kernel::Simulated, _) => Ok(()),
        }
    }

    fn check(&self) -> Result<(), ConfigError> {
        self.check_ranges("actor")?;
        if !self.inference.is_empty() {
            endpoints("actor.inference", &self.inference)?;
        }
        self.check_kernel()?;
        transport::check_endpoint(&self.learner).map_err(|error| ConfigError::invalid("actor.learner", error))
    }
}

fn endpoints(key: &str, text: &str) -> Result<Endpoints, ConfigError> {
    text.parse().map_err(|error: InvalidEndpoint| ConfigError::invalid(key, error))
}

/// Returns the configured number of threads; for 0, the number of threads that keeps all cores busy.
fn threads(configured: usize, machine: usize) -> Threads {
    /// Minimum number of threads for an accelerator, which would otherwise idle during tree search.
    const ACCELERATOR_MIN: usize = 2;
    match configured {
        0 => Threads { cpu: machine, accelerator: machine.max(ACCELERATOR_MIN) },
        threads => Threads::exactly(threads),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_make_sense() {
        let settings = Config::default().settings().unwrap();
        assert_eq!(settings.game, GameKind::ConnectFour);
        assert!(settings.threads.cpu >= 1);
    }

    #[test]
    fn keys_out_of_range_are_named() {
        let refused = |config: Config| config.settings().unwrap_err().to_string();
        let mut config = Config::default();
        config.run.game = "checkers".into();
        assert!(refused(config).contains("run.game"));
        let mut config = Config::default();
        config.search.c_init = f32::NAN;
        assert!(refused(config).contains("search.c_init"));
        let mut config = Config::default();
        config.selfplay.full_search_probability = 0.0;
        assert!(refused(config).contains("selfplay.full_search_probability"));
        // A drain beyond the range of the clock would panic, and lose the finished episodes.
        for drain_seconds in [-1.0, 1e19, f64::INFINITY, f64::NAN] {
            let mut config = Config::default();
            config.actor.drain_seconds = drain_seconds;
            assert!(refused(config).contains("actor.drain_seconds"), "{drain_seconds}");
        }
        for unacknowledged_max in [0, usize::MAX] {
            let mut config = Config::default();
            config.actor.unacknowledged_max = unacknowledged_max;
            assert!(refused(config).contains("actor.unacknowledged_max"));
        }
        let mut config = Config::default();
        config.actor.threads = usize::MAX;
        assert!(refused(config).contains("actor.threads"));
        let mut config = Config::default();
        config.selfplay.games = usize::MAX;
        assert!(refused(config).contains("selfplay.games"));
        for replay in ["not an address", "http://a:7001,b:7001", ""] {
            let mut config = Config::default();
            config.actor.replay = replay.into();
            assert!(refused(config).contains("actor.replay"), "{replay}");
        }
        for seconds in [-1.0, 1e19, f64::INFINITY, f64::NAN] {
            let mut config = Config::default();
            config.actor.replay_away_seconds_max = seconds;
            assert!(refused(config).contains("actor.replay_away_seconds_max"), "{seconds}");
        }
    }

    #[test]
    fn reanalysis_is_off_unless_a_share_is_given_and_searches_as_self_play_does() {
        let searches = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            config.settings().map(|settings| settings.reanalysis_searches().full_simulations)
        };
        assert_eq!(Config::default().settings().unwrap().reanalysis.share, 0.0);
        assert_eq!(searches(|config| config.reanalysis.share = 0.5).unwrap(), 96);
        assert_eq!(searches(|config| config.reanalysis.simulations = 7).unwrap(), 7);
        for share in [-0.1, 1.0, f64::NAN] {
            let mut config = Config::default();
            config.reanalysis.share = share;
            let error = config.settings().unwrap_err().to_string();
            assert!(error.contains("reanalysis.share"), "{error}");
        }
    }

    #[test]
    fn several_replay_servers_are_taken() {
        let mut config = Config::default();
        config.actor.replay = "http://a:7001, http://b:7001".into();
        assert_eq!(config.settings().unwrap().replay.to_string(), "http://a:7001,http://b:7001");
    }

    #[test]
    fn the_simulated_kernel_and_its_delay_are_accepted_only_together_and_without_a_server() {
        let simulated = |kernel: &str, simulated_delay_us, inference: &str| {
            let mut config = Config::default();
            config.actor.kernel = kernel.parse().unwrap();
            config.actor.simulated_delay_us = simulated_delay_us;
            config.actor.inference = inference.into();
            config.settings().map(|settings| settings.actor.kernel).map_err(|error| error.to_string())
        };
        assert_eq!(simulated("auto", 0, ""), Ok(Kernel::Network(KernelPreference::Auto)));
        assert_eq!(simulated("simulated", 250, ""), Ok(Kernel::Simulated));
        for (kernel, delay_us) in [("auto", 250), ("simulated", 0), ("simulated", u64::MAX)] {
            let error = simulated(kernel, delay_us, "").unwrap_err();
            assert!(error.contains("actor.simulated_delay_us"), "{error}");
        }
        let error = simulated("simulated", 250, "http://127.0.0.1:7003").unwrap_err();
        assert!(error.contains("actor.kernel"), "{error}");
    }

    fn accelerator_games(game: &str, threads: usize, memory_gib: u64, change: fn(&mut Config)) -> usize {
        let mut config = Config::default();
        config.run.game = game.to_owned();
        (config.selfplay.games, config.selfplay.full_simulations) = (128, 128);
        change(&mut config);
        config.settings().unwrap().accelerator_games(threads, memory_gib << 30)
    }

    #[test]
    fn games_on_an_accelerator_fill_three_batches_of_2048_whatever_the_threads() {
        for threads in [1, 2, 12, 16, 60] {
            let games = accelerator_games("connect_four", threads, 64, |_| ());
            assert!((6144..6144 + threads).contains(&(games * threads)), "{games} games in {threads} threads");
        }
        assert_eq!(accelerator_games("connect_four", 16, 64, |config| config.selfplay.leaves_per_game = 4), 96);
    }

    #[test]
    fn games_on_an_accelerator_are_fewer_where_their_trees_would_not_fit_but_as_many_as_on_a_cpu() {
        let (small, large) = (accelerator_games("hex-19", 8, 16, |_| ()), accelerator_games("hex-19", 8, 256, |_| ()));
        assert!(128 < small && small < 768, "{small}");
        assert_eq!(large, 768);
        assert_eq!(accelerator_games("hex-19", 8, 0, |_| ()), 128);
    }

    #[test]
    fn games_on_an_accelerator_that_are_configured_are_kept() {
        let games = accelerator_games("hex-19", 8, 1, |config| config.actor.accelerator_games = 1000);
        assert_eq!(games, 1000);
        let mut config = Config::default();
        config.actor.accelerator_games = usize::MAX;
        assert!(config.settings().unwrap_err().to_string().contains("actor.accelerator_games"));
    }

    #[test]
    fn an_accelerator_gets_two_threads_unless_their_number_is_given() {
        assert_eq!(threads(0, 1), Threads { cpu: 1, accelerator: 2 });
        assert_eq!(threads(0, 8), Threads::exactly(8));
        assert_eq!(threads(1, 8), Threads::exactly(1));
    }
}
