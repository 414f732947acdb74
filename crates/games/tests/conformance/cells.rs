//! Checks the order of actions that name cells, on which a convolutional policy head depends: `cell · k + direction`
//! in the order of the observation's cells, then actions without a cell. Action names and appearing stones identify
//! the cell of an action.

use game::{Action, Game, Player};
use games::{GAMES, GameKind};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::observation;

/// A cell of an observation: row from the top, column from the left.
#[derive(Clone, Copy)]
struct Cell {
    row: usize,
    column: usize,
}

/// A board game in which actions name cells.
struct CellGame {
    game: &'static str,
    /// Number of actions per cell.
    directions: usize,
    /// Names of the actions without a cell, which come last.
    others: &'static [&'static str],
    /// Planes that together have a one on every cell of the board, in every position.
    on_board: &'static [usize],
    /// Returns the name of a cell in a player's view, on a board of this size.
    name: fn(Cell, Player, usize) -> String,
}

const CELL_GAMES: [CellGame; 5] = [
    CellGame { game: "go", directions: 1, others: &["pass"], on_board: &[8, 9], name: go_name },
    CellGame { game: "gomoku", directions: 1, others: &[], on_board: &[2], name: name_from_below },
    CellGame { game: "othello", directions: 1, others: &["pass"], on_board: &[3], name: name_from_above },
    CellGame { game: "hex", directions: 1, others: &["swap"], on_board: &[3], name: hex_name },
    CellGame { game: "breakthrough", directions: 3, others: &[], on_board: &[2], name: breakthrough_name },
];

fn letter(column: usize) -> char {
    char::from(b'a' + u8::try_from(column).expect("boards have few columns"))
}

fn name_from_above(cell: Cell, _: Player, _: usize) -> String {
    format!("{}{}", letter(cell.column), cell.row + 1)
}

fn name_from_below(cell: Cell, _: Player, size: usize) -> String {
    format!("{}{}", letter(cell.column), size - cell.row)
}

/// Columns have capital letters, without `I`.
fn go_name(cell: Cell, player: Player, size: usize) -> String {
    let column = cell.column + usize::from(cell.column >= 8);
    name_from_below(Cell { column, ..cell }, player, size).to_uppercase()
}

/// Columns and rows are exchanged for the second player.
fn hex_name(cell: Cell, player: Player, size: usize) -> String {
    match player {
        Player::First => name_from_above(cell, player, size),
        Player::Second => name_from_above(Cell { row: cell.column, column: cell.row }, player, size),
    }
}

/// Both players move towards the top of the view.
fn breakthrough_name(cell: Cell, player: Player, size: usize) -> String {
    match player {
        Player::First => name_from_below(cell, player, size),
        Player::Second => name_from_above(cell, player, size),
    }
}

impl CellGame {
    /// Returns the game names for several board sizes.
    fn names(&self) -> Vec<String> {
        let entry = GAMES.iter().find(|entry| entry.name == self.game).expect("the game is registered");
        entry.examples().collect()
    }
}

fn size_of_board(name: &str) -> usize {
    let (_, size) = name.rsplit_once('-').expect("the name has a size");
    size.parse().expect("the size is a number")
}

#[test]
fn actions_are_numbered_cell_by_cell_and_the_others_are_the_last() {
    for game in &CELL_GAMES {
        for name in game.names() {
            let rules = name.parse::<GameKind>().unwrap().rules();
            let (spec, size) = (rules.spec(), size_of_board(&name));
            assert_eq!((spec.observation.height, spec.observation.width), (size, size), "{name}");
            assert_eq!(spec.actions, size * size * game.directions + game.others.len(), "{name}");
        }
    }
}

#[test]
fn an_action_means_the_cell_of_the_observation_that_its_name_and_the_stones_say() {
    for game in &CELL_GAMES {
        for name in game.names() {
            let rules = name.parse::<GameKind>().unwrap().rules();
            let mut rng = ChaCha8Rng::seed_from_u64(1);
            let mut places = 0;
            for _ in 0..4 {
                places += check_game(game, &rules, size_of_board(&name), &mut rng);
            }
            assert!(places > 20, "{name}: {places} actions were followed to the next position of their player");
        }
    }
}

