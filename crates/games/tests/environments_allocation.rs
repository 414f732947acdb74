//! Tests that a step of environments by rules allocates nothing.
//!
//! The test is alone in the process, since the allocator counts for the whole process.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

#[path = "../../search/tests/counting/mod.rs"]
mod counting;

use counting::allocations;
use game::{Action, Environments as _, Play, RulesEnvironments, Start};
use games::ConnectFour;

/// Columns of the moves in every game: no line of four crosses the empty column 2. The first move is not counted.
const COLUMNS: [u16; 18] = [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 3, 3, 3, 3, 3, 3];

#[test]
fn a_warm_step_allocates_nothing() {
    assert_eq!(allocations_of_steps(RulesEnvironments::new(ConnectFour::new(), 64)), 0);
}

fn allocations_of_steps(mut environments: RulesEnvironments<ConnectFour>) -> usize {
    let starts: Vec<Start> = (0..64).map(|environment| Start { environment, seed: 0 }).collect();
    environments.begin(&starts, &mut Vec::new()).unwrap();
    let plays = |column| (0..64).map(|environment| Play { environment, action: Action(column) }).collect();
    let plays: Vec<Vec<Play>> = COLUMNS.into_iter().map(plays).collect();
    let mut taken = Vec::new();
    environments.step(&plays[0], &mut taken).unwrap();
    let before = allocations();
    for plays in &plays[1..] {
        environments.step(plays, &mut taken).unwrap();
    }
    allocations() - before
}
