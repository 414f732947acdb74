//! Measures the simulations per second of the tree alone: a game of seven moves without an end, a uniform evaluator.
//!
//! `cargo run --release -p search --example speed`
// An example measures and prints.
#![allow(clippy::print_stdout, clippy::disallowed_methods, clippy::disallowed_macros)]

use std::time::Instant;

use game::Action;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use search::{Expansion, Exploration, SearchAlgorithm, Selection, Settings, Tree};

const ACTIONS: [Action; 7] = [Action(0), Action(1), Action(2), Action(3), Action(4), Action(5), Action(6)];
const PRIORS: [f32; 7] = [1.0 / 7.0; 7];

fn search(tree: &mut Tree<u64>, simulations: u32, rng: &mut ChaCha8Rng) -> u32 {
    let expansion = |state: u64| {
        let value = (state >> 56) as f32 / 256.0 - 0.5;
        Expansion::Evaluated { actions: &ACTIONS, priors: &PRIORS, value }
    };
    tree.reset(1, expansion(1));
    tree.begin(simulations, Exploration::Explore, rng);
    while !tree.is_finished() {
        if let Selection::Leaf(request) = tree.select() {
            let state =
                (tree.parent_state(&request) ^ u64::from(request.action.0 + 1)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            tree.answer(request, state, 0.0, -1.0, expansion(state));
        }
    }
    tree.root().simulations()
}

fn main() {
    for (name, algorithm) in [("pUCT", SearchAlgorithm::Puct), ("Gumbel", SearchAlgorithm::GUMBEL)] {
        for simulations in [64, 800, 10_000] {
            let mut tree = Tree::new(Settings { algorithm, ..Settings::default() });
            let mut rng = ChaCha8Rng::seed_from_u64(1);
            let (start, mut total) = (Instant::now(), 0_u64);
            while start.elapsed().as_secs_f32() < 0.7 {
                total += u64::from(search(&mut tree, simulations, &mut rng));
            }
            let rate = total as f64 / start.elapsed().as_secs_f64() / 1e6;
            println!("{name}, {simulations} simulations a move: {rate:.2} million a second");
        }
    }
}
