//! Tests of the engine and of protocol sessions, with an evaluator that derives its outputs from position hashes.

mod batch;
mod gtp;
mod queries;

use std::cell::Cell;
use std::io;
use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use evaluator_doubles::RulesModel;
use games::{GameKind, Hex};
use inference::{Evaluator, Hashing};
use protocols::{
    BoardGame, Color, Engine, Error, GoRules, HandicapBonus, Host, Move, Restriction, RestrictionKind, Rules, Search,
    Setup, Size, Stone,
};
use run_file::RunFile;
use selfplay::SearchSettings;
use service::Drain;
use weights::HeadKind;

use super::network_engine::{NetworkEngine, Settings};
use crate::trained::tests::untrained;
use crate::trained::{Networks, Trained};

/// Returns a clock that advances by 5 ms with every reading.
fn clock() -> impl Fn() -> Duration {
    let now = Cell::new(0);
    move || {
        now.set(now.get() + 5);
        Duration::from_millis(now.get())
    }
}

/// Returns engine settings with `drain`, which stops every search.
fn settings(drain: &Drain) -> Settings {
    Settings {
        search: SearchSettings::default(),
        tree_bytes_max: 32 << 20,
        ponders: false,
        drain: drain.clone(),
        clock: Box::new(clock()),
    }
}

/// Returns an engine for the named game with `drain`, which stops every search.
fn engine_until(name: &str, drain: &Drain) -> NetworkEngine {
    let rules = name.parse::<GameKind>().unwrap().rules();
    let evaluator = Hashing::new(game::Game::spec(&rules).observation, 7);
    let evaluators: Vec<Box<dyn Evaluator>> = vec![Box::new(evaluator)];
    NetworkEngine::new(&rules, evaluators, "zerofleet test".into(), "7".into(), settings(drain)).unwrap()
}

fn engine(name: &str) -> NetworkEngine {
    engine_until(name, &Drain::new())
}

/// Runs a session with a separate clock, and returns the output.
fn session(
    read_file: &dyn Fn(&str, u64) -> io::Result<Vec<u8>>,
    serve: impl FnOnce(&mut dyn io::Write, &Host<'_>) -> io::Result<()>,
) -> String {
    let clock = clock();
    let mut output = Vec::new();
    serve(&mut output, &Host { clock: &clock, read_file }).unwrap();
    String::from_utf8(output).unwrap()
}

/// Returns the move with this name on the current board of the engine.
fn played(engine: &NetworkEngine, name: &str) -> Move {
    let identity = engine.identity();
    identity.game.parse_move(identity.size, name).unwrap()
}

fn setup(engine: &NetworkEngine) -> Setup {
    let identity = engine.identity();
    Setup { komi: identity.komi, rules: identity.rules, ..Setup::empty(identity.size) }
}

fn stone(engine: &NetworkEngine, color: Color, name: &str) -> Stone {
    let Move::Place(cell) = played(engine, name) else { panic!("{name} is no cell") };
    Stone { color, cell }
}

fn search(color: Color, visits: u32) -> Search<'static> {
    Search { color, visits: Some(visits), restrictions: &[] }
}

/// Returns the analysis from a search.
fn analyse(engine: &mut NetworkEngine, search: &Search<'_>) -> protocols::Analysis {
    engine.search(search, &mut |_| Continue(())).unwrap()
}

const BLACK: Color = Color::Black;
const WHITE: Color = Color::White;

