use std::path::Path;
use std::time::Duration;

use clap::Parser;
use experience::{ActionProbability, Step, StepKind, Trajectory, WeightsVersion};
use fleet::run_directory::{Progress, RunDirectory};
use game::{Action, Game as _, Outcome, Player};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use proto::replay::{Writer, WriterSettings};
use protocols::{GameResult, Victory, sgf};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use replay_server::Running;
use run_file::replay::Config;
use service::Drain;
use strength::notation::Notation;
use tokio::net::TcpListener;

use super::*;

#[derive(Debug, Parser)]
struct Command {
    #[command(subcommand)]
    request: Request,
}

/// A run with stored games. In every second game of tic-tac-toe, the outcome differs from the predicted values.
struct Run {
    runs: tempfile::TempDir,
}

fn game(sequence: u64, value: f32) -> Trajectory {
    // The first player completes the top row.
    let steps = [0, 3, 1, 4, 2].into_iter().enumerate().map(|(ply, action)| {
        let policy = vec![ActionProbability { action: Action(action), probability: 1.0 }];
        let value = if ply % 2 == 0 { value } else { -value };
        let kind = if ply == 4 { StepKind::Fast { value } } else { StepKind::Full { policy, value } };
        Step { action: Action(action), reward: 0.0, kind, weights_version: WeightsVersion(7) }
    });
    let id = TrajectoryId { actor: 2, epoch: 1, sequence };
    Trajectory::of(id, "tic_tac_toe", &steps.collect::<Vec<_>>(), Outcome::Win(Player::First)).unwrap()
}

/// Returns a random game without the last `left_out` moves, with a full search of the first move.
fn random_game(name: &str, sequence: u64, left_out: usize) -> Trajectory {
    let rules = name.parse::<GameKind>().unwrap().rules();
    let mut rng = ChaCha8Rng::seed_from_u64(sequence);
    let (mut position, mut legal, mut steps) = (rules.start(), Vec::new(), Vec::new());
    while rules.outcome(&position).is_none() {
        rules.legal_actions(&position, &mut legal);
        let action = legal[rng.random_range(0..legal.len())];
        let kind = if steps.is_empty() {
            // Later actions are more probable.
            let sum = (1..=legal.len()).sum::<usize>() as f32;
            let entry =
                |(rank, &action): (usize, &Action)| ActionProbability { action, probability: (rank + 1) as f32 / sum };
            StepKind::Full { policy: legal.iter().enumerate().map(entry).collect(), value: 0.25 }
        } else {
            StepKind::Fast { value: -0.5 }
        };
        steps.push(Step { action, reward: 0.0, kind, weights_version: WeightsVersion(7) });
        rules.play(&mut position, action);
    }
    steps.truncate(steps.len() - left_out);
    let id = TrajectoryId { actor: 2, epoch: 1, sequence };
    Trajectory::of(id, name, &steps, rules.outcome(&position).unwrap()).unwrap()
}

async fn serve(directory: &Path) -> (Running, Drain) {
    serve_game(directory, "tic_tac_toe").await
}

async fn serve_game(directory: &Path, game: &str) -> (Running, Drain) {
    let mut config = Config::default();
    (config.run.game, config.run.directory) = (game.to_owned(), directory.to_owned());
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let drain = Drain::new();
    (replay_server::start(config.settings().unwrap(), listener, drain.clone()).await.unwrap(), drain)
}

impl Run {
    fn new() -> Self {
        Self::holding(2)
    }

    fn holding(games: u64) -> Self {
        Self::of("tic_tac_toe", (0..games).map(|sequence| game(sequence, if sequence % 2 == 0 { 0.9 } else { -0.9 })))
    }

    fn of(game: &str, stored: impl IntoIterator<Item = Trajectory>) -> Self {
        let runs = tempfile::tempdir().unwrap();
        let directory = runs.path().join("noughts");
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("config.toml"), format!("[run]\ngame = \"{game}\"\n")).unwrap();
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let (running, drain) = serve_game(&directory, game).await;
            let endpoint = format!("http://{}", running.address);
            let writer = WriterSettings { endpoint, actor: 2, epoch: 1, game: game.to_owned(), in_flight_max: 4 };
            let writer = Writer::start(writer);
            for trajectory in stored {
                writer.insert(trajectory).await.unwrap();
            }
            assert!(writer.close(Duration::from_secs(30)).await.is_empty());
            drain.start();
            running.finished().await.unwrap();
        });
        Self { runs }
    }

    fn replay(&self, line: &str) -> anyhow::Result<String> {
        let mut words: Vec<&str> = vec!["replay"];
        words.extend(line.split_whitespace());
        let runs = self.runs.path().display().to_string();
        words.extend(["--run", "noughts", "--runs", &runs]);
        let mut out = Vec::new();
        Command::try_parse_from(words)?.request.run(&mut out)?;
        Ok(String::from_utf8(out)?)
    }

    fn segment(&self) -> std::path::PathBuf {
        let log = self.runs.path().join("noughts").join("replay");
        let files = std::fs::read_dir(log).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|ending| ending == "log")).min().unwrap()
    }
}

