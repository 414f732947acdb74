//! The metrics of an actor. Names are listed in `docs/metrics.md`.

use std::time::Duration;

use ::metrics::{counter, gauge};
use game::Losses;
use inference::EngineCounts;
use proto::replay::ReviseRefusal;
use selfplay::Round;
use service::reasons::Reasons;

use crate::replay_router::RouterStats;
use crate::stopwatch::Parts;

/// The reasons for refused weights.
static WEIGHTS_REFUSALS: Reasons = Reasons::new();

/// Registers the counters of rare events and of self-play at zero. If a counter appeared only with the first event, no
/// rate would include this event, and an actor without games would be invisible.
pub(crate) fn begin() {
    advanced(&Round::default());
    counter!("zerofleet_actor_evaluator_failures_total").increment(0);
    counter!("zerofleet_actor_unfinished_games_total").increment(0);
    counter!("zerofleet_actor_id_collisions_total").increment(0);
    snapshots(0);
    counter!("zerofleet_actor_reanalysis_simulations_total").increment(0);
    counter!("zerofleet_actor_reanalysed_trajectories_total").increment(0);
    counter!("zerofleet_actor_reanalysed_positions_total").increment(0);
    let refusals = ReviseRefusal::ALL.map(ReviseRefusal::name);
    for reason in refusals.into_iter().chain(["failed", "unusable"]) {
        reanalysis_refused(reason, 0);
    }
    environments_failed(&Losses::default(), &Losses::default());
    for why in ["weights", "replay", "evaluator"] {
        waited(why, Duration::ZERO);
    }
}

/// Counts the searches shown to spectators.
pub(crate) fn snapshots(made: u64) {
    counter!("zerofleet_actor_live_snapshots_total").increment(made);
}

/// Counts the simulations of reanalysis.
pub(crate) fn reanalysed(simulations: usize) {
    counter!("zerofleet_actor_reanalysis_simulations_total").increment(simulations as u64);
}

/// Counts a revised trajectory, and the `positions` that were searched again.
pub(crate) fn revised(positions: usize) {
    counter!("zerofleet_actor_reanalysed_trajectories_total").increment(1);
    counter!("zerofleet_actor_reanalysed_positions_total").increment(positions as u64);
}

/// Counts trajectories that were not revised, by `reason`: the kind of refusal by the server, `failed` for a failed
/// request, or `unusable` for a trajectory that violates the rules of the game.
pub(crate) fn reanalysis_refused(reason: &'static str, trajectories: u64) {
    counter!("zerofleet_actor_reanalysis_refused_total", "reason" => reason).increment(trajectories);
}

/// The evaluator of a batch, in an actor with an inference server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnsweredBy {
    /// The configured inference server.
    Server,
    /// The actor, in place of an unavailable server.
    Actor,
}

pub(crate) fn remote(who: AnsweredBy, positions: usize) {
    let by = match who {
        AnsweredBy::Server => "server",
        AnsweredBy::Actor => "actor",
    };
    counter!("zerofleet_actor_remote_positions_total", "by" => by).increment(positions as u64);
}

/// Adds to the time of self-play threads in a phase other than [`waited`] and [`played`]: `upload` (sending finished
/// episodes) or `load` (building an evaluator for new weights).
pub(crate) fn spent(phase: &'static str, time: Duration) {
    gauge!("zerofleet_actor_seconds_total", "phase" => phase).increment(time.as_secs_f64());
}

/// Adds to the waiting time of self-play threads. `part` is the cause: `weights` (the first weights, new weights after
/// NaN output, or an unreachable learner), `replay` (the server blocks inserts) or `evaluator` (the pause after a
/// failure).
pub(crate) fn waited(part: &'static str, time: Duration) {
    spent("wait", time);
    gauge!("zerofleet_actor_wait_seconds_total", "part" => part).increment(time.as_secs_f64());
}

