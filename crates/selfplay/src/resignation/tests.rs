use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::*;

fn watch(calibration_share: f32, resigned: Resigned) -> Watch {
    let below = Resignation::Below { threshold: -0.9, consecutive: 2, calibration_share, resigned };
    Watch::new(below, Players::Two, &mut ChaCha8Rng::seed_from_u64(1))
}

#[test]
fn a_player_resigns_after_so_many_hopeless_moves_of_their_own() {
    let mut watch = watch(0.0, Resigned::Decided);
    assert_eq!(watch.observe(Player::First, -0.95), Verdict::PlayOn);
    assert_eq!(watch.observe(Player::Second, 0.95), Verdict::PlayOn);
    assert_eq!(watch.observe(Player::First, -0.95), Verdict::Decided(Outcome::Win(Player::Second)));
}

#[test]
fn hope_in_between_begins_the_count_again() {
    let mut watch = watch(0.0, Resigned::Decided);
    for value in [-0.95, -0.5, -0.95] {
        assert_eq!(watch.observe(Player::Second, value), Verdict::PlayOn);
    }
    assert_eq!(watch.resigner(), None);
}

#[test]
fn a_resigned_game_that_is_played_out_is_only_marked() {
    let mut watch = watch(0.0, Resigned::PlayedOut);
    watch.observe(Player::First, -1.0);
    assert_eq!(watch.observe(Player::First, -1.0), Verdict::PlayOn);
    assert!(watch.is_resigned());
}

#[test]
fn calibration_games_play_on_and_remember_who_would_have_resigned() {
    let mut watch = watch(1.0, Resigned::Decided);
    watch.observe(Player::First, -1.0);
    assert_eq!(watch.observe(Player::First, -1.0), Verdict::PlayOn);
    assert!(!watch.is_resigned());
    assert_eq!(watch.resigner(), Some(Player::First));
}

#[test]
fn games_for_one_player_are_never_resigned() {
    let below =
        Resignation::Below { threshold: -0.1, consecutive: 1, calibration_share: 0.0, resigned: Resigned::Decided };
    let mut watch = Watch::new(below, Players::One, &mut ChaCha8Rng::seed_from_u64(1));
    assert_eq!(watch.observe(Player::First, -1.0), Verdict::PlayOn);
}
