//! Slow rules of board games, with which tests and fuzz targets compare the rules of `games`.
//!
//! A [`Reference`] holds the stones in an array and follows the written rules cell by cell; it shares no code with the
//! rules that it checks. [`reference()`] returns that of a game, [`compare`] plays a game by both, and [`compare_tree`]
//! plays all games to a depth. [`perft`] counts positions by the fast rules alone. A further game is a file here and a
//! line in [`reference()`]. Only tests and fuzz targets depend on this crate.

mod breakthrough;
mod chess;
mod othello;

use game::{Action, Game, Outcome, Player};

/// A position of a board game for two players, by slow rules.
pub trait Reference {
    /// Returns the player who chooses the next action. Unspecified once the game is over.
    fn to_move(&self) -> Player;

    /// Returns the legal actions in ascending order; none once the game is over.
    fn legal_actions(&self) -> Vec<Action>;

    /// Returns the position after a legal action.
    fn after(&self, action: Action) -> Box<dyn Reference>;

    /// Returns the outcome of the game, or `None` while it is not over.
    fn outcome(&self) -> Option<Outcome>;

    /// Returns the cells in the order in which [`Game::render`] draws them. `X` is a stone of the first player, `O` one
    /// of the second, and `.` an empty cell; pieces of chess have their letters.
    fn stones(&self) -> String;
}

/// Returns the start of the game of this name by slow rules, if there are any: of `othello-8`, for example.
#[must_use]
pub fn reference(name: &str) -> Option<Box<dyn Reference>> {
    if name == "chess" {
        return Some(Box::new(chess::Chess::new()));
    }
    let (game, size) = name.rsplit_once('-')?;
    let size = size.parse().ok()?;
    match game {
        "othello" => Some(Box::new(othello::Othello::new(size))),
        "breakthrough" => Some(Box::new(breakthrough::Breakthrough::new(size))),
        _ => None,
    }
}

/// Plays one game by the rules and by their reference, from the start, and compares them at every ply. `choose` returns
/// the index of the next action among as many legal ones as it is given, or `None` to stop.
///
/// # Panics
/// If they differ; the message contains the moves and the board.
pub fn compare<G: Game>(game: &G, mut reference: Box<dyn Reference>, mut choose: impl FnMut(usize) -> Option<usize>) {
    let (mut position, mut moves) = (game.start(), Vec::new());
    loop {
        let legal = compare_position(game, &position, &*reference, &moves);
        if legal.is_empty() {
            return;
        }
        let Some(index) = choose(legal.len()) else { return };
        moves.push(game.action_name(&position, legal[index]));
        game.play(&mut position, legal[index]);
        reference = reference.after(legal[index]);
    }
}

/// Plays all games of at most `depth` actions by the rules and by their reference, from the start, and compares them at
/// every ply. Returns the number of positions after `depth` actions, each counted as often as it is reached.
///
/// # Panics
/// If they differ; the message contains the moves and the board.
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
        let mut next = position.clone();
        game.play(&mut next, action);
        moves.push(game.action_name(position, action));
        leaves += compare_below(game, &next, &*reference.after(action), depth - 1, moves);
        moves.pop();
    }
    leaves
}

/// Compares one position and returns its legal actions.
fn compare_position<G: Game>(
    game: &G,
    position: &G::Position,
    reference: &dyn Reference,
    moves: &[String],
) -> Vec<Action> {
    let board = game.render(position);
    let place = || format!("{} after {}:\n{board}", game.spec().name, moves.join(" "));
    // Below the letters of columns, each row begins with its number.
    let rows = board.lines().skip(1).flat_map(|row| row.chars().skip(2));
    let stones: String = rows.filter(|cell| *cell != ' ').collect();
    assert_eq!(stones, reference.stones(), "the stones of {}", place());
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

/// Returns the action of this index.
fn action(index: usize) -> Action {
    Action(u16::try_from(index).expect("actions have 16 bits"))
}

/// Returns the letter of a cell: `X`, `O` or `.`.
fn letter(cell: Option<Player>) -> char {
    match cell {
        Some(Player::First) => 'X',
        Some(Player::Second) => 'O',
        None => '.',
    }
}