/// Checks all names along a random game, and the stones after the played actions. Returns the number of checks of
/// stones.
fn check_game(game: &CellGame, rules: &impl Game, size: usize, rng: &mut ChaCha8Rng) -> usize {
    let (mut position, mut legal, mut places) = (rules.start(), Vec::new(), 0);
    loop {
        rules.legal_actions(&position, &mut legal);
        if legal.is_empty() {
            return places;
        }
        for &action in &legal {
            check_name(game, rules, &position, action, size);
        }
        let action = legal[rng.random_range(0..legal.len())];
        let before = observation(rules, &position);
        rules.play(&mut position, action);
        // After the reply, the view is the same player's again, so the next position can be compared.
        rules.legal_actions(&position, &mut legal);
        let mut next = position.clone();
        // In Go the last action is a pass, which captures nothing; in Hex the first action is not the swap.
        let reply = if game.game == "go" { legal.last() } else { legal.first() };
        let Some(&reply) = reply.filter(|_| action.index() < size * size * game.directions) else { continue };
        rules.play(&mut next, reply);
        check_stones(game, [&before, &observation(rules, &next)], action, size);
        places += 1;
    }
}

/// Returns the cell of an action, and the cell of the stone after it: for a step, the next cell in the direction.
fn cells(game: &CellGame, action: Action, size: usize) -> [Cell; 2] {
    let (cell, direction) = (action.index() / game.directions, action.index() % game.directions);
    let from = Cell { row: cell / size, column: cell % size };
    match game.directions {
        1 => [from, from],
        _ => [from, Cell { row: from.row - 1, column: from.column + direction - 1 }],
    }
}

fn check_name<G: Game>(game: &CellGame, rules: &G, position: &G::Position, action: Action, size: usize) {
    let name = rules.action_name(position, action);
    let place = || format!("{action} of {} in\n{}", rules.spec().name, rules.render(position));
    if let Some(other) = action.index().checked_sub(size * size * game.directions) {
        assert_eq!(name, game.others[other], "{}", place());
        return;
    }
    let player = rules.to_move(position);
    let [from, to] = cells(game, action, size).map(|cell| (game.name)(cell, player, size));
    let is_named = if game.directions == 1 { name == from } else { name.starts_with(&from) && name.ends_with(&to) };
    assert!(is_named, "{name} is {from}, {to}: {}", place());
}

/// Checks the stones before an action and after the reply, in the view of the acting player. The reply may turn over
/// or capture the stone.
fn check_stones(game: &CellGame, [before, after]: [&[f32]; 2], action: Action, size: usize) {
    let is_one = |observation: &[f32], plane: usize, cell: Cell| {
        observation[plane * size * size + cell.row * size + cell.column] == 1.0
    };
    let is_stone = |observation: &[f32], cell: Cell| is_one(observation, 0, cell) || is_one(observation, 1, cell);
    let [from, to] = cells(game, action, size);
    assert!(is_stone(after, to), "{action} of {} puts no stone on its cell", game.game);
    if game.directions == 1 {
        assert!(!is_stone(before, to), "{action} of {} names a stone", game.game);
    } else {
        let moves = is_one(before, 0, from) && !is_one(before, 0, to) && !is_one(after, 0, from);
        assert!(moves, "{action} of {} moves no piece from its cell", game.game);
    }
}

/// A purely convolutional network can then play on boards of all sizes, and sees the edges.
#[test]
fn observations_depend_on_the_size_of_the_board_in_height_and_width_alone_and_mark_the_board() {
    for game in &CELL_GAMES {
        let planes = |name: &String| name.parse::<GameKind>().unwrap().rules().spec().observation.planes;
        let counts: Vec<usize> = game.names().iter().map(planes).collect();
        assert!(counts.iter().all(|&count| count == counts[0]), "{}: {counts:?} planes", game.game);
        for name in game.names() {
            let rules = name.parse::<GameKind>().unwrap().rules();
            let mut rng = ChaCha8Rng::seed_from_u64(2);
            let (mut position, mut legal) = (rules.start(), Vec::new());
            loop {
                let observation = observation(&rules, &position);
                assert!(observation.iter().all(|&value| value == 0.0 || value == 1.0), "{name}: values in between");
                let cells = size_of_board(&name) * size_of_board(&name);
                let ones =
                    |cell: usize| game.on_board.iter().map(|plane| observation[plane * cells + cell]).sum::<f32>();
                assert!((0..cells).all(|cell| ones(cell) == 1.0), "{name} is not marked\n{}", rules.render(&position));
                rules.legal_actions(&position, &mut legal);
                if legal.is_empty() {
                    break;
                }
                rules.play(&mut position, legal[rng.random_range(0..legal.len())]);
            }
        }
    }
}
