use super::*;

#[test]
fn the_defaults_make_sense() {
    let settings = Config::default().settings().unwrap();
    assert_eq!(settings.game, GameKind::ConnectFour);
    assert!(settings.threads >= 1);
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
    let mut config = Config::default();
    config.actor.drain_seconds = -1.0;
    assert!(refused(config).contains("actor.drain_seconds"));
    let mut config = Config::default();
    config.actor.replay = "not an address".into();
    assert!(refused(config).contains("actor.replay"));
}
