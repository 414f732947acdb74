//! The inference server's sections of the run file, as written and as checked settings.

use bridge::EnvironmentSection;
use games::GameKind;
use inference::{DevicePreference, PrecisionPreference};
use network_cpu::KernelPreference;
use selfplay::SearchSettings;
use selfplay::config::SearchSection;
use serde::{Deserialize, Serialize};
use service::config::RunSection;
use service::{ConfigError, SecuritySection};

use crate::WeightsSource;

/// Maximum number of threads: more than any machine has cores.
const THREADS_MAX: usize = 1024;
/// Maximum batch size; larger batches are not faster on any device.
const BATCH_MAX: usize = 16_384;
/// Maximum number of served versions; each version keeps all weights in memory.
const VERSIONS_MAX: usize = 64;
/// Maximum queue delay, in microseconds. A longer delay would stall requests without filling batches better.
const QUEUE_DELAY_US_MAX: u64 = 1_000_000;
/// Maximum time limit of requests and searches, in milliseconds: one hour.
const TIMEOUT_MS_MAX: u64 = 3_600_000;

/// Maximum number of concurrent searches; each search occupies a thread.
const SEARCHES_MAX: usize = 512;
/// Maximum number of simulations per search; a larger tree does not fit into the memory of most machines.
const SIMULATIONS_MAX: u32 = 100_000_000;

/// The run file sections for the inference server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Game, seed and run directory.
    pub run: RunSection,
    /// Environment in Python, if `run.game` is a Python environment.
    pub environment: EnvironmentSection,
    /// Search settings for clients that request moves.
    pub search: SearchSection,
    /// Settings of this process.
    pub inference: InferenceSection,
    /// Certificates and tokens for the server's clients, and for connections to the learner.
    pub security: SecuritySection,
}

/// The section `[inference]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InferenceSection {
    /// Address of the weights: the learner's, such as `http://127.0.0.1:7002`, or the arena's if `arena.gate` is set.
    pub learner: String,
    /// Manifest of a published version to serve, such as `runs/NAME/weights/v000012.json`, with the weights in the same
    /// directory. The learner is not used in this case. Empty: the server serves the latest versions from `learner`.
    pub weights: String,
    /// Number of threads that evaluate batches, up to 1,024. 0: one per core, or four with an accelerator, where
    /// batches are merged and up to three batches are in flight.
    pub threads: usize,
    /// Device for evaluation: `auto`, `cpu`, `cuda`, `cuda:1` or `mps`. `auto` times the run's network on the CPU and
    /// the first accelerator, and selects the faster device. An explicitly named device that cannot be used is an
    /// error.
    pub device: DevicePreference,
    /// Precision of evaluation: `auto` (the fastest), `f32` or `bf16`.
    pub precision: PrecisionPreference,
    /// Evaluator on a CPU: `auto`, `libtorch`, or a variant of the CPU kernel such as `avx512-bf16`.
    pub kernel: KernelPreference,
    /// Number of latest weights versions to serve, from 1 to 64.
    pub versions_kept: usize,
    /// Maximum size of a weights version, in bytes; larger weights are rejected.
    pub weights_bytes_max: u64,
    /// Maximum number of positions per batch, up to 16,384; 0 uses the preferred batch size of the evaluator.
    pub batch_max: usize,
    /// Maximum time that a request waits for other requests to share a batch with while an evaluator is free, in
    /// microseconds.
    pub queue_delay_us: u64,
    /// Maximum number of positions in the queue; the server rejects requests beyond this number.
    pub waiting_positions_max: usize,
    /// Time limit for a request without a time limit from the client, in milliseconds.
    pub timeout_ms: u64,
    /// Capacity of the prediction cache for the streaming API (the fast path), in positions; 0 disables the cache.
    pub cache_positions: usize,
    /// Maximum number of unanswered requests per client of the streaming API (the fast path).
    pub requests_max: usize,
    /// Maximum number of concurrent clients of the streaming API (the fast path).
    pub streams_max: usize,
    /// Maximum number of open client connections.
    pub connections_max: usize,
    /// Maximum number of concurrent searches.
    pub searches_max: usize,
    /// Maximum number of simulations in one search.
    pub simulations_max: u32,
    /// Time limit of one search, in milliseconds.
    pub search_ms_max: u64,
}

