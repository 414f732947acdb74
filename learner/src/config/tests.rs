use super::{Config, NetworkSection};

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
    assert!(error.contains("network.squeeze_excitation") && error.contains("must lie in 0 to 2048"), "{error}");
    let error = refused(NetworkSection { global_pooling: 64, ..NetworkSection::default() });
    assert!(error.contains("network.global_pooling") && error.contains("must lie in 0 to 63"), "{error}");
}
