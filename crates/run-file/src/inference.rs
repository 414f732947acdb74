//! Defines the inference server's sections of the run file, as written and as checked settings.

use bridge::EnvironmentSection;
use games::GameKind;
use inference::{DevicePreference, PrecisionPreference};
use network_cpu::KernelPreference;
use selfplay::SearchSettings;
use serde::{Deserialize, Serialize};
use service::config::{RunSection, Section as _};
use service::{ConfigError, SecuritySection};

use crate::WeightsSource;
use crate::search::SearchSection;

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

service::section! {
    /// The section `[inference]`.
    #[serde(deny_unknown_fields)]
    pub struct InferenceSection {
        /// Address of the weights: the learner's, such as `http://127.0.0.1:7002`, or the arena's if `arena.gate` is
        /// set.
        learner: String = "http://127.0.0.1:7002".into();
        /// Weights to serve: a model folder, or the manifest of a published version, such as
        /// `runs/NAME/weights/v000012.json`, with the weights in the same directory. The learner is not used in this
        /// case. Empty: the server serves the latest versions from `learner`.
        weights: String = String::new();
        /// Number of threads that evaluate batches. 0: one per core, or four with an accelerator, where batches are
        /// merged and up to three batches are in flight.
        threads: usize = 0, in 0..=THREADS_MAX;
        /// Device for evaluation: `auto`, `cpu`, `cuda`, `cuda:1` or `mps`. `auto` times the run's network on the CPU
        /// and the first accelerator, and selects the faster device. An explicitly named device that cannot be used is
        /// an error.
        device: DevicePreference = DevicePreference::Auto, page "devices.md";
        /// Precision of evaluation: `auto` (the fastest), `f32`, `bf16` or `f16`, as in `actor.precision`.
        precision: PrecisionPreference = PrecisionPreference::Auto;
        /// Evaluator on a CPU: `auto`, `libtorch`, or a variant of the CPU kernel as in `actor.kernel`.
        kernel: KernelPreference = KernelPreference::Auto;
        /// Number of latest weights versions to serve.
        // Actors finish searches with the previous version, and clients that compare versions request specific
        // versions.
        versions_kept: usize = 4, in 1..=VERSIONS_MAX;
        /// Maximum size of a weights version, in bytes; larger weights are rejected.
        weights_bytes_max: u64 = 1 << 30;
        /// Maximum number of positions per batch; 0 uses the preferred batch size of the evaluator.
        batch_max: usize = 0, in 0..=BATCH_MAX;
        /// Maximum time that a request waits for other requests to share a batch with while an evaluator is free, in
        /// microseconds.
        // An idle evaluator wastes time unless more requests are certain to arrive.
        queue_delay_us: u64 = 0, in 0..=QUEUE_DELAY_US_MAX;
        /// Maximum number of positions in the queue. The server rejects requests beyond this number, except those of a
        /// client within an equal share, up to twice the number.
        // Two cores evaluate this many positions with a small network in some tenths of a second.
        waiting_positions_max: usize = 16_384, in 1..=1 << 24;
        /// Time limit for a request without a time limit from the client, in milliseconds.
        timeout_ms: u64 = 10_000, in 1..=TIMEOUT_MS_MAX;
        /// Capacity of the prediction cache for the streaming API (the fast path), in positions; 0 disables the cache.
        // The same as for an actor: about 25 MB in Connect Four.
        cache_positions: usize = 250_000;
        /// Maximum number of unanswered requests per client of the streaming API (the fast path).
        requests_max: usize = 64, in 1..=1 << 16;
        /// Maximum number of concurrent clients of the streaming API (the fast path).
        streams_max: usize = 1024, in 1..=1 << 20;
        /// Maximum number of open client connections.
        connections_max: usize = 4096, in 1..=1 << 20;
        /// Maximum number of concurrent searches; clients share them equally.
        searches_max: usize = 64, in 1..=SEARCHES_MAX;
        /// Maximum number of simulations in one search.
        simulations_max: u32 = 1_000_000, in 1..=SIMULATIONS_MAX;
        /// Time limit of one search, in milliseconds.
        search_ms_max: u64 = 60_000, in 1..=TIMEOUT_MS_MAX;
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
        let search = self.search.settings()?;
        let inference = self.inference.clone();
        inference.check_ranges("inference")?;
        let source = if inference.weights.is_empty() {
            WeightsSource::server("inference.learner", &inference.learner, &self.security)?
        } else {
            WeightsSource::File(inference.weights.clone().into())
        };
        Ok(Settings { game, source, search, inference })
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
