use super::*;

#[test]
fn the_defaults_make_sense() {
    let settings = Config::default().settings().unwrap();
    assert_eq!(settings.game, GameKind::ConnectFour);
    assert!(settings.actor.threads >= 1);
}

#[test]
fn keys_out_of_range_are_named() {
    let refused = |config: Config| config.settings().unwrap_err().to_string();
    let mut config = Config::default();
    config.run.game = "chess".into();
    assert!(refused(config).contains("run.game"));
    let mut config = Config::default();
    config.search.c_init = f32::NAN;
    assert!(refused(config).contains("search.c_init"));
    let mut config = Config::default();
    config.selfplay.full_share = 0.0;
    assert!(refused(config).contains("selfplay.full_share"));
    // A drain until after the end of time would end in a panic, and not with what was finished handed in.
    for drain_seconds in [-1.0, 1e19, f64::INFINITY, f64::NAN] {
        let mut config = Config::default();
        config.actor.drain_seconds = drain_seconds;
        assert!(refused(config).contains("actor.drain_seconds"), "{drain_seconds}");
    }
    for unacknowledged_max in [0, usize::MAX] {
        let mut config = Config::default();
        config.actor.unacknowledged_max = unacknowledged_max;
        assert!(refused(config).contains("actor.unacknowledged_max"));
    }
    let mut config = Config::default();
    config.actor.threads = usize::MAX;
    assert!(refused(config).contains("actor.threads"));
    let mut config = Config::default();
    config.selfplay.games = usize::MAX;
    assert!(refused(config).contains("selfplay.games"));
    for replay in ["not an address", "http://a:7001,b:7001", ""] {
        let mut config = Config::default();
        config.actor.replay = replay.into();
        assert!(refused(config).contains("actor.replay"), "{replay}");
    }
    for seconds in [-1.0, 1e19, f64::INFINITY, f64::NAN] {
        let mut config = Config::default();
        config.actor.replay_away_seconds_max = seconds;
        assert!(refused(config).contains("actor.replay_away_seconds_max"), "{seconds}");
    }
}

#[test]
fn several_replay_servers_are_taken() {
    let mut config = Config::default();
    config.actor.replay = "http://a:7001, http://b:7001".into();
    assert_eq!(config.settings().unwrap().replay.to_string(), "http://a:7001,http://b:7001");
}
