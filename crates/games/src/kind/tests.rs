use game::Game;

use super::*;

#[test]
fn a_kind_is_read_back_from_its_name() {
    for name in ["tic_tac_toe", "connect_four", "hex-3", "hex-11", "hex-19"] {
        assert_eq!(name.parse::<GameKind>().unwrap().to_string(), name);
    }
}

#[test]
fn the_rules_carry_the_name_of_their_kind() {
    for name in ["tic_tac_toe", "connect_four", "hex-3", "hex-11", "hex-19"] {
        let kind: GameKind = name.parse().unwrap();
        assert_eq!(crate::with_game!(kind, |game| game.spec().name.clone()), name);
    }
}

#[test]
fn a_wrong_name_is_answered_with_the_nearest_right_one() {
    let cases = [("conect-four", "connect_four"), ("TicTacToe", "tic_tac_toe"), ("hex", "hex-11"), ("", "hex-11")];
    for (name, expected) in cases {
        let error = name.parse::<GameKind>().unwrap_err();
        assert_eq!(error, Error::UnknownGame { name: name.into(), nearest: expected }, "{error}");
    }
    assert_eq!(
        "conect_four".parse::<GameKind>().unwrap_err().to_string(),
        "`conect_four` is not a game (did you mean `connect_four`?): \
         the games are tic_tac_toe, connect_four and hex-3 to hex-19"
    );
}

#[test]
fn a_board_of_the_wrong_size_is_refused() {
    for name in ["hex-2", "hex-20", "hex-", "hex-011", "hex-+11", "hex-300", "hex-x"] {
        let message = name.parse::<GameKind>().unwrap_err().to_string();
        let expected = format!("`{name}` has no board: hex is played on 3 to 19 cells a side, `hex-3` to `hex-19`");
        assert_eq!(message, expected);
    }
}
