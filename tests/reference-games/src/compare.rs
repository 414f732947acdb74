use game::{Action, Game};

use crate::{Reference, action};

/// Plays one game by the rules and the reference, from the start, and compares the two at every ply. `choose` receives
/// the number of legal actions, and returns the index of the next action, or `None` to stop. Returns the last position.
///
/// # Panics
/// Rules and reference differ; the message contains the moves and the board.
pub fn compare<G: Game>(
    game: &G,
    reference: &mut dyn Reference,
    mut choose: impl FnMut(usize) -> Option<usize>,
) -> G::Position {
    let (mut position, mut moves) = (game.start(), Vec::new());
    loop {
        let legal = compare_position(game, &position, reference, &moves);
        let index = if legal.is_empty() { None } else { choose(legal.len()) };
        let Some(index) = index else { return position };
        moves.push(game.action_name(&position, legal[index]));
        game.play(&mut position, legal[index]);
        reference.play(legal[index]);
    }
}

/// Plays moves in the notation of the game by the rules and the reference, from the start, and compares the two at
/// every ply. Returns the last position.
///
/// # Panics
/// Rules and reference differ, or a move is illegal; the message contains the moves and the board.
pub fn compare_moves<G: Game>(game: &G, reference: &mut dyn Reference, moves: &str) -> G::Position {
    let (mut position, mut played) = (game.start(), Vec::new());
    for text in moves.split_whitespace() {
        let legal = compare_position(game, &position, reference, &played);
        let action = game.parse_action(&position, text).unwrap_or_else(|error| panic!("{error}"));
        assert!(legal.contains(&action), "{text} is illegal after {}:\n{}", played.join(" "), game.render(&position));
        played.push(text.to_owned());
        game.play(&mut position, action);
        reference.play(action);
    }
    compare_position(game, &position, reference, &played);
    position
}

/// Plays all games of at most `depth` actions by the rules and the reference, from the start, and compares the two at
/// every ply. Returns the number of positions after `depth` actions, each counted as often as it is reached.
///
/// # Panics
/// Rules and reference differ; the message contains the moves and the board.
pub fn compare_tree<G: Game>(game: &G, reference: &dyn Reference, depth: u32) -> u64 {
    compare_below(game, &game.start(), reference, depth, &mut Vec::new())
}

fn compare_below<G: Game>(
    game: &G,
    position: &G::Position,
    reference: &dyn Reference,
    depth: u32,
    moves: &mut Vec<String>,
) -> u64 {
    let legal = compare_position(game, position, reference, moves);
    if depth == 0 {
        return 1;
    }
    let mut leaves = 0;
    for action in legal {
        let (mut next, mut next_reference) = (position.clone(), reference.copied());
        game.play(&mut next, action);
        next_reference.play(action);
        moves.push(game.action_name(position, action));
        leaves += compare_below(game, &next, &*next_reference, depth - 1, moves);
        moves.pop();
    }
    leaves
}

/// Compares the position after some moves with the reference, and returns the legal actions.
///
/// # Panics
/// Rules and reference differ; the message contains the moves and the board.
pub fn compare_position<G: Game>(
    game: &G,
    position: &G::Position,
    reference: &dyn Reference,
    moves: &[String],
) -> Vec<Action> {
    let board = game.render(position);
    let place = || format!("{} after {}:\n{board}", game.spec().name, moves.join(" "));
    let expected = reference.stones();
    // Column letters after the cells may equal letters of stones.
    let stones: String = reference.drawn_stones(&board).chars().take(expected.len()).collect();
    assert_eq!(stones, expected, "the stones of {}", place());
    assert_eq!(game.outcome(position), reference.outcome(), "the outcome of {}", place());
    let mut legal = Vec::new();
    game.legal_actions(position, &mut legal);
    assert_eq!(legal, reference.legal_actions(), "the legal actions of {}", place());
    let all = (0..game.spec().actions).map(action);
    let accepted: Vec<Action> = all.filter(|&action| game.is_legal(position, action)).collect();
    assert_eq!(legal, accepted, "the actions that are legal one by one in {}", place());
    if !legal.is_empty() {
        assert_eq!(game.to_move(position), reference.to_move(), "the player to move in {}", place());
    }
    legal
}

/// Returns the number of positions after `depth` actions, each counted as often as it is reached.
pub fn perft<G: Game>(game: &G, position: &G::Position, depth: u32) -> u64 {
    if depth == 0 {
        return 1;
    }
    let mut legal = Vec::new();
    game.legal_actions(position, &mut legal);
    let leaves = legal.into_iter().map(|action| {
        let mut next = position.clone();
        game.play(&mut next, action);
        perft(game, &next, depth - 1)
    });
    leaves.sum()
}
