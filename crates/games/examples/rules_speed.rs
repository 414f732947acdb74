//! Measures the rules of games: `cargo run --release -p games --example rules_speed -- go-9 go-19 hex-11`.
//!
//! Prints the time of a position in random games, which in Go fill every eye and capture far more than others: legal
//! actions, a random one of them, the observation; besides, the time of a hash and of a copy.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement reads the clock and its arguments, and prints"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use game::Game;
use games::{GameKind, Generator, with_game};

/// The time for which each game is measured.
const ENOUGH: Duration = Duration::from_secs(2);

fn main() {
    println!(
        "{:<16} {:>10} {:>12} {:>10} {:>10} {:>10}",
        "game", "plies", "µs/position", "µs/hash", "µs/copy", "bytes"
    );
    for name in std::env::args().skip(1) {
        with_game!(name.parse::<GameKind>().unwrap(), |game| measure(&game));
    }
}

fn measure<G: Game>(game: &G) {
    let mut observation = vec![0.0; game.spec().observation.len()];
    let (mut legal, mut choice) = (Vec::new(), Generator::new(1));
    let (mut games, mut plies, mut took) = (0_u64, 0_u64, Duration::ZERO);
    let (mut hashes, mut copies) = (Duration::ZERO, Duration::ZERO);
    while took < ENOUGH {
        let mut positions = Vec::new();
        let mut position = game.start_from(games);
        let begun = Instant::now();
        loop {
            game.legal_actions(&position, &mut legal);
            if legal.is_empty() {
                break;
            }
            game.play(&mut position, legal[choice.below(legal.len())]);
            game.observe(&position, &mut observation);
            plies += 1;
            black_box(&observation);
        }
        took += begun.elapsed();
        games += 1;

        // The first positions of another game.
        let mut position = game.start_from(games);
        for _ in 0..64 {
            game.legal_actions(&position, &mut legal);
            if legal.is_empty() {
                break;
            }
            game.play(&mut position, legal[choice.below(legal.len())]);
            positions.push(position.clone());
        }
        let begun = Instant::now();
        black_box(positions.iter().fold(0, |sum, position| sum ^ game.hash(position)));
        hashes += begun.elapsed() / u32::try_from(positions.len()).unwrap();
        let begun = Instant::now();
        black_box(positions.clone());
        copies += begun.elapsed() / u32::try_from(positions.len()).unwrap();
    }
    let micros = |time: Duration, count: u64| time.as_secs_f64() * 1e6 / count as f64;
    println!(
        "{:<16} {:>10.1} {:>12.3} {:>10.3} {:>10.3} {:>10}",
        game.spec().name,
        plies as f64 / games as f64,
        micros(took, plies),
        micros(hashes, games),
        micros(copies, games),
        size_of::<G::Position>()
    );
}
