use std::fs;
use std::path::Path;

use inference::Evaluator;
use weights::{Digest, WeightsVersion};

use super::*;
use crate::config::Fleet;

fn args(runs: &Path, run: &str) -> Args {
    let (device, precision) = (DevicePreference::Cpu, PrecisionPreference::F32);
    Args { run: run.to_owned(), runs: runs.to_owned(), device, precision }
}

fn refusal(runs: &Path, run: &str) -> String {
    Trained::open(&args(runs, run)).unwrap_err().to_string()
}

/// A run of tic-tac-toe that has published nothing.
fn begin(runs: &Path) -> RunDirectory {
    let run = RunDirectory::new(runs, "noughts").unwrap();
    run.create().unwrap();
    let mut config = Fleet::default();
    config.run.game = "tic_tac_toe".to_owned();
    fs::write(run.config(), service::config::print(&config).unwrap()).unwrap();
    run
}

/// Publishes untrained weights for `kind`.
fn publish(run: &RunDirectory, kind: GameKind, version: u64) {
    let architecture = with_game!(kind, |game| {
        let (spec, shape) = (game.spec(), game.spec().observation);
        let (planes, height, width) = (shape.planes, shape.height, shape.width);
        Architecture {
            game: spec.name.clone(),
            planes,
            height,
            width,
            actions: spec.actions,
            channels: 4,
            blocks: 1,
            squeeze_excitation: 0,
            global_pooling: 0,
        }
    });
    let bytes = network::Network::new(&architecture, Device::Cpu, 1).unwrap().to_safetensors().unwrap();
    let digest = Digest::of(&bytes);
    let (version, size_bytes) = (WeightsVersion(version), bytes.len() as u64);
    let manifest = Manifest { version, training_step: 1, digest, size_bytes, architecture };
    Published::new(run.path().join("weights"), 4).write(&manifest, &bytes).unwrap();
}

#[test]
fn the_newest_weights_of_a_run_evaluate_its_game() {
    let runs = tempfile::tempdir().unwrap();
    let run = begin(runs.path());
    publish(&run, GameKind::TicTacToe, 1);
    publish(&run, GameKind::TicTacToe, 2);
    let trained = Trained::open(&args(runs.path(), "noughts")).unwrap();
    assert_eq!(trained.game, GameKind::TicTacToe);
    assert_eq!(trained.evaluator.attributes().weights_version, 2);
}

#[test]
fn an_unknown_run_is_answered_with_those_there_are() {
    let runs = tempfile::tempdir().unwrap();
    assert!(refusal(runs.path(), "crosses").ends_with("there is none yet, zerofleet train makes one"));
    begin(runs.path());
    let error = refusal(runs.path(), "crosses");
    assert!(error.starts_with("no run crosses in") && error.ends_with("there are noughts"), "{error}");
}

#[test]
fn a_run_without_whole_weights_says_what_to_do() {
    let runs = tempfile::tempdir().unwrap();
    let run = begin(runs.path());
    let error = refusal(runs.path(), "noughts");
    assert!(error.starts_with("run noughts has published no weights yet"), "{error}");
    publish(&run, GameKind::TicTacToe, 1);
    fs::write(run.path().join("weights/v000001.safetensors"), b"not what was written").unwrap();
    let error = refusal(runs.path(), "noughts");
    assert!(error.contains("is damaged"), "{error}");
}

#[test]
fn weights_of_another_game_are_refused() {
    let runs = tempfile::tempdir().unwrap();
    let run = begin(runs.path());
    publish(&run, GameKind::ConnectFour, 1);
    let error = refusal(runs.path(), "noughts");
    assert!(error.contains("play connect_four, and the run is about tic_tac_toe"), "{error}");
}
