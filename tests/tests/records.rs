//! sgfmill and the program read each other's game records alike.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use experience::{ActionProbability, Step, StepKind, Trajectory, TrajectoryId};
use game::{Action, Outcome, Player};
use proto::replay::{Writer, WriterSettings};
use protocols::sgf::{GameFile, Tree, read};
use protocols::{Color, Move};
use run_file::replay::Config;
use serde_json::{Value, json};
use service::Drain;
use tests::Python;
use tokio::net::TcpListener;
use weights::WeightsVersion;

const MADE: usize = 60;
const MATCH_GAMES: usize = 4;

/// Returns sgfmill, or `None` without a suitable Python.
fn sgfmill() -> Option<Python> {
    let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sgfmill");
    let python = Python::with(&scripts().join("sgfmill-requirements.txt"), &packages).unwrap();
    if python.is_none() {
        tests::skip_python("3.10");
    }
    python
}

fn scripts() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/python"))
}

/// Returns the records of a folder as sgfmill reads them. The task `make` writes records first.
fn described(python: &Python, task: &str, folder: &Path) -> Vec<Value> {
    let output = python.run(&scripts().join("records.py"), &[task, folder.to_str().unwrap()], scripts()).unwrap();
    serde_json::from_str(&output).unwrap()
}

/// Returns the record as read here, in the form of the script. sgfmill reads a missing komi as 0.
fn as_read(name: &str, bytes: &[u8]) -> Value {
    let tree = Tree::parse(bytes).unwrap();
    let GameFile { komi, record, black, white, .. } = read(bytes).unwrap();
    let letter = |color: Color| color.letter().to_string();
    let mut stones: Vec<(String, u8, u8)> =
        record.setup.stones.iter().map(|stone| (letter(stone.color), stone.cell.column, stone.cell.row)).collect();
    stones.sort();
    let moves = record.plies.iter().map(|ply| match ply.played {
        Move::Place(cell) => json!([letter(ply.color), cell.column, cell.row]),
        _ => json!([letter(ply.color)]),
    });
    json!({
        "name": name,
        "size": record.setup.size.width(),
        "komi": komi.unwrap_or(0.0),
        "black": black,
        "white": white,
        "stones": stones,
        "moves": moves.collect::<Vec<_>>(),
        "comments": tree.main_line().filter_map(|node| node.value("C")).collect::<Vec<_>>(),
        "nodes": tree.nodes().len(),
    })
}

fn compare(folder: &Path, described: &[Value]) {
    for expected in described {
        let name = expected["name"].as_str().unwrap();
        let bytes = std::fs::read(folder.join(name)).unwrap();
        assert_eq!(as_read(name, &bytes), *expected, "{}", bytes.escape_ascii());
        assert_eq!(read(&bytes).unwrap().notes, [""; 0], "{name}");
        // A tree that is written again is the same record.
        assert_eq!(as_read(name, Tree::parse(&bytes).unwrap().to_string().as_bytes()), *expected, "{name}");
    }
}

#[test]
fn records_that_sgfmill_writes_are_read_alike() {
    let Some(python) = sgfmill() else { return };
    let folder = tempfile::tempdir().unwrap();
    let made = described(&python, "make", folder.path());
    assert_eq!(made.len(), MADE);
    compare(folder.path(), &made);
}

#[test]
fn sgfmill_reads_the_records_of_a_match_alike() {
    let Some(python) = sgfmill() else { return };
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("records");
    let mut command = Command::new(tests::program("zerofleet").unwrap());
    let games = MATCH_GAMES.to_string();
    command.args(["match", "random", "playouts-1", "--game", "go-5", "--games", &games, "--sgf"]).arg(&records);
    let output = command.current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let read = described(&python, "read", &records);
    assert_eq!(read.len(), MATCH_GAMES);
    compare(&records, &read);
}

/// Stores a game of Go in the replay log of the run in `directory`: Black places two stones, then both pass.
async fn store_game(directory: &Path) {
    let mut config = Config::default();
    (config.run.game, config.run.directory) = ("go-5".to_owned(), directory.to_owned());
    let (listener, drain) = (TcpListener::bind(("127.0.0.1", 0)).await.unwrap(), Drain::new());
    let running = replay_server::start(config.settings().unwrap(), listener, drain.clone()).await.unwrap();
    let policy = |action| vec![ActionProbability { action: Action(action), probability: 1.0 }];
    let steps = [12, 25, 7, 25, 25].map(|action| {
        let kind = StepKind::Full { policy: policy(action), value: 0.5 };
        Step { action: Action(action), reward: 0.0, kind, weights_version: WeightsVersion(3) }
    });
    let id = TrajectoryId { actor: 1, epoch: 1, sequence: 0 };
    let game = Trajectory::of(id, "go-5", &steps, Outcome::Win(Player::First)).unwrap();
    let endpoint = format!("http://{}", running.address);
    let settings = WriterSettings { endpoint, actor: 1, epoch: 1, game: "go-5".to_owned(), in_flight_max: 1 };
    let writer = Writer::start(settings);
    writer.insert(game).await.unwrap();
    assert!(writer.close(Duration::from_secs(30)).await.is_empty());
    drain.start();
    running.finished().await.unwrap();
}

#[test]
fn sgfmill_reads_the_records_of_an_export_alike() {
    let Some(python) = sgfmill() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (run, records) = (folder.path().join("go"), folder.path().join("records"));
    std::fs::create_dir(&run).unwrap();
    std::fs::write(run.join("config.toml"), "[run]\ngame = \"go-5\"\n").unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(store_game(&run));
    let mut command = Command::new(tests::program("zerofleet").unwrap());
    command.args(["replay", "export", "--run", "go", "--format", "sgf", "--runs"]).arg(folder.path()).arg(&records);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let read = described(&python, "read", &records);
    assert_eq!((read.len(), read[0]["comments"].as_array().unwrap().len()), (1, 5));
    compare(&records, &read);
}