#[test]
fn a_search_changes_no_position_and_lists_every_legal_move_with_its_best_play() {
    for (name, moves) in [("go-5", 26), ("hex-4", 16), ("othello-6", 4), ("gomoku-7", 49)] {
        let mut engine = engine(name);
        let before = engine.render();
        let analysis = analyse(&mut engine, &search(BLACK, 200));
        assert_eq!(engine.render(), before);
        assert_eq!((analysis.visits, analysis.candidates.len(), analysis.to_move), (200, moves, BLACK));
        assert_eq!(analysis.candidates[0].played, analysis.choice);
        assert_eq!(analysis.candidates.iter().map(|candidate| candidate.visits).sum::<u32>(), 200);
        assert!((analysis.candidates.iter().map(|candidate| candidate.prior).sum::<f32>() - 1.0).abs() < 1e-4);
        for candidate in analysis.candidates {
            assert_eq!(
                (candidate.variation[0].played, candidate.variation[0].visits),
                (candidate.played, candidate.visits)
            );
            let mut replayed = self::engine(name);
            let mut color = BLACK;
            for ply in &candidate.variation {
                replayed.play(color, ply.played).unwrap();
                color = color.opponent();
            }
        }
    }
}

#[test]
fn networks_of_muzero_and_games_that_protocols_do_not_name_are_refused() {
    let refusal = |name: &str, networks: Networks| {
        let RunFile { run, environment, .. } = RunFile::default();
        let (game, search) = (name.parse().unwrap(), SearchSettings::default());
        let weights = None;
        let trained =
            Trained { name: "test".to_owned(), game, run, environment, search, discount: 1.0, networks, weights };
        format!("{:#}", NetworkEngine::of_trained("test", trained, settings(&Drain::new())).err().unwrap())
    };
    let hex = Hex::new(games::hex::Size::MIN);
    let shape = game::Game::spec(&hex).observation;
    let model = Networks::Latent(Box::new(RulesModel::new(hex, Hashing::new(shape, 7), [])));
    assert_eq!(
        refusal("hex-3", model),
        "hex-3: the protocols do not support MuZero networks; use zerofleet play or eval"
    );
    let evaluators = Networks::Evaluators(vec![Box::new(Hashing::new(shape, 7))]);
    let expected = "connect_four: the protocols support only Go, Hex, Othello and Gomoku";
    assert_eq!(refusal("connect_four", evaluators), expected);
}

#[test]
fn symmetric_positions_share_one_of_their_hashes() {
    let mut engine = engine("go-5");
    let mut hashes = |corner: &str| {
        engine.start(&setup(&self::engine("go-5"))).unwrap();
        let corner = played(&engine, corner);
        engine.play(BLACK, corner).unwrap();
        let analysis = analyse(&mut engine, &search(WHITE, 1));
        (analysis.hash, analysis.symmetric_hash)
    };
    let [first, second, other] = ["A1", "E5", "C3"].map(&mut hashes);
    assert!(first.0 != second.0 && first.1 == second.1 && first.1 != other.1);
}

#[test]
fn the_tree_of_a_search_goes_on_behind_its_moves_and_with_the_next_search() {
    let mut engine = engine("gomoku-7");
    let endless = Search { visits: None, ..search(BLACK, 0) };
    let mut reports = 0;
    let mut ten_times = |_: &protocols::Analysis| {
        reports += 1;
        if reports == 10 { Break(()) } else { Continue(()) }
    };
    let pondered = engine.search(&endless, &mut ten_times).unwrap();
    assert!(pondered.visits > 10, "{} visits", pondered.visits);
    // The tree already has more visits than this search needs, so that the search adds none.
    assert_eq!(analyse(&mut engine, &search(BLACK, 1)), pondered);
    engine.play(BLACK, pondered.choice).unwrap();
    let kept = analyse(&mut engine, &search(WHITE, 1)).visits;
    assert_eq!(kept + 1, pondered.candidates[0].visits);
    engine.clear_cache();
    assert_eq!(analyse(&mut engine, &search(WHITE, 1)).visits, 1);
}