#[test]
fn a_run_whose_server_does_not_run_is_shown_listed_and_printed_move_by_move() {
    let run = Run::new();
    let stats = run.replay("stats").unwrap();
    assert!(stats.contains("table main\n  holds       8 positions of 2 trajectories"), "{stats}");
    assert!(
        stats.contains("2/1/0 (weights v7) to 2/1/1 (weights v7)") || stats.contains("2/1/0 (weights 7)"),
        "{stats}"
    );

    let ids =
        |text: String| text.lines().skip(1).map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(ids(run.replay("ls --order id").unwrap()), ["2/1/0", "2/1/1"]);
    assert_eq!(ids(run.replay("ls --order surprising --limit 1").unwrap()), ["2/1/1"]);
    for (options, found) in [
        ("--outcome first --actor 2 --version 7 --length 5 --quarantined false", 2),
        ("--version ..7 --length 4..6", 2),
        ("--version 7.. --length ..9999999999", 2),
        ("--outcome second", 0),
        ("--outcome draw", 0),
        ("--actor 1", 0),
        ("--version 8..9", 0),
        ("--length ..4", 0),
        ("--quarantined true", 0),
    ] {
        assert_eq!(ids(run.replay(&format!("ls {options}")).unwrap()).len(), found, "{options}");
    }
    for wrong in ["", "9..7", "seven", "-1", "1...2", "1..2..3"] {
        assert!(range(wrong).unwrap_err().contains("FROM..TO"), "{wrong}");
    }

    let output = run.replay("get 2/1/1").unwrap();
    assert!(output.starts_with("trajectory 2/1/1 of tic_tac_toe: first wins\nin main; inserted at "), "{output}");
    assert!(output.contains("\n  0  first   1     -0.900        7  1 100 %\n"), "{output}");
    assert!(output.contains("fast search"), "{output}");
    let error = run.replay("get 2/1/5").unwrap_err().to_string();
    assert!(error.contains("trajectory 2/1/5 not found"), "{error}");
}

#[test]
fn a_drill_restores_an_archive_elsewhere_and_changes_neither_it_nor_the_run() {
    let run = Run::new();
    let (archive, folder) = (run.runs.path().join("archive"), run.runs.path().join("restored"));
    let none = run.replay("drill").unwrap_err().to_string();
    assert!(none.contains("pass --archive URL"), "{none}");
    std::fs::create_dir(&archive).unwrap();
    let line = format!("drill --archive file://{}", archive.display());
    assert!(run.replay(&line).unwrap_err().to_string().ends_with("is empty"));

    std::fs::copy(run.segment(), archive.join(run.segment().file_name().unwrap())).unwrap();
    std::fs::write(archive.join("owner"), "0123456789abcdef").unwrap();
    let output = run.replay(&format!("{line} --into {}", folder.display())).unwrap();
    for part in [
        "restored 1 files (",
        "\n2 trajectories of 8 positions, ",
        "\nall checksums are valid\n",
        "listed 2 trajectories in ",
    ] {
        assert!(output.contains(part), "{part}: {output}");
    }
    assert!(folder.is_dir(), "the named folder stays");
    assert_eq!(std::fs::read_to_string(archive.join("owner")).unwrap(), "0123456789abcdef");
    assert_eq!(std::fs::read_dir(&archive).unwrap().count(), 2);
    assert!(run.replay("stats").unwrap().contains("of 2 trajectories"));
    let again = format!("{:#}", run.replay(&format!("{line} --into {}", folder.display())).unwrap_err());
    assert!(again.contains("create ") && again.contains("exists"), "{again}");

    let copy = archive.join(run.segment().file_name().unwrap());
    let mut bytes = std::fs::read(&copy).unwrap();
    let last = bytes.len() - 10;
    bytes[last] ^= 1;
    std::fs::write(&copy, bytes).unwrap();
    let damaged = run.replay(&line).unwrap_err().to_string();
    assert!(damaged.contains("is damaged in 1 places"), "{damaged}");
}

