//! Claims about the configuration.

use super::{ArenaSection, Config};

fn refusal(change: impl FnOnce(&mut Config)) -> String {
    let mut config = Config::default();
    change(&mut config);
    config.settings().unwrap_err().to_string()
}

fn arena(change: impl FnOnce(&mut ArenaSection)) -> String {
    refusal(|config| change(&mut config.arena))
}

#[test]
fn the_defaults_are_settings() {
    let settings = Config::default().settings().unwrap();
    assert_eq!(settings.measurement.simulations, 64);
    assert_eq!(settings.measurement.playouts, [50, 200, 1000]);
}

#[test]
fn zero_positions_mean_all() {
    let mut config = Config::default();
    config.arena.positions = 0;
    assert_eq!(config.settings().unwrap().measurement.positions_max, usize::MAX);
}

#[test]
fn opponents_by_playouts_are_as_many_as_there_are_budgets_from_the_smallest_to_the_greatest() {
    let mut config = Config::default();
    config.arena.playouts = vec![200, 50, 200];
    assert_eq!(config.settings().unwrap().measurement.playouts, [50, 200]);
}

#[test]
fn values_out_of_range_are_refused_by_key() {
    assert!(refusal(|config| config.run.game = "chess".into()).starts_with("run.game: `chess` is not a game"));
    assert!(
        arena(|arena| arena.weights = "127.0.0.1:7002".into()).starts_with("arena.weights: `127.0.0.1:7002` is not")
    );
    assert_eq!(arena(|arena| arena.simulations = 0), "arena.simulations: must be at least 1");
    assert_eq!(arena(|arena| arena.openings_per_match = 0), "arena.openings_per_match: must be at least 1");
    assert_eq!(arena(|arena| arena.playouts = vec![50, 0]), "arena.playouts: must be at least 1");
    for share in [0.0, -1.0, 1.5, f64::NAN] {
        assert_eq!(arena(|arena| arena.cpu_share = share), "arena.cpu_share: must be above 0 and at most 1");
    }
    assert!(arena(|arena| arena.version_interval_seconds = -1.0).starts_with("arena.version_interval_seconds: "));
}
