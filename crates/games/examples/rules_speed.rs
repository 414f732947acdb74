//! Measures the rules of games: `cargo run --release -p games --example rules_speed -- go-9 go-19 hex-11`; without
//! names, the board games.
//!
//! Prints a table. A ply of a random game lists the legal actions, draws one and plays it; random games of Go fill
//! every eye and capture far more than other games. The other columns are nanoseconds per operation on positions of
//! random games. On Linux, times are CPU times of the thread, so that other processes have less effect.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement reads the clock and its arguments, and prints"
)]

use std::hint::black_box;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use game::{Action, Game};
use games::{GameKind, Generator, with_game};

const BOARD_GAMES: [&str; 10] = [
    "tic_tac_toe",
    "connect_four",
    "connect_four-9x6",
    "hex-11",
    "othello-8",
    "breakthrough-8",
    "gomoku-15",
    "go-9",
    "go-19",
    "chess",
];

/// Time for playing games, and for repeating each operation.
const ENOUGH: Duration = Duration::from_secs(1);

/// Number of positions for measuring operations: more than branch predictors remember.
const POSITIONS: usize = 4096;

fn main() {
    let columns = [
        "game",
        "plies",
        "positions/s",
        "legal actions",
        "copy",
        "copy and play",
        "observation",
        "image",
        "image of the observation",
        "hash",
        "bytes",
    ];
    println!("| {} |", columns.join(" | "));
    println!("|---{}|", "|---:".repeat(columns.len() - 1));
    let named: Vec<String> = std::env::args().skip(1).collect();
    let names = if named.is_empty() { BOARD_GAMES.map(String::from).to_vec() } else { named };
    for name in names {
        with_game!(name.parse::<GameKind>().unwrap(), |game| measure(&game));
    }
}

fn measure<G: Game>(game: &G) {
    let (plies, positions_per_second) = play(game);
    let samples = samples(game);
    let symmetry = game.symmetries().len() - 1;
    let len = game.spec().observation.len();
    let (mut legal, mut planes, mut image) = (Vec::new(), vec![0.0; len], vec![0.0; len]);
    let legal_actions = nanoseconds(&samples, |(position, _)| game.legal_actions(position, &mut legal));
    let copy = nanoseconds(&samples, |(position, _)| position.clone());
    let copy_and_play = nanoseconds(&samples, |(position, action)| {
        let mut next = position.clone();
        game.play(&mut next, *action);
        next
    });
    let observation = nanoseconds(&samples, |(position, _)| {
        game.observe(position, &mut planes);
        black_box(&planes);
    });
    let image_of_position = nanoseconds(&samples, |(position, _)| game.image(position, symmetry));
    let image_of_observation = nanoseconds(&samples, |_| {
        game.symmetries()[symmetry].observation(&planes, &mut image);
        black_box(&image);
    });
    let hash = nanoseconds(&samples, |(position, _)| game.hash(position));
    let times = [legal_actions, copy, copy_and_play, observation, image_of_position, image_of_observation, hash];
    println!(
        "| {} | {plies:.0} | {:.2} M | {} | {} |",
        game.spec().name,
        positions_per_second / 1e6,
        times.map(|time| format!("{time:.0}")).join(" | "),
        size_of::<G::Position>()
    );
}

/// Plays random games; returns the plies per game and the positions/s.
fn play<G: Game>(game: &G) -> (f64, f64) {
    let (mut legal, mut choice) = (Vec::new(), Generator::new(1));
    let (mut games, mut plies) = (0_u64, 0_u64);
    let (begun, before) = (Instant::now(), time());
    while begun.elapsed() < ENOUGH {
        let mut position = game.start_from(games);
        loop {
            game.legal_actions(&position, &mut legal);
            if legal.is_empty() {
                break;
            }
            game.play(&mut position, legal[choice.below(legal.len())]);
            plies += 1;
        }
        games += 1;
    }
    (plies as f64 / games as f64, plies as f64 / (time() - before).as_secs_f64())
}

/// Returns non-terminal positions of random games, each with the next action.
fn samples<G: Game>(game: &G) -> Vec<(G::Position, Action)> {
    let (mut legal, mut choice) = (Vec::new(), Generator::new(2));
    let (mut samples, mut position, mut games) = (Vec::new(), game.start(), 0);
    while samples.len() < POSITIONS {
        game.legal_actions(&position, &mut legal);
        if legal.is_empty() {
            games += 1;
            position = game.start_from(games);
            continue;
        }
        let action = legal[choice.below(legal.len())];
        samples.push((position.clone(), action));
        game.play(&mut position, action);
    }
    samples
}

/// Returns the nanoseconds per operation on a position.
fn nanoseconds<P, R>(samples: &[(P, Action)], mut operation: impl FnMut(&(P, Action)) -> R) -> f64 {
    let (mut count, begun, before) = (0_usize, Instant::now(), time());
    while begun.elapsed() < ENOUGH {
        for sample in samples {
            black_box(operation(black_box(sample)));
        }
        count += samples.len();
    }
    (time() - before).as_secs_f64() * 1e9 / count as f64
}

/// Returns the CPU time of this thread since some instant; elapsed time if the system does not count CPU time.
fn time() -> Duration {
    static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let text = std::fs::read_to_string("/proc/thread-self/schedstat");
    let on_cpu = text.ok().and_then(|text| text.split_whitespace().next()?.parse().ok());
    on_cpu.map_or_else(|| BEGUN.elapsed(), Duration::from_nanos)
}
