//! Tests of engines that are shell scripts: they play, resign, break the rules, die, hang and refuse.
//!
//! In Gomoku on 7 cells a side a script plays the lowest row from the left, and the opponent the highest. The player
//! that moves first completes five in a row.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use game::{Action, Game as _, Outcome, Player};
use games::{AnyPosition, GameKind};

use super::*;
use crate::contestant::Contestant;
use crate::ledger::Tally;
use crate::matches::tests::Lowest;
use crate::matches::{self, GameEnd, Opening, Played};

const PATIENCE: Duration = Duration::from_secs(60);

/// The response that plays the lowest row.
const LOWEST_ROW: &str = r#"say "$(column $((moves / 2 + 1)) A B C D E F G)1""#;

/// Returns a script with a piece of shell for `genmove` and another for `play`. The script appends the commands to
/// the file `commands` in the directory of the first argument; `$moves` counts the moves of the game.
fn script(genmove: &str, play: &str) -> String {
    format!(
        r#"
column() {{ shift "$1"; printf %s "$1"; }}
say() {{ printf '=%s %s\n\n' "$id" "$1"; }}
refuse() {{ printf '?%s %s\n\n' "$id" "$1"; }}
while read -r id command arguments; do
    echo "$command $arguments" >> "$1/commands"
    case $command in
        name) say script ;;
        version) say 1.0 ;;
        clear_board) moves=0; say ;;
        play) {play}; moves=$((moves + 1)) ;;
        genmove) {genmove}; moves=$((moves + 1)) ;;
        *) say ;;
    esac
done"#
    )
}

fn rules(name: &str) -> AnyGame {
    name.parse::<GameKind>().unwrap().rules()
}

fn settings(folder: &Path, script: &str) -> Settings {
    let words = ["sh", "-c", script, "sh", folder.to_str().unwrap()].map(str::to_owned).to_vec();
    Settings { name: "script".to_owned(), words, processes: 1, response_time_max: PATIENCE }
}

fn never() -> Interrupt {
    Arc::new(|| false)
}

/// The games of an engine, as contestant 0, from a number of openings without moves.
struct Games {
    played: Played,
    flow: Result<ControlFlow<()>, matches::Error>,
    /// Commands that the processes received.
    commands: Vec<String>,
}

fn play_with(
    game: &str,
    opponent: &mut dyn Participant<AnyGame>,
    script: &str,
    openings: usize,
    adapt: impl FnOnce(&mut GtpEngine),
) -> Games {
    let (game, folder) = (rules(game), tempfile::tempdir().unwrap());
    let mut engine = GtpEngine::start(&game, settings(folder.path(), script), never()).unwrap();
    adapt(&mut engine);
    let from = vec![Opening { actions: Vec::new(), position: game.start() }; openings];
    let mut played = Played::default();
    let go_on = &mut |_: usize| ControlFlow::Continue(());
    let flow = matches::play(&game, [&mut engine, opponent], &from, &mut played, go_on);
    drop(engine);
    let commands = fs::read_to_string(folder.path().join("commands")).unwrap();
    Games { played, flow, commands: commands.lines().map(|line| line.trim_end().to_owned()).collect() }
}

/// Plays Gomoku against the lowest action.
fn gomoku(genmove: &str, play: &str, openings: usize) -> Games {
    play_with("gomoku-7", &mut Lowest, &script(genmove, play), openings, |_| ())
}

