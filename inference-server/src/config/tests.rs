use super::{Config, Source};

#[test]
fn the_defaults_follow_a_learner() {
    let settings = Config::default().settings().unwrap();
    assert_eq!(settings.source, Source::Learner("http://127.0.0.1:7002".into()));
    assert_eq!(settings.game.to_string(), "connect_four");
}

#[test]
fn a_file_takes_the_learner_s_place() {
    let mut config = Config::default();
    config.inference.weights = "weights/v000001.json".into();
    config.inference.learner = "nobody".into();
    assert_eq!(config.settings().unwrap().source, Source::File("weights/v000001.json".into()));
}

#[test]
fn a_value_out_of_range_is_refused_by_its_key() {
    let refused = |change: fn(&mut Config)| {
        let mut config = Config::default();
        change(&mut config);
        config.settings().unwrap_err().to_string()
    };
    assert!(refused(|c| c.inference.versions_kept = 0).contains("inference.versions_kept"));
    assert!(refused(|c| c.inference.batch_max = 1 << 20).contains("inference.batch_max"));
    assert!(refused(|c| c.inference.timeout_ms = 0).contains("inference.timeout_ms"));
    assert!(refused(|c| c.inference.learner = "nobody".into()).contains("inference.learner"));
    assert!(refused(|c| c.run.game = "go".into()).contains("run.game"));
}