#[test]
fn a_bad_actor_is_taken_out_of_sampling_and_back_over_restarts() {
    let run = Run::new();
    assert_eq!(run.replay("quarantine --actor 2").unwrap(), "actor 2 is quarantined: 8 fewer positions\n");
    assert!(run.replay("stats").unwrap().contains("holds       0 positions of 2 trajectories"));
    assert!(run.replay("ls").unwrap().contains("quarantine"));
    assert_eq!(run.replay("release --actor 2").unwrap(), "actor 2 is released: 8 more positions\n");
    let one = run.replay("quarantine --trajectory 2/1/0 --reason odd").unwrap();
    assert_eq!(one, "trajectory 2/1/0 is quarantined: 4 fewer positions\n");
    assert!(run.replay("quarantine").unwrap_err().to_string().contains("--actor"));
}

#[test]
fn positions_go_to_parquet_and_games_to_text() {
    let run = Run::new();
    let file = run.runs.path().join("games.txt");
    run.replay(&format!("export --order id {}", file.display())).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text, "2/1/0 first wins: 1 4 2 5 3\n2/1/1 first wins: 1 4 2 5 3\n");
    let again = run.replay(&format!("export {}", file.display())).unwrap_err();
    assert!(format!("{again:#}").contains("games.txt"), "{again:#}");

    let file = run.runs.path().join("positions.parquet");
    let output = run.replay(&format!("export --order id {}", file.display())).unwrap();
    assert!(output.starts_with("2 trajectories in "), "{output}");
    let reader = SerializedFileReader::new(std::fs::File::open(&file).unwrap()).unwrap();
    let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 10);
    let row = &rows[6];
    assert_eq!((row.get_long(2).unwrap(), row.get_int(3).unwrap(), row.get_int(4).unwrap()), (1, 1, 3));
    assert_eq!((row.get_string(5).unwrap().as_str(), row.get_float(6).unwrap()), ("full", 0.9));
    assert_eq!((row.get_int(9).unwrap(), row.get_list(10).unwrap().len()), (1, 1));
    assert!(rows.iter().all(|row| row.get_string(12).unwrap() == "tic_tac_toe" && row.get_long(13).unwrap() == 0));
    assert_eq!(rows[4].get_string(5).unwrap(), "fast");
    assert_eq!(rows[4].get_list(10).unwrap().len(), 0);
    let error = run.replay("export games.sgf").unwrap_err().to_string();
    assert!(error.contains(".parquet or .txt"), "{error}");
}

#[test]
fn an_export_to_sgf_has_a_record_per_game_with_the_moves_the_result_and_the_searches() {
    for name in ["go-5", "hex-4", "othello-6", "gomoku-7"] {
        let games = [(0, 0), (1, 0), (2, 1)].map(|(sequence, left_out)| random_game(name, sequence, left_out));
        let run = Run::of(name, games.clone());
        let folder = run.runs.path().join("records");
        let line = format!("export --format sgf {}", folder.display());
        assert!(run.replay(&line).unwrap().starts_with("3 trajectories in "));
        let rules = name.parse::<GameKind>().unwrap().rules();
        let notation = Notation::of(&rules).unwrap();
        for game in &games {
            let bytes = std::fs::read(folder.join(format!("{}.sgf", game.id()))).unwrap();
            let (file, tree) = (sgf::read(&bytes).unwrap(), sgf::Tree::parse(&bytes).unwrap());
            let action = |ply: &protocols::Ply| notation.to_action(ply.color, ply.played).unwrap();
            assert!(file.record.plies.iter().map(action).eq(game.actions()), "{name} {}", game.id());
            assert_eq!((file.game, file.record.setup.size, file.notes.len()), (notation.game(), notation.size(), 0));
            let outcome = match file.result {
                Some(GameResult::Win { color, .. }) => Outcome::Win(color.into()),
                _ => Outcome::Draw,
            };
            assert_eq!(outcome, game.outcome(), "{name} {}", game.id());
            let is_resigned = matches!(file.result, Some(GameResult::Win { by: Victory::Resignation, .. }));
            assert_eq!(is_resigned, game.id().sequence == 2 && outcome != Outcome::Draw, "{name} {}", game.id());
            let player = Some("actor 2 (weights version 7)");
            assert_eq!((file.black.as_deref(), file.white.as_deref()), (player, player));
            let comments: Vec<_> = tree.nodes().iter().map(|node| node.value("C").unwrap_or_default()).collect();
            assert!(comments[1].starts_with("value +0.250, weights version 7\n"), "{comments:?}");
            assert!(comments[2..].iter().all(|text| *text == "value -0.500, weights version 7\nfast search"));
            assert_eq!((comments.len(), tree.nodes()[0].value("KM").is_some()), (game.plies() + 1, name == "go-5"));
        }
        let again = format!("{:#}", run.replay(&line).unwrap_err());
        assert!(again.contains("already contains records"), "{again}");
    }
}

