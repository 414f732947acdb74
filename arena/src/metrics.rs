//! Exports the metrics of the arena; docs/metrics.md lists the names.

use std::time::Duration;

use metrics::{counter, describe_counter, describe_gauge, gauge};
use weights::WeightsVersion;

use crate::exhaustive::Report;
use crate::ledger::Rated;
use crate::player::Player;
use crate::solved::{Accuracy, Tally};

/// The method by which an action in a solved position was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    /// The highest prior of the network.
    Raw,
    /// A search.
    Searched,
}

impl Answered {
    fn label(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Searched => "search",
        }
    }
}

/// Describes each metric.
pub fn describe() {
    describe_gauge!("zerofleet_arena_weights_version", "The weights version being measured");
    describe_gauge!("zerofleet_arena_evaluator", "The newest weights version that this evaluator was built for");
    describe_gauge!("zerofleet_arena_accuracy", "Share of solved positions answered well");
    describe_gauge!("zerofleet_arena_elo", "Elo of the weights version being measured; random play is 0");
    describe_gauge!("zerofleet_arena_elo_low", "Lower end of its 95 % confidence interval");
    describe_gauge!("zerofleet_arena_elo_high", "Upper end of its 95 % confidence interval");
    describe_gauge!("zerofleet_arena_opponent_elo", "Elo of each opponent");
    describe_counter!("zerofleet_arena_games_total", "Rated games since the run began");
    describe_gauge!("zerofleet_arena_exhaustive_lost", "Ends of games lost against every possible reply");
    describe_gauge!("zerofleet_arena_busy_seconds_total", "Time spent measuring");
}

/// Publishes the version being measured.
pub fn version(version: WeightsVersion) {
    gauge!("zerofleet_arena_weights_version").set(version.0 as f64);
}

/// Publishes the evaluator of a version; that of the newest version is in use.
pub fn evaluator(name: &str, version: WeightsVersion) {
    gauge!("zerofleet_arena_evaluator", "evaluator" => name.to_owned()).set(version.0 as f64);
}

/// Publishes the accuracy on solved positions.
pub fn accuracy(answered: Answered, accuracy: &Accuracy) {
    let search = answered.label();
    let set = |band: &str, tally: &Tally| {
        let shares = [("preserving", tally.outcome_preserving_share()), ("optimal", tally.optimal_share())];
        for (measure, share) in shares {
            let labels = [("search", search.to_owned()), ("measure", measure.to_owned()), ("band", band.to_owned())];
            gauge!("zerofleet_arena_accuracy", &labels).set(share);
        }
    };
    set("overall", &accuracy.overall);
    for band in &accuracy.bands {
        set(band.band.name(), &band.tally);
    }
}

/// Publishes the ratings; `current` is the version being measured.
pub fn ratings(ratings: &[Rated], current: Option<WeightsVersion>, games: u64) {
    counter!("zerofleet_arena_games_total").absolute(games);
    for Rated { player, rating, .. } in ratings {
        match player {
            Player::Version(version) if Some(*version) == current => {
                gauge!("zerofleet_arena_elo").set(rating.elo);
                gauge!("zerofleet_arena_elo_low").set(rating.low);
                gauge!("zerofleet_arena_elo_high").set(rating.high);
            }
            // Earlier versions change, so a series for each would grow without bound.
            Player::Version(_) => {}
            Player::Random | Player::Playouts { .. } => {
                gauge!("zerofleet_arena_opponent_elo", "opponent" => player.to_string()).set(rating.elo);
            }
        }
    }
}

/// Publishes the result of playing against every reply.
pub fn exhaustive(answered: Answered, report: &Report) {
    gauge!("zerofleet_arena_exhaustive_lost", "search" => answered.label()).set(report.lost as f64);
}

/// Publishes the time spent measuring.
pub fn busy(busy: Duration) {
    gauge!("zerofleet_arena_busy_seconds_total").set(busy.as_secs_f64());
}
