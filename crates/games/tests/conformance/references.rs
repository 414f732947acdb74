//! Compares games with slow rules, on boards of every size.

use game::Game;
use games::{Entry, GAMES, GameKind, Variants};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use reference_games::{compare, reference};

/// Approximate number of cells that the slow rules visit per board size: dozens of games on small boards, one on the
/// largest.
const CELLS: usize = 60_000;

/// Returns the names of all boards for a game; of a few boards if both sides vary.
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
    assert!(compared.len() >= 50, "slow rules have {compared:?} alone");
    for name in compared {
        let game = name.parse::<GameKind>().unwrap().rules();
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let shape = game.spec().observation;
        let mut plies = 0;
        while plies * shape.height * shape.width < CELLS {
            compare(&game, &mut *reference(&name).unwrap(), |legal| {
                plies += 1;
                Some(rng.random_range(0..legal))
            });
        }
    }
}
