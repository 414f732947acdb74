//! Tests of `zerofleet play` with a list of lines as input from the human player.

use clap::Parser as _;
use evaluator_doubles::{Fault, Faulty, Scripted, Uniform};
use inference::{Evaluator, Wdl};
use rand::RngExt as _;

use super::*;
use crate::Cli;
use crate::trained::tests::{architecture, begin_with, publish};

#[test]
fn the_person_moves_first_unless_second_is_given() {
    let person = |words: &[&str]| {
        let words = [&["zerofleet", "play", "--run", "first"], words].concat();
        match Cli::try_parse_from(words).unwrap().command {
            crate::Command::Play(args) => args.settings(SearchSettings::default()).person,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((person(&[]), person(&["--second"])), (Player::First, Player::Second));
}

#[test]
fn a_session_is_against_one_run_or_one_model() {
    let is_accepted = |words: &str| Cli::try_parse_from(words.split(' ')).is_ok();
    for words in ["connect_four", "models/any --second", "--weights connect_four", "--run first --version 3"] {
        assert!(is_accepted(&format!("zerofleet play {words}")), "{words}");
    }
    for words in [
        "--second",
        "connect_four --run first",
        "connect_four --weights othello-6",
        "connect_four --version 3",
        "--run first --weights othello-6",
        "connect_four --inference http://127.0.0.1:7003",
    ] {
        assert!(!is_accepted(&format!("zerofleet play {words}")), "{words}");
    }
}

#[test]
fn a_game_without_sgf_is_refused_with_the_name_of_the_option() {
    let runs = tempfile::tempdir().unwrap();
    publish(&begin_with(runs.path(), "tic_tac_toe"), architecture(&GameKind::TicTacToe), 1);
    let words = ["zerofleet", "play", "--run", "noughts", "--threads", "1", "--sgf", "game.sgf", "--runs"];
    let words = words.into_iter().chain(runs.path().to_str());
    let error = match Cli::try_parse_from(words).unwrap().command {
        crate::Command::Play(args) => args.run().unwrap_err(),
        other => panic!("{other:?}"),
    };
    assert!(service::chain(&error).starts_with("--sgf: tic_tac_toe has no SGF format"), "{error:#}");
}

/// Returns an evaluator whose priors decrease with the action number, so that the first legal action is preferred.
fn prefers_low_actions<G: Game>(game: &G) -> impl Evaluator + 'static + use<G> {
    Scripted::new(game.spec().observation, 3, |_: &[f32], legal: &[Action], priors: &mut [f32]| {
        let sum = (legal.len() * (legal.len() + 1) / 2) as f32;
        for (rank, prior) in priors.iter_mut().enumerate() {
            *prior = (legal.len() - rank) as f32 / sum;
        }
        Wdl { win: 0.5, draw: 0.25, loss: 0.25 }
    })
}

fn rules(name: &str) -> AnyGame {
    name.parse::<GameKind>().unwrap().rules()
}

/// Returns the output of a session with these lines of input.
fn session(game: &AnyGame, settings: &Settings, lines: &[&str]) -> String {
    let input: String = lines.iter().map(|line| format!("{line}\n")).collect();
    transcript(game, settings, input.as_bytes())
}

fn transcript(game: &AnyGame, settings: &Settings, mut input: &[u8]) -> String {
    let mut output = Vec::new();
    let mut networks = Networks::Evaluators(vec![Box::new(prefers_low_actions(game))]);
    play(game, settings, &mut networks, &mut input, &mut output, &mut |_, _| Ok(())).unwrap();
    String::from_utf8(output).unwrap()
}

/// The raw policy plays the lowest empty cell, so that the board determines every move in the transcript.
///
/// `UPDATE_GOLDEN=1 cargo test -p cli play` rewrites the transcript.
#[test]
fn a_session_matches_the_golden_transcript() {
    let lines = ["hint", "5", "5", "x", "back", "3", "5", "7", "7", "back", "sides", "quit"];
    let text = session(&rules("tic_tac_toe"), &Settings { listed_moves: 2, ..Settings::new(0) }, &lines);
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/src/play/tests/session.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(golden, &text).unwrap();
    }
    assert!(text == std::fs::read_to_string(golden).unwrap(), "the transcript is now:\n{text}");
}

