//! Exports the metrics of the arena; docs/metrics.md lists the names.

use std::time::Duration;

use metrics::{counter, gauge};
use strength::exhaustive::Report;
use strength::ledger::{Player, Rated};
use strength::returns::Returns;
use strength::solved::{Accuracy, MoveTally};
use weights::WeightsVersion;

use crate::regression::Regression;

/// Publishes the version being measured.
pub(crate) fn version(version: WeightsVersion) {
    gauge!("zerofleet_arena_weights_version").set(version.0 as f64);
}

/// Publishes the evaluator of a version. The evaluator with the latest version is in use.
pub(crate) fn evaluator(name: &str, version: WeightsVersion) {
    gauge!("zerofleet_arena_evaluator", "evaluator" => name.to_owned()).set(version.0 as f64);
    if let Some(device) = evaluators::device_of(name) {
        service::devices::placed("weights", device);
    }
}

/// Returns the metric label for how actions are chosen: by the network's highest prior, or by a search.
fn method(simulations: u32) -> &'static str {
    if simulations == 0 { "raw" } else { "search" }
}

/// Publishes the accuracy and the value errors on solved positions.
pub(crate) fn accuracy(simulations: u32, accuracy: &Accuracy) {
    let search = method(simulations);
    let set = |band: &str, tally: &MoveTally| {
        let shares = [("preserving", tally.outcome_preserving_share()), ("optimal", tally.optimal_share())];
        for (measure, share) in shares {
            let labels = [("search", search.to_owned()), ("measure", measure.to_owned()), ("band", band.to_owned())];
            gauge!("zerofleet_arena_accuracy", &labels).set(share);
        }
        if let Some(error) = tally.value_error() {
            let labels = [("search", search.to_owned()), ("band", band.to_owned())];
            gauge!("zerofleet_arena_value_error", &labels).set(error);
        }
    };
    set("overall", &accuracy.overall);
    for band in &accuracy.bands {
        set(&band.band, &band.tally);
    }
}

/// Publishes the ratings; `current` is the version being measured.
pub(crate) fn ratings(ratings: &[Rated], current: Option<WeightsVersion>, games: u64) {
    counter!("zerofleet_arena_games_total").absolute(games);
    for Rated { player, elo, low, high, .. } in ratings {
        match player {
            Player::Version(version) if Some(*version) == current => {
                gauge!("zerofleet_arena_elo").set(*elo);
                gauge!("zerofleet_arena_elo_low").set(*low);
                gauge!("zerofleet_arena_elo_high").set(*high);
            }
            // The set of earlier versions changes, so that one series per version would grow without bound.
            Player::Version(_) => {}
            Player::Random | Player::Playouts { .. } | Player::AlphaBeta { .. } => {
                gauge!("zerofleet_arena_opponent_elo", "opponent" => player.to_string()).set(*elo);
            }
        }
    }
}

/// Publishes the version that has passed the gate.
pub(crate) fn accepted(version: WeightsVersion) {
    gauge!("zerofleet_arena_accepted_version").set(version.0 as f64);
}

/// Publishes 1 if the last measured version is significantly weaker than the best version before it, else 0.
pub(crate) fn regression(found: Option<&Regression>) {
    gauge!("zerofleet_arena_regression").set(if found.is_some() { 1.0 } else { 0.0 });
}

/// Publishes the mean return of a player.
pub(crate) fn returns(player: Player, returns: &Returns) {
    if !matches!(player, Player::Version(_)) {
        gauge!("zerofleet_arena_opponent_return", "opponent" => player.to_string()).set(returns.mean);
        return;
    }
    gauge!("zerofleet_arena_return_mean").set(returns.mean);
    gauge!("zerofleet_arena_return_low").set(returns.low);
    gauge!("zerofleet_arena_return_high").set(returns.high);
    gauge!("zerofleet_arena_episode_length_mean").set(returns.length);
}

/// Publishes the number of evaluation episodes.
pub(crate) fn episodes(episodes: u64) {
    counter!("zerofleet_arena_episodes_total").absolute(episodes);
}

/// Publishes the result of playing every line of a tiny game.
pub(crate) fn exhaustive(simulations: u32, report: &Report) {
    gauge!("zerofleet_arena_exhaustive_lost", "search" => method(simulations)).set(report.lost as f64);
}

/// Publishes the time spent on measurements.
pub(crate) fn busy(busy: Duration) {
    gauge!("zerofleet_arena_busy_seconds_total").set(busy.as_secs_f64());
}
