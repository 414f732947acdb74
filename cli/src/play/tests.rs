use games::{ConnectFour, Hex, TicTacToe};
use inference::Wdl;
use inference::testing::{Fault, Faulty, Scripted, Uniform};

use super::*;

/// Likes low actions: the first legal one most.
fn fond_of_low_actions<G: Game>(game: &G) -> impl Evaluator + use<G> {
    Scripted::new(game.spec().observation, 3, |_: &[f32], legal: &[Action], priors: &mut [f32]| {
        let sum = (legal.len() * (legal.len() + 1) / 2) as f32;
        for (rank, prior) in priors.iter_mut().enumerate() {
            *prior = (legal.len() - rank) as f32 / sum;
        }
        Wdl { win: 0.5, draw: 0.25, loss: 0.25 }
    })
}

/// What is written when these lines are typed, each followed by a line break.
fn session<G: Game>(game: &G, settings: &Settings, lines: &[&str]) -> String {
    let input: String = lines.iter().map(|line| format!("{line}\n")).collect();
    transcript(game, settings, input.as_bytes())
}

fn transcript<G: Game>(game: &G, settings: &Settings, mut input: &[u8]) -> String {
    let mut output = Vec::new();
    let mut evaluators: Vec<Box<dyn Evaluator>> = vec![Box::new(fond_of_low_actions(game))];
    play(game, settings, &mut evaluators, &mut input, &mut output).unwrap();
    String::from_utf8(output).unwrap()
}

/// The raw policy plays the lowest empty cell, so every move of the transcript can be read off the board.
///
/// `UPDATE_GOLDEN=1 cargo test -p cli play` writes the transcript anew.
#[test]
fn a_session_reads_like_this() {
    let lines = ["hint", "5", "5", "x", "back", "3", "5", "7", "7", "back", "sides", "quit"];
    let text = session(&TicTacToe::new(), &Settings { listed_moves: 2, ..Settings::new(0) }, &lines);
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/src/play/tests/session.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(golden, &text).unwrap();
    }
    assert!(text == std::fs::read_to_string(golden).unwrap(), "the transcript is now:\n{text}");
}

#[test]
fn a_search_shows_its_visits_and_what_it_has_proven() {
    let cells = ["1", "2", "3", "4", "5", "6", "7", "8", "9"];
    // What is not legal is answered and passed over. Four empty cells have 24 orders: all are searched.
    let text = session(&TicTacToe::new(), &Settings::new(400), &cells);
    assert!(text.contains(", a proven "), "{text}");
    let settings = Settings { listed_moves: 7, ..Settings::new(100) };
    let text = session(&ConnectFour::new(), &settings, &["hint"]);
    let rows = text.lines().skip_while(|line| !line.contains("visits")).skip(1).take(7);
    let visits: Vec<u32> = rows.map(|row| row.split_whitespace().nth(2).unwrap().parse().unwrap()).collect();
    assert_eq!(visits.iter().sum::<u32>(), 100, "{text}");
}

#[test]
fn a_win_in_one_is_played_and_called_proven() {
    let game = TicTacToe::new();
    let settings = Settings { person: Player::Second, ..Settings::new(200) };
    let mut output = Vec::new();
    let mut uniform: Vec<Box<dyn Evaluator>> = vec![Box::new(Uniform::new(game.spec().observation))];
    // The second player answers in a row of its own and never blocks.
    let mut input: &[u8] = "1\n2\n3\n4\n5\n6\n7\n8\n9\n".as_bytes();
    play(&game, &settings, &mut uniform, &mut input, &mut output).unwrap();
    let text = String::from_utf8(output).unwrap();
    assert!(text.contains("a proven win"), "{text}");
    assert!(text.contains("the program wins"), "{text}");
}

#[test]
fn the_program_begins_when_the_person_is_second() {
    let settings = Settings { person: Player::Second, ..Settings::new(0) };
    let text = session(&ConnectFour::new(), &settings, &["quit"]);
    assert!(text.contains("the program plays 1"), "{text}");
    assert!(text.ends_with("second player> goodbye\n"), "{text}");
}

#[test]
fn the_end_of_input_ends_the_game() {
    let text = transcript(&ConnectFour::new(), &Settings::new(0), b"");
    assert!(text.ends_with("first player> \nthe input ended: goodbye\n"), "{text}");
    let unfinished_line = transcript(&ConnectFour::new(), &Settings::new(0), b"4");
    assert!(unfinished_line.contains("the program plays 1"), "{unfinished_line}");
}

#[test]
fn bad_input_is_answered_and_asked_again() {
    let game = ConnectFour::new();
    let check = |input: &[u8], expected: &str| {
        let text = transcript(&game, &Settings::new(0), input);
        assert!(text.contains(expected), "{input:?} is answered with\n{text}");
        assert!(text.ends_with("the input ended: goodbye\n"), "{input:?} ends with\n{text}");
    };
    check(b"8\n", "`8` is not a move: expected a column from 1 to 7; `help` lists the commands");
    check(b"\xff\xfe\n", "is not a move");
    check(&[b'4'; 5_000], "that line is too long for a move or a command");
    check(b"back\n", "you have not moved yet: there is nothing to take back");
    check(b"1\n1\n1\n1\n", "`1` is not legal here");
    check(b"help\n", "take back your last move and the answer to it");
}

#[test]
fn after_the_end_one_may_take_back_or_begin_again() {
    let lines = ["3", "5", "7", "9", "hint", "sides", "back", "9", "7", "new", "quit"];
    let text = session(&TicTacToe::new(), &Settings::new(0), &lines);
    assert_eq!(text.matches("you win").count(), 2, "{text}");
    assert!(text.contains("the game is over: `new` begins another"), "{text}");
    assert!(text.contains("the game is over: there is no move to suggest"), "{text}");
}

#[test]
fn a_swap_is_a_move_like_any_other() {
    let game = Hex::new(games::hex::Size::MIN);
    let settings = Settings { person: Player::Second, ..Settings::new(0) };
    let text = session(&game, &settings, &["swap", "swap", "quit"]);
    assert!(text.contains("`swap` is not legal here"), "{text}");
}

#[test]
fn a_failing_evaluator_ends_the_game_with_its_error() {
    let game = TicTacToe::new();
    let mut faulty: Vec<Box<dyn Evaluator>> = vec![Box::new(Faulty::new(game.spec().observation, Fault::Backend, 0))];
    let error = play(&game, &Settings::new(0), &mut faulty, &mut "5\n".as_bytes(), &mut Vec::new()).unwrap_err();
    assert!(matches!(error, Error::Evaluator(_)), "{error}");
}
