//! Tests that a step of any game allocates nothing.
//!
//! This test is alone in the process, since the allocator counts all threads.

#[path = "../../search/tests/counting/mod.rs"]
mod counting;

use counting::allocations;
use game::{Action, Game, Outcome};
use games::{GAMES, GameKind, Generator, with_game};

/// Plays an episode with random actions; inspects every position like a driver.
fn play<G: Game>(
    game: &G,
    mut position: G::Position,
    seed: u64,
    legal: &mut Vec<Action>,
    observation: &mut [f32],
) -> Option<Outcome> {
    let mut choice = Generator::new(seed);
    loop {
        game.legal_actions(&position, legal);
        game.observe(&position, observation);
        if game.outcome(&position).is_some() || game.hash(&position) == 0 {
            return game.outcome(&position);
        }
        let action = legal[choice.below(legal.len())];
        assert!(game.is_legal(&position, action));
        game.play(&mut position, action);
    }
}

fn check(game: &impl Game) {
    let mut legal = Vec::with_capacity(game.spec().actions);
    let mut observation = vec![0.0; game.spec().observation.len()];
    // The counter covers the process, and the thread that waits for this test may allocate too, but not every time.
    let allocated = (0..5).map(|_| {
        // A few games box positions when the game is selected at run time.
        let position = game.start_from(1);
        let before = allocations();
        let outcome = play(game, position, 1, &mut legal, &mut observation);
        assert!(outcome.is_some(), "an episode has an end");
        allocations() - before
    });
    let allocated = allocated.min();
    let name = &game.spec().name;
    assert_eq!(allocated, Some(0), "{name}");
}

#[test]
fn an_episode_of_any_game_allocates_nothing() {
    for name in GAMES.iter().flat_map(|entry| entry.examples()) {
        with_game!(name.parse::<GameKind>().unwrap(), |game| check(&game));
    }
}
