//! Detects a run that looks healthy but learns nothing: no position is searched, no game reaches the replay table, or
//! no training step is computed.
//!
//! The module depends only on the given metrics and times, not on processes, clocks or files. Start with
//! [`Watch::read`].

use std::time::{Duration, Instant};

use run_metrics::RunMetrics;

#[cfg(test)]
mod tests;

/// Time without progress after which a run counts as faulty. It is longer than any process restart, any device
/// start-up, and the wait for the first version that a gate accepts.
const STALLED_AFTER: Duration = Duration::from_secs(180);
/// Maximum time between two reads of the metrics. A longer gap does not count, because the supervisor was stopped.
const GAP_MAX: Duration = Duration::from_secs(20);
/// Maximum ratio of a training step's duration to that of the slowest earlier step.
const SLOWER_MAX: u32 = 2;

/// Watches the stages of learning. A slow stage is not a fault, and a stage blocked by a rate limiter is not a fault.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Time of the last reading.
    last: Option<Instant>,
    searching: Stage,
    storing: Stage,
    training: Stage,
    /// True from the end of a game until a game is stored.
    awaits_store: bool,
    fault: Option<String>,
}

/// The progress of a stage of learning: searching, storing or training.
#[derive(Debug, Default)]
struct Stage {
    /// True after any progress in this session.
    has_moved: bool,
    /// Time that the stage has been [`State::Idle`] since it last made progress.
    idle: Duration,
    /// Longest idle time so far after which the stage made progress again.
    slowest: Duration,
}

/// The state of a stage in one reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The stage makes progress.
    Moving,
    /// The stage makes no progress, and none is expected.
    Excused,
    /// The stage makes no progress, although progress is expected.
    Idle,
    /// The processes do not respond; the supervisor restarts them or gives up.
    Unknown,
}

impl Stage {
    fn see(&mut self, state: State, elapsed: Duration) {
        match state {
            State::Moving => {
                self.has_moved = true;
                self.slowest = self.slowest.max(self.idle);
                self.idle = Duration::ZERO;
            }
            State::Excused => self.idle = Duration::ZERO,
            State::Idle => self.idle += elapsed,
            State::Unknown => {}
        }
    }
}

impl Watch {
    /// Updates the stages with the metrics read at `now`. Returns a message for the screen when a fault starts, changes
    /// or ends.
    pub(crate) fn read(&mut self, metrics: &RunMetrics, now: Instant) -> Option<String> {
        let elapsed = self.last.replace(now).map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        let elapsed = if elapsed <= GAP_MAX { elapsed } else { Duration::ZERO };
        self.searching.see(searching(metrics), elapsed);
        let storing = self.storing_now(metrics);
        self.storing.see(storing, elapsed);
        self.training.see(training(metrics), elapsed);
        let fault = self.standing(metrics);
        if fault == self.fault {
            return None;
        }
        self.fault.clone_from(&fault);
        Some(
            fault.map_or_else(|| "the run learns again".to_owned(), |fault| format!("the run learns nothing: {fault}")),
        )
    }

    /// Returns the current fault, with a remedy.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Returns the fault at the end of a session: the current fault, if any. Otherwise, in a session without a training
    /// step, refused weights are a fault if nothing was searched, and refused trajectories if nothing was stored.
    pub(crate) fn at_end(&self, metrics: &RunMetrics) -> Option<String> {
        let holds_nothing = metrics.replay_items.is_none_or(|items| items <= 0.0);
        let is_refused = metrics.health.refused() > 0.0 && !self.storing.has_moved && holds_nothing;
        let is_unplayable =
            metrics.health.weights_refusal.is_some() && !self.searching.has_moved && searching(metrics) == State::Idle;
        let refused = || match (self.training.has_moved, is_unplayable, is_refused) {
            (false, true, _) => Some(not_searched(metrics)),
            (false, false, true) => Some(not_stored(metrics)),
            _ => None,
        };
        self.fault.clone().or_else(refused)
    }

    /// Returns the fault of the first stalled stage, since later stages wait for earlier stages.
    fn standing(&self, metrics: &RunMetrics) -> Option<String> {
        let is_trained_slowly = self.training.slowest * SLOWER_MAX;
        if self.searching.idle >= STALLED_AFTER {
            Some(not_searched(metrics))
        } else if self.storing.idle >= STALLED_AFTER {
            Some(not_stored(metrics))
        } else if self.training.idle >= STALLED_AFTER.max(is_trained_slowly) {
            Some(not_trained(metrics))
        } else {
            None
        }
    }

