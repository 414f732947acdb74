//! Moves of a board game. The first byte chooses the game. Each further byte chooses a legal action; with more than 256
//! actions, two bytes do.

use games::{Entry, GAMES, GameKind};
use reference_games::{compare, reference};

/// Checks that the rules of the game agree with slow rules at every ply.
pub(crate) fn check(bytes: &[u8]) {
    let Some((&first, choices)) = bytes.split_first() else { return };
    let names = names();
    let name = &names[usize::from(first) % names.len()];
    let game: GameKind = name.parse().expect("the name is registered");
    let mut slow = reference(name).expect("the game has slow rules");
    let mut choices = choices.iter().map(|&choice| usize::from(choice));
    compare(&game.rules(), &mut *slow, |legal| {
        let low = choices.next()?;
        let high = if legal > 256 { choices.next()? } else { 0 };
        Some((high << 8 | low) % legal)
    });
}

/// Returns the names of the games that have slow rules.
fn names() -> Vec<String> {
    GAMES.iter().copied().flat_map(Entry::examples).filter(|name| reference(name).is_some()).collect()
}

/// Returns games of pseudo-random moves, two of each kind.
#[allow(dead_code, reason = "used by the test of the corpus alone")]
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let moves = |game: u8, seed: u64| {
        let choice = |ply| game::mix(seed << 32 | ply).to_le_bytes()[0];
        std::iter::once(game).chain((0..150).map(choice)).collect::<Vec<u8>>()
    };
    let games = u8::try_from(names().len()).expect("there are a few games");
    (0..2 * games).map(|seed| moves(seed % games, seed.into())).collect()
}