#[test]
fn the_comment_of_a_move_in_sgf_has_the_five_most_probable_moves() {
    let run = Run::of("hex-3", [random_game("hex-3", 0, 0)]);
    let folder = run.runs.path().join("records");
    run.replay(&format!("export --format sgf --limit 1 {}", folder.display())).unwrap();
    let tree = sgf::Tree::parse(&std::fs::read(folder.join("2-1-0.sgf")).unwrap()).unwrap();
    let listed = "c3 20 %, b3 18 %, a3 16 %, c2 13 %, b2 11 %";
    assert_eq!(tree.nodes()[1].value("C"), Some(format!("value +0.250, weights version 7\n{listed}").as_str()));
}

#[test]
fn a_game_without_records_in_sgf_is_refused_by_name_before_a_directory_is_made() {
    let run = Run::new();
    let folder = run.runs.path().join("records");
    let export = |options: &str| run.replay(&format!("export --format sgf {options} {}", folder.display()));
    let error = format!("{:#}", export("").unwrap_err());
    let expected = "--format sgf: tic_tac_toe has no SGF format; use Go, Hex, Othello or Gomoku";
    assert!(error.contains(expected) && !folder.exists(), "{error}");
    let nothing = format!("no trajectory is selected; nothing was written to {}\n", folder.display());
    assert!(export("--length 100..").unwrap() == nothing && !folder.exists());
}

