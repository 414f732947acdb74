//! The metrics of a run at one time, each declared once with the name in event files.

use std::collections::BTreeMap;

use fleet::Role;
use serde::{Deserialize, Serialize};

use crate::devices::{self, DeviceUse};
use crate::health::Health;
use crate::processes::{Processes, ratio};

/// Declares [`RunMetrics`]. Each line declares a metric with one number: documentation, field, name in event files, and
/// the expression for the value. Metrics without an expression are sums over sessions.
macro_rules! run_metrics {
    (|$processes:ident| $($(#[$doc:meta])* $field:ident $(as $name:literal)? $(= $value:expr)?;)*) => {
        /// The metrics of a run at one time.
        #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
        #[serde(default)]
        pub struct RunMetrics {
            $($(#[$doc])* pub $field: Option<f64>,)*
            /// Training time in seconds, over all sessions.
            pub elapsed_seconds: f64,
            /// Unix time of the reading in seconds.
            pub unix_seconds: f64,
            /// Shares of distinct positions among samples of the latest stored games: `overall`, in games from the
            /// empty board by plies (`empty/0-7`, …), and in `other` games; `top_1000` is the share of the 1,000 most
            /// common positions.
            pub distinct: BTreeMap<String, f64>,
            /// Accuracy on solved positions, from 0 to 1, by `search/measure/band`.
            pub accuracy: BTreeMap<String, f64>,
            /// Elo of the fixed opponents, by name.
            pub opponents: BTreeMap<String, f64>,
            /// Thread time in seconds by `role/phase`, summed over all processes of the role.
            pub seconds: BTreeMap<String, f64>,
            /// Training device and evaluators, by role.
            pub engines: BTreeMap<String, String>,
            /// Devices that hold tensors; the CPU is last.
            pub devices: Vec<DeviceUse>,
            /// Lost, refused or blocked work.
            pub health: Health,
        }

        impl RunMetrics {
            /// Computes all metrics that only depend on recent expositions. Totals since the start of the run and all
            /// times are left at the default.
            pub fn of($processes: &Processes<'_>) -> Self {
                Self {
                    $($($field: $value,)?)*
                    distinct: $processes.distinct(),
                    accuracy: $processes.accuracy(),
                    opponents: $processes.opponents(),
                    engines: $processes.engines(),
                    devices: devices::of($processes),
                    health: Health::of($processes),
                    ..Self::default()
                }
            }

            /// Returns the metrics with one number, by name in event files.
            fn numbers(&self) -> impl Iterator<Item = (&'static str, Option<f64>)> {
                [$($(($name, self.$field),)?)*].into_iter()
            }
        }
    };
}

run_metrics! {
    |processes|
    /// Episodes finished by all actors.
    games as "actor/games";
    /// Moves made by all actors.
    positions;
    /// Positions evaluated by a network.
    evaluations;
    /// Simulations of all searches.
    simulations;
    /// Finished episodes per second.
    games_per_second as "actor/games_per_second" = processes.rate(Role::Actor, "games_total", &[]);
    /// Moves per second.
    positions_per_second as "actor/positions_per_second" = processes.rate(Role::Actor, "moves_total", &[]);
    /// Network evaluations per second.
    // Actors also count evaluations by inference servers.
    evaluations_per_second as "actor/evaluations_per_second" = processes.rate(Role::Actor, "evaluations_total", &[]);
    /// Inserted trajectories per second.
    inserts_per_second as "replay/inserts_per_second" = processes.rate(Role::Replay, "inserts_total", &[]);
    /// Samples per second.
    samples_per_second as "replay/samples_per_second" = processes.rate(Role::Replay, "samples_total", &[]);
    /// Mean number of evaluations per batch.
    batch_mean as "actor/batch_mean" = processes.ratio_of_rates(Role::Actor, ["evaluations_total", "batches_total"]);
    /// Hit rate of the position cache, from 0 to 1.
    cache_hit_share as "actor/cache_hit_share" =
        processes.ratio_of_rates(Role::Actor, ["cache_hits_total", "cache_lookups_total"]);
    /// Trajectories of actors that no replay server has acknowledged yet.
    unacknowledged as "actor/unacknowledged" = processes.sum(Role::Actor, "unacknowledged");
    /// Trajectories held by all replay servers.
    replay_trajectories as "replay/trajectories" = processes.sum(Role::Replay, "trajectories");
    /// Items held by all replay servers.
    replay_items as "replay/items" = processes.sum(Role::Replay, "items");
    /// Items in the sampling windows of all replay servers.
    window_items as "replay/window_items" = processes.sum(Role::Replay, "window_items");
    /// Samples per insert, averaged over the replay servers.
    samples_per_insert as "replay/samples_per_insert" =
        ratio(processes.sum(Role::Replay, "samples_total"), processes.sum(Role::Replay, "items_inserted_total"));
    /// Size of all replay logs in bytes.
    replay_bytes as "replay/log_bytes" = processes.sum(Role::Replay, "bytes");
    /// Memory of all replay tables in bytes.
    replay_memory_bytes as "replay/memory_bytes" = processes.sum(Role::Replay, "memory_bytes");
    /// Number of completed training steps.
    steps = processes.learner("steps_total");
    /// Training steps per second.
    // Several learners compute the same steps.
    steps_per_second as "learner/steps_per_second" = processes.growth(Role::Learner, "steps_total").reduce(f64::max);
    /// Passes over the replay window: positions trained on, each as a share of the window at the time of the draw.
    window_passes as "learner/window_passes" = processes.learner("window_passes");
    /// Weighted total loss of training.
    loss_total as "loss/total" = processes.part("loss", "total");
    /// Policy loss of training.
    loss_policy as "loss/policy" = processes.part("loss", "policy");
    /// Value loss of training.
    loss_value as "loss/value" = processes.part("loss", "value");
    /// Reward loss of a learned model.
    loss_reward as "loss/reward" = processes.part("loss", "reward");
    /// Consistency loss of a learned model.
    loss_consistency as "loss/consistency" = processes.part("loss", "consistency");
    /// Chance loss of a learned model.
    loss_chance as "loss/chance" = processes.part("loss", "chance");
    /// Policy loss on held-out trajectories.
    validation_loss_policy as "validation/policy" = processes.part("validation_loss", "policy");
    /// Value loss on held-out trajectories, for networks that predict win, draw and loss.
    validation_loss_value as "validation/value" = processes.part("validation_loss", "value");
    /// Share of held-out positions in which network and search policy prefer the same move, from 0 to 1.
    validation_policy_accuracy as "validation/policy_accuracy" = processes.learner("validation_policy_accuracy");
    /// Mean squared error of values on held-out trajectories.
    validation_value_squared_error as "validation/value_squared_error" =
        processes.learner("validation_value_squared_error");
    /// Expected calibration error of the predicted score, from 0 to 1.
    validation_calibration_error as "validation/calibration_error" = processes.learner("validation_calibration_error");
    /// Gradient norm before clipping.
    gradient_norm as "learner/gradient_norm" = processes.learner("gradient_norm");
    /// Current learning rate.
    learning_rate as "learner/learning_rate" = processes.learner("learning_rate");
    /// Number of batches with a non-finite loss or gradient.
    not_finite as "learner/not_finite" = processes.learner("not_finite_total");
    /// Latest published weights version.
    weights_version as "learner/weights_version" = processes.newest_version();
    /// Weights versions from the weights of the slowest actor to the latest version.
    weights_lag as "actor/weights_lag" = processes.weights_lag();
    /// Mean policy lag of the samples in the last batch, in weights versions.
    sample_version_lag as "learner/sample_version_lag" = processes.learner("sample_version_lag");
    /// Elo of the latest rated version; random play is 0.
    elo as "elo/current" = processes.arena("elo");
    /// Lower bound of the confidence interval of `elo`.
    elo_low as "elo/low" = processes.arena("elo_low");
    /// Upper bound of the confidence interval of `elo`.
    elo_high as "elo/high" = processes.arena("elo_high");
    /// Number of games rated by the arena.
    rated_games = processes.arena("games_total");
    /// Mean return of evaluation episodes with the latest measured version, in games with rewards.
    return_mean as "return/mean" = processes.arena("return_mean");
    /// Lower bound of the confidence interval of `return_mean`.
    return_low as "return/low" = processes.arena("return_low");
    /// Upper bound of the confidence interval of `return_mean`.
    return_high as "return/high" = processes.arena("return_high");
    /// Mean number of steps per evaluation episode.
    episode_length as "return/episode_length" = processes.arena("episode_length_mean");
    /// Mean return of random play.
    random_return as "return/random" =
        processes.gauges(Role::Arena, "opponent_return", &[("opponent", "random")]).next();
    /// Number of evaluation episodes.
    evaluation_episodes = processes.arena("episodes_total");
}

impl RunMetrics {
    /// Returns a measure over all solved positions: `accuracy_of("raw", "preserving")`.
    pub fn accuracy_of(&self, search: &str, measure: &str) -> Option<f64> {
        self.accuracy.get(&format!("{search}/{measure}/overall")).copied()
    }

    /// Returns true if the strength of this run is a mean return rather than Elo.
    pub fn has_returns(&self) -> bool {
        self.return_mean.is_some() || self.random_return.is_some()
    }

    /// Returns all metrics by name in event files: `loss/policy`, `accuracy/raw/preserving/overall`.
    pub fn scalars(&self) -> Vec<(String, f64)> {
        let named = self.numbers().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let accuracy = self.accuracy.iter().map(|(name, value)| (format!("accuracy/{name}"), *value));
        let distinct = self.distinct.iter().map(|(name, value)| (format!("distinct/{name}"), *value));
        let opponents = self.opponents.iter().map(|(name, value)| (format!("elo/{name}"), *value));
        let devices = self.devices.iter().flat_map(DeviceUse::scalars);
        named.chain(accuracy).chain(distinct).chain(opponents).chain(devices).collect()
    }
}
