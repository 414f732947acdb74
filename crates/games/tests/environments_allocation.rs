//! Tests that a step of environments by rules allocates nothing.
//!
//! The test is alone in the process, since the allocator counts for the whole process.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

#[path = "../../search/tests/counting/mod.rs"]
mod counting;

use counting::allocations;
use game::{Action, Environments as _, Play, RulesEnvironments, Start};
use games::TicTacToe;

/// Number of counted steps; none ends a game.
const STEPS: u16 = 4;

#[test]
fn a_warm_step_allocates_nothing() {
    assert_eq!(allocations_of_steps(RulesEnvironments::new(TicTacToe::new(), 64)), 0);
    let on_threads = allocations_of_steps(RulesEnvironments::on_threads(TicTacToe::new(), 64, 2).unwrap());
    // A thread allocates a wake-up handle before the first wait.
    assert!(on_threads <= 2, "{on_threads} allocations in {STEPS} steps on two threads");
}

fn allocations_of_steps(mut environments: RulesEnvironments<TicTacToe>) -> usize {
    let starts: Vec<Start> = (0..64).map(|environment| Start { environment, seed: 0 }).collect();
    environments.begin(&starts, &mut Vec::new()).unwrap();
    let plays = |action| (0..64).map(|environment| Play { environment, action: Action(action) }).collect();
    let plays: Vec<Vec<Play>> = (0..=STEPS).map(plays).collect();
    let mut taken = Vec::new();
    environments.step(&plays[0], &mut taken).unwrap();
    let before = allocations();
    for plays in &plays[1..] {
        environments.step(plays, &mut taken).unwrap();
    }
    allocations() - before
}
