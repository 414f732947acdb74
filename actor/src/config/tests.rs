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

#[test]
fn nobody_plays_without_a_network_unless_two_keys_say_so() {
    let simulated = |kernel: &str, simulated_delay_us, inference: &str| {
        let mut config = Config::default();
        (config.actor.kernel, config.actor.simulated_delay_us) = (kernel.into(), simulated_delay_us);
        config.actor.inference = inference.into();
        config.settings().map(|settings| settings.simulated).map_err(|error| error.to_string())
    };
    assert_eq!(simulated("auto", 0, ""), Ok(None));
    assert_eq!(simulated("simulated", 250, ""), Ok(Some(Duration::from_micros(250))));
    for (kernel, delay_us) in [("auto", 250), ("simulated", 0), ("simulated", u64::MAX)] {
        let error = simulated(kernel, delay_us, "").unwrap_err();
        assert!(error.contains("actor.simulated_delay_us"), "{error}");
    }
    let error = simulated("simulated", 250, "http://127.0.0.1:7003").unwrap_err();
    assert!(error.contains("actor.kernel"), "{error}");
}

#[cfg(feature = "torch")]
#[test]
fn an_accelerator_gets_two_threads_unless_their_number_is_given() {
    let threads = |given: usize, there: usize| {
        let mut config = Config::default();
        config.actor.threads = given;
        let mut settings = config.settings().unwrap();
        // As on a machine with so many cores.
        settings.actor.threads = there;
        settings.keep_accelerator_busy();
        settings.actor.threads
    };
    assert_eq!((threads(0, 1), threads(0, 8), threads(1, 1)), (2, 8, 1));
}
