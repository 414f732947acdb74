//! Tests of `zerofleet match` with evaluators that need no training.

use std::collections::HashSet;
use std::fs;

use clap::Parser as _;
use evaluator_doubles::{Fault, Faulty, Uniform};
use evaluators::Network;
use protocols::GameResult;
use protocols::sgf::{self, Tree};
use selfplay::SearchSettings;
use strength::ledger;
use strength::matches::Pair;
use strength::notation::Notation;

use super::*;
use crate::Cli;
use crate::sgf::Recorder;
use crate::trained::tests::model;

fn rules(name: &str) -> AnyGame {
    name.parse::<GameKind>().unwrap().rules()
}

fn network(game: &AnyGame, name: &str, simulations: u32) -> Contender {
    let network = Network::Evaluator(Box::new(Uniform::new(game.spec().observation)));
    let search = SearchSettings::default();
    Contender::new(name, Player::Network(eval::Player { network, simulations, search, discount: 1.0 }))
}

fn random(name: &str) -> Contender {
    Contender::new(name, Player::Fixed(ledger::Player::Random))
}

fn settings(openings: usize, seed: u64) -> Settings {
    let matches = matches::Settings { openings, opening_plies_max: 4 };
    Settings { matches, seed, pace: Pace::AsGiven, sprt: None, batch_openings: usize::MAX }
}

fn sprt(elo0: f64, elo1: f64) -> Option<Sprt> {
    Some(Sprt::new(sprt::Settings { elo0, elo1, alpha: 0.05, beta: 0.05 }).unwrap())
}

fn complete(game: &AnyGame, contenders: Vec<Contender>, settings: Settings) -> (Report, Vec<Played>) {
    let Finished { report, played, failure } =
        play(game, contenders, settings, &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(!report.is_interrupted && failure.is_none(), "{failure:?}");
    (report, played)
}

/// Plays Connect Four from 20 openings between two players with these simulations per move, and returns the report.
fn run(simulations: [u32; 2]) -> Report {
    let game = rules("connect_four");
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
    assert!(pairing.points > 25.0 && pairing.rating.unwrap().low > 0.0, "{report:?}");
    let simulations: Vec<_> = report.players.iter().map(|player| player.simulations).collect();
    assert_eq!((pairing.games + pairing.repeated_games as u64, simulations), (40, vec![Some(48), Some(8)]));
    let mirrored = &run([8, 48]).pairings[0];
    assert!(mirrored.points < 15.0 && mirrored.rating.unwrap().high < 0.0, "{mirrored:?}");
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
    let game = rules("tic_tac_toe");
    let players = vec![random("weak"), network(&game, "middle", 4), network(&game, "strong", 64)];
    let (report, played) = complete(&game, players, settings(20, 1));
    let met: Vec<[usize; 2]> = report.pairings.iter().map(|pairing| [pairing.a, pairing.b]).collect();
    assert_eq!((met, played.len()), (vec![[0, 1], [0, 2], [1, 2]], 3));
    let (games, points) = report.pairings.iter().fold((0, 0.0), |(games, points), pairing| {
        (games + pairing.games, points + pairing.points + pairing.pairs.reversed().points())
    });
    assert_eq!(report.players.iter().map(|player| player.games).sum::<u64>(), 2 * games);
    assert_eq!(report.players.iter().map(|player| player.points).sum::<f64>(), points);
    assert_eq!(report.players[0].rating.unwrap().elo, 0.0, "ratings are relative to the first");
    assert!(report.players[2].rating.unwrap().low > 0.0, "{report:?}");
    let text = text(&report);
    let rows: Vec<&str> = text.lines().skip_while(|line| !line.contains("points")).take(4).collect();
    let best = &report.players[report.by_rating()[0]].name;
    assert!(rows[1].trim_start().starts_with(&format!("1  {best}")), "{text}");
    assert_eq!(rows[3].split_whitespace().nth(1), Some("weak"), "{text}");
}

#[test]
fn a_test_ends_a_match_after_the_batch_that_decides_it() {
    let game = rules("connect_four");
    let players = vec![network(&game, "deep", 32), random("random")];
    let decided = Settings { sprt: sprt(0.0, 200.0), batch_openings: BATCH_OPENINGS, ..settings(64, 2) };
    let (report, _) = complete(&game, players, decided);
    let sprt = report.pairings[0].sprt.unwrap();
    assert_eq!((sprt.state, report.pairings[0].games), (State::AcceptH1, 2 * BATCH_OPENINGS as u64), "{report:?}");
    let text = text(&report);
    assert!(text.contains("H1 accepted: the difference of deep to random is more than +0 Elo"), "{text}");
}

#[test]
fn the_progress_holds_the_score_and_elo_of_the_complete_batches() {
    let game = rules("tic_tac_toe");
    let (mut lines, settings) = (Vec::new(), Settings { batch_openings: 4, ..settings(12, 1) });
    let mut pause = |progress: &Progress<'_>| {
        lines.push(progress.to_string());
        ControlFlow::Continue(())
    };
    play(&game, vec![random("a"), network(&game, "b", 16)], settings, &mut pause).unwrap();
    assert!(lines[0].starts_with("a against b: ") && lines[0].ends_with(" of 24 games"), "{lines:?}");
    let last = lines.last().unwrap();
    assert!(last.contains(" points, Elo -") && last.contains("95 % interval"), "{lines:?}");
    let batch = |words: &[&str]| parsed(words).settings().unwrap().batch_openings;
    assert_eq!([batch(&["a", "b"]), batch(&["a", "b", "--progress"])], [GAMES_DEFAULT / 2, BATCH_OPENINGS]);
}

