//! Computes the state of the fleet at one time, for output as a table or as JSON.

use std::time::Instant;

use serde_json::{Value, json};

use run_metrics::RunMetrics;
use run_metrics::bottleneck::{Bottleneck, Load, bottleneck};
use run_metrics::roster::Roster;
use run_metrics::rows::{LimiterWait, Row, limiter_waits, rows};

use super::cost::{Cost, Price, Running, cost};

/// The state of the fleet at one time. Unknown values are `None`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Snapshot {
    pub(super) unix_seconds: f64,
    pub(super) processes: Vec<Row>,
    /// Number of lost processes that are no longer in the table.
    pub(super) gone: usize,
    /// Metrics of the run, from all processes that respond.
    pub(super) metrics: RunMetrics,
    /// Waits for the rate limiters of the main table, the longest wait first.
    pub(super) limiter_waits: Vec<LimiterWait>,
    pub(super) bottleneck: Option<Bottleneck>,
    pub(super) cost: Option<Cost>,
}

impl Snapshot {
    /// Computes the snapshot of all processes in `roster` at the time `now`.
    pub(super) fn of(roster: &Roster, prices: &[Price], now: Instant, unix_seconds: f64) -> Self {
        let (fleet, metrics) = (roster.fleet(), roster.metrics());
        let running = roster.processes().map(|(_, process)| {
            let lost_ago = process.lost_seconds(now).unwrap_or(0.0);
            Running { role: process.role, seconds: process.seconds(lost_ago, unix_seconds), runs: process.answers() }
        });
        let gone = roster.gone().map(|(role, _, seconds)| Running { role, seconds, runs: false });
        Self {
            unix_seconds,
            processes: rows(roster, metrics.weights_version, now, unix_seconds),
            gone: roster.gone().map(|(_, count, _)| count).sum(),
            metrics,
            limiter_waits: limiter_waits(&fleet),
            bottleneck: Load::of(&fleet).as_ref().map(bottleneck),
            cost: cost(prices, &running.chain(gone).collect::<Vec<_>>()),
        }
    }

    /// Returns the snapshot as a JSON object.
    pub(super) fn json(&self) -> Value {
        let metrics = &self.metrics;
        json!({
            "unix_seconds": self.unix_seconds,
            "processes": self.processes,
            "gone": self.gone,
            "rates": {
                "games_per_second": metrics.games_per_second,
                "positions_per_second": metrics.positions_per_second,
                "evaluations_per_second": metrics.evaluations_per_second,
                "inserts_per_second": metrics.inserts_per_second,
                "samples_per_second": metrics.samples_per_second,
                "steps_per_second": metrics.steps_per_second,
            },
            "replay": {
                "trajectories": metrics.replay_trajectories,
                "items": metrics.replay_items,
                "window_items": metrics.window_items,
                "window_passes": metrics.window_passes,
                "bytes": metrics.replay_bytes,
                "samples_per_insert": metrics.samples_per_insert,
                "rate_limiter_waits": self.limiter_waits,
                "distinct": metrics.distinct,
            },
            "health": metrics.health,
            "weights_version": metrics.weights_version,
            "losses": {
                "total": metrics.loss_total,
                "policy": metrics.loss_policy,
                "value": metrics.loss_value,
            },
            "validation": {
                "loss_policy": metrics.validation_loss_policy,
                "loss_value": metrics.validation_loss_value,
                "policy_accuracy": metrics.validation_policy_accuracy,
                "value_squared_error": metrics.validation_value_squared_error,
                "calibration_error": metrics.validation_calibration_error,
            },
            "strength": {
                "elo": metrics.elo,
                "elo_low": metrics.elo_low,
                "elo_high": metrics.elo_high,
                "return_mean": metrics.return_mean,
                "return_low": metrics.return_low,
                "return_high": metrics.return_high,
                "accuracy_raw": metrics.accuracy_of("raw", "preserving"),
                "accuracy_search": metrics.accuracy_of("search", "preserving"),
            },
            "engines": metrics.engines,
            "devices": metrics.devices,
            "bottleneck": self.bottleneck,
            "cost": self.cost,
        })
    }
}
