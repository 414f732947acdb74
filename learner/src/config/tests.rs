use super::{Config, LearnerSection, NetworkSection};

/// What is answered to a run of tic-tac-toe with this `[network]`.
fn answered(network: NetworkSection) -> Result<NetworkSection, String> {
    let mut config = Config { network, ..Config::default() };
    config.run.game = "tic_tac_toe".to_owned();
    config.settings().map(|settings| settings.network).map_err(|error| error.to_string())
}

#[test]
fn squeeze_excitation_and_global_pooling_reach_the_settings_and_are_off_by_default() {
    let network = NetworkSection::default();
    assert_eq!((network.squeeze_excitation, network.global_pooling), (0, 0));
    let network = answered(NetworkSection { squeeze_excitation: 16, global_pooling: 63, ..network }).unwrap();
    assert_eq!((network.squeeze_excitation, network.global_pooling), (16, 63));
}

#[test]
fn options_of_the_network_out_of_range_are_refused_by_their_key() {
    let refused = |network| answered(network).map(drop).unwrap_err();
    let error = refused(NetworkSection { squeeze_excitation: 2049, ..NetworkSection::default() });
    assert!(error.contains("network.squeeze_excitation") && error.contains("must be from 0 to 2048"), "{error}");
    let error = refused(NetworkSection { global_pooling: 64, ..NetworkSection::default() });
    assert!(error.contains("network.global_pooling") && error.contains("must be from 0 to 63"), "{error}");
}

#[test]
fn a_network_wider_or_deeper_than_the_network_crate_makes_is_refused_by_its_key() {
    let refused = |network| answered(network).map(drop).unwrap_err();
    let error = refused(NetworkSection { channels: 2049, ..NetworkSection::default() });
    assert!(error.contains("network.channels") && error.contains("must be from 1 to 2048"), "{error}");
    let error = refused(NetworkSection { blocks: 257, ..NetworkSection::default() });
    assert!(error.contains("network.blocks") && error.contains("must be from 1 to 256"), "{error}");
}

#[test]
fn what_the_replay_server_would_never_answer_is_refused_by_its_key() {
    let refused = |learner| Config { learner, ..Config::default() }.settings().unwrap_err().to_string();
    let error = refused(LearnerSection { batch_size: 4097, ..LearnerSection::default() });
    assert!(error.contains("learner.batch_size") && error.contains("must be from 1 to 4096"), "{error}");
    let error = refused(LearnerSection { replay: "127.0.0.1:7001".to_owned(), ..LearnerSection::default() });
    assert!(error.contains("learner.replay") && error.contains("http://host:port"), "{error}");
}

#[test]
fn several_replay_servers_are_taken_and_a_wrong_one_is_named() {
    let answered = |replay: &str| {
        let learner = LearnerSection { replay: replay.to_owned(), ..LearnerSection::default() };
        Config { learner, ..Config::default() }.settings().map(|settings| settings.replay.to_string())
    };
    assert_eq!(answered("http://a:7001, http://b:7001").unwrap(), "http://a:7001,http://b:7001");
    let error = answered("http://a:7001,b:7001").unwrap_err().to_string();
    assert!(error.contains("learner.replay") && error.contains("`b:7001`"), "{error}");
}

#[test]
fn who_trains_stem_and_tower_is_named_and_another_name_is_refused_by_its_key() {
    let answered = |kernel: &str| {
        let learner = LearnerSection { kernel: kernel.to_owned(), ..LearnerSection::default() };
        Config { learner, ..Config::default() }.settings().map(|settings| settings.trainer.tower)
    };
    assert_eq!(answered("auto").unwrap(), network::TowerPreference::Auto);
    assert_eq!(answered("libtorch").unwrap(), network::TowerPreference::Libtorch);
    let error = answered("amx-bf16").unwrap_err().to_string();
    assert!(error.contains("learner.kernel") && error.contains("expected auto or libtorch"), "{error}");
}