#[test]
fn an_export_holds_every_trajectory_of_the_table_unless_it_is_limited() {
    let run = Run::holding(25);
    let lines = |arguments: &str| {
        let file = run.runs.path().join("games.txt");
        run.replay(&format!("export {arguments} {}", file.display())).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        text.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all: Vec<String> = (0..25).map(|sequence| format!("2/1/{sequence}")).collect();
    assert_eq!(lines(""), all);
    // Tests limits above one page, at whole pages, and below one page.
    for limit in [17, 16, 8, 3] {
        assert_eq!(lines(&format!("--limit {limit}")), all[..limit]);
    }
    let sorted = |mut ids: Vec<String>| {
        ids.sort();
        ids
    };
    for order in ["newest", "surprising"] {
        assert_eq!(sorted(lines(&format!("--order {order}"))), sorted(all.clone()));
        assert_eq!(lines(&format!("--order {order} --limit 9")).len(), 9);
    }
    assert_eq!(lines("--length 6.."), Vec::<String>::new());
    assert_eq!(lines("--order surprising --limit 1").len(), 1);
}

#[test]
fn verify_finds_a_flipped_byte_and_a_torn_tail_and_changes_nothing() {
    let run = Run::new();
    assert!(run.replay("verify").unwrap().starts_with("2 trajectories of 8 positions"));
    let segment = run.segment();
    let whole = std::fs::read(&segment).unwrap();
    let mut flipped = whole.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    for damaged in [&flipped[..], &whole[..whole.len() - 3]] {
        std::fs::write(&segment, damaged).unwrap();
        let error = run.replay("verify").unwrap_err().to_string();
        assert!(error.contains("is damaged in 1 places"), "{error}");
        assert_eq!(std::fs::read(&segment).unwrap(), damaged);
    }
}

#[test]
fn a_run_in_use_by_a_server_is_read_through_that_server_only() {
    let run = Run::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (running, drain) = runtime.block_on(serve(&run.runs.path().join("noughts")));
    for question in ["stats", "verify"] {
        let error = format!("{:#}", run.replay(question).unwrap_err());
        assert!(error.contains("another process uses the directory"), "{error}");
    }
    let mut out = Vec::new();
    let live = format!("http://{}", running.address);
    Command::parse_from(["replay", "stats", "--server", &live]).request.run(&mut out).unwrap();
    assert!(String::from_utf8(out).unwrap().contains("of 2 trajectories"));
    drain.start();
    runtime.block_on(running.finished()).unwrap();
}

#[test]
fn a_run_that_is_trained_is_inspected_through_its_live_server() {
    let run = Run::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let directory = RunDirectory::existing(run.runs.path(), "noughts").unwrap();
    let (running, drain) = runtime.block_on(serve(directory.path()));
    directory.keep_progress(&Progress { replay: vec![running.address], ..Progress::default() }).unwrap();
    assert!(run.replay("stats").unwrap().contains("of 2 trajectories"));
    assert!(run.replay("ls").unwrap().contains("2/1/1"));
    assert_eq!(run.replay("quarantine --actor 2").unwrap(), "actor 2 is quarantined: 8 fewer positions\n");
    drain.start();
    runtime.block_on(running.finished()).unwrap();
    // Once the server has stopped, the command opens the log directly.
    assert!(run.replay("ls").unwrap().contains("quarantine"));
}

#[test]
fn the_actors_of_a_live_server_are_listed_as_text_and_as_json() {
    let run = Run::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (running, drain) = runtime.block_on(serve(&run.runs.path().join("noughts")));
    let live = format!("http://{}", running.address);
    let send = |arguments: &[&str]| {
        let mut out = Vec::new();
        let words = [&["replay", "actors", "--server", &live], arguments].concat();
        Command::parse_from(words).request.run(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    assert!(send(&[]).contains("0 lost since the server started; heartbeat every 2.0 s"));
    let settings =
        WriterSettings { endpoint: live.clone(), actor: 5, epoch: 3, game: "tic_tac_toe".to_owned(), in_flight_max: 4 };
    let writer = {
        let _inside = runtime.enter();
        Writer::start(settings)
    };
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while !send(&[]).lines().any(|line| line.starts_with("5 ") && line.contains(" live ")) {
        assert!(std::time::Instant::now() < deadline, "{}", send(&[]));
    }
    let output: serde_json::Value = serde_json::from_str(&send(&["--json"])).unwrap();
    assert_eq!((&output["actors"][0]["actor"], &output["actors"][0]["state"]), (&5.into(), &"live".into()));
    assert_eq!((&output["actors"][0]["epoch"], &output["heartbeat_seconds"]), (&3.into(), &2.0.into()));
    runtime.block_on(writer.close(Duration::from_secs(30)));
    drain.start();
    runtime.block_on(running.finished()).unwrap();
}

#[test]
fn a_table_of_a_live_server_is_changed_and_invalid_changes_are_rejected_with_a_reason() {
    let run = Run::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (running, drain) = runtime.block_on(serve(&run.runs.path().join("noughts")));
    let live = format!("http://{}", running.address);
    let send = |arguments: &[&str]| -> anyhow::Result<String> {
        let mut out = Vec::new();
        let words = [&["replay", "configure", "--server", &live], arguments].concat();
        Command::try_parse_from(words)?.request.run(&mut out)?;
        Ok(String::from_utf8(out)?)
    };
    let line = |text: &str, key: &str| -> Vec<String> {
        let line = text.lines().find(|line| line.trim_start().starts_with(key)).expect(key);
        line.split_whitespace().map(str::to_owned).collect()
    };

    let output = send(&["samples_per_insert=2.5", "selector=max_heap", "lag_versions_max=7"]).unwrap();
    assert_eq!(line(&output, "samples_per_insert"), ["samples_per_insert", "4.0", "2.5", "changed"]);
    assert_eq!(line(&output, "selector"), ["selector", "uniform", "max_heap", "changed"]);
    assert_eq!(line(&output, "lag_versions_max"), ["lag_versions_max", "0", "7", "changed"]);
    assert_eq!(line(&output, "min_items"), ["min_items", "5000", "5000"]);
    let output = send(&["--table", "main", "lag_versions_max=0"]).unwrap();
    assert_eq!(line(&output, "lag_versions_max"), ["lag_versions_max", "7", "0", "changed"]);

    let refused = |arguments: &[&str]| format!("{:#}", send(arguments).unwrap_err());
    let unknown = refused(&["window=5"]);
    assert!(unknown.contains("window: is not a table key; did you mean window_"), "{unknown}");
    assert!(refused(&["min_items=-1"]).contains("min_items: "));
    assert!(refused(&["window_slope=2"]).contains("window_slope: is 2, must be above 0 and at most 1"));
    assert!(refused(&["--table", "none", "min_items=1"]).contains("main"));
    assert_eq!(line(&send(&[]).unwrap(), "window_slope"), ["window_slope", "0.4", "0.4"]);
    assert!(run.replay("configure min_items=1").unwrap_err().to_string().contains("only on a live server"));
    drain.start();
    runtime.block_on(running.finished()).unwrap();
}

/// Splits the next frame of `zerofleet replay batches` off: the header and the arrays.
fn frame(rest: &mut &[u8]) -> (serde_json::Value, Vec<Vec<u8>>) {
    let whole = *rest;
    let end = whole.iter().position(|&byte| byte == b'\n').unwrap();
    let header: serde_json::Value = serde_json::from_slice(&whole[..end]).unwrap();
    *rest = &whole[end + 1..];
    let mut arrays = Vec::new();
    for array in header["arrays"].as_array().unwrap() {
        let count: u64 = array["shape"].as_array().unwrap().iter().map(|side| side.as_u64().unwrap()).product();
        let size = if array["dtype"] == "uint8" { 1 } else { 4 };
        let (numbers, after) = (*rest).split_at(count as usize * size);
        arrays.push(numbers.to_vec());
        *rest = after;
    }
    (header, arrays)
}

/// An output that its reader has closed.
struct Closed;

impl Write for Closed {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn batches_of_a_live_run_are_frames_of_arrays_until_the_limit_or_until_the_pipe_closes() {
    let run = Run::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (running, drain) = runtime.block_on(serve(&run.runs.path().join("noughts")));
    let live = format!("http://{}", running.address);
    let configure = ["replay", "configure", "--server", &live, "min_items=1"];
    Command::parse_from(configure).request.run(&mut Vec::new()).unwrap();
    let runs = run.runs.path().display().to_string();
    let request = |options: &[&str]| {
        let words = ["replay", "batches", "--run", "noughts", "--runs", &runs];
        Command::parse_from(words.iter().chain(options)).request
    };
    let mut out = Vec::new();
    request(&["--endpoint", &live, "--batch-size", "4", "--batches", "2"]).run(&mut out).unwrap();
    let mut rest = &out[..];
    let observation = games::TicTacToe::new().spec().observation;
    for _ in 0..2 {
        let (header, arrays) = frame(&mut rest);
        assert_eq!(header["rejected"], 0);
        let array = |at: usize, name: &str, shape: serde_json::Value| {
            assert_eq!((&header["arrays"][at]["name"], &header["arrays"][at]["shape"]), (&name.into(), &shape));
            let floats = arrays[at].as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes));
            floats.collect::<Vec<f32>>()
        };
        array(0, "observations", serde_json::json!([4, observation.planes, 3, 3]));
        let (policy, wdl) = (array(1, "policy", serde_json::json!([4, 9])), array(2, "wdl", serde_json::json!([4, 3])));
        // In the stored games every move is certain.
        assert!(policy.chunks(9).all(|row| row.iter().filter(|share| **share == 1.0).count() == 1), "{policy:?}");
        assert!(wdl.chunks(3).all(|row| (row.iter().sum::<f32>() - 1.0).abs() < 1e-5), "{wdl:?}");
        assert_eq!(array(3, "policy_weights", serde_json::json!([4])), [1.0; 4]);
        assert_eq!(header["arrays"].as_array().unwrap().len(), 5, "uniform draws have no importance: {header}");
    }
    assert!(rest.is_empty());

    request(&["--endpoint", &live, "--batch-size", "4"]).run(&mut Closed).unwrap();
    let refused = |options: &[&str]| request(options).run(&mut Vec::new()).unwrap_err().to_string();
    assert!(refused(&["--batch-size", "0"]).contains("--batch-size: is 0"));
    assert!(refused(&[]).contains("is not in training; start it with zerofleet train --run noughts"));
    let boards = "[run]\ngame = \"hex-5\"\nboards = [\"hex-7\"]\n[network]\nheads = \"pooled\"\n";
    std::fs::write(run.runs.path().join("noughts/config.toml"), boards).unwrap();
    assert!(refused(&[]).starts_with("run.boards: batches are of one board"), "{}", refused(&[]));
    drain.start();
    runtime.block_on(running.finished()).unwrap();
}