/// The match stops after the sixth round of the second pairing. Games from openings of three or more plies have then
/// ended.
#[test]
fn what_has_been_played_is_reported_when_the_match_is_stopped() {
    let game = rules("tic_tac_toe");
    let mut rounds = 0;
    let mut pause = |progress: &Progress<'_>| {
        rounds += usize::from(progress.names == ["a", "c"]);
        if rounds < 6 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let players = vec![random("a"), random("b"), random("c")];
    let Finished { report, .. } = play(&game, players, settings(10, 1), &mut pause).unwrap();
    let games: Vec<u64> = report.pairings.iter().map(|pairing| pairing.games).collect();
    assert!(report.is_interrupted && games.len() == 2 && games[0] > games[1] && games[1] > 0, "{report:?}");
    assert!(text(&report).contains("interrupted: "));
}

#[test]
fn games_with_identical_moves_count_once() {
    let game = rules("tic_tac_toe");
    // The game has fewer distinct openings, so that openings are repeated. The players choose the same moves again.
    let players = vec![network(&game, "one", 0), network(&game, "other", 0)];
    let matches = matches::Settings { openings: 1000, opening_plies_max: 4 };
    let (report, played) = complete(&game, players, Settings { matches, ..settings(1, 1) });
    let pairing = &report.pairings[0];
    assert_eq!(pairing.games + pairing.repeated_games as u64, 2000);
    assert!(pairing.repeated_games > 0, "{pairing:?}");
    let (repeated, counted): (Vec<_>, Vec<_>) = played[0].pairs().iter().partition(|pair| pair.is_repeated);
    let games = |pair: &'_ Pair| [0, 1].map(|first| (first, pair.games[first].actions.clone()));
    let counted: HashSet<_> = counted.into_iter().flat_map(games).collect();
    assert_eq!(counted.len() as u64, pairing.games);
    assert!(repeated.into_iter().all(|pair| games(pair).iter().any(|game| counted.contains(game))));
    assert!(text(&report).contains("games do not count: a game with the same opening repeats an earlier game"));
}

#[test]
fn every_game_is_a_line_of_csv_whose_moves_lead_to_its_result() {
    let game = rules("tic_tac_toe");
    let (_, played) = complete(&game, vec![random("a"), random("b")], settings(6, 1));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("games.csv");
    record::write(&path, &game, &[Games { names: ["a", "b"], played: &played[0] }]).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("pairing,opening,first,second,result,counts,opening_moves,moves,end"));
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
        assert_eq!((fields[4], fields[8]), (result, "rules"), "{line}");
        count += 1;
    }
    assert_eq!(count, 12);
}

#[test]
fn the_picture_shows_every_player_with_its_rating() {
    let game = rules("tic_tac_toe");
    let players = vec![random("first"), random("second"), network(&game, "third", 16)];
    let (report, _) = complete(&game, players, settings(4, 1));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("match.svg");
    picture::draw(&path, &report).unwrap();
    let svg = fs::read_to_string(&path).unwrap();
    let elo = format!("{:+.0}", report.players[2].rating.unwrap().elo);
    for part in ["first", "second", "third", "Elo relative to first", &elo] {
        assert!(svg.contains(part), "{part} is not in {svg}");
    }
}

