//! The actor's part of the run file, as written and as used.

use std::path::PathBuf;
use std::time::Duration;

use evaluators::Threads;
use games::GameKind;
use inference::{DevicePreference, PrecisionPreference};
use network_cpu::KernelPreference;
use proto::InvalidEndpoint;
use proto::limits::UNACKNOWLEDGED_MAX;
use proto::servers::Endpoints;
use selfplay::config::{SearchSection, SelfplaySection};
use serde::{Deserialize, Serialize};
use service::config::RunSection;
use service::{ConfigError, SecuritySection};

use crate::backend::simulated::NAME;

/// More threads than any machine has cores.
const THREADS_MAX: usize = 1024;
/// The longest drain: ending a process must not take hours.
const DRAIN_SECONDS_MAX: f64 = 3600.0;
/// The longest absence: to use one server only, name only one.
const AWAY_SECONDS_MAX: f64 = 86_400.0;

/// No accelerator is as slow.
const SIMULATED_DELAY_US_MAX: u64 = 10_000_000;

/// The sections of the run file that an actor reads.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The game, the seed and the run directory.
    pub run: RunSection,
    /// The settings of tree search.
    pub search: SearchSection,
    /// The settings of episodes.
    pub selfplay: SelfplaySection,
    /// This process.
    pub actor: ActorSection,
    /// Whom it trusts, and who it is.
    pub security: SecuritySection,
}

/// `[actor]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ActorSection {
    /// The id of this actor: part of every trajectory's id, so no two may share it. Stable over restarts.
    pub id: u64,
    /// `fixed`: `id` says which actor this is. `claimed`: whichever of those in the run directory no process is at the
    /// moment, with what it still owes, or else a new one; so that any number of replicas share one configuration.
    pub identity: Identity,
    /// Self-play threads, one evaluator each; 0 takes one per core, and two where an inference server evaluates: while
    /// one waits for its batch another searches. For the same reason it takes at least two where an accelerator
    /// evaluates.
    pub threads: usize,
    /// True keeps each self-play thread on one of the cpus that this process may run on: each on a core of its own, as
    /// long as there are any. Where the system cannot do that, it is said once and threads run anywhere.
    pub pin_threads: bool,
    /// The addresses of the replay servers: `http://127.0.0.1:7001`, or several, separated by commas. Each address that
    /// a host name stands for is a server, and names are looked up again every few seconds.
    pub replay: String,
    /// The time that the replay server may be away before the actor writes to another one.
    pub replay_away_seconds_max: f64,
    /// The address where the learner serves weights: `http://127.0.0.1:7002`.
    pub learner: String,
    /// The time that the learner may be away before self-play pauses, because there may be newer weights; 0: it never
    /// pauses.
    pub weights_away_seconds_max: f64,
    /// The addresses of this actor's inference servers: `http://127.0.0.1:7003`, or several, separated by commas. Each
    /// address that a host name stands for is a server; actors spread over them. Empty: the actor evaluates itself.
    pub inference: String,
    /// Lets the actor evaluate itself while the inference server is away or refuses; else self-play waits.
    pub inference_fallback: bool,
    /// `auto`, `cpu`, `cuda`, `cuda:1` or `mps`.
    pub device: DevicePreference,
    /// `auto`, `f32`, `bf16` or, with the CPU kernel, `int8`: calibrated on the positions of self-play, and used for as
    /// long as it answers as floating point does.
    pub precision: PrecisionPreference,
    /// The engine on a CPU: `auto`, `libtorch`, or a variant of the CPU kernel such as `avx512-bf16`. `simulated` plays
    /// without a network, for benchmarks of a fleet: its games are noise.
    pub kernel: Kernel,
    /// The time that a `simulated` batch takes, in microseconds; 0 with every other kernel, so that one key set by
    /// accident is refused.
    pub simulated_delay_us: u64,
    /// Positions the cache of all threads holds; 0 switches it off.
    pub cache_positions: usize,
    /// Trajectories that may wait for their acknowledgement; then self-play waits.
    pub unacknowledged_max: usize,
    /// Larger weights are refused.
    pub weights_bytes_max: u64,
    /// The time that acknowledgements are waited for at the end; what is missing then is kept for the next start.
    pub drain_seconds: f64,
}

/// `actor.kernel`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Kernel {
    /// A network evaluates.
    Network(KernelPreference),
    /// No network does: see `actor.simulated_delay_us`.
    Simulated,
}

inference::configured_as_text!(Kernel);

impl std::fmt::Display for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Network(preference) => preference.fmt(f),
            Self::Simulated => f.write_str(NAME),
        }
    }
}

impl std::str::FromStr for Kernel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == NAME { Ok(Self::Simulated) } else { text.parse().map(Self::Network) }
    }
}

/// The source of an actor's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    /// From `actor.id`.
    Fixed,
    /// From the run directory, or new.
    Claimed,
}

impl Default for ActorSection {
    fn default() -> Self {
        Self {
            id: 0,
            identity: Identity::Fixed,
            threads: 0,
            // Good where no other process wants the cores; beside a learner on the same ones it keeps threads from free
            // ones.
            pin_threads: false,
            replay: "http://127.0.0.1:7001".into(),
            // A server that restarts is back sooner, and what is on its way would have to be kept for it.
            replay_away_seconds_max: 10.0,
            learner: "http://127.0.0.1:7002".into(),
            // What is played meanwhile is of some use, and what is of none the replay server sorts out.
            weights_away_seconds_max: 0.0,
            inference: String::new(),
            inference_fallback: true,
            device: DevicePreference::Auto,
            precision: PrecisionPreference::Auto,
            kernel: Kernel::Network(KernelPreference::Auto),
            simulated_delay_us: 0,
            // A Connect Four answer takes about a hundred bytes: some 25 MB.
            cache_positions: 250_000,
            unacknowledged_max: 64,
            weights_bytes_max: 1 << 30,
            drain_seconds: 3.0,
        }
    }
}

