use connect_four_ai::Solver;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

const COLUMNS: usize = 7;
const CELLS: usize = 42;

fn actions(moves: &str) -> Vec<Action> {
    let game = ConnectFour::new();
    moves.chars().map(|column| game.parse_action(&game.start(), &column.to_string()).unwrap()).collect()
}

fn after(moves: &str) -> Position {
    ConnectFour::new().replay(&actions(moves)).unwrap()
}

fn outcome(moves: &str) -> Option<Outcome> {
    ConnectFour::new().outcome(&after(moves))
}

fn perft(game: &ConnectFour, position: Position, depth: u32) -> u64 {
    if depth == 0 {
        return 1;
    }
    let mut actions = Vec::with_capacity(COLUMNS);
    game.legal_actions(&position, &mut actions);
    let nodes = actions.into_iter().map(|action| {
        let mut next = position;
        game.play(&mut next, action);
        perft(game, next, depth - 1)
    });
    nodes.sum()
}

#[test]
fn the_tree_has_the_known_number_of_nodes() {
    let game = ConnectFour::new();
    let nodes: Vec<u64> = (0..=8).map(|depth| perft(&game, game.start(), depth)).collect();
    assert_eq!(nodes, [1, 7, 49, 343, 2401, 16_807, 117_649, 823_536, 5_673_234]);
}

#[test]
fn four_in_a_line_win_in_every_direction() {
    assert_eq!(outcome("1212121"), Some(Outcome::Win(Player::First)), "upright");
    assert_eq!(outcome("1122334"), Some(Outcome::Win(Player::First)), "across");
    assert_eq!(outcome("12234334544"), Some(Outcome::Win(Player::First)), "rising");
    assert_eq!(outcome("76654554344"), Some(Outcome::Win(Player::First)), "falling");
    assert_eq!(outcome("71212121"), Some(Outcome::Win(Player::Second)), "the second player");
}

#[test]
fn a_line_does_not_run_over_the_edge_of_a_column() {
    // The three topmost stones of the first column and the lowest of the second are adjacent only in memory.
    assert_eq!(outcome("1112121"), None);
    assert_eq!(outcome("21211111"), None);
}

#[test]
fn a_full_board_without_a_line_is_a_draw() {
    let halves = ["121212212121", "343434434343", "565656656565", "777777"];
    assert_eq!(outcome(&halves.concat()), Some(Outcome::Draw));
}

#[test]
fn the_board_is_drawn_with_the_first_player_as_crosses() {
    let board = [
        ". . . . . . .",
        ". . . . . . .",
        ". . . . . . .",
        ". . . . . . .",
        ". . . X . . .",
        ". O . O X . .",
        "1 2 3 4 5 6 7",
    ];
    assert_eq!(ConnectFour::new().render(&after("5442")), board.join("\n"));
}

#[test]
fn the_observation_shows_the_mover_first_and_marks_the_first_player_to_move() {
    let game = ConnectFour::new();
    let mut planes = [f32::NAN; 3 * CELLS];
    game.observe(&after("445"), &mut planes);
    let ones: Vec<usize> = (0..2 * CELLS).filter(|&i| planes[i] == 1.0).collect();
    let cell = |row: usize, column: usize| row * COLUMNS + column;
    assert_eq!(ones, [cell(4, 3), CELLS + cell(5, 3), CELLS + cell(5, 4)], "rows are counted from the top");
    assert!(planes[2 * CELLS..].iter().all(|&value| value == 0.0), "the second player is to move");
    game.observe(&game.start(), &mut planes);
    assert!(planes[2 * CELLS..].iter().all(|&value| value == 1.0), "the first player is to move");
}

/// Compares open columns, winning moves and won positions with another implementation of the rules.
#[test]
fn random_episodes_agree_with_another_implementation() {
    let game = ConnectFour::new();
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    for episode in 0..2_000 {
        let (mut position, mut other) = (game.start(), connect_four_ai::Position::new());
        let mut moves = String::new();
        while game.outcome(&position).is_none() {
            assert!(!other.is_won_position(), "episode {episode}: {moves}");
            let mut legal = Vec::new();
            game.legal_actions(&position, &mut legal);
            let open: Vec<Action> = (0..7).map(Action).filter(|column| other.is_playable(column.index())).collect();
            assert_eq!(legal, open, "episode {episode}: {moves}");
            for &action in &legal {
                let mut next = position;
                game.play(&mut next, action);
                let wins = matches!(game.outcome(&next), Some(Outcome::Win(_)));
                assert_eq!(wins, other.is_winning_move(action.index()), "episode {episode}: {moves} then {action}");
            }
            let action = legal[rng.random_range(0..legal.len())];
            moves += &game.action_name(&position, action);
            game.play(&mut position, action);
            other.play(action.index());
        }
        let won = matches!(game.outcome(&position), Some(Outcome::Win(_)));
        assert_eq!(won, other.is_won_position(), "episode {episode}: {moves}");
    }
}

struct Solved {
    moves: &'static str,
    band: &'static str,
    scores: Vec<Option<i8>>,
}

fn solved() -> impl Iterator<Item = Solved> {
    ENTRY.solved.unwrap().csv.lines().skip(1).map(|line| {
        let mut fields = line.split(',');
        let (moves, band) = (fields.next().unwrap(), fields.next().unwrap());
        Solved { moves, band, scores: fields.map(|score| score.parse().ok()).collect() }
    })
}

#[test]
fn solved_positions_score_exactly_the_legal_columns() {
    let game = ConnectFour::new();
    for Solved { moves, scores, .. } in solved() {
        let position = after(moves);
        let legal: Vec<bool> = (0..7).map(|column| game.is_legal(&position, Action(column))).collect();
        assert_eq!(legal, scores.iter().map(Option::is_some).collect::<Vec<_>>(), "{moves}");
    }
}

/// Compares with a third solver, independent of the two that produced the scores.
#[test]
fn late_solved_positions_have_the_scores_of_another_solver() {
    let mut solver = Solver::new();
    for Solved { moves, scores, .. } in solved().filter(|solved| solved.band == "late").step_by(10) {
        let position = connect_four_ai::Position::from_moves(moves).unwrap();
        assert_eq!(solver.get_all_move_scores(&position).to_vec(), scores, "{moves}");
    }
}