#[test]
fn simulations_follow_the_time_that_they_take() {
    // A simulation of the second player takes 2 µs, with an overhead of 3 µs per move.
    let time = |simulations: u32| Ok(Duration::from_micros(u64::from(3 + 2 * simulations)));
    assert_eq!(simulations_in(Duration::from_micros(103), time, 100).unwrap(), 50);
    assert_eq!(simulations_in(Duration::ZERO, time, 100).unwrap(), 1);
}

#[test]
fn a_game_that_is_scored_by_rewards_is_refused() {
    let game = rules("catch");
    let players = vec![network(&game, "a", 1), network(&game, "b", 1)];
    let error = play(&game, players, settings(1, 0), &mut |_| ControlFlow::Continue(())).err().unwrap().to_string();
    assert!(error.contains("catch is scored by its rewards") && error.contains("zerofleet eval"), "{error}");
}

#[test]
fn a_network_that_fails_ends_the_match_with_both_names() {
    let game = rules("tic_tac_toe");
    let failing = Network::Evaluator(Box::new(Faulty::new(game.spec().observation, Fault::NotFinite, 0)));
    let search = SearchSettings::default();
    let failing = eval::Player { network: failing, simulations: 4, search, discount: 1.0 };
    let players = vec![network(&game, "a", 4), Contender::new("b", Player::Network(failing))];
    let Finished { report, failure, .. } =
        play(&game, players, settings(2, 0), &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(failure.unwrap().to_string().contains("play a against b"), "{report:?}");
    assert!(text(&report).contains("stopped by a failure: play a against b: contestant 1 cannot choose"), "{report:?}");
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
        (vec!["a", "b", "--csv", "no/such/folder/games.csv"], "--csv: no such directory: no/such/folder"),
        (vec!["a", "b", "c", "--sprt", "0,20"], "--sprt: needs two players, not 3"),
        (vec!["a", "b", "--inference", "http://127.0.0.1:1"], "one server cannot evaluate for several runs (a and b)"),
        (vec!["a", "b", "--engine", "c=gnugo"], "--engine: c is not a player of the match"),
        (vec!["a", "b:4", "--engine", "b=gnugo"], "b:4: the engine b has neither weights versions nor simulations"),
        (vec!["a", "b", "--engine", "b=x", "--engine", "b=y"], "--engine: b is defined twice"),
        (vec!["a", "b", "--engine", "b=x", "--engine-processes", "0"], "--engine-processes: must be from 1 to 256"),
        (vec!["a", "b", "--engine-seconds-max", "0"], "--engine-seconds-max: must be above 0"),
        (vec!["a", "b", "--weights", "c"], "--weights: c is not a player of the match"),
        (vec!["a", "b", "--weights", "b", "--weights", "b=x"], "--weights: b is given twice"),
        (vec!["a", "b@3", "--weights", "b=x"], "b@3: the model b has no weights versions"),
        (vec!["a", "b", "--weights", "b", "--engine", "b=gnugo"], "--weights: b is an engine"),
    ] {
        let error = service::chain(&parsed(&words).settings().unwrap_err());
        assert!(error.contains(reason), "{error}");
    }
    assert_eq!(parsed(&["a", "b"]).settings().unwrap().matches.openings, 100);
    assert_eq!(parsed(&["a", "b", "--sprt", "-5,5"]).settings().unwrap().matches.openings, GAMES_MAX / 2);
    for one_run in [vec!["a:9", "a:90", "random"], vec!["a", "b", "--engine", "b=gnugo"]] {
        parsed(&[one_run, vec!["--inference", "http://127.0.0.1:1"]].concat()).settings().unwrap();
    }
    assert!(Cli::try_parse_from(["zerofleet", "match", "a"]).is_err());
    for engine in ["gnugo", "random=gnugo", "a@2=gnugo", "=gnugo", "b=", "b='gnugo"] {
        let words = ["zerofleet", "match", "a", "b", "--engine", engine];
        let error = Cli::try_parse_from(words).unwrap_err().to_string();
        assert!(error.contains(&format!("`{engine}` is not an engine: ")), "{error}");
    }
    for date in ["2026-1-1", "2026-13-01", "2026-01-32", "2026-01", "then"] {
        let words = ["zerofleet", "match", "a", "b", "--sgf", "games", "--sgf-date", date];
        assert!(Cli::try_parse_from(words).unwrap_err().to_string().contains("is not a date"), "{date}");
    }
    let without_a_run = parsed(&["random", "playouts-50"]).contenders(&Drain::new()).err().unwrap().to_string();
    assert!(without_a_run.contains("the game is unknown; pass --game"), "{without_a_run}");
}