    /// Returns the state of the storing stage. A long unfinished game is not a fault: only finished games must reach
    /// the table.
    fn storing_now(&mut self, metrics: &RunMetrics) -> State {
        let Some(inserts) = metrics.inserts_per_second else { return State::Unknown };
        let ended = [metrics.games_per_second, metrics.health.lost_per_second];
        self.awaits_store |= ended.into_iter().any(is_above_zero);
        if inserts > 0.0 {
            self.awaits_store = false;
            return State::Moving;
        }
        let is_excused = metrics.health.inserts_held > 0.0 || !self.awaits_store;
        if is_excused { State::Excused } else { State::Idle }
    }
}

/// Returns the state of the searching stage. Even during a long game, positions are searched all the time.
fn searching(metrics: &RunMetrics) -> State {
    let rates = [metrics.positions_per_second, metrics.evaluations_per_second];
    if rates.into_iter().any(is_above_zero) {
        State::Moving
    } else if metrics.health.inserts_held > 0.0 {
        State::Excused
    } else if rates.iter().all(Option::is_none) {
        State::Unknown
    } else {
        State::Idle
    }
}

/// Returns the state of the training stage. A learner blocked by the rate limiter is excused, since it waits for
/// self-play.
fn training(metrics: &RunMetrics) -> State {
    if is_above_zero(metrics.steps_per_second) {
        State::Moving
    } else if metrics.health.samples_held > 0.0 {
        State::Excused
    // The learner exports `not_finite` from the start, but the number of steps only after the first weights. In the
    // place of a learner of the user, `zerofleet weights serve` never exports it.
    } else if metrics.not_finite.is_none() || metrics.replay_items.is_none() {
        State::Unknown
    } else {
        State::Idle
    }
}

fn not_searched(metrics: &RunMetrics) -> String {
    match &metrics.health.weights_refusal {
        Some(why) => format!(
            "no actor can play with the weights ({why}); change the section [network] or actor.device and start a new run"
        ),
        None if metrics.weights_lag.is_none() => {
            "no actor has received weights; see the learner log, and with arena.gate the arena log".to_owned()
        }
        None => "no position is searched; see the actor logs".to_owned(),
    }
}

fn not_stored(metrics: &RunMetrics) -> String {
    let health = &metrics.health;
    let reason = health.unstored.iter().max_by(|a, b| a.1.total_cmp(b.1)).map(|(reason, _)| reason.as_str());
    match reason {
        Some("invalid") => {
            let defect = health.defect.as_deref().unwrap_or("see the log of the replay server");
            format!("the replay server refuses every game ({defect}); {}", remedy_of(defect))
        }
        Some("stale") => {
            "every game is too old for the replay table; raise replay.lag_versions_max, or publish weights less \
                          often (learner.publish_interval_seconds)"
                .to_owned()
        }
        Some("without_items") => {
            "no game has a position to train on; raise selfplay.full_search_probability".to_owned()
        }
        Some("over_memory") => {
            "the memory of the replay server is full; raise replay.memory_bytes_max, or lower replay.capacity_items"
                .to_owned()
        }
        Some("not_stored") => "the replay server cannot write its log; free disk space".to_owned(),
        None if is_above_zero(health.lost_episodes) => {
            "every episode is lost to an environment failure; see the actor logs".to_owned()
        }
        _ => "games end, but none reaches the replay table; see the actor and replay server logs".to_owned(),
    }
}

/// Returns the remedy for a trajectory defect reported by a replay server.
fn remedy_of(defect: &str) -> &'static str {
    let (field, reason) = defect.split_once(": ").unwrap_or_default();
    match field.rsplit_once('.').map_or(field, |(_, last)| last) {
        "steps" => "raise replay.steps_max",
        "action" => "raise replay.actions_max",
        _ if reason.contains("is not below") || reason.contains("entries for") => "raise replay.actions_max",
        _ => "actors and replay server must be of the same version",
    }
}

fn not_trained(metrics: &RunMetrics) -> String {
    if metrics.health.nothing_to_draw > 0.0 {
        return "nothing in the replay table can be sampled; list quarantined trajectories with zerofleet replay ls"
            .to_owned();
    }
    "the learner takes no training step although samples are available; see the learner log, or lower \
     learner.batch_size"
        .to_owned()
}

fn is_above_zero(rate: Option<f64>) -> bool {
    rate.is_some_and(|rate| rate > 0.0)
}
