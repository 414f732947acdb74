//! Claims about names of players.

use weights::WeightsVersion;

use super::Player;

#[test]
fn every_player_is_read_back_from_its_name() {
    for player in [Player::Random, Player::Playouts { simulations: 200 }, Player::Version(WeightsVersion(12))] {
        assert_eq!(player.to_string().parse(), Ok(player));
    }
}

#[test]
fn other_names_are_refused_and_named() {
    for name in ["", "Random", "playouts-", "playouts-0", "playouts--1", "v", "vx", "12"] {
        let error = name.parse::<Player>().unwrap_err().to_string();
        assert!(error.starts_with(&format!("`{name}` is not a player")), "{error}");
    }
}
