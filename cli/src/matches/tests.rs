//! Tests of the command between evaluators that need no training.

use std::fs;

use arena::ledger;
use clap::Parser as _;
use evaluator_doubles::{Fault, Faulty, Uniform};
use evaluators::Network;
use games::{Catch, ConnectFour, TicTacToe};
use selfplay::SearchSettings;

use super::*;
use crate::Cli;

fn network<G: Game>(game: &G, name: &str, simulations: u32) -> Contender {
    let network = Network::Evaluator(Box::new(Uniform::new(game.spec().observation)));
    let search = SearchSettings::default();
    Contender::new(name, Player::Network(eval::Player { network, simulations, search, discount: 1.0 }))
}

fn random(name: &str) -> Contender {
    Contender::new(name, Player::Fixed(ledger::Player::Random))
}

fn settings(openings: usize, seed: u64) -> Settings {
    let matches = matches::Settings { openings, opening_plies_max: 4 };
    Settings { matches, seed, pace: Pace::AsGiven, sprt: None }
}

fn sprt(elo0: f64, elo1: f64) -> Option<Sprt> {
    Some(Sprt::new(sprt::Settings { elo0, elo1, alpha: 0.05, beta: 0.05 }).unwrap())
}

fn complete<G: Game>(game: &G, contenders: Vec<Contender>, settings: Settings) -> (Report, Vec<Played>) {
    let (report, played) = play(game, contenders, settings, &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(!report.is_interrupted);
    (report, played)
}

/// Plays two searches in Connect Four from 20 openings.
fn run(simulations: [u32; 2]) -> Report {
    let game = ConnectFour::new();
    let [deep, shallow] = simulations;
    complete(&game, vec![network(&game, "deep", deep), network(&game, "shallow", shallow)], settings(20, 3)).0
}

fn text(report: &Report) -> String {
    let mut text = Vec::new();
    report.write(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn the_deeper_search_scores_more_and_its_elo_is_above_that_of_its_opponent() {
    let report = run([48, 8]);
    let pairing = &report.pairings[0];
    assert!(pairing.points > 25.0 && pairing.rating.low > 0.0, "{report:?}");
    let simulations: Vec<_> = report.players.iter().map(|player| player.simulations).collect();
    assert_eq!((pairing.games + pairing.repeated_games as u64, simulations), (40, vec![Some(48), Some(8)]));
    let mirrored = &run([8, 48]).pairings[0];
    assert!(mirrored.points < 15.0 && mirrored.rating.high < 0.0, "{mirrored:?}");
}

#[test]
fn the_text_of_two_players_names_both_and_sums_up_the_match() {
    let text = text(&run([8, 8]));
    for part in
        ["connect_four: 40 games", "  deep: weights version", "8 simulations", " against shallow (", "Elo difference"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn each_two_of_several_players_meet_and_the_crosstable_holds_the_points_of_both() {
    let game = TicTacToe::new();
    let players = vec![random("weak"), network(&game, "middle", 4), network(&game, "strong", 64)];
    let (report, played) = complete(&game, players, settings(20, 1));
    let met: Vec<[usize; 2]> = report.pairings.iter().map(|pairing| [pairing.a, pairing.b]).collect();
    assert_eq!((met, played.len()), (vec![[0, 1], [0, 2], [1, 2]], 3));
    let (games, points) = report.pairings.iter().fold((0, 0.0), |(games, points), pairing| {
        (games + pairing.games, points + pairing.points + pairing.pairs.reversed().points())
    });
    assert_eq!(report.players.iter().map(|player| player.games).sum::<u64>(), 2 * games);
    assert_eq!(report.players.iter().map(|player| player.points).sum::<f64>(), points);
    assert_eq!(report.players[0].rating.elo, 0.0, "ratings are relative to the first");
    assert!(report.players[2].rating.low > 0.0, "{report:?}");
    let text = text(&report);
    let rows: Vec<&str> = text.lines().skip_while(|line| !line.contains("points")).take(4).collect();
    let best = &report.players[report.by_rating()[0]].name;
    assert!(rows[1].trim_start().starts_with(&format!("1  {best}")), "{text}");
    assert_eq!(rows[3].split_whitespace().nth(1), Some("weak"), "{text}");
}

#[test]
fn a_test_ends_a_match_after_the_batch_that_decides_it() {
    let game = ConnectFour::new();
    let players = vec![network(&game, "deep", 32), random("random")];
    let decided = Settings { sprt: sprt(0.0, 200.0), ..settings(64, 2) };
    let (report, _) = complete(&game, players, decided);
    let sprt = report.pairings[0].sprt.unwrap();
    assert_eq!((sprt.state, report.pairings[0].games), (State::AcceptH1, 2 * BATCH_OPENINGS as u64), "{report:?}");
    let text = text(&report);
    assert!(text.contains("H1 accepted: the difference of deep to random is more than +0 Elo"), "{text}");
}

/// The sixth round of the second pairing is the last: games from openings of three plies or more are over then.
#[test]
fn what_has_been_played_is_reported_when_the_match_is_stopped() {
    let game = TicTacToe::new();
    let mut rounds = 0;
    let mut pause = |progress: &Progress<'_>| {
        rounds += usize::from(progress.names == ["a", "c"]);
        if rounds < 6 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let players = vec![random("a"), random("b"), random("c")];
    let (report, _) = play(&game, players, settings(10, 1), &mut pause).unwrap();
    let games: Vec<u64> = report.pairings.iter().map(|pairing| pairing.games).collect();
    assert!(report.is_interrupted && games.len() == 2 && games[0] > games[1] && games[1] > 0, "{report:?}");
    assert!(text(&report).contains("interrupted: "));
}

#[test]
fn games_with_identical_moves_count_once() {
    let game = TicTacToe::new();
    // There are fewer openings, so that some are played again, by players that choose the same moves.
    let players = vec![network(&game, "one", 0), network(&game, "other", 0)];
    let matches = matches::Settings { openings: 1000, opening_plies_max: 4 };
    let (report, played) = complete(&game, players, Settings { matches, ..settings(1, 1) });
    let pairing = &report.pairings[0];
    assert_eq!(pairing.games + pairing.repeated_games as u64, 2000);
    assert!(pairing.repeated_games > 0, "{pairing:?}");
    let games: std::collections::HashSet<_> =
        played[0].pairs().iter().map(|pair| pair.games.each_ref().map(|game| &game.actions)).collect();
    assert_eq!(2 * games.len() as u64, pairing.games);
    assert!(text(&report).contains("games repeat those of an earlier opening move by move"));
}

#[test]
fn every_game_is_a_line_of_csv_whose_moves_lead_to_its_result() {
    let game = TicTacToe::new();
    let (_, played) = complete(&game, vec![random("a"), random("b")], settings(6, 1));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("games.csv");
    record::write(&path, &game, &[Games { names: ["a", "b"], played: &played[0] }]).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("pairing,opening,first,second,result,counts,opening_moves,moves"));
    let mut count = 0;
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        assert_eq!(fields[2..4], if count % 2 == 0 { ["a", "b"] } else { ["b", "a"] }, "{line}");
        let mut position = game.start();
        for name in fields[6].split_whitespace().chain(fields[7].split_whitespace()) {
            let action = game.parse_action(&position, name).unwrap();
            game.try_play(&mut position, action).unwrap();
        }
        let result = match game.outcome(&position) {
            Some(game::Outcome::Win(game::Player::First)) => "1-0",
            Some(game::Outcome::Win(game::Player::Second)) => "0-1",
            Some(_) => "1/2-1/2",
            None => "unfinished",
        };
        assert_eq!(fields[4], result, "{line}");
        count += 1;
    }
    assert_eq!(count, 12);
}

#[test]
fn the_picture_shows_every_player_with_its_rating() {
    let game = TicTacToe::new();
    let players = vec![random("first"), random("second"), network(&game, "third", 16)];
    let (report, _) = complete(&game, players, settings(4, 1));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("match.svg");
    picture::draw(&path, &report).unwrap();
    let svg = fs::read_to_string(&path).unwrap();
    for part in ["first", "second", "third", "Elo relative to first", &format!("{:+.0}", report.players[2].rating.elo)]
    {
        assert!(svg.contains(part), "{part} is not in {svg}");
    }
}

#[test]
fn simulations_follow_the_time_that_they_take() {
    // Each simulation of the second player takes twice as long, after an overhead of three.
    let time = |simulations: u32| Ok(Duration::from_micros(u64::from(3 + 2 * simulations)));
    assert_eq!(simulations_in(Duration::from_micros(103), time, 100).unwrap(), 50);
    assert_eq!(simulations_in(Duration::ZERO, time, 100).unwrap(), 1);
}

#[test]
fn a_game_that_is_scored_by_rewards_is_refused() {
    let game = Catch::new();
    let players = vec![network(&game, "a", 1), network(&game, "b", 1)];
    let error = play(&game, players, settings(1, 0), &mut |_| ControlFlow::Continue(())).unwrap_err().to_string();
    assert!(error.contains("catch is scored by its rewards") && error.contains("zerofleet eval"), "{error}");
}

#[test]
fn a_network_that_fails_ends_the_match_with_both_names() {
    let game = TicTacToe::new();
    let failing = Network::Evaluator(Box::new(Faulty::new(game.spec().observation, Fault::NotFinite, 0)));
    let search = SearchSettings::default();
    let failing = eval::Player { network: failing, simulations: 4, search, discount: 1.0 };
    let players = vec![network(&game, "a", 4), Contender::new("b", Player::Network(failing))];
    let error = play(&game, players, settings(2, 0), &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(error.to_string().contains("play a against b"), "{error}");
}

fn parsed(words: &[&str]) -> Args {
    let words = [&["zerofleet", "match"], words].concat();
    match Cli::try_parse_from(words).unwrap().command {
        crate::Command::Match(args) => args,
        other => panic!("{other:?}"),
    }
}

#[test]
fn options_out_of_range_are_refused_and_named() {
    for (words, reason) in [
        (vec!["a", "b", "--games", "3"], "--games: must be an even number"),
        (vec!["a", "b", "--simulations", "100001"], "--simulations: must be at most"),
        (vec!["a", "b", "--sprt", "20,0"], "the hypotheses 20 and 0"),
        (vec!["a", "b", "--sprt=-5,5", "--alpha", "0.7"], "alpha: must be above 0"),
        (vec!["a", "b", "--csv", "no/such/folder/games.csv"], "--csv: there is no folder no/such/folder"),
        (vec!["a", "b", "c", "--sprt", "0,20"], "--sprt: ends the match of two players, not of 3"),
    ] {
        let error = service::chain(&parsed(&words).settings().unwrap_err());
        assert!(error.contains(reason), "{error}");
    }
    assert_eq!(parsed(&["a", "b"]).settings().unwrap().matches.openings, 100);
    assert_eq!(parsed(&["a", "b", "--sprt", "-5,5"]).settings().unwrap().matches.openings, GAMES_MAX / 2);
    assert!(Cli::try_parse_from(["zerofleet", "match", "a"]).is_err());
    let without_a_run = parsed(&["random", "playouts-50"]).contenders().err().unwrap().to_string();
    assert!(without_a_run.contains("one player must be a run"), "{without_a_run}");
}
