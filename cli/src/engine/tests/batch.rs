//! Tests of the batch analysis of SGF files.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use serde_json::Value;

use super::*;
use crate::engine::batch::Batch;

const GO: &str = "(;GM[1]SZ[5]KM[0.5]PB[one]PW[two]RE[B+R];B[cc];W[bb];B[dd];B[aa];W[];B[])";

/// Returns a temporary directory with these SGF files, and the path of a directory for the analyses.
fn folders(files: &[(&str, &str)]) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let output = folder.path().join("analyses");
    (folder, output)
}

fn run(game: &str, sgf: &Path, output: &Path, force: bool) -> (ExitCode, String) {
    let drain = Drain::new();
    let batch = Batch { sgf, output, force, simulations: 20, drain: &drain };
    let mut log = Vec::new();
    let status = batch.run(&mut engine(game), &mut log).unwrap();
    (status, String::from_utf8(log).unwrap())
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn every_position_of_a_game_is_analysed_and_each_move_has_its_loss() {
    let (folder, output) = folders(&[("game.sgf", GO)]);
    let (status, log) = run("go-5", &folder.path().join("game.sgf"), &output, false);
    assert_eq!(status, ExitCode::SUCCESS);
    assert!(log.ends_with("1 analysed, 0 skipped, 0 failed\n"), "{log}");
    let game = read(&output.join("game.json"));
    assert_eq!((&game["black"], &game["result"], &game["komi"]), (&"one".into(), &"B+R".into(), &0.5.into()));
    let positions = game["positions"].as_array().unwrap();
    assert_eq!(positions.len(), 7);
    let moves: Vec<&str> = positions.iter().filter_map(|position| position["move"].as_str()).collect();
    assert_eq!(moves, ["C3", "B4", "D2", "A5", "pass", "pass"]);
    let winrate = |index: usize| positions[index]["winrate"].as_f64().unwrap();
    for (index, position) in positions[..6].iter().enumerate() {
        assert_eq!(position["moveNumber"], index);
        // After a pass by the opponent, passing wins, and the search stops once this is proven.
        assert!(position["visits"].as_u64().unwrap() >= 20 || winrate(index) == 1.0, "{position}");
        assert_eq!(position["principalVariation"][0], position["bestMove"]);
        let is_same_player = position["player"] == positions[index + 1]["player"];
        let after = if is_same_player { winrate(index + 1) } else { 1.0 - winrate(index + 1) };
        let loss = position["winrateLoss"].as_f64().unwrap();
        assert!((loss - (winrate(index) - after)).abs() < 1e-9 && (-1.0..=1.0).contains(&loss), "{position}");
    }
    // Two passes ended the game, and Black won. With White to move, the win rate is 0 without a search.
    assert_eq!((winrate(6), &positions[6]["visits"]), (0.0, &0.into()));
    assert_eq!((positions[6].get("bestMove"), positions[6].get("winrateLoss")), (None, None));
}

#[test]
fn a_file_that_cannot_be_analysed_stops_no_other_and_what_is_done_is_skipped_unless_forced() {
    let files = [
        ("a.sgf", GO),
        ("b.sgf", "no game"),
        ("c.sgf", "(;GM[11]SZ[5];B[a1])"),
        ("d.sgf", "(;GM[1]SZ[9];B[aa])"),
        ("e.sgf", "(;GM[1]SZ[5];B[aa];W[aa])"),
        ("f.sgf", "(;GM[1]SZ[5];B[aa])"),
        ("g.txt", GO),
    ];
    let (folder, output) = folders(&files);
    let (status, log) = run("go-5", folder.path(), &output, false);
    assert_eq!(status, ExitCode::FAILURE);
    assert!(log.ends_with("2 analysed, 0 skipped, 4 failed\n"), "{log}");
    let mut written: Vec<_> = fs::read_dir(&output).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    written.sort();
    assert_eq!(written, ["a.json", "f.json"]);

    fs::write(output.join("a.json"), "{}").unwrap();
    let (_, log) = run("go-5", folder.path(), &output, false);
    assert!(log.ends_with("0 analysed, 2 skipped, 4 failed\n"), "{log}");
    assert_eq!(fs::read_to_string(output.join("a.json")).unwrap(), "{}");
    let (_, log) = run("go-5", folder.path(), &output, true);
    assert!(log.ends_with("2 analysed, 0 skipped, 4 failed\n"), "{log}");
    assert!(read(&output.join("a.json"))["positions"].is_array());
}

#[test]
fn suffixes_in_capitals_count_and_notes_and_skipped_files_are_named() {
    let unclear = "(;GM[1]SZ[5]KM[?];B[cc];AB[aa];W[bb])";
    let (folder, output) = folders(&[("a.SGF", GO), ("b.sgf", unclear), ("c.txt", GO)]);
    let (status, log) = run("go-5", folder.path(), &output, false);
    assert_eq!(status, ExitCode::SUCCESS);
    assert!(log.ends_with("2 analysed, 0 skipped, 0 failed\n"), "{log}");
    let notes = [
        "at byte 1: KM[?]: expected a number of points; the usual komi is used",
        "at byte 23: AB[aa]: expected stones before the first move only; the record ends after move 1",
    ];
    for line in [format!("b.sgf: note: {}\n", notes[0]), format!("b.sgf: note: {}\n", notes[1])] {
        assert!(log.contains(&line), "{log}");
    }
    assert!(log.contains("c.txt: skipped, since the suffix is not .sgf\n"), "{log}");
    let game = read(&output.join("b.json"));
    assert_eq!((game["positions"].as_array().unwrap().len(), &game["komi"]), (2, &24.0.into()));
    assert_eq!(game["notes"], serde_json::json!(notes));

    let (_, log) = run("go-5", folder.path(), &output, false);
    assert!(log.contains("a.SGF: skipped, since ") && log.contains("a.json exists\n"), "{log}");
}

#[test]
fn games_of_hex_end_with_their_winner_or_a_resignation() {
    let won = "(;GM[11]SZ[3];B[a1];W[b1];B[a2];W[b2];B[a3])";
    let resigned = "(;GM[11]SZ[3];B[a1];W[swap-pieces];B[resign])";
    let (folder, output) = folders(&[("won.sgf", won), ("resigned.sgf", resigned)]);
    assert_eq!(run("hex-3", folder.path(), &output, false).0, ExitCode::SUCCESS);
    let positions = |name: &str| read(&output.join(name))["positions"].as_array().unwrap().clone();
    let won = positions("won.json");
    assert_eq!((won.len(), won[5]["winrate"].as_f64(), won[5]["player"].as_str()), (6, Some(0.0), Some("W")));
    let resigned = positions("resigned.json");
    let moves: Vec<&str> = resigned.iter().map(|position| position["move"].as_str().unwrap()).collect();
    assert_eq!(moves, ["a1", "swap-pieces", "resign"]);
    assert!(resigned[1]["winrateLoss"].is_number() && resigned[2].get("winrateLoss").is_none());
}

#[test]
fn an_interrupted_batch_says_what_is_left_and_writes_no_part_of_a_game() {
    let (folder, output) = folders(&[("a.sgf", GO), ("b.sgf", GO)]);
    let drain = Drain::new();
    drain.start();
    let batch = Batch { sgf: folder.path(), output: &output, force: false, simulations: 20, drain: &drain };
    let error = batch.run(&mut engine_until("go-5", &drain), &mut Vec::new()).unwrap_err();
    assert_eq!(error.to_string(), "interrupted with 2 of 2 files left; run the same command to continue");
    assert_eq!(fs::read_dir(&output).unwrap().count(), 0);
}

#[test]
fn a_folder_without_games_is_an_error() {
    let (folder, output) = folders(&[]);
    let drain = Drain::new();
    for sgf in [folder.path(), Path::new("/nowhere/game.sgf")] {
        let batch = Batch { sgf, output: &output, force: false, simulations: 20, drain: &drain };
        assert!(batch.run(&mut engine("go-5"), &mut Vec::new()).is_err());
    }
}
