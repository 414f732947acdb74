use super::*;

fn actor(text: &str) -> Vec<(usize, Role, Exposition)> {
    vec![(0, Role::Actor, Exposition::parse(text))]
}

#[test]
fn counters_add_up_over_restarts_and_sessions() {
    let mut meter = Meter::resume(BTreeMap::from([("zerofleet_actor_games_total".to_owned(), 100.0)]));
    assert_eq!(meter.read(1.0, &actor("zerofleet_actor_games_total 5")).games, Some(105.0));
    assert_eq!(meter.read(2.0, &actor("zerofleet_actor_games_total 7")).games, Some(107.0));
    meter.restarted(0);
    assert_eq!(meter.read(3.0, &actor("zerofleet_actor_games_total 9")).games, Some(116.0));
    assert_eq!(meter.read(4.0, &actor("zerofleet_actor_games_total 1")).games, Some(117.0), "an unseen restart");
}

#[test]
fn rates_are_growth_over_time_and_missing_numbers_stay_missing() {
    let mut meter = Meter::default();
    let text = |games, batches| {
        actor(&format!("zerofleet_actor_evaluations_total {games}\nzerofleet_actor_batches_total {batches}"))
    };
    assert_eq!(meter.read(0.0, &text(0, 0)).evaluations_per_second, None);
    let readings = meter.read(2.0, &text(400, 4));
    assert_eq!(readings.evaluations_per_second, Some(200.0));
    assert_eq!(readings.batch_mean, Some(100.0));
    assert_eq!((readings.loss_total, readings.elo, readings.games), (None, None, None));
}

#[test]
fn several_replay_servers_are_told_as_one() {
    let server = |index, text: &str| (index, Role::Replay, Exposition::parse(text));
    let first = server(0, "zerofleet_replay_items 100\nzerofleet_replay_samples_per_insert 4");
    let second = server(1, "zerofleet_replay_items 20\nzerofleet_replay_samples_per_insert 3");
    let readings = Meter::default().read(1.0, &[first, second]);
    assert_eq!((readings.replay_items, readings.samples_per_insert), (Some(120.0), Some(3.5)));
    assert_eq!(readings.window_items, None);
}
