//! Measures when threads pay off for environments by rules:
//! `cargo run --release -p games --example environment_threads`.
//!
//! Prints the time of a step in 256 environments on one, two and four threads, for rules of several costs:
//! tic-tac-toe, plain and with added work per action.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement reads the clock and prints"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use game::{
    Action, Environments as _, Error, Game, Outcome, Play, Player, RulesEnvironments, Spec, Start, Symmetry, mix,
};
use games::TicTacToe;

const ENVIRONMENTS: usize = 256;
const EPISODES: usize = 20;
/// Rounds of [`mix`] per action as added work.
const WORK: [u32; 4] = [0, 30, 300, 3_000];

/// Tic-tac-toe with slower actions.
#[derive(Debug, Clone)]
struct Slow {
    rules: TicTacToe,
    work: u32,
}

fn main() {
    println!("{:<12} {:>8} {:>14} {:>12}", "work/action", "threads", "µs/step of 256", "µs/action");
    for work in WORK {
        for threads in [1, 2, 4] {
            let median = median_step(&Slow { rules: TicTacToe::new(), work }, threads);
            let micros = median.as_secs_f64() * 1e6;
            println!("{work:<12} {threads:>8} {micros:>14.1} {:>12.3}", micros / ENVIRONMENTS as f64);
        }
    }
}

/// Returns the median time of a step in which every environment takes an action.
fn median_step(game: &Slow, threads: usize) -> Duration {
    let mut environments = RulesEnvironments::on_threads(game.clone(), ENVIRONMENTS, threads).unwrap();
    let starts: Vec<Start> = (0..ENVIRONMENTS).map(|environment| Start { environment, seed: 0 }).collect();
    let (mut started, mut taken, mut times) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..EPISODES {
        environments.begin(&starts, &mut started).unwrap();
        // The seventh action is the first to complete a line.
        for action in 0..7 {
            let plays: Vec<Play> =
                (0..ENVIRONMENTS).map(|environment| Play { environment, action: Action(action) }).collect();
            let start = Instant::now();
            environments.step(&plays, &mut taken).unwrap();
            times.push(start.elapsed());
        }
    }
    times.sort();
    times[times.len() / 2]
}

impl Game for Slow {
    type Position = <TicTacToe as Game>::Position;

    fn spec(&self) -> &Spec {
        self.rules.spec()
    }

    fn start(&self) -> Self::Position {
        self.rules.start()
    }

    fn to_move(&self, position: &Self::Position) -> Player {
        self.rules.to_move(position)
    }

    fn legal_actions(&self, position: &Self::Position, actions: &mut Vec<Action>) {
        self.rules.legal_actions(position, actions);
    }

    fn is_legal(&self, position: &Self::Position, action: Action) -> bool {
        self.rules.is_legal(position, action)
    }

    fn play(&self, position: &mut Self::Position, action: Action) -> f32 {
        black_box((0..self.work).fold(1, |state, _| mix(state)));
        self.rules.play(position, action)
    }

    fn outcome(&self, position: &Self::Position) -> Option<Outcome> {
        self.rules.outcome(position)
    }

    fn observe(&self, position: &Self::Position, planes: &mut [f32]) {
        self.rules.observe(position, planes);
    }

    fn hash(&self, position: &Self::Position) -> u64 {
        self.rules.hash(position)
    }

    fn symmetries(&self) -> &[Symmetry] {
        self.rules.symmetries()
    }

    fn image(&self, position: &Self::Position, symmetry: usize) -> Self::Position {
        self.rules.image(position, symmetry)
    }

    fn action_name(&self, position: &Self::Position, action: Action) -> String {
        self.rules.action_name(position, action)
    }

    fn parse_action(&self, position: &Self::Position, text: &str) -> Result<Action, Error> {
        self.rules.parse_action(position, text)
    }

    fn render(&self, position: &Self::Position) -> String {
        self.rules.render(position)
    }
}
