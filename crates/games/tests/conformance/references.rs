//! Compares the games that have slow rules with them, on boards of every size.

use games::{Entry, GAMES, GameKind, Variants};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use reference_games::{compare, reference};

/// The approximate number of plies of all games on a board: dozens of games on small ones.
const PLIES: usize = 1_500;

/// Returns the names of all boards of a game; of a few where both sides vary.
fn names(entry: &Entry) -> Vec<String> {
    match entry.variants {
        Variants::One => vec![entry.name.to_owned()],
        Variants::Sizes(sizes) => (sizes.min..=sizes.max).map(|size| format!("{}-{size}", entry.name)).collect(),
        Variants::Boards(_) => entry.examples().collect(),
        Variants::Named(names) => names.iter().map(|&name| name.to_owned()).collect(),
    }
}

#[test]
fn random_games_agree_with_the_slow_rules_at_every_ply() {
    let all = GAMES.iter().flat_map(|entry| names(entry));
    let compared: Vec<String> = all.filter(|name| reference(name).is_some()).collect();
    assert!(compared.len() >= 7, "slow rules have {compared:?} alone");
    for name in compared {
        let game = name.parse::<GameKind>().unwrap().rules();
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut plies = 0;
        while plies < PLIES {
            compare(&game, reference(&name).unwrap(), |legal| {
                plies += 1;
                Some(rng.random_range(0..legal))
            });
        }
    }
}