impl Default for InferenceSection {
    fn default() -> Self {
        Self {
            learner: "http://127.0.0.1:7002".into(),
            weights: String::new(),
            threads: 0,
            device: DevicePreference::Auto,
            precision: PrecisionPreference::Auto,
            kernel: KernelPreference::Auto,
            // Actors finish searches with the previous version, and clients that compare versions request specific
            // versions.
            versions_kept: 4,
            weights_bytes_max: 1 << 30,
            batch_max: 0,
            // An idle evaluator wastes time unless more requests are certain to arrive.
            queue_delay_us: 0,
            // Two cores evaluate this many positions with a small network in some tenths of a second.
            waiting_positions_max: 16_384,
            timeout_ms: 10_000,
            // The same as for an actor: about 25 MB in Connect Four.
            cache_positions: 250_000,
            requests_max: 64,
            streams_max: 1024,
            connections_max: 4096,
            searches_max: 64,
            simulations_max: 1_000_000,
            search_ms_max: 60_000,
        }
    }
}

/// The checked configuration, in domain types.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The game with the board size.
    pub game: GameKind,
    /// The source of weights.
    pub source: WeightsSource,
    /// Search settings for clients that request moves.
    pub search: SearchSettings,
    /// The inference section with checked ranges.
    pub inference: InferenceSection,
}

impl Config {
    /// Checks the range of every key, and converts the configuration to settings.
    ///
    /// # Errors
    /// [`ConfigError`] names the first invalid key.
    pub fn settings(&self) -> Result<Settings, ConfigError> {
        let game = bridge::config::game(&self.run, &self.environment)?;
        let out_of_range = |e: selfplay::config::Invalid| ConfigError::invalid(e.key, e.reason);
        let search = self.search.settings().map_err(out_of_range)?;
        let inference = self.inference.clone();
        inference.check()?;
        let source = if inference.weights.is_empty() {
            WeightsSource::server("inference.learner", &inference.learner, &self.security)?
        } else {
            WeightsSource::File(inference.weights.clone().into())
        };
        Ok(Settings { game, source, search, inference })
    }
}

impl InferenceSection {
    fn check(&self) -> Result<(), ConfigError> {
        ConfigError::within("inference.threads", self.threads, 0..=THREADS_MAX)?;
        ConfigError::within("inference.versions_kept", self.versions_kept, 1..=VERSIONS_MAX)?;
        ConfigError::within("inference.batch_max", self.batch_max, 0..=BATCH_MAX)?;
        ConfigError::within("inference.queue_delay_us", self.queue_delay_us, 0..=QUEUE_DELAY_US_MAX)?;
        ConfigError::within("inference.waiting_positions_max", self.waiting_positions_max, 1..=1 << 24)?;
        ConfigError::within("inference.timeout_ms", self.timeout_ms, 1..=TIMEOUT_MS_MAX)?;
        ConfigError::within("inference.requests_max", self.requests_max, 1..=1 << 16)?;
        ConfigError::within("inference.streams_max", self.streams_max, 1..=1 << 20)?;
        ConfigError::within("inference.connections_max", self.connections_max, 1..=1 << 20)?;
        ConfigError::within("inference.searches_max", self.searches_max, 1..=SEARCHES_MAX)?;
        ConfigError::within("inference.simulations_max", self.simulations_max, 1..=SIMULATIONS_MAX)?;
        ConfigError::within("inference.search_ms_max", self.search_ms_max, 1..=TIMEOUT_MS_MAX)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_follow_a_learner() {
        let settings = Config::default().settings().unwrap();
        assert_eq!(settings.source, WeightsSource::Server("http://127.0.0.1:7002".into()));
        assert_eq!(settings.game.to_string(), "connect_four");
    }

    #[test]
    fn a_file_takes_the_learner_s_place() {
        let mut config = Config::default();
        config.inference.weights = "weights/v000001.json".into();
        config.inference.learner = "nobody".into();
        assert_eq!(config.settings().unwrap().source, WeightsSource::File("weights/v000001.json".into()));
    }

    #[test]
    fn a_value_out_of_range_is_refused_by_its_key() {
        let refused = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            config.settings().unwrap_err().to_string()
        };
        assert!(refused(|c| c.inference.versions_kept = 0).contains("inference.versions_kept"));
        assert!(refused(|c| c.inference.batch_max = 1 << 20).contains("inference.batch_max"));
        assert!(refused(|c| c.inference.timeout_ms = 0).contains("inference.timeout_ms"));
        assert!(refused(|c| c.inference.learner = "nobody".into()).contains("inference.learner"));
        assert!(refused(|c| c.run.game = "go".into()).contains("run.game"));
    }
}
