//! The metrics of an actor. Names are listed in `docs/metrics.md`.

use std::time::Duration;

use ::metrics::{counter, gauge};
use selfplay::Round;

use crate::stopwatch::Parts;

/// Registers counters of rare events at zero: a counter that appears with its first event hides that event from every
/// rate.
pub(crate) fn begin() {
    counter!("zerofleet_actor_evaluator_failures_total").increment(0);
    counter!("zerofleet_actor_unfinished_games_total").increment(0);
    counter!("zerofleet_actor_id_collisions_total").increment(0);
    for why in [Waited::Weights, Waited::Replay, Waited::Evaluator] {
        waited(why, Duration::ZERO);
    }
}

/// A phase of self-play threads, summed over them.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Phase {
    /// Handing over what is finished.
    Upload,
    /// Making an evaluator of new weights.
    Load,
}

/// A reason for which self-play threads wait.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Waited {
    /// The first weights, or better ones than those that answered NaN.
    Weights,
    /// The replay server takes no more.
    Replay,
    /// The next try of an evaluator that failed.
    Evaluator,
}

/// The evaluator of a batch, in an actor that has an inference server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnsweredBy {
    /// The inference server.
    Server,
    /// The actor itself, because the server does not.
    Actor,
}

pub(crate) fn remote(who: AnsweredBy, positions: usize) {
    let by = match who {
        AnsweredBy::Server => "server",
        AnsweredBy::Actor => "actor",
    };
    counter!("zerofleet_actor_remote_positions_total", "by" => by).increment(positions as u64);
}

pub(crate) fn spent(phase: Phase, time: Duration) {
    let phase = match phase {
        Phase::Upload => "upload",
        Phase::Load => "load",
    };
    phase_seconds(phase, time);
}

pub(crate) fn waited(why: Waited, time: Duration) {
    let part = match why {
        Waited::Weights => "weights",
        Waited::Replay => "replay",
        Waited::Evaluator => "evaluator",
    };
    phase_seconds("wait", time);
    gauge!("zerofleet_actor_wait_seconds_total", "part" => part).increment(time.as_secs_f64());
}

/// One call of the episodes: trees and rules, of which so long was spent on observing, and the evaluator.
pub(crate) fn played(Parts { gathering, evaluating, answering }: Parts, observing: Duration) {
    phase_seconds("search", gathering + answering);
    phase_seconds("evaluate", evaluating);
    let selecting = gathering.saturating_sub(observing);
    for (part, time) in [("select", selecting), ("observe", observing), ("expand", answering)] {
        gauge!("zerofleet_actor_search_seconds_total", "part" => part).increment(time.as_secs_f64());
    }
}

fn phase_seconds(phase: &'static str, time: Duration) {
    gauge!("zerofleet_actor_seconds_total", "phase" => phase).increment(time.as_secs_f64());
}

pub(crate) fn advanced(round: &Round) {
    counter!("zerofleet_actor_games_total").increment(round.episodes_finished as u64);
    counter!("zerofleet_actor_moves_total").increment(round.moves as u64);
    counter!("zerofleet_actor_evaluations_total").increment(round.evaluated as u64);
    counter!("zerofleet_actor_batches_total").increment(round.batches as u64);
    counter!("zerofleet_actor_cache_hits_total").increment(round.cache_hits as u64);
    counter!("zerofleet_actor_cache_lookups_total").increment(round.cache_lookups as u64);
    counter!("zerofleet_actor_simulations_total").increment(round.simulations as u64);
    let calibration = &round.calibration;
    counter!("zerofleet_actor_resigned_games_total").increment(calibration.resigned as u64);
    counter!("zerofleet_actor_calibration_games_total").increment(calibration.episodes as u64);
    counter!("zerofleet_actor_calibration_resignations_total").increment(calibration.would_resign as u64);
    counter!("zerofleet_actor_calibration_wrong_total").increment(calibration.wrong as u64);
}

/// Of a thread that changed it; threads of one actor wait together and so differ little.
pub(crate) fn full_simulations(simulations: u32) {
    gauge!("zerofleet_actor_full_simulations").set(f64::from(simulations));
}

pub(crate) fn weights_version(version: u64) {
    gauge!("zerofleet_actor_weights_version").set(version as f64);
}

/// Sets the evaluator's description; the one with the newest version is in use.
pub(crate) fn evaluator(description: &str, version: u64) {
    gauge!("zerofleet_actor_evaluator", "evaluator" => description.to_owned()).set(version as f64);
}

pub(crate) fn unacknowledged(trajectories: usize) {
    gauge!("zerofleet_actor_unacknowledged").set(trajectories as f64);
}

pub(crate) fn inserted(trajectories: u64) {
    counter!("zerofleet_actor_inserted_total").absolute(trajectories);
}

/// Lost, because the replay server held another trajectory under their id.
pub(crate) fn id_collisions(trajectories: u64) {
    counter!("zerofleet_actor_id_collisions_total").absolute(trajectories);
}

pub(crate) fn refused(trajectories: u64) {
    counter!("zerofleet_actor_refused_total").absolute(trajectories);
}

/// Too far behind for the replay server.
pub(crate) fn stale(trajectories: u64) {
    counter!("zerofleet_actor_stale_total").absolute(trajectories);
}

/// Sets the number of replay servers and of failovers to another one.
pub(crate) fn replay_servers(servers: usize, failovers: u64) {
    gauge!("zerofleet_actor_replay_servers").set(servers as f64);
    counter!("zerofleet_actor_replay_failovers_total").absolute(failovers);
}

pub(crate) fn unfinished(episodes: usize) {
    counter!("zerofleet_actor_unfinished_games_total").increment(episodes as u64);
}

pub(crate) fn evaluator_failed() {
    counter!("zerofleet_actor_evaluator_failures_total").increment(1);
}