#[test]
fn only_the_allowed_moves_of_the_player_to_move_are_searched() {
    let mut engine = engine("go-5");
    let restriction = |engine: &NetworkEngine, color, kind, names: &[&str]| {
        let moves = names.iter().map(|name| played(engine, name)).collect();
        Restriction { color, kind, moves }
    };
    let restrictions = [
        restriction(&engine, BLACK, RestrictionKind::Allow, &["A1", "B2", "pass"]),
        restriction(&engine, BLACK, RestrictionKind::Avoid, &["B2"]),
        restriction(&engine, WHITE, RestrictionKind::Avoid, &["A1"]),
    ];
    let restricted = Search { restrictions: &restrictions, ..search(BLACK, 60) };
    let analysis = analyse(&mut engine, &restricted);
    let moves: Vec<Move> = analysis.candidates.iter().map(|candidate| candidate.played).collect();
    assert!(moves.len() == 2 && moves.contains(&played(&engine, "A1")) && moves.contains(&Move::Pass), "{moves:?}");
    assert_eq!(analyse(&mut engine, &search(BLACK, 60)).candidates.len(), 26);
    let none = [restriction(&engine, BLACK, RestrictionKind::Allow, &[])];
    let nothing_left = Search { restrictions: &none, ..search(BLACK, 60) };
    assert!(matches!(engine.search(&nothing_left, &mut |_| Continue(())), Err(Error::Refused { .. })));
}

#[test]
fn a_player_out_of_turn_follows_a_pass_and_is_refused_in_othello() {
    let mut engine = engine("go-5");
    for (color, name) in [(BLACK, "C3"), (BLACK, "D3"), (WHITE, "C2"), (WHITE, "pass"), (WHITE, "D2")] {
        let played = played(&engine, name);
        engine.play(color, played).unwrap();
    }
    assert_eq!(engine.render().matches('X').count() + engine.render().matches('O').count(), 4);
    assert_eq!((engine.to_move(), analyse(&mut engine, &search(WHITE, 20)).to_move), (BLACK, WHITE));
    assert_eq!(engine.to_move(), BLACK);
    engine.play(WHITE, Move::Pass).unwrap();
    assert_eq!(engine.outcome(), None, "the pass that was inserted ends no game");
    for name in ["hex-4", "gomoku-7"] {
        let mut engine = self::engine(name);
        for (color, name) in [(WHITE, "a1"), (WHITE, "b1"), (BLACK, "c1"), (WHITE, "pass"), (BLACK, "d1")] {
            let played = played(&engine, name);
            engine.play(color, played).unwrap();
        }
        let count = |symbol: char| engine.render().matches(symbol).count();
        assert_eq!((count('X'), count('O'), engine.to_move()), (2, 2, WHITE), "{name}");
        assert_eq!(analyse(&mut engine, &search(BLACK, 20)).to_move, BLACK);
        assert_eq!((engine.to_move(), engine.outcome()), (WHITE, None), "passes end no game");
    }
    let mut engine = self::engine("othello-6");
    let played = analyse(&mut engine, &search(BLACK, 1)).choice;
    assert!(matches!(engine.play(WHITE, played), Err(Error::Refused { .. })));
    assert!(matches!(engine.search(&search(WHITE, 1), &mut |_| Continue(())), Err(Error::Refused { .. })));
    engine.play(BLACK, played).unwrap();
}

#[test]
fn go_goes_on_behind_two_passes_and_its_score_is_that_of_the_area() {
    let mut engine = engine("go-5");
    let c3 = played(&engine, "C3");
    for (color, played) in [(BLACK, c3), (WHITE, Move::Pass), (BLACK, Move::Pass)] {
        engine.play(color, played).unwrap();
    }
    assert_eq!(engine.outcome().unwrap().to_string(), "B+1");
    assert_eq!(analyse(&mut engine, &search(WHITE, 20)).candidates.len(), 25);
    let b2 = played(&engine, "B2");
    engine.play(WHITE, b2).unwrap();
    assert_eq!(engine.outcome(), None);
    // Each player has one stone and surrounds no cell, and komi is 24.
    assert_eq!(engine.result().unwrap().to_string(), "W+24");
    assert!(engine.play(BLACK, b2).is_err());
}

