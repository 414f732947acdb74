use game::conformance;

use super::*;

fn position(moves: &str) -> Position {
    let game = TicTacToe::new();
    let actions: Vec<Action> =
        moves.chars().map(|text| game.parse_action(&game.start(), &text.to_string()).unwrap()).collect();
    game.replay(&actions).unwrap()
}

/// Counts the nodes of the tree at each depth and the games that end there.
fn count(game: &TicTacToe, position: &Position, depth: usize, nodes: &mut [u64], ends: &mut [u64]) {
    nodes[depth] += 1;
    let mut actions = Vec::new();
    game.legal_actions(position, &mut actions);
    ends[depth] += u64::from(actions.is_empty());
    for action in actions {
        let mut next = *position;
        game.play(&mut next, action);
        count(game, &next, depth + 1, nodes, ends);
    }
}

/// The value for the player to move under perfect play.
fn minimax(game: &TicTacToe, position: &Position) -> i32 {
    match game.outcome(position) {
        Some(Outcome::Win(_)) => return -1,
        Some(_) => return 0,
        None => {}
    }
    let mut actions = Vec::new();
    game.legal_actions(position, &mut actions);
    let values = actions.into_iter().map(|action| {
        let mut next = *position;
        game.play(&mut next, action);
        -minimax(game, &next)
    });
    values.max().unwrap()
}

#[test]
fn it_conforms() {
    conformance::run(&TicTacToe::new(), 1);
}

#[test]
fn the_tree_has_the_known_number_of_nodes_and_games() {
    let game = TicTacToe::new();
    let (mut nodes, mut ends) = ([0; 10], [0; 10]);
    count(&game, &game.start(), 0, &mut nodes, &mut ends);
    assert_eq!(nodes, [1, 9, 72, 504, 3024, 15120, 54720, 148_176, 200_448, 127_872]);
    assert_eq!(ends, [0, 0, 0, 0, 0, 1440, 5328, 47_952, 72_576, 127_872]);
    assert_eq!(ends.iter().sum::<u64>(), 255_168);
}

#[test]
fn perfect_play_is_a_draw() {
    let game = TicTacToe::new();
    assert_eq!(minimax(&game, &game.start()), 0);
}

#[test]
fn each_line_wins_for_whoever_fills_it() {
    let lines = ["123", "456", "789", "147", "258", "369", "159", "357"];
    for line in lines {
        let others: Vec<char> = ('1'..='9').filter(|&cell| !line.contains(cell)).collect();
        let moves: String = line.chars().zip(&others).flat_map(|(own, &other)| [own, other]).take(5).collect();
        assert_eq!(TicTacToe::new().outcome(&position(&moves)), Some(Outcome::Win(Player::First)), "{moves}");
    }
}

#[test]
fn the_second_player_wins_with_the_last_of_three() {
    assert_eq!(TicTacToe::new().outcome(&position("14253")), Some(Outcome::Win(Player::First)));
    assert_eq!(TicTacToe::new().outcome(&position("142596")), Some(Outcome::Win(Player::Second)));
}

#[test]
fn the_board_is_drawn_with_the_numbers_of_its_empty_cells() {
    assert_eq!(TicTacToe::new().render(&position("519")), "O 2 3\n4 X 6\n7 8 X");
}

#[test]
fn the_observation_shows_the_mover_first() {
    let game = TicTacToe::new();
    let mut planes = [f32::NAN; 18];
    game.observe(&position("519"), &mut planes);
    assert_eq!(planes[..9], [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], "the second player's stone");
    assert_eq!(planes[9..], [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0], "the first player's stones");
}