#[test]
fn a_search_shows_its_visits_and_proven_values() {
    let cells = ["1", "2", "3", "4", "5", "6", "7", "8", "9"];
    // The session reports illegal moves and asks again. Four empty cells have only 24 orders, all of which are
    // searched.
    let text = session(&rules("tic_tac_toe"), &Settings::new(400), &cells);
    assert!(text.contains(", a proven "), "{text}");
    let settings = Settings { listed_moves: 7, ..Settings::new(100) };
    let text = session(&rules("connect_four"), &settings, &["hint"]);
    let rows = text.lines().skip_while(|line| !line.contains("visits")).skip(1).take(7);
    let visits: Vec<u32> = rows.map(|row| row.split_whitespace().nth(3).unwrap().parse().unwrap()).collect();
    assert_eq!(visits.iter().sum::<u32>(), 100, "{text}");
}

#[test]
fn a_win_in_one_is_played_and_called_proven() {
    let game = rules("tic_tac_toe");
    let settings = Settings { person: Player::Second, ..Settings::new(200) };
    let mut output = Vec::new();
    let mut uniform = Networks::Evaluators(vec![Box::new(Uniform::new(game.spec().observation))]);
    // The second player plays in another row, and never blocks the first player.
    let mut input: &[u8] = "1\n2\n3\n4\n5\n6\n7\n8\n9\n".as_bytes();
    play(&game, &settings, &mut uniform, &mut input, &mut output, &mut |_, _| Ok(())).unwrap();
    let text = String::from_utf8(output).unwrap();
    assert!(text.contains("a proven win"), "{text}");
    assert!(text.contains("the program wins"), "{text}");
}

#[test]
fn the_program_begins_when_the_person_is_second() {
    let settings = Settings { person: Player::Second, ..Settings::new(0) };
    let text = session(&rules("connect_four"), &settings, &["quit"]);
    assert!(text.contains("the program plays 1"), "{text}");
    assert!(text.ends_with("second player> goodbye\n"), "{text}");
}

#[test]
fn the_end_of_input_ends_the_game() {
    let text = transcript(&rules("connect_four"), &Settings::new(0), b"");
    assert!(text.ends_with("first player> \nend of input: goodbye\n"), "{text}");
    let unfinished_line = transcript(&rules("connect_four"), &Settings::new(0), b"4");
    assert!(unfinished_line.contains("the program plays 1"), "{unfinished_line}");
}

#[test]
fn bad_input_is_reported_and_read_again() {
    let game = rules("connect_four");
    let check = |input: &[u8], expected: &str| {
        let text = transcript(&game, &Settings::new(0), input);
        assert!(text.contains(expected), "{input:?} is reported as\n{text}");
        assert!(text.ends_with("end of input: goodbye\n"), "{input:?} ends with\n{text}");
    };
    check(b"8\n", "`8` is not a move: expected a column from 1 to 7; `help` lists the commands");
    check(b"\xff\xfe\n", "is not a move");
    check(&[b'4'; 5_000], "line too long");
    check(b"back\n", "no move to take back: you have not moved yet");
    check(b"1\n1\n1\n1\n", "`1` is not legal here");
    check(b"help\n", "take back your last move and the reply");
}

#[test]
fn after_the_end_back_and_new_still_work() {
    let lines = ["3", "5", "7", "9", "hint", "sides", "back", "9", "7", "new", "quit"];
    let text = session(&rules("tic_tac_toe"), &Settings::new(0), &lines);
    assert_eq!(text.matches("you win").count(), 2, "{text}");
    assert!(text.contains("the game is over: `new` starts another"), "{text}");
    assert!(text.contains("the game is over: there is no move to suggest"), "{text}");
}

#[test]
fn a_swap_is_a_move_like_any_other() {
    let game = rules("hex-3");
    let settings = Settings { person: Player::Second, ..Settings::new(0) };
    let text = session(&game, &settings, &["swap", "swap", "quit"]);
    assert!(text.contains("`swap` is not legal here"), "{text}");
}

