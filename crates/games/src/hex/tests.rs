use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

fn hex(size: u8) -> Hex {
    Hex::new(Size::new(size).unwrap())
}

/// The position after moves in notation.
fn after(game: &Hex, moves: &str) -> Position {
    let mut position = game.start();
    for text in moves.split_whitespace() {
        let action = game.parse_action(&position, text).unwrap();
        game.try_play(&mut position, action).unwrap();
    }
    position
}

#[test]
fn each_player_connects_their_own_edges() {
    let game = hex(3);
    assert_eq!(game.outcome(&after(&game, "b1 a1 b2 a2 b3")), Some(Outcome::Win(Player::First)), "top to bottom");
    assert_eq!(game.outcome(&after(&game, "a1 a2 b1 b2 a3 c2")), Some(Outcome::Win(Player::Second)), "left to right");
    assert_eq!(game.outcome(&after(&game, "a2 a1 b2 b1 c2")), None, "the first player does not win left to right");
}

#[test]
fn cells_touch_along_the_short_diagonal_only() {
    let game = hex(3);
    assert_eq!(game.outcome(&after(&game, "c1 a1 b2 a2 a3")), Some(Outcome::Win(Player::First)), "short diagonal");
    assert_eq!(game.outcome(&after(&game, "a1 c1 b2 a2 c3")), None, "long diagonal");
}

#[test]
fn the_swap_gives_the_second_player_the_mirrored_stone() {
    let game = hex(4);
    let position = after(&game, "b4 swap");
    assert_eq!(game.render(&position), "   a b c d\n 1  . . . .\n  2  . . . O\n   3  . . . .\n    4  . . . .");
    assert_eq!(game.to_move(&position), Player::First);
}

#[test]
fn the_swap_is_legal_only_as_the_second_players_first_action() {
    let game = hex(3);
    let swap = game.swap();
    assert!(!game.is_legal(&game.start(), swap));
    assert!(game.is_legal(&after(&game, "b2"), swap));
    assert!(!game.is_legal(&after(&game, "b2 a1"), swap));
    assert!(!game.is_legal(&after(&game, "b2 swap"), swap));
    assert!(!game.is_legal(&after(&game, "b2 swap a1"), swap));
}

/// Hex, theorem of the board: once it is full, exactly one player connects their edges (Gale 1979).
#[test]
fn full_boards_have_exactly_one_winner() {
    const SIZE: usize = 3;
    let wins = |cells: u32, player| {
        let mut stones = Stones::default();
        (0..SIZE * SIZE).filter(|cell| cells >> cell & 1 == 1).for_each(|cell| stones.insert(cell));
        stones.iter().any(|cell| stones.connects(SIZE, player, cell))
    };
    for first in 0..1_u32 << (SIZE * SIZE) {
        let second = !first & ((1 << (SIZE * SIZE)) - 1);
        assert_ne!(wins(first, Player::First), wins(second, Player::Second), "first player on cells {first:#011b}");
    }
}

/// A winner found the slow way: the closure of one edge under touching, from scratch.
fn brute_force_winner(game: &Hex, position: &Position) -> Option<Player> {
    let n = game.size();
    [Player::First, Player::Second].into_iter().find(|&player| {
        let own = |row: usize, column: usize| position.stones[player.index()].contains(row * n + column);
        let along = |row: usize, column: usize| if player == Player::First { row } else { column };
        let mut reached = vec![false; n * n];
        for _ in 0..n * n {
            for (row, column) in (0..n * n).map(|cell| (cell / n, cell % n)).filter(|&(row, column)| own(row, column)) {
                let touches = (0..n * n).any(|other| {
                    let (down, right) = ((other / n) as isize - row as isize, (other % n) as isize - column as isize);
                    reached[other] && matches!((down, right), (0, 1 | -1) | (1 | -1, 0) | (1, -1) | (-1, 1))
                });
                reached[row * n + column] |= along(row, column) == 0 || touches;
            }
        }
        (0..n * n).any(|cell| reached[cell] && along(cell / n, cell % n) == n - 1)
    })
}

#[test]
fn the_winner_agrees_with_brute_force_at_every_ply() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    for _ in 0..20 {
        let game = hex(5);
        let mut position = game.start();
        let mut legal = Vec::new();
        loop {
            let winner = brute_force_winner(&game, &position);
            assert_eq!(game.outcome(&position), winner.map(Outcome::Win), "\n{}", game.render(&position));
            game.legal_actions(&position, &mut legal);
            if legal.is_empty() {
                break;
            }
            game.play(&mut position, legal[rng.random_range(0..legal.len())]);
        }
    }
}

/// The mover's edges are always the top and the bottom of what is observed.
#[test]
fn the_same_game_with_the_players_exchanged_looks_the_same() {
    let game = hex(4);
    let observe = |moves: &str| {
        let mut planes = vec![f32::NAN; game.spec().observation.len()];
        game.observe(&after(&game, moves), &mut planes);
        planes
    };
    let first_sees = observe("a1 d4 b3 c1");
    let second_sees = observe("d4 a1 a3 c2 b4");
    assert_eq!(first_sees, observe("b3 c1 a1 d4"), "the order of stones does not matter");
    let (own, rest) = second_sees.split_at(16);
    assert_eq!(own.iter().sum::<f32>(), 2.0);
    // The second player's stones a1 and c2 are observed mirrored: at a1 and at b3.
    assert_eq!(own, &first_sees[..16]);
    assert_eq!(rest[..16].iter().sum::<f32>(), 3.0);
}

#[test]
fn the_board_is_drawn_as_a_rhombus() {
    let game = hex(3);
    assert_eq!(game.render(&after(&game, "b1 c3")), "   a b c\n 1  . X .\n  2  . . .\n   3  . . O");
}

#[test]
fn a_wrong_move_is_answered_with_the_range_of_the_board() {
    let game = hex(11);
    let message = game.parse_action(&game.start(), "m3").unwrap_err().to_string();
    assert_eq!(message, "`m3` is not a move: expected a cell from a1 to k11, or swap");
}

#[test]
fn a_size_lies_between_3_and_19() {
    let sizes: Vec<u8> = (0..=u8::MAX).filter(|&cells| Size::new(cells).is_some()).collect();
    assert_eq!(sizes, (3..=19).collect::<Vec<u8>>());
}
