//! Checks that simulations allocate no memory once a tree has grown.
//!
//! No other test may run in this process, because the allocator counts the allocations of all threads.

mod counting;

use counting::allocations;
use game::Action;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use search::{Expansion, Exploration, SearchAlgorithm, Selection, Settings, Tree};

const ACTIONS: [Action; 5] = [Action(0), Action(1), Action(2), Action(3), Action(4)];
const PRIORS: [f32; 5] = [0.125, 0.25, 0.25, 0.25, 0.125];

fn expansion(state: u64) -> Expansion<'static> {
    match state % 11 {
        0 => Expansion::Terminal { value: -1.0 },
        rest => Expansion::Evaluated { actions: &ACTIONS, priors: &PRIORS, value: rest as f32 / 16.0 - 0.3 },
    }
}

/// Plays two moves of one episode with three leaves in flight.
fn play(tree: &mut Tree<u64>, rng: &mut ChaCha8Rng) {
    tree.reset(1, expansion(1));
    for _ in 0..2 {
        tree.begin(400, Exploration::Explore, rng);
        while !tree.is_finished() {
            let mut requests = [None, None, None];
            for slot in &mut requests {
                if let Selection::Leaf(request) = tree.select() {
                    *slot = Some(request);
                }
            }
            for request in requests.into_iter().flatten() {
                let state = tree.parent_state(&request).wrapping_mul(31).wrapping_add(u64::from(request.action.0) + 7);
                tree.answer(request, state, 0.0, -1.0, expansion(state));
            }
        }
        if !tree.advance(Action(1)) {
            return;
        }
    }
}

#[test]
fn a_warm_tree_allocates_nothing() {
    for algorithm in [SearchAlgorithm::Puct, SearchAlgorithm::GUMBEL] {
        let mut tree = Tree::new(Settings { algorithm, ..Settings::default() });
        // The same seed is played twice: the second time, every buffer already has the required size.
        play(&mut tree, &mut ChaCha8Rng::seed_from_u64(1));
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let before = allocations();
        play(&mut tree, &mut rng);
        assert_eq!(allocations() - before, 0, "{algorithm:?}");
    }
}
