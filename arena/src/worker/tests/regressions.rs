//! Regressions: values of the metric.

use std::sync::Mutex;

use metrics::{Counter, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

use super::*;

const NAME: &str = "zerofleet_arena_regression";

/// The values of the metric, in order.
#[derive(Default)]
struct Values(Mutex<Vec<f64>>);

impl GaugeFn for Values {
    fn increment(&self, _: f64) {
        unreachable!("{NAME} is set");
    }

    fn decrement(&self, _: f64) {
        unreachable!("{NAME} is set");
    }

    fn set(&self, value: f64) {
        self.0.lock().unwrap().push(value);
    }
}

/// Records this metric and no other.
struct Recording(Arc<Values>);

impl Recorder for Recording {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        if key.name() == NAME { Gauge::from_arc(Arc::clone(&self.0)) } else { Gauge::noop() }
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// Runs a worker, and returns the values of the metric: 0 at the start, then one value per check.
fn values(stage: &Stage, gate: GateKind, environment: Script) -> Vec<f64> {
    let values = Arc::<Values>::default();
    metrics::with_local_recorder(&Recording(Arc::clone(&values)), || stage.run_in(gate, environment));
    values.0.lock().unwrap().clone()
}

/// Returns a stage on which version 2 has one match left. It has lost all games to random play, which version 1 beats,
/// so that it is significantly weaker whatever the result of that match: the upper bound of the difference is -630.
fn weaker() -> Stage {
    let mut stage = Stage::new();
    stage.arena.games_per_version = 44;
    let mut ledger = stage.ledger();
    let [one, two] = [1, 2].map(|version| Player::Version(WeightsVersion(version)));
    ledger.add(one, Player::Random, Tally { pairs: [0, 0, 0, 2, 22] });
    ledger.add(two, Player::Random, Tally { pairs: [20, 0, 0, 0, 0] });
    stage.save(&ledger);
    stage
}

#[test]
fn a_weaker_version_is_reported_once_after_its_last_rated_game() {
    let stage = weaker();
    assert_eq!(values(&stage, GateKind::None, Script::new([version(2)], FOR_EVER)), [0.0, 1.0]);
    assert_eq!(stage.games_of(2), 44);
}

/// The next version is skipped, so that it has no separate check.
#[test]
fn a_weaker_version_that_is_replaced_before_its_last_rated_game_is_reported() {
    let stage = weaker();
    let environment = Script { hurried: Some(version(13)), ..Script::new([version(2)], FOR_EVER) };
    assert_eq!(values(&stage, GateKind::None, environment), [0.0, 1.0]);
    assert_eq!((stage.games_of(2), stage.games_of(13)), (40, 0));
}

/// The test of version 2 takes twice as many games as are rated, in six matches; equal players never decide it.
#[test]
fn under_a_gate_a_version_is_checked_once_after_its_test() {
    let mut stage = Stage::new();
    stage.arena.gate_games_max = 24;
    let environment = Script::new([version(1), version(2)], FOR_EVER);
    assert_eq!(values(&stage, GateKind::Sprt, environment), [0.0; 3]);
    assert_eq!((stage.games_of(2), stage.ledger().games_of(Player::Version(WeightsVersion(1)))), (24, 12 + 24));
}