#[test]
fn a_model_plays_under_its_name_with_its_own_simulations_against_the_weights_of_a_run() {
    let runs = tempfile::tempdir().unwrap();
    let model = model(runs.path(), "hex-4", 5);
    let (runs, given) = (runs.path().display().to_string(), format!("given={}", model.display()));
    let words =
        ["noughts", "given:3", "random", "--weights", &given, "--runs", &runs, "--games", "2", "--simulations", "4"];
    let (game, Finished { report, failure, .. }) = run_match(&parsed(&words));
    assert!(failure.is_none() && game.spec().name == "hex-4", "{failure:?}");
    let players: Vec<_> = report.players.iter().map(|player| (&*player.name, player.weights_version)).collect();
    assert_eq!(players, [("noughts", Some(5)), ("given:3", Some(5)), ("random", None)]);
    assert_eq!(report.players[1].simulations, Some(3));
    let other = parsed(&[&words[..], &["--game", "tic_tac_toe"]].concat());
    assert!(service::chain(&other.contenders(&Drain::new()).err().unwrap()).contains("not for tic_tac_toe"));
    let missing = parsed(&["missing", "random", "--weights", "missing"]);
    let error = missing.contenders(&Drain::new()).err().unwrap().to_string();
    assert!(error.starts_with("missing is neither a file nor a bundled model"), "{error}");
}

/// Returns the arguments of a match with 6 games of Gomoku between random play and an engine that is a shell script.
/// The script runs the commands `genmove` and `play` to respond to the GTP commands of the same name.
fn against_script(folder: &Path, genmove: &str, play: &str) -> Args {
    let script = format!(
        r#"
say() {{ printf '=%s %s\n\n' "$id" "$1"; }}
refuse() {{ printf '?%s %s\n\n' "$id" "$1"; }}
while read -r id command arguments; do
    case $command in
        name) say Script ;;
        version) say 1.2 ;;
        genmove) {genmove} ;;
        play) {play} ;;
        *) say ;;
    esac
done"#
    );
    let path = folder.join("engine.sh");
    fs::write(&path, script).unwrap();
    let engine = format!("script=sh {}", path.display());
    let words =
        ["random", "script", "--engine", &engine, "--game", "gomoku-7", "--games", "6", "--engine-processes", "2"];
    parsed(&words)
}

/// Plays the match with the arguments `args`.
fn run_match(args: &Args) -> (AnyGame, Finished) {
    let (game, contenders) = args.contenders(&Drain::new()).unwrap();
    let game = game.rules();
    let finished = play(&game, contenders, args.settings().unwrap(), &mut |_| ControlFlow::Continue(())).unwrap();
    (game, finished)
}