/// The configuration as used: checked, in domain types.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The game.
    pub game: GameKind,
    /// The run directory.
    pub directory: PathBuf,
    /// Every draw descends from it.
    pub seed: u64,
    /// The settings of episodes.
    pub selfplay: selfplay::Settings,
    /// This process; its ranges are checked.
    pub actor: ActorSection,
    /// `actor.replay`.
    pub replay: Endpoints,
    /// `actor.replay_away_seconds_max`.
    pub replay_away_max: Duration,
    /// `actor.weights_away_seconds_max`.
    pub weights_away_max: Option<Duration>,
    /// `actor.drain_seconds`.
    pub drain: Duration,
    /// Self-play threads.
    pub threads: Threads,
}

impl Config {
    /// The section, checked.
    ///
    /// # Errors
    /// [`ConfigError`] names the first key that makes no sense.
    pub fn settings(&self) -> Result<Settings, ConfigError> {
        let game = self.run.game.parse().map_err(|e: games::Error| ConfigError::invalid("run.game", e.to_string()))?;
        let out_of_range = |e: selfplay::config::Invalid| ConfigError::invalid(e.key, e.reason);
        let search = self.search.settings().map_err(out_of_range)?;
        let selfplay = self.selfplay.settings(search).map_err(out_of_range)?;
        let actor = self.actor.clone();
        actor.check()?;
        self.security.check_endpoint("actor.replay", &actor.replay)?;
        self.security.check_endpoint("actor.learner", &actor.learner)?;
        if !actor.inference.is_empty() {
            self.security.check_endpoint("actor.inference", &actor.inference)?;
        }
        let per_core = if actor.inference.is_empty() { 1 } else { 2 };
        let machine = per_core * std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Settings {
            game,
            directory: self.run.directory.clone(),
            seed: self.run.seed,
            selfplay,
            replay: endpoints("actor.replay", &actor.replay)?,
            replay_away_max: Duration::from_secs_f64(actor.replay_away_seconds_max),
            weights_away_max: (actor.weights_away_seconds_max > 0.0)
                .then(|| Duration::from_secs_f64(actor.weights_away_seconds_max)),
            drain: Duration::from_secs_f64(actor.drain_seconds),
            threads: threads(actor.threads, machine),
            actor,
        })
    }
}

impl ActorSection {
    /// Checks that two keys agree on a simulated evaluator.
    fn check_kernel(&self) -> Result<(), ConfigError> {
        let invalid = |reason: String| Err(ConfigError::invalid("actor.simulated_delay_us", reason));
        match (self.kernel, self.simulated_delay_us) {
            (Kernel::Network(_), 0) => Ok(()),
            (Kernel::Network(_), _) => invalid(format!("is set, and actor.kernel is not `{NAME}`")),
            (Kernel::Simulated, _) if !self.inference.is_empty() => {
                Err(ConfigError::invalid("actor.kernel", format!("is `{NAME}`, and actor.inference names a server")))
            }
            (Kernel::Simulated, 1..=SIMULATED_DELAY_US_MAX) => Ok(()),
            (Kernel::Simulated, _) => {
                invalid(format!("must be from 1 to {SIMULATED_DELAY_US_MAX} where actor.kernel is `{NAME}`"))
            }
        }
    }

    fn check(&self) -> Result<(), ConfigError> {
        ConfigError::within("actor.threads", self.threads, 0..=THREADS_MAX)?;
        ConfigError::within("actor.unacknowledged_max", self.unacknowledged_max, 1..=UNACKNOWLEDGED_MAX)?;
        ConfigError::within("actor.drain_seconds", self.drain_seconds, 0.0..=DRAIN_SECONDS_MAX)?;
        ConfigError::within("actor.replay_away_seconds_max", self.replay_away_seconds_max, 0.0..=AWAY_SECONDS_MAX)?;
        ConfigError::within("actor.weights_away_seconds_max", self.weights_away_seconds_max, 0.0..=AWAY_SECONDS_MAX)?;
        if !self.inference.is_empty() {
            endpoints("actor.inference", &self.inference)?;
        }
        self.check_kernel()?;
        proto::check_endpoint(&self.learner).map_err(|error| ConfigError::invalid("actor.learner", error))
    }
}

fn endpoints(key: &str, text: &str) -> Result<Endpoints, ConfigError> {
    text.parse().map_err(|error: InvalidEndpoint| ConfigError::invalid(key, error))
}

/// As many threads as are configured; 0 stands for those that the machine keeps busy.
fn threads(configured: usize, machine: usize) -> Threads {
    /// With fewer threads an accelerator waits while positions are searched.
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
        config.run.game = "chess".into();
        assert!(refused(config).contains("run.game"));
        let mut config = Config::default();
        config.search.c_init = f32::NAN;
        assert!(refused(config).contains("search.c_init"));
        let mut config = Config::default();
        config.selfplay.full_search_probability = 0.0;
        assert!(refused(config).contains("selfplay.full_search_probability"));
        // A drain until after the end of time would end in a panic, and not with what was finished handed in.
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

    #[test]
    fn an_accelerator_gets_two_threads_unless_their_number_is_given() {
        assert_eq!(threads(0, 1), Threads { cpu: 1, accelerator: 2 });
        assert_eq!(threads(0, 8), Threads::exactly(8));
        assert_eq!(threads(1, 8), Threads::exactly(1));
    }
}
