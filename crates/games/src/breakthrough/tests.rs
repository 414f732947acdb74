//! Tests of the rules of Breakthrough.

use reference_games::{compare_moves, compare_position, compare_tree, perft, reference};

use super::*;

fn breakthrough(size: u8) -> Breakthrough {
    Breakthrough::new(Size::new(size).unwrap())
}

/// Returns the position after moves in notation, checked against the slow rules.
fn after(game: &Breakthrough, moves: &str) -> Position {
    compare_moves(game, &mut *reference(&game.spec().name).unwrap(), moves)
}

/// Returns true if the player to move may play `text`.
fn may(game: &Breakthrough, position: &Position, text: &str) -> bool {
    game.is_legal(position, game.parse_action(position, text).unwrap())
}

/// Returns the position with these pieces, given in notation.
fn position(game: &Breakthrough, first: &str, second: &str, to_move: Player) -> Position {
    let size = game.layout.size();
    let pieces = |text: &str| {
        let cells = text.split_whitespace().map(|name| grid::parse_cell(name, size).unwrap());
        cells.fold(0, |pieces, cell| pieces | game.layout.cell(game.for_first(cell, to_move)))
    };
    let (own, opponent) = match to_move {
        Player::First => (first, second),
        Player::Second => (second, first),
    };
    Position { own: pieces(own), opponent: pieces(opponent), to_move }
}

#[test]
fn the_tree_has_the_known_number_of_nodes() {
    let game = breakthrough(8);
    let nodes: Vec<u64> = (1..=4).map(|depth| perft(&game, &game.start(), depth)).collect();
    assert_eq!(nodes, [22, 484, 11_132, 256_036]);
}

#[test]
fn all_games_agree_with_the_slow_rules_to_a_depth() {
    for (size, depth) in [(5, 4), (6, 3), (7, 3), (8, 2)] {
        let game = breakthrough(size);
        let nodes = compare_tree(&game, &*reference(&game.spec().name).unwrap(), depth);
        assert_eq!(nodes, perft(&game, &game.start(), depth), "{size}");
    }
}

#[test]
fn a_piece_captures_diagonally_and_is_blocked_straight_ahead() {
    let game = breakthrough(5);
    let blocked = position(&game, "b3 a2", "b4 c4", Player::First);
    assert!(!may(&game, &blocked, "b3-b4"), "an enemy piece blocks the step");
    assert!(may(&game, &blocked, "b3xc4") && may(&game, &blocked, "b3-a4"));
    assert!(!may(&game, &blocked, "a2xb3"), "a piece of one's own is not captured");
    assert!(may(&game, &position(&game, "b3", "b4 a4", Player::Second), "a4xb3"), "the second player steps down");
}

#[test]
fn a_capture_is_written_with_a_cross_and_read_in_both_forms() {
    let game = breakthrough(5);
    let position = position(&game, "b3", "c4 e5", Player::First);
    let capture = game.parse_action(&position, "b3xc4").unwrap();
    assert_eq!(game.parse_action(&position, "B3-C4"), Ok(capture));
    assert_eq!(game.action_name(&position, capture), "b3xc4");
    assert_eq!(game.action_name(&position, game.parse_action(&position, "b3xa4").unwrap()), "b3-a4");
}

#[test]
fn the_last_row_wins_also_by_a_capture() {
    let game = breakthrough(5);
    for (moves, first, second) in [("c4-c5", "c4 a1", "e5"), ("c4xd5", "c4 a1", "d5 e5")] {
        let mut position = position(&game, first, second, Player::First);
        assert_eq!(game.outcome(&position), None);
        let action = game.parse_action(&position, moves).unwrap();
        game.try_play(&mut position, action).unwrap();
        assert_eq!(game.outcome(&position), Some(Outcome::Win(Player::First)), "{moves}");
    }
    let second = position(&game, "c5", "a4", Player::Second);
    assert_eq!(game.outcome(&second), Some(Outcome::Win(Player::First)), "the second player to move has lost");
}