#[test]
fn a_game_of_go_ends_with_its_limit_of_moves_and_the_next_move_is_refused_with_the_reason() {
    // Tests moves in turn, and moves of one player with an inserted pass before each move except the first.
    for colors in [[BLACK, WHITE].repeat(25), [BLACK].repeat(25)] {
        let mut engine = engine("go-5");
        colors.iter().for_each(|&color| engine.play(color, Move::Pass).unwrap());
        let expected = "the game has ended: it has at most 50 moves on this board, inserted passes included";
        let c3 = played(&engine, "C3");
        assert_eq!(engine.play(BLACK, c3).unwrap_err().to_string(), expected);
        // The inserted pass of a player out of turn is the last move.
        let is_over = engine.legal_moves().is_empty();
        assert_eq!(is_over, colors.len() == 50);
        assert_eq!(engine.play(BLACK, Move::Pass).is_ok(), is_over);
        let refusal = engine.search(&search(BLACK, 1), &mut |_| Continue(())).unwrap_err();
        assert_eq!(refusal.to_string(), expected);
        assert_eq!(engine.result().unwrap().to_string(), "W+24");
    }
}

#[test]
fn komi_and_the_bonus_of_handicap_stones_decide_the_score() {
    let mut engine = engine("go-5");
    let mut score = |komi, bonus, color: Option<Color>| {
        let rules = Rules::Go(GoRules { white_handicap_bonus: bonus, ..GoRules::TROMP_TAYLOR });
        let stones = vec![stone(&engine, BLACK, "B2"), stone(&engine, BLACK, "D4")];
        let setup = Setup { komi, rules, stones, to_move: color, ..setup(&engine) };
        engine.start(&setup).map(|()| (engine.result().unwrap().to_string(), engine.to_move()))
    };
    assert_eq!(score(0.5, HandicapBonus::Zero, None), Ok(("B+24.5".into(), WHITE)));
    assert_eq!(score(0.5, HandicapBonus::Stones, Some(BLACK)), Ok(("B+22.5".into(), BLACK)));
    assert_eq!(score(-3.0, HandicapBonus::StonesLessOne, Some(WHITE)), Ok(("B+27".into(), WHITE)));
    assert!(score(0.3, HandicapBonus::Zero, None).is_err() && score(1000.0, HandicapBonus::Zero, None).is_err());
}

#[test]
fn boards_and_rules_that_are_not_played_are_refused() {
    let mut engine = engine("go-5");
    let refused = |engine: &mut NetworkEngine, setup: Setup| engine.start(&setup).unwrap_err().to_string();
    let usual = setup(&engine);
    let other = Setup { size: Size::square(9).unwrap(), ..usual.clone() };
    assert_eq!(refused(&mut engine, other), "the network plays on boards of 5 x 5 cells");
    let japanese = Setup { rules: Rules::Go(GoRules::named("japanese").unwrap()), ..usual.clone() };
    assert_eq!(refused(&mut engine, japanese), "only area scoring without tax and button is supported");
    for name in ["chinese", "tromp-taylor", "aga", "new-zealand"] {
        engine.start(&Setup { rules: Rules::Go(GoRules::named(name).unwrap()), ..usual.clone() }).unwrap();
    }
    let b2 = stone(&engine, BLACK, "B2");
    let twice = Setup { stones: vec![b2, b2], ..usual.clone() };
    assert_eq!(refused(&mut engine, twice), "two stones are on one cell");
    engine.start(&usual).unwrap();
}

