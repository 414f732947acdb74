//! Computes the state of the fleet at one time, for output as a table or as JSON.

use std::time::Instant;

use serde::Serialize;
use serde_json::{Value, json};

use fleet::Role;
use run_metrics::bottleneck::{Bottleneck, Load, bottleneck};
use run_metrics::roster::{LABEL_LENGTH_MAX, Process, Roster, State, sanitize};
use run_metrics::{Processes, RunMetrics, metric};

use super::cost::{Cost, Price, Running, cost};

/// Fraction of time spent waiting (0 to 1) from which the table shows the wait for a rate limiter.
const WAITS_SHARE_MIN: f64 = 0.005;

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

/// The state of one process, as a row of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) role: Option<Role>,
    /// Name of the process in the run, or the host name.
    pub(super) name: String,
    pub(super) address: String,
    pub(super) state: &'static str,
    /// The reason why the process is not ready; `None` in other states.
    pub(super) reason: Option<String>,
    pub(super) lost_seconds: Option<f64>,
    pub(super) age_seconds: Option<f64>,
    pub(super) version: Option<String>,
    pub(super) weights_version: Option<f64>,
    /// Number of weights versions that the process is behind the learner; `None` for the learner or without weights.
    pub(super) lag_versions: Option<f64>,
    /// Work per second: moves of an actor, training steps, inserts, evaluated positions or rated games.
    pub(super) work_per_second: Option<f64>,
}

/// How much of the time a rate limiter blocks inserts or samples.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct LimiterWait {
    /// The blocked side of the rate limiter: `inserts` or `samples`.
    pub(super) side: String,
    pub(super) reason: String,
    /// Fraction of time spent waiting, averaged over the replay servers.
    pub(super) share: f64,
}

impl Snapshot {
    /// Computes the snapshot of all processes in `roster` at the time `now`.
    pub(super) fn of(roster: &Roster, prices: &[Price], now: Instant, unix_seconds: f64) -> Self {
        let (fleet, metrics) = (roster.fleet(), roster.metrics());
        let mut processes: Vec<Row> = roster
            .processes()
            .map(|(address, process)| row(address.to_string(), process, metrics.weights_version, now, unix_seconds))
            .collect();
        processes.sort_by(|a, b| (a.role.is_none(), a.role, &a.name).cmp(&(b.role.is_none(), b.role, &b.name)));
        let running = roster.processes().map(|(_, process)| {
            let lost_ago = lost_seconds(process, now).unwrap_or(0.0);
            Running { role: process.role, seconds: process.seconds(lost_ago, unix_seconds), runs: process.answers() }
        });
        let gone = roster.gone().map(|(role, _, seconds)| Running { role, seconds, runs: false });
        Self {
            unix_seconds,
            processes,
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

fn lost_seconds(process: &Process, now: Instant) -> Option<f64> {
    match process.state {
        State::Lost(since) => Some(now.saturating_duration_since(since).as_secs_f64()),
        _ => None,
    }
}

fn row(address: String, process: &Process, newest: Option<f64>, now: Instant, unix_seconds: f64) -> Row {
    let Process { name, role, version, state, started, rates, .. } = process;
    let exposition = rates.newest().filter(|_| process.answers());
    let weights = role.and_then(|role| exposition?.get(&metric(role, "weights_version"), &[]));
    // Without weights, the lag would be the total number of versions.
    let weights_version = weights.filter(|version| *version > 0.0);
    let work = role.filter(|_| process.answers()).and_then(|role| rates.rate(&metric(role, work_of(role)), &[]));
    Row {
        role: *role,
        name: name.clone(),
        address,
        state: state.name(),
        reason: match state {
            State::NotReady(reason) => Some(reason.clone()),
            _ => None,
        },
        lost_seconds: lost_seconds(process, now),
        age_seconds: started
            .filter(|_| process.answers())
            .map(|started| unix_seconds - started)
            .filter(|age| *age >= 0.0),
        version: version.clone(),
        weights_version,
        lag_versions: newest
            .zip(weights_version)
            .filter(|_| *role != Some(Role::Learner))
            .map(|(newest, own)| (newest - own).max(0.0)),
        work_per_second: work,
    }
}

/// Returns the name of the counter that measures the work of a role.
fn work_of(role: Role) -> &'static str {
    match role {
        Role::Actor => "moves_total",
        Role::Learner => "steps_total",
        Role::Replay => "inserts_total",
        Role::Inference => "positions_total",
        Role::Arena => "games_total",
    }
}

fn limiter_waits(fleet: &Processes<'_>) -> Vec<LimiterWait> {
    let servers = fleet.0.iter().filter(|(role, _)| *role == Role::Replay).count() as f64;
    let shares = fleet.rates_by(Role::Replay, "rate_limiter_wait_seconds_total", ["table", "side", "reason"]);
    let mut waits: Vec<LimiterWait> = shares
        .into_iter()
        .filter(|([table, ..], share)| table == "main" && share / servers >= WAITS_SHARE_MIN)
        .map(|([_, side, reason], share)| LimiterWait {
            side: sanitize(&side, LABEL_LENGTH_MAX),
            reason: sanitize(&reason, LABEL_LENGTH_MAX),
            share: share / servers,
        })
        .collect();
    waits.sort_by(|a, b| b.share.total_cmp(&a.share));
    waits
}
