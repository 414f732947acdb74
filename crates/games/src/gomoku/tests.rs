use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use reference_games::{InARow, compare, compare_moves};

use super::*;

fn gomoku(size: u8) -> Gomoku {
    Gomoku::new(Size::new(size).unwrap())
}

/// The position after moves in notation, by the slow rules as well.
fn after(game: &Gomoku, moves: &str) -> Position {
    compare_moves(game, &mut InARow::gomoku(game.size), moves)
}

/// The outcome on a board of 7 after the first player has placed stones on these cells, in this order, and the second
/// player as many but one on `replies`.
fn outcome(own: &str, replies: &str) -> Option<Outcome> {
    let moves: Vec<&str> = own.split_whitespace().zip(replies.split_whitespace()).flat_map(|(a, b)| [a, b]).collect();
    let last = own.split_whitespace().last().unwrap();
    let game = gomoku(7);
    game.outcome(&after(&game, &format!("{} {last}", moves.join(" "))))
}

/// The random games have wins of both players, rows of more than five and full boards without a row.
#[test]
fn random_episodes_agree_with_a_slow_implementation() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let (mut wins, mut overlines, mut draws) = ([0; 2], 0, 0);
    let game = gomoku(7);
    for _ in 0..150 {
        let mut slow = InARow::gomoku(7);
        let end = compare(&game, &mut slow, |legal| Some(rng.random_range(0..legal)));
        match game.outcome(&end) {
            Some(Outcome::Win(winner)) => {
                wins[winner.index()] += 1;
                overlines += usize::from(slow.longest_line(winner) > 5);
            }
            _ => draws += 1,
        }
    }
    assert!(wins.iter().all(|&count| count > 0) && overlines > 0 && draws > 0, "{wins:?}, {overlines}, {draws}");
}

#[test]
fn five_in_a_row_win_in_every_direction_and_in_any_order() {
    let first = Some(Outcome::Win(Player::First));
    assert_eq!(outcome("a1 b1 d1 e1 c1", "a7 b7 d7 e7"), first, "across");
    assert_eq!(outcome("g3 g4 g5 g6 g7", "a7 b7 d7 e7"), first, "upright");
    assert_eq!(outcome("b2 f6 c3 e5 d4", "a7 b7 d7 e7"), first, "rising");
    assert_eq!(outcome("c7 d6 e5 f4 g3", "a7 b7 d7 e7"), first, "falling");
    let game = gomoku(7);
    let second = after(&game, "a7 a1 b7 b1 d7 c1 e7 e1 f5 d1");
    assert_eq!(game.outcome(&second), Some(Outcome::Win(Player::Second)));
}

#[test]
fn four_in_a_row_do_not_win_and_more_than_five_do() {
    assert_eq!(outcome("a1 b1 c1 d1", "a7 b7 d7"), None);
    assert_eq!(outcome("a1 b1 c1 e1 f1 g1 d1", "a7 b7 d7 e7 a5 b5"), Some(Outcome::Win(Player::First)), "seven");
    assert_eq!(outcome("b2 c3 d4 f6 g7 e5", "a7 b7 d7 e7 a5"), Some(Outcome::Win(Player::First)), "six");
}

#[test]
fn a_row_does_not_run_over_an_edge() {
    // The cells of each move list are one step apart in the numbers of cells.
    assert_eq!(outcome("e4 f4 g4 a3 b3", "a7 b7 d7 e7"), None, "across the right edge");
    assert_eq!(outcome("d6 e5 f4 g3 a1", "a7 b7 d7 e7"), None, "falling");
    assert_eq!(outcome("f3 g4 a4 b5 c6", "a7 b7 d7 e7"), None, "rising");
}

#[test]
fn rows_are_counted_from_the_bottom_and_columns_from_the_left() {
    let game = gomoku(15);
    let start = game.start();
    assert_eq!(game.parse_action(&start, "h8"), Ok(Action(7 * 15 + 7)), "the centre");
    assert_eq!(game.parse_action(&start, "A15"), Ok(Action(0)), "the top left");
    assert_eq!(game.action_name(&start, Action(14 * 15 + 8)), "i1", "the letter i is a column");
    let message = game.parse_action(&start, "p1").unwrap_err().to_string();
    assert_eq!(message, "`p1` is not a move: expected a cell from a1 to o15");
}

#[test]
fn the_board_is_drawn_with_the_names_of_rows_and_columns() {
    let game = gomoku(7);
    let board = [
        "   a b c d e f g",
        " 7 . . . . . . .",
        " 6 . . . . . . .",
        " 5 . . . . . . .",
        " 4 . . . X . . .",
        " 3 . . . . . . .",
        " 2 . . . . . . .",
        " 1 O . . . . . .",
    ];
    assert_eq!(game.render(&after(&game, "d4 a1")), board.join("\n"));
}

#[test]
fn the_observation_shows_the_mover_first() {
    let game = gomoku(7);
    let mut planes = vec![f32::NAN; game.spec().observation.len()];
    game.observe(&after(&game, "a7 b7 c7"), &mut planes);
    let ones: Vec<usize> = (0..2 * 49).filter(|&index| planes[index] == 1.0).collect();
    assert_eq!(ones, [1, 49, 51]);
}