#[test]
fn weights_of_every_board_play_on_each_board_of_their_game_and_others_on_their_own_only() {
    let engine = |heads| {
        let (_runs, trained) = untrained("go-5", heads);
        NetworkEngine::of_trained("test", trained, settings(&Drain::new())).unwrap()
    };
    let empty = |width, height| Setup::empty(Size::new(width, height).unwrap());
    let refused = |engine: &mut NetworkEngine, setup: Setup| engine.start(&setup).unwrap_err().to_string();
    let mut pooled = engine(HeadKind::Pooled);
    for side in [7, 5, 9] {
        pooled.start(&empty(side, side)).unwrap();
        assert_eq!((pooled.size().width(), pooled.render().lines().count()), (side, side + 1));
        let analysis = analyse(&mut pooled, &search(BLACK, 200));
        assert_eq!((analysis.visits, analysis.candidates.len()), (200, side * side + 1));
        let corner = pooled.size().cell(side - 1, side - 1).unwrap();
        pooled.play(BLACK, Move::Place(corner)).unwrap();
    }
    assert_eq!(refused(&mut pooled, empty(9, 7)), "the network plays on boards of 9 x 9 cells: boards are square");
    let missing = refused(&mut pooled, empty(4, 4));
    assert!(missing.contains("go-4"), "{missing}");
    // After a refused board size, the engine keeps the previous board.
    assert_eq!(analyse(&mut pooled, &search(WHITE, 20)).visits, 20);
    let mut flattened = engine(HeadKind::Flattened);
    assert!(refused(&mut flattened, empty(7, 7)).contains("the heads are not pooled (network.heads)"));
    flattened.start(&empty(5, 5)).unwrap();
}

#[test]
fn stones_of_other_games_are_those_that_arise_by_play() {
    let mut engine = engine("gomoku-7");
    let stones = |engine: &NetworkEngine, stones: &[(Color, &str)]| -> Vec<Stone> {
        stones.iter().map(|(color, name)| stone(engine, *color, name)).collect()
    };
    let usual = setup(&engine);
    // The order of the listed stones does not matter, since the engine plays them in turn.
    let three = stones(&engine, &[(WHITE, "A1"), (BLACK, "B2"), (BLACK, "C3")]);
    engine.start(&Setup { stones: three.clone(), ..usual.clone() }).unwrap();
    assert_eq!(engine.to_move(), WHITE);
    let turned = engine.render();
    engine.start(&Setup { stones: three.clone(), to_move: Some(BLACK), ..usual.clone() }).unwrap();
    assert_eq!((engine.to_move(), engine.render()), (BLACK, turned));
    let black_only = stones(&engine, &[(BLACK, "B2"), (BLACK, "C3")]);
    engine.start(&Setup { stones: black_only, ..usual.clone() }).unwrap();
    assert_eq!((engine.to_move(), engine.render().matches('X').count()), (WHITE, 2));
    engine.start(&Setup { to_move: Some(WHITE), ..usual.clone() }).unwrap();
    assert_eq!(engine.to_move(), WHITE);
    let twice = [three.clone(), three].concat();
    assert!(engine.start(&Setup { stones: twice, ..usual.clone() }).is_err());

    let mut engine = self::engine("othello-6");
    assert_eq!(engine.identity().game, BoardGame::Othello);
    let usual = setup(&engine);
    let first = stones(&engine, &[(WHITE, "c3"), (WHITE, "d4"), (BLACK, "c4"), (BLACK, "d3")]);
    engine.start(&Setup { stones: first.clone(), ..usual.clone() }).unwrap();
    assert!(engine.start(&Setup { stones: first[..3].to_vec(), ..usual }).is_err());
}

#[test]
fn a_drain_ends_a_search_and_refuses_the_next() {
    let drain = Drain::new();
    let mut engine = engine_until("gomoku-7", &drain);
    let endless = Search { visits: None, ..search(BLACK, 0) };
    let analysis = engine.search(&endless, &mut |_| {
        drain.start();
        Continue(())
    });
    assert!(analysis.unwrap().visits < 1000);
    assert!(matches!(engine.search(&endless, &mut |_| Continue(())), Err(Error::Failed { .. })));
}
