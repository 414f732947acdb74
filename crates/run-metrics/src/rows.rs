//! Fleet processes as rows of a table, the waits for rate limiters, and the phases of threads.

use std::time::Instant;

use fleet::Role;
use serde::Serialize;

use crate::roster::{LABEL_LENGTH_MAX, Process, Roster, State, sanitize};
use crate::{Processes, metric};

/// Fraction of time spent waiting (0 to 1) from which a wait for a rate limiter is shown.
const WAITS_SHARE_MIN: f64 = 0.005;
/// Maximum number of phases of a role; a process reports about five.
const PHASES_MAX: usize = 12;

/// The state of one process, as a row of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Role that the process reports.
    pub role: Option<Role>,
    /// Name of the process in the run, or the host name.
    pub name: String,
    /// Admin address.
    pub address: String,
    /// State in words.
    pub state: &'static str,
    /// The reason why the process is not ready; `None` in other states.
    pub reason: Option<String>,
    /// Seconds since a lost process stopped responding.
    pub lost_seconds: Option<f64>,
    /// Seconds since the start of the process.
    pub age_seconds: Option<f64>,
    /// Version of the program.
    pub version: Option<String>,
    /// Weights version in use.
    pub weights_version: Option<f64>,
    /// Number of weights versions that the process is behind the learner; `None` for the learner or without weights.
    pub lag_versions: Option<f64>,
    /// Work per second: moves of an actor, training steps, inserts, evaluated positions or rated games.
    pub work_per_second: Option<f64>,
}

/// How much of the time a rate limiter blocks inserts or samples.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LimiterWait {
    /// The blocked side of the rate limiter: `inserts` or `samples`.
    pub side: String,
    /// The condition that blocks this side, as in the metrics.
    pub reason: String,
    /// Fraction of time spent waiting, averaged over the replay servers.
    pub share: f64,
}

/// Returns the rows of all processes in `roster` by role and name, at the time `now`. `newest` is the latest weights
/// version of the learner.
pub fn rows(roster: &Roster, newest: Option<f64>, now: Instant, unix_seconds: f64) -> Vec<Row> {
    let processes = roster.processes();
    let rows = processes.map(|(address, process)| row(address.to_string(), process, newest, now, unix_seconds));
    let mut rows: Vec<Row> = rows.collect();
    rows.sort_by(|a, b| (a.role.is_none(), a.role, &a.name).cmp(&(b.role.is_none(), b.role, &b.name)));
    rows
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
        lost_seconds: process.lost_seconds(now),
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

/// Returns the waits for the rate limiters of the main table, the longest wait first.
pub fn limiter_waits(fleet: &Processes<'_>) -> Vec<LimiterWait> {
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

/// Returns the share of each phase in the measured time of a role's threads, from 0 to 1, the largest share first;
/// empty without a measurement.
pub fn phases(fleet: &Processes<'_>, role: Role) -> Vec<(String, f64)> {
    let times = fleet.rates_by(role, "seconds_total", ["phase"]);
    let whole: f64 = times.values().sum();
    let shares = times.into_iter().filter(|(_, time)| *time > 0.0);
    let mut shares: Vec<(String, f64)> =
        shares.map(|([phase], time)| (sanitize(&phase, LABEL_LENGTH_MAX), time / whole)).collect();
    shares.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    shares.truncate(PHASES_MAX);
    shares
}
