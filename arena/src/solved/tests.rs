use games::{ConnectFour, Hex, TicTacToe};

use super::*;

const HEADER: &str = "moves,band,c1,c2,c3,c4,c5,c6,c7";

fn read(lines: &str) -> Result<Vec<SolvedPosition>, Error> {
    parse(&ConnectFour::new(), "some.csv", &format!("{HEADER}\n{lines}"))
}

fn refuses(lines: &str, expected: &str) {
    assert_eq!(read(lines).unwrap_err().to_string(), expected);
}

fn position(scores: &str) -> SolvedPosition {
    read(&format!(",early,{scores}")).unwrap().remove(0)
}

fn judged(action: u16, scores: &str) -> (bool, bool) {
    let judgement = score(Action(action), &position(scores));
    (judgement.outcome_preserving, judgement.optimal)
}

#[test]
fn a_position_has_the_score_of_each_action() {
    let position = &read("444444,middle,-2,0,3,,1,1,-1").unwrap()[0];
    assert_eq!(position.moves(), [Action(3); 6]);
    assert_eq!(position.band().name(), "middle");
    assert_eq!(position.best(), 3);
    assert_eq!([2, 3, 7].map(|action| position.score_of(Action(action))), [Some(3), None, None]);
}

#[test]
fn a_move_that_keeps_the_win_preserves_the_outcome_and_the_quickest_is_optimal() {
    let scores = "5,9,0,-1,9,1,-2";
    assert_eq!(
        [1, 0, 2, 3].map(|action| judged(action, scores)),
        [(true, true), (true, false), (false, false), (false, false)]
    );
}

#[test]
fn in_a_lost_position_every_move_preserves_the_outcome() {
    let scores = "-5,-9,-1,-1,-9,-3,-2";
    assert_eq!([0, 2].map(|action| judged(action, scores)), [(true, false), (true, true)]);
}

#[test]
fn an_illegal_action_is_never_good() {
    let full = &read("444444,late,0,0,0,,0,0,0").unwrap()[0];
    let judgement = score(Action(3), full);
    assert!(!judgement.outcome_preserving && !judgement.optimal);
    assert!(!score(Action(u16::MAX), full).optimal);
}

#[test]
fn errors_name_file_line_and_field() {
    refuses(
        "48,early,1,1,1,1,1,1,1",
        "some.csv, line 2, field `moves`: move 2: `8` is not a move: expected a column from 1 to 7",
    );
    refuses("4444444,early,1,1,1,1,1,1,1", "some.csv, line 2, field `moves`: move 7: `4` is not legal there");
    refuses("1212121,early,1,1,1,1,1,1,1", "some.csv, line 2, field `moves`: the game is over after these moves");
    refuses("4,,1,1,1,1,1,1,1", "some.csv, line 2, field `band`: is empty, expected a name");
    refuses(
        "4,early,1,1,1,1,1,1,1\n\n4,early,1,1,x,1,1,1,1",
        "some.csv, line 4, field `c3`: `x` is not a whole number",
    );
    refuses("4,early,1,1,99999999999,1,1,1,1", "some.csv, line 2, field `c3`: `99999999999` is not a whole number");
    refuses("4,early,1,1,,1,1,1,1", "some.csv, line 2, field `c3`: is empty, and the action is legal");
    refuses("444444,early,1,1,1,1,1,1,1", "some.csv, line 2, field `c4`: holds `1`, and the action is not legal");
    refuses("4,early,1,1", "some.csv, line 2: 4 fields, expected 9");
    refuses("", "some.csv: no positions");
}

#[test]
fn a_file_of_another_form_is_refused_by_its_header() {
    let header = |game: &TicTacToe, text: &str| parse(game, "some.csv", text).unwrap_err().to_string();
    assert_eq!(
        header(&TicTacToe::new(), HEADER),
        "some.csv, line 1: the header is `moves,band,c1,c2,c3,c4,c5,c6,c7`, \
         expected `moves,band` and one column for each of 9 actions"
    );
    assert!(header(&TicTacToe::new(), "").starts_with("some.csv, line 1: the header is ``"));
    let binary = "\u{0}é".repeat(500);
    assert!(header(&TicTacToe::new(), &binary).chars().count() < 200, "errors do not repeat whole files");
}

#[test]
fn windows_line_ends_and_spaces_are_read() {
    let text = format!("\u{feff}{HEADER}\r\n4 4, early ,1, 2,3,4,5,6,7\r\n");
    let positions = parse(&ConnectFour::new(), "some.csv", &text).unwrap();
    assert_eq!(positions[0].moves(), [Action(3); 2]);
    assert_eq!((positions[0].band().name(), positions[0].best()), ("early", 7));
}

#[test]
fn moves_of_more_than_one_character_are_separated_by_spaces() {
    let hex = Hex::new(games::hex::Size::MIN);
    let text = "moves,band,a1,b1,c1,a2,b2,c2,a3,b3,c3,swap\nb2 swap a1,only,,1,1,1,,1,1,1,1,\n";
    let position = &parse(&hex, "hex.csv", text).unwrap()[0];
    assert_eq!(position.moves(), [Action(4), hex.swap(), Action(0)]);
    assert_eq!(hex.to_move(&position.position(&hex)), game::Player::Second);
}

#[test]
fn accuracy_counts_by_band_and_overall() {
    let positions = read("4,late,5,9,0,-1,9,1,-2\n3,early,5,9,0,-1,9,1,-2\n5,late,5,9,0,-1,9,1,-2").unwrap();
    let accuracy = Accuracy::of(&positions, [0, 1, 2].map(Action));
    assert_eq!(accuracy.overall, Tally { positions: 3, outcome_preserving: 2, optimal: 1 });
    assert_eq!(
        serde_json::to_value(&accuracy.bands).unwrap(),
        serde_json::json!([
            {"band": "late", "positions": 2, "outcome_preserving": 1, "optimal": 0,
             "outcome_preserving_share": 0.5, "optimal_share": 0.0},
            {"band": "early", "positions": 1, "outcome_preserving": 1, "optimal": 1,
             "outcome_preserving_share": 1.0, "optimal_share": 1.0},
        ])
    );
}

#[test]
fn nothing_judged_is_no_share() {
    assert_eq!(Accuracy::default().overall.outcome_preserving_share(), 0.0);
}

#[test]
fn the_bundled_positions_are_read_for_their_game_only() {
    let positions = bundled(&ConnectFour::new()).unwrap();
    let count = |band| positions.iter().filter(|position| position.band().name() == band).count();
    assert_eq!(["early", "middle", "late"].map(count), [304, 484, 472]);
    assert_eq!(bundled(&TicTacToe::new()), None);
}

/// What the data say of themselves: a uniformly random player keeps the outcome in 37.5 % of the positions.
#[test]
fn random_play_keeps_the_outcome_of_three_eighths_of_the_bundled_positions() {
    let positions = bundled(&ConnectFour::new()).unwrap();
    let expected = positions.iter().map(|position| {
        let legal: Vec<Action> = (0..7).map(Action).filter(|&action| position.score_of(action).is_some()).collect();
        let good = legal.iter().filter(|&&action| score(action, position).outcome_preserving).count();
        good as f64 / legal.len() as f64
    });
    let mean = expected.sum::<f64>() / positions.len() as f64;
    assert!((mean - 0.375).abs() < 0.001, "{mean}");
}