#[test]
fn an_engine_gets_each_move_once_and_plays_a_game_to_its_end() {
    let Games { played, flow, commands } = gomoku(LOWEST_ROW, "say", 1);
    assert_eq!((flow.unwrap(), played.tally()), (ControlFlow::Continue(()), Tally { pairs: [0, 0, 1, 0, 0] }));
    let [as_first, as_second] = &played.pairs()[0].games;
    // Row 0 is at the top; the lowest row starts with action 42.
    let moves = |first: u16, second: u16, plies: u16| -> Vec<Action> {
        (0..plies).map(|ply| Action(if ply.is_multiple_of(2) { first } else { second } + ply / 2)).collect()
    };
    assert_eq!((&as_first.actions, as_first.outcome), (&moves(42, 0, 9), Outcome::Win(Player::First)));
    assert_eq!((&as_second.actions, &as_second.end), (&moves(0, 42, 9), &GameEnd::Rules));
    let introduction = ["name", "version", "boardsize 7", "clear_board"];
    let first = "boardsize 7,clear_board,genmove B,play W A7,genmove B,play W B7,genmove B,play W C7,genmove B,play W D7,\
                 genmove B";
    let second =
        "boardsize 7,clear_board,play B A7,genmove W,play B B7,genmove W,play B C7,genmove W,play B D7,genmove W";
    let expected: Vec<&str> = introduction.into_iter().chain(first.split(',')).chain(second.split(',')).collect();
    assert_eq!(commands, expected);
}