/// Returns moves of the first player against the lowest legal actions, after which the first player must pass.
fn moves_to_a_forced_pass(game: &AnyGame) -> Vec<String> {
    let mut legal = Vec::new();
    let moves_of_game = |seed| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (mut position, mut lines) = (game.start(), Vec::new());
        while game.outcome(&position).is_none() {
            game.legal_actions(&position, &mut legal);
            let is_person = game.to_move(&position) == Player::First;
            let action = if is_person { legal[rng.random_range(0..legal.len())] } else { legal[0] };
            let name = game.action_name(&position, action);
            if is_person && name == "pass" {
                return Some(lines);
            }
            lines.extend(is_person.then_some(name));
            game.play(&mut position, action);
        }
        None
    };
    (0..1_000).find_map(moves_of_game).unwrap()
}

#[test]
fn a_forced_pass_is_named_and_the_score_is_shown() {
    const ONLY_PASS: &str = "`pass` is the only legal move\n";
    let game = rules("othello-6");
    let moves = moves_to_a_forced_pass(&game).join("\n");
    let text = transcript(&game, &Settings::new(0), format!("{moves}\n").as_bytes());
    assert!(text.contains("discs: X 2, O 2\n") && text.contains(ONLY_PASS), "{text}");
    let text = transcript(&game, &Settings::new(0), format!("{moves}\na1\nhelp\npass\n").as_bytes());
    assert!(text.contains("`a1` is not legal here") && text.contains("pass     pass, in Go and Othello"), "{text}");
    let passed = text.split_once(ONLY_PASS).unwrap().1;
    assert!(passed.contains("the program plays ") || passed.contains("`back`, `new` or `quit`?"), "{text}");
    let text = session(&rules("go-5"), &Settings::new(0), &["C3"]);
    assert!(text.contains("area: X 0, O 0 and komi 24\n") && text.contains("area: X 25, O 0 and komi 24\n"), "{text}");
}

#[test]
fn a_failing_evaluator_ends_the_game_with_its_error() {
    let game = rules("tic_tac_toe");
    let mut faulty = Networks::Evaluators(vec![Box::new(Faulty::new(game.spec().observation, Fault::Backend, 0))]);
    let (mut input, mut output): (&[u8], _) = ("5\n".as_bytes(), Vec::new());
    let played = play(&game, &Settings::new(0), &mut faulty, &mut input, &mut output, &mut |_, _| Ok(()));
    let error = played.unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(inference::Error::Backend(_))), "{error:#}");
}

/// Returns the number of moves and the side of the human player in each game that a session saves.
fn saved(settings: &Settings, lines: &str) -> Vec<(usize, Player)> {
    let game = rules("tic_tac_toe");
    let mut networks = Networks::Evaluators(vec![Box::new(prefers_low_actions(&game))]);
    let mut saved = Vec::new();
    let mut save = |actions: &[Action], person: Player| -> anyhow::Result<()> {
        game.replay(actions)?;
        saved.push((actions.len(), person));
        Ok(())
    };
    play(&game, settings, &mut networks, &mut lines.as_bytes(), &mut Vec::new(), &mut save).unwrap();
    saved
}

#[test]
fn a_game_is_saved_after_every_move_and_a_new_one_with_its_first() {
    let first = |plies: usize| (plies, Player::First);
    // The program responds to each move, and `back` takes back two plies.
    assert_eq!(saved(&Settings::new(0), "5\n6\nback\nquit\n"), [1, 2, 3, 4, 2].map(first));
    assert_eq!(saved(&Settings::new(0), "5\nback\nnew\nhint\n"), [1, 2].map(first));
    let second = Settings { person: Player::Second, ..Settings::new(0) };
    assert_eq!(saved(&second, "nonsense\n"), [(1, Player::Second)]);
}

#[test]
fn a_game_that_cannot_be_saved_ends_the_session_with_the_reason() {
    let game = rules("tic_tac_toe");
    let mut networks = Networks::Evaluators(vec![Box::new(prefers_low_actions(&game))]);
    let mut save = |_: &[Action], _: Player| Err(anyhow::anyhow!("the disk is full"));
    let (mut input, mut output): (&[u8], _) = ("5\n".as_bytes(), Vec::new());
    let played = play(&game, &Settings::new(0), &mut networks, &mut input, &mut output, &mut save);
    assert_eq!(service::chain(&played.unwrap_err()), "save the game: the disk is full");
}