/// Adds the time that each part of an episodes call took. `observing` is the time within `gathering` that observations
/// took.
pub(crate) fn played(Parts { gathering, evaluating, answering }: Parts, observing: Duration) {
    spent("search", gathering + answering);
    spent("evaluate", evaluating);
    let selecting = gathering.saturating_sub(observing);
    for (part, time) in [("select", selecting), ("observe", observing), ("expand", answering)] {
        gauge!("zerofleet_actor_search_seconds_total", "part" => part).increment(time.as_secs_f64());
    }
}

/// Adds the failures that a thread's environments had between the counts `before` and `now`.
pub(crate) fn environments_failed(before: &Losses, now: &Losses) {
    let Losses { processes_died, processes_hung, environments_failed, episodes: _ } = now;
    for (cause, count) in [
        ("died", processes_died - before.processes_died),
        ("hung", processes_hung - before.processes_hung),
        ("failed", environments_failed - before.environments_failed),
    ] {
        counter!("zerofleet_actor_environment_failures_total", "cause" => cause).increment(count);
    }
}

pub(crate) fn advanced(round: &Round) {
    counter!("zerofleet_actor_games_total").increment(round.episodes_finished as u64);
    counter!("zerofleet_actor_lost_episodes_total").increment(round.episodes_lost as u64);
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

/// Sets the number of simulations per full search to the last change by any thread. The threads of one actor wait
/// together, so the numbers of all threads are similar.
pub(crate) fn full_simulations(simulations: u32) {
    gauge!("zerofleet_actor_full_simulations").set(f64::from(simulations));
}

/// Sets the weights version and the description of the evaluator. The evaluator with the latest version is in use.
pub(crate) fn loaded(version: u64, evaluator: String) {
    gauge!("zerofleet_actor_weights_version").set(version as f64);
    if let Some(device) = evaluators::device_of(&evaluator) {
        service::devices::placed("weights", device);
    }
    gauge!("zerofleet_actor_evaluator", "evaluator" => evaluator).set(version as f64);
}

/// Sets the latest weights version that this actor cannot use, by reason.
pub(crate) fn weights_refused(version: u64, why: &str) {
    gauge!("zerofleet_actor_weights_refused", "why" => WEIGHTS_REFUSALS.label(why)).set(version as f64);
}

/// Sets the metrics of an accelerator's engine to these counters.
pub(crate) fn engine(counts: &EngineCounts) {
    let &EngineCounts { batches, positions, padded_positions, out_of_memory, busy, in_flight, thread } = counts;
    counter!("zerofleet_actor_device_batches_total").absolute(batches);
    counter!("zerofleet_actor_device_positions_total").absolute(positions);
    counter!("zerofleet_actor_device_padded_positions_total").absolute(padded_positions);
    counter!("zerofleet_actor_device_too_large_total").absolute(out_of_memory);
    for (part, time) in [("busy", busy), ("in_flight", in_flight), ("thread", thread)] {
        gauge!("zerofleet_actor_device_seconds_total", "part" => part).set(time.as_secs_f64());
    }
}

pub(crate) fn unacknowledged(trajectories: usize) {
    gauge!("zerofleet_actor_unacknowledged").set(trajectories as f64);
}

/// Sets the metrics of the replay writers to these counters.
pub(crate) fn uploads(stats: &RouterStats) {
    unacknowledged(stats.unacknowledged);
    counter!("zerofleet_actor_inserted_total").absolute(stats.written.inserted + stats.written.duplicates);
    counter!("zerofleet_actor_id_collisions_total").absolute(stats.written.collisions);
    counter!("zerofleet_actor_refused_total").absolute(stats.written.refused);
    counter!("zerofleet_actor_stale_total").absolute(stats.written.stale);
    gauge!("zerofleet_actor_replay_servers").set(stats.servers as f64);
    counter!("zerofleet_actor_replay_failovers_total").absolute(stats.failovers);
}

pub(crate) fn unfinished(episodes: usize) {
    counter!("zerofleet_actor_unfinished_games_total").increment(episodes as u64);
}

pub(crate) fn evaluator_failed() {
    counter!("zerofleet_actor_evaluator_failures_total").increment(1);
}