#[test]
fn an_engine_that_ignores_ids_and_ends_lines_as_on_windows_plays() {
    let with_ids = r#"printf '=%s %s\n\n' "$id" "$1""#;
    let script = script(LOWEST_ROW, "say").replace(with_ids, r#"printf '= %s\r\n\r\n' "$1""#);
    assert!(!script.contains(with_ids));
    let Games { played, flow, .. } = play_with("gomoku-7", &mut Lowest, &script, 1, |_| ());
    assert!(flow.unwrap().is_continue());
    assert_eq!((forfeits(&played), played.tally().pairs), (vec![], [0, 0, 1, 0, 0]));
}

#[test]
fn processes_play_a_game_each_and_all_games_are_played() {
    let three = |engine: &mut GtpEngine| engine.sessions.resize_with(3, Session::default);
    let Games { played, commands, .. } = play_with("gomoku-7", &mut Lowest, &script(LOWEST_ROW, "say"), 4, three);
    assert_eq!(played.tally_with_repetitions(), Tally { pairs: [0, 0, 4, 0, 0] });
    let count = |command: &str| commands.iter().filter(|line| *line == command).count();
    assert_eq!((count("name"), count("clear_board")), (3, 8 + 1));
}

#[test]
fn the_name_and_the_version_are_those_that_the_engine_gives_and_one_without_a_version_plays() {
    for (version, expected) in [("say '1.0\tbeta'", "1.0 beta"), ("refuse unknown", "")] {
        let folder = tempfile::tempdir().unwrap();
        let script = script("say pass", "say").replace("version) say 1.0", &format!("version) {version}"));
        let engine = GtpEngine::start(&rules("go-9"), settings(folder.path(), &script), never()).unwrap();
        let Identity { name, version } = engine.identity();
        assert_eq!((name.as_str(), version.as_str()), ("script", expected));
    }
}

/// Plays the highest legal action: the pass of Go.
struct Highest;

impl Contestant<AnyGame> for Highest {
    fn choose(&mut self, game: &AnyGame, positions: &[AnyPosition]) -> Result<Vec<Action>, inference::Error> {
        let mut legal = Vec::new();
        let highest = |position| {
            game.legal_actions(position, &mut legal);
            legal[legal.len() - 1]
        };
        Ok(positions.iter().map(highest).collect())
    }
}

#[test]
fn an_engine_of_go_gets_the_komi_and_passes_end_a_game_that_our_rules_score() {
    let Games { played, commands, .. } = play_with("go-5", &mut Highest, &script("say PASS", "say"), 1, |_| ());
    assert!(commands.contains(&"komi 24".to_owned()) && commands.contains(&"play B pass".to_owned()), "{commands:?}");
    for played in &played.pairs()[0].games {
        assert_eq!((played.actions.len(), played.outcome), (2, Outcome::Win(Player::Second)));
    }
}

#[test]
fn the_swap_of_hex_is_swap_pieces() {
    let genmove = r#"case "$moves" in 1) say swap-pieces ;; *) say resign ;; esac"#;
    let Games { played, .. } = play_with("hex-3", &mut Lowest, &script(genmove, "say"), 1, |_| ());
    let [as_first, as_second] = &played.pairs()[0].games;
    assert_eq!((as_first.actions.len(), &as_first.end), (0, &GameEnd::Resigned));
    assert_eq!(as_second.actions[..2], [Action(0), Action(9)]);
    assert_eq!((as_second.outcome, &as_second.end), (Outcome::Win(Player::First), &GameEnd::Resigned));
}

/// Returns the reasons of all forfeits, which must all be by contestant 0.
fn forfeits(played: &Played) -> Vec<String> {
    let games = played.pairs().iter().flat_map(|pair| pair.games.iter().enumerate());
    let forfeits = games.filter_map(|(first, played)| played.forfeit().map(|forfeit| (first, forfeit)));
    let reason = |(first, (loser, reason)): (usize, (Player, &str))| {
        assert_eq!(first, loser.index());
        reason.to_owned()
    };
    forfeits.map(reason).collect()
}

#[test]
fn an_illegal_move_and_an_answer_that_is_no_move_lose_the_game() {
    let Games { played, .. } = gomoku("say A7", "say", 1);
    // As the first player it plays A7, which is taken at the second move; as the second player, already at the first
    // move.
    assert_eq!(played.pairs()[0].games.each_ref().map(|played| played.actions.len()), [2, 1]);
    assert_eq!(forfeits(&played), vec!["A7 is illegal by the rules of gomoku-7"; 2]);
    assert_eq!(played.tally().pairs, [1, 0, 0, 0, 0]);
    let Games { played, .. } = gomoku("say nonsense", "say", 1);
    assert_eq!(
        forfeits(&played),
        ["script at `genmove B`: `nonsense` is not a move", "script at `genmove W`: `nonsense` is not a move"]
    );
    let Games { played, .. } = gomoku("refuse 'cannot'", "say", 1);
    assert_eq!(forfeits(&played)[0], "script at `genmove B`: the engine responded `cannot`");
}

#[test]
fn an_opening_is_void_if_the_engine_refuses_a_legal_move() {
    let Games { played, flow, .. } = gomoku(LOWEST_ROW, "refuse 'illegal move'", 2);
    assert!(flow.unwrap().is_continue() && played.pairs().is_empty());
    for (index, void) in played.void().iter().enumerate() {
        let reasons =
            ["W", "B"].map(|color| format!("script at `play {color} A7`: the engine responded `illegal move`"));
        assert!(void.opening == index && reasons.contains(&void.reason), "{void:?}");
    }
    assert_eq!(played.void().len(), 2);
}

#[test]
fn an_engine_that_dies_is_started_again_and_continues_its_game() {
    let dies_once = format!(r#"if [ "$moves" -eq 4 ] && mkdir "$1/died"; then exit 1; fi; {LOWEST_ROW}"#);
    let Games { played, commands, .. } = gomoku(&dies_once, "say", 1);
    assert_eq!((forfeits(&played), played.tally().pairs), (vec![], [0, 0, 1, 0, 0]));
    let again = commands.iter().skip(4).skip_while(|command| *command != "name").take(8);
    let expected = "name,boardsize 7,clear_board,play B A1,play W A7,play B B1,play W B7,genmove B";
    assert_eq!(again.map(String::as_str).collect::<Vec<_>>().join(","), expected);
}

#[test]
fn an_engine_that_dies_twice_in_a_game_loses_it() {
    // It dies as the first player only, so that it never fails in three consecutive games.
    let Games { played, flow, .. } = gomoku(&format!(r#"[ "$moves" -eq 4 ] && exit 1; {LOWEST_ROW}"#), "say", 4);
    assert!(flow.unwrap().is_continue());
    assert_eq!(forfeits(&played), vec!["script at `genmove B`: the engine exited"; 4]);
    assert_eq!(played.tally_with_repetitions().pairs, [4, 0, 0, 0, 0]);
}

#[test]
fn an_engine_that_fails_in_three_games_in_a_row_ends_the_match_and_the_pairs_so_far_are_kept() {
    let Games { played, flow, .. } = gomoku("exit 1", "say", 4);
    assert_eq!(played.pairs().len(), 1);
    let error = service::chain(&anyhow::Error::from(flow.unwrap_err()));
    let expected = "contestant 0 cannot choose a move: the engine script failed in 3 games in a row: script at \
                    `genmove B`: the engine exited";
    assert_eq!(error, expected);
}

#[test]
fn an_engine_that_hangs_loses_its_game() {
    let limit = |engine: &mut GtpEngine| engine.settings.response_time_max = Duration::from_millis(300);
    let Games { played, .. } = play_with("gomoku-7", &mut Lowest, &script("sleep 1000", "say"), 1, limit);
    let reasons = forfeits(&played);
    let is_limit = |reason: &String| reason.ends_with("no response within 300ms");
    assert!(reasons.len() == 2 && reasons.iter().all(is_limit), "{reasons:?}");
}

/// Stops the match, then plays the lowest action.
struct Stopping(Arc<AtomicBool>);

impl Contestant<AnyGame> for Stopping {
    fn choose(&mut self, game: &AnyGame, positions: &[AnyPosition]) -> Result<Vec<Action>, inference::Error> {
        self.0.store(true, Ordering::Relaxed);
        Lowest.choose(game, positions)
    }
}

#[test]
fn a_match_that_is_stopped_does_not_wait_for_an_engine() {
    let (game, folder) = (rules("gomoku-7"), tempfile::tempdir().unwrap());
    let stop = Arc::new(AtomicBool::new(false));
    let is_stopped = Arc::clone(&stop);
    let interrupt: Interrupt = Arc::new(move || is_stopped.load(Ordering::Relaxed));
    let settings = settings(folder.path(), &script("sleep 1000", "say"));
    let mut engine = GtpEngine::start(&game, settings, interrupt).unwrap();
    let from = [Opening { actions: Vec::new(), position: game.start() }];
    let go_on = &mut |_: usize| ControlFlow::Continue(());
    let participants: [&mut dyn Participant<AnyGame>; 2] = [&mut Stopping(stop), &mut engine];
    let flow = matches::play(&game, participants, &from, &mut Played::default(), go_on).unwrap();
    assert!(flow.is_break());
}

#[test]
fn an_engine_inherits_the_path_and_no_variable_that_is_not_listed() {
    // Cargo sets variables for this test, as a service does with credentials.
    assert!(std::env::vars_os().any(|(name, _)| name == "CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let script = script("say pass", "say").replace("say script", r#"say "${PATH:+path} ${CARGO_MANIFEST_DIR-none}""#);
    let engine = GtpEngine::start(&rules("gomoku-7"), settings(folder.path(), &script), never()).unwrap();
    assert_eq!(engine.identity().name, "path none");
}

#[test]
fn an_engine_that_cannot_play_the_game_is_refused_with_its_name_and_command() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |name: &str, settings: Settings| {
        service::chain(&GtpEngine::start(&rules(name), settings, never()).err().unwrap().into())
    };
    let script = script("say pass", "say").replace("*) say ;;", "*) refuse 'unacceptable size' ;;");
    let error = refused("go-9", settings(folder.path(), &script));
    let expected = "the engine script cannot play go-9 (run the engine by hand to see its error output): script at \
                    `boardsize 9`: the engine responded `unacceptable size`";
    assert_eq!(error, expected);
    let error = refused("connect_four", settings(folder.path(), &script));
    assert_eq!(error, "GTP supports only Go, Hex, Othello and Gomoku, not connect_four");
    let words = vec!["no-such-program-of-go".to_owned()];
    let error = refused("go-9", Settings { words, ..settings(folder.path(), &script) });
    assert!(error.contains("script at `start`: "), "{error}");
}
