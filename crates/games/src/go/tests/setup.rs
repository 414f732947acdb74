//! Tests of positions with stones at the start, and of play after two passes.

use super::*;

/// Returns the stones of a position with the cells.
fn stones(game: &Go, position: &Position) -> Vec<(Player, usize)> {
    (0..game.cells()).filter_map(|cell| Some((game.stone(position, cell)?, cell))).collect()
}

#[test]
fn a_game_from_the_stones_of_any_position_agrees_with_a_slow_reference_at_every_ply() {
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    for size in [3, 5, 7] {
        let game = go(size);
        for _ in 0..6 {
            let mut played = game.start();
            for _ in 0..rng.random_range(0..3 * size * size) {
                let legal = legal(&game, &played);
                if legal.len() > 1 {
                    game.play(&mut played, Action(narrow(legal[rng.random_range(0..legal.len() - 1)])));
                }
            }
            let to_move = game.to_move(&played);
            let drawn = slow(&game).drawn_stones(&game.render(&played)).chars().take(size * size).collect();
            let mut slow = slow(&game).with_stones(drawn, to_move);
            let mut position = game.set_up(stones(&game, &played), to_move).unwrap();
            for _ in 0..60 {
                assert_agrees(&game, &position, &slow);
                let legal = legal(&game, &position);
                if legal.is_empty() {
                    break;
                }
                let action = Action(narrow(choice(&legal, &mut rng)));
                game.play(&mut position, action);
                slow.play(action);
            }
        }
    }
}

/// Liberties are observed; for a set-up they are counted all at once.
#[test]
fn a_set_up_board_is_observed_as_the_same_board_after_play_but_for_the_last_move() {
    let game = go(5);
    let played = after(&game, "B2 C2 C3 D3 D2 E2 A1 pass");
    let position = game.set_up(stones(&game, &played), Player::First).unwrap();
    assert_eq!((position.stones, position.liberties), (played.stones, played.liberties));
    assert_eq!(position.board_hash, played.board_hash);
    assert_eq!(game.set_up([], Player::First), Ok(game.start()));
    assert_eq!(game.to_move(&game.set_up([], Player::Second).unwrap()), Player::Second);
}

#[test]
fn the_board_of_a_set_up_may_not_be_repeated() {
    let game = go(5);
    // White retakes the ko, which would recreate the board of the set-up.
    let ko = after(&game, "B3 C3 C2 D2 C4 D4 A1 E3");
    let mut position = game.set_up(stones(&game, &ko), Player::First).unwrap();
    let capture = game.parse_action(&position, "D3").unwrap();
    game.play(&mut position, capture);
    assert!(!is_legal(&game, &position, "C3"), "\n{}", game.render(&position));
}

#[test]
fn stones_outside_the_board_on_each_other_or_without_a_liberty_are_refused() {
    let game = go(3);
    let set_up = |stones: &[(Player, usize)]| game.set_up(stones.iter().copied(), Player::First).unwrap_err();
    let (black, white) = (Player::First, Player::Second);
    assert_eq!(set_up(&[(black, 9)]), SetupError::Outside);
    assert_eq!(set_up(&[(black, 4), (white, 4)]), SetupError::Occupied);
    assert_eq!(set_up(&[(black, 0), (white, 1), (white, 3)]), SetupError::NoLiberty);
    let all: Vec<(Player, usize)> = (0..9).map(|cell| (black, cell)).collect();
    assert_eq!(set_up(&all), SetupError::NoLiberty);
}

#[test]
fn play_goes_on_behind_two_passes_and_superko_still_holds() {
    let game = go(5);
    let over = after(&game, "B3 C3 C2 D2 C4 D4 A1 E3 D3 pass pass");
    assert!(game.outcome(&over).is_some() && legal(&game, &over).is_empty());
    let resumed = game.resumed(&over);
    assert_eq!((game.outcome(&resumed), game.to_move(&resumed)), (None, Player::Second));
    assert!(is_legal(&game, &resumed, "E5") && !is_legal(&game, &resumed, "C3"));
}

#[test]
fn chains_are_the_connected_stones_of_each_player() {
    let game = go(5);
    let position = after(&game, "A1 B1 A2 B2 C1 E5");
    let mut chains = game.chains(&position);
    chains.sort();
    assert_eq!(chains, [vec![4], vec![15, 20], vec![16, 21], vec![22]]);
}