#[test]
fn the_capture_of_the_last_piece_wins() {
    let game = breakthrough(5);
    let mut position = position(&game, "b2", "c3", Player::Second);
    let action = game.parse_action(&position, "c3xb2").unwrap();
    game.play(&mut position, action);
    assert_eq!(game.outcome(&position), Some(Outcome::Win(Player::Second)));
}

/// Both players capture whenever possible, and otherwise avoid the last row.
#[test]
fn games_in_which_the_last_piece_is_captured_end_as_by_the_slow_rules() {
    let game = breakthrough(5);
    let mut choice = crate::Generator::new(1);
    let mut wins = [0; 2];
    for _ in 0..100 {
        let (mut position, mut slow) = (game.start(), reference(&game.spec().name).unwrap());
        loop {
            let mut legal = compare_position(&game, &position, &*slow, &[]);
            let is_capture = |action| game.action_name(&position, action).contains('x');
            let rank = |&action: &Action| (!is_capture(action), step(action).1 / 5 == 1);
            let Some(best) = legal.iter().map(rank).min() else { break };
            legal.retain(|action| rank(action) == best);
            let action = legal[choice.below(legal.len())];
            game.play(&mut position, action);
            slow.play(action);
        }
        wins[position.to_move.opponent().index()] += u32::from(position.own == 0);
    }
    assert!(wins[0] > 0 && wins[1] > 0, "{wins:?}");
}

#[test]
fn the_second_player_sees_the_board_upside_down() {
    let game = breakthrough(6);
    let first = position(&game, "a2 c3", "b5 f6", Player::First);
    let second = position(&game, "b2 f1", "a5 c4", Player::Second);
    let observe = |position: &Position| {
        let mut planes = vec![f32::NAN; game.spec().observation.len()];
        game.observe(position, &mut planes);
        planes
    };
    assert_eq!(observe(&first), observe(&second));
    let cell = |row: usize, column: usize| row * 6 + column;
    let planes = observe(&first);
    let ones: Vec<usize> = (0..2 * 36).filter(|&index| planes[index] == 1.0).collect();
    assert_eq!(ones, [cell(3, 2), cell(4, 0), 36 + cell(0, 5), 36 + cell(1, 1)], "the goal is the topmost row");
    assert_eq!(game.parse_action(&first, "c3-b4"), game.parse_action(&second, "c4-b3"));
    assert_ne!(game.hash(&first), game.hash(&second), "another player is to move");
}

#[test]
fn the_error_for_an_invalid_move_names_the_range_of_the_board() {
    let game = breakthrough(5);
    for text in ["a2", "a2-a4", "a2-c3", "a3-a2", "a2-f3", "a2+a3"] {
        let message = game.parse_action(&game.start(), text).unwrap_err().to_string();
        let expected = "a step forward between cells from a1 to e5, such as a2-a3 or the capture a2xb3";
        assert_eq!(message, format!("`{text}` is not a move: expected {expected}"));
    }
}

#[test]
fn the_heuristic_value_grows_with_pieces_and_their_advance() {
    let game = breakthrough(5);
    let value = |first, second, to_move| game.heuristic_value(&position(&game, first, second, to_move));
    assert_eq!(game.heuristic_value(&game.start()), 0);
    assert_eq!(value("a1 b2 c4", "", Player::First), 3 * MATERIAL + 1 + 3 + 10);
    assert_eq!(value("c4", "c2", Player::First), 0, "either piece is one step from its goal");
    for (first, second) in [("c3", "c5"), ("a1 b2", "d4"), ("e4", "a5 b5 c3")] {
        assert_eq!(value(first, second, Player::First), -value(first, second, Player::Second));
    }
}

#[test]
fn the_board_is_drawn_with_the_first_player_at_the_bottom() {
    let game = breakthrough(5);
    let board = ["   a b c d e", " 5 O O O O O", " 4 O . O O O", " 3 . . . . .", " 2 X X X X X", " 1 . . X X X"];
    assert_eq!(game.render(&after(&game, "a2-a3 b4xa3 b1-a2 a3xb2 a1xb2")), board.join("\n"));
}