#[test]
fn an_engine_is_reported_with_the_name_that_it_gives_and_its_command() {
    let folder = tempfile::tempdir().unwrap();
    let (_, Finished { report, failure, .. }) = run_match(&against_script(folder.path(), "say resign", "say"));
    assert!(failure.is_none(), "{failure:?}");
    assert_eq!((report.pairings[0].ends.resigned_games, report.players[1].points), (6, 0.0));
    let text = text(&report);
    let player = format!("  script: Script 1.2 (`sh {}`), ", folder.path().join("engine.sh").display());
    for part in ["gomoku-7: 6 games", &player, "random scores 6 of 6", "6 games ended by resignation"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn forfeits_and_void_openings_are_reported_with_their_reasons() {
    let folder = tempfile::tempdir().unwrap();
    let (game, Finished { report, played, .. }) = run_match(&against_script(folder.path(), "say A1", "say"));
    // At the latest, the second move of the engine is illegal.
    let forfeits = &report.pairings[0].ends.forfeits;
    assert!(forfeits.len() == 6 && forfeits.iter().all(|forfeit| forfeit.player == 1), "{forfeits:?}");
    let text_of_forfeits = text(&report);
    for part in
        ["random against script: 6 games were forfeited", "A1 is illegal by the rules of gomoku-7", "and 1 more"]
    {
        assert!(text_of_forfeits.contains(part), "{part} is not in {text_of_forfeits}");
    }
    let path = folder.path().join("games.csv");
    record::write(&path, &game, &[Games { names: ["random", "script"], played: &played[0] }]).unwrap();
    let csv = fs::read_to_string(&path).unwrap();
    assert_eq!(csv.matches(",forfeited: A1 is illegal").count(), 6, "{csv}");

    let refuses = against_script(folder.path(), "say resign", "refuse 'illegal move'");
    let (_, Finished { report, .. }) = run_match(&refuses);
    let void = &report.pairings[0].ends.void_openings;
    assert!(!void.is_empty() && void.iter().all(|void| void.reason.ends_with("the engine responded `illegal move`")));
    assert_eq!(report.pairings[0].games + 2 * void.len() as u64, 6);
    let text = text(&report);
    assert!(text.contains(&format!("{} openings have no result and do not count", void.len())), "{text}");
}

#[test]
fn a_match_without_a_game_that_counts_is_an_error_and_has_no_elo() {
    let folder = tempfile::tempdir().unwrap();
    let args = against_script(folder.path(), "say resign", "refuse 'illegal move'");
    let (game, Finished { report, failure, .. }) = run_match(&args);
    let error = failure.unwrap().to_string();
    assert!(error.starts_with("no game counts: script at `play "), "{error}");
    assert!(error.ends_with("the engine responded `illegal move`"), "{error}");
    let text_of_two = text(&report);
    for part in ["random scores 0 of 0", "Elo difference unknown", "stopped by a failure: no game counts"] {
        assert!(text_of_two.contains(part), "{part} is not in {text_of_two}");
    }
    let (_, mut contenders) = args.contenders(&Drain::new()).unwrap();
    contenders.push(random("third"));
    let settings = args.settings().unwrap();
    let Finished { report, failure, .. } =
        play(&game, contenders, settings, &mut |_| ControlFlow::Continue(())).unwrap();
    let games: Vec<u64> = report.pairings.iter().map(|pairing| pairing.games).collect();
    assert!(games[0] == 0 && games[1] > 0 && games[2] == 0 && failure.is_some(), "{report:?}");
    let json = serde_json::to_value(&report).unwrap();
    let has_elo = |list: &str| [0, 1, 2].map(|index| json[list][index]["elo"].is_number());
    assert_eq!((has_elo("pairings"), has_elo("players")), ([false, true, false], [true, false, true]), "{json}");
    assert_eq!(report.by_rating()[2], 1);
    let path = folder.path().join("match.svg");
    picture::draw(&path, &report).unwrap();
    let svg = fs::read_to_string(&path).unwrap();
    assert!(svg.contains("third") && !svg.contains("script"), "{svg}");
}

#[test]
fn an_engine_that_always_fails_ends_the_match_with_an_error_behind_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let (_, Finished { report, failure, .. }) = run_match(&against_script(folder.path(), "exit 1", "say"));
    let error = service::chain(&failure.unwrap());
    assert!(error.contains("play random against script: ") && error.contains("failed in 3 games in a row"), "{error}");
    assert!(report.is_interrupted && text(&report).contains("stopped by a failure: play random against script"));
}

#[test]
fn the_game_is_that_of_the_runs_or_the_named_one() {
    let (game, players) = parsed(&["random", "playouts-5", "--game", "hex-4"]).contenders(&Drain::new()).unwrap();
    assert_eq!((game.to_string().as_str(), players.len()), ("hex-4", 2));
    let unsupported = parsed(&["random", "e", "--game", "connect_four", "--engine", "e=sh"]);
    let error = service::chain(&unsupported.contenders(&Drain::new()).err().unwrap());
    assert_eq!(error, "GTP supports only Go, Hex, Othello and Gomoku, not connect_four");
}

#[test]
fn every_game_is_a_record_in_sgf_that_leads_through_its_moves_to_its_result() {
    for name in ["go-5", "hex-4", "othello-6", "gomoku-7"] {
        let (game, folder) = (rules(name), tempfile::tempdir().unwrap());
        let folder = folder.path().join("records");
        prepare_directory(&folder, &game).unwrap();
        let players = vec![random("one"), random("two"), network(&game, "three", 2)];
        let (report, played) = complete(&game, players, settings(10, 1));
        let date = "2026-01-31".parse().unwrap();
        game_files::write(&folder, &game, Some(&date), &report, &played).unwrap();
        let mut names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        let pairs = played.iter().flat_map(|played| played.pairs());
        let games: Vec<_> = pairs.flat_map(|pair| pair.games.iter().map(move |game| (pair, game))).collect();
        assert_eq!((names.len(), games.len()), (60, 60));
        assert!(names[0].ends_with("1-01-1.sgf") && names[59].ends_with("3-10-2.sgf"), "{names:?}");
        let notation = Notation::of(&game).unwrap();
        for (path, (pair, record)) in names.iter().zip(games) {
            let bytes = fs::read(path).unwrap();
            let file = sgf::read(&bytes).unwrap();
            let action = |ply: &protocols::Ply| notation.to_action(ply.color, ply.played).unwrap();
            let actions: Vec<_> = file.record.plies.iter().map(action).collect();
            assert_eq!((file.game, &actions), (notation.game(), &record.actions), "{}", path.display());
            let winner = match file.result.unwrap() {
                GameResult::Win { color, .. } => game::Outcome::Win(color.into()),
                GameResult::Draw | GameResult::Void => game::Outcome::Draw,
            };
            assert_eq!(winner, record.outcome, "{}", path.display());
            let tree = Tree::parse(&bytes).unwrap();
            let commented = tree.nodes()[1..].iter().filter(|node| node.value("C").is_some()).count();
            assert_eq!((commented, tree.nodes()[0].value("DT")), (pair.opening_plies, Some("2026-01-31")));
        }
        let [first, second] = [&names[0], &names[1]].map(|path| sgf::read(&fs::read(path).unwrap()).unwrap());
        assert_eq!((first.black.as_deref(), first.white.as_deref()), (Some("one"), Some("two")));
        assert_eq!((second.black.as_deref(), second.white.as_deref()), (Some("two"), Some("one")));
        let error = prepare_directory(&folder, &game).unwrap_err().to_string();
        assert!(error.contains("already contains records"), "{error}");
    }
    let capitals = tempfile::tempdir().unwrap();
    fs::write(capitals.path().join("GAME.SGF"), "").unwrap();
    let error = prepare_directory(capitals.path(), &rules("go-5")).unwrap_err().to_string();
    assert!(error.contains("GAME.SGF"), "{error}");
    let error = prepare_directory(Path::new("records"), &rules("connect_four")).unwrap_err().to_string();
    assert_eq!(error, "connect_four has no SGF format; use Go, Hex, Othello or Gomoku");
    let words = ["random", "playouts-5", "--game", "connect_four", "--sgf", "records"];
    let error = parsed(&words).run(&mut Vec::new()).unwrap_err();
    assert!(service::chain(&error).starts_with("--sgf: connect_four has no SGF format"), "{error:#}");
    assert!(!Path::new("records").exists());
}

#[test]
fn a_record_holds_resignations_and_the_points_of_go() {
    let folder = tempfile::tempdir().unwrap();
    let (game, Finished { report, played, .. }) = run_match(&against_script(folder.path(), "say resign", "say"));
    let records = folder.path().join("records");
    prepare_directory(&records, &game).unwrap();
    game_files::write(&records, &game, None, &report, &played).unwrap();
    let read = |name: &str| sgf::read(&fs::read(records.join(name)).unwrap()).unwrap();
    let (first, second) = (read("1-1-1.sgf"), read("1-1-2.sgf"));
    assert_eq!(
        (first.white.as_deref(), second.black.as_deref()),
        (Some("script (Script 1.2)"), Some("script (Script 1.2)"))
    );
    assert_eq!([first, second].map(|file| file.result.unwrap().to_string()), ["B+R", "W+R"]);
    // After one stone and two passes, Black owns all 25 points, and White has a komi of 24.
    let go = rules("go-5");
    let actions = [12, 25, 25].map(game::Action);
    let tree = Recorder::of(&go).unwrap().record(&actions, None, ["a", "b"].map(str::to_owned)).unwrap();
    assert_eq!((tree.nodes()[0].value("RE"), tree.nodes()[0].value("KM")), (Some("B+1"), Some("24")));
}
