//! The Open Inference Protocol with third-party clients: `tritonclient`, `grpcio`, and the examples.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::random_weights::Published;
use game::{Action, Game as _, Spec};
use games::{ConnectFour, TicTacToe};
use inference::{Batch, Evaluator as _, Predictions};
use network_cpu::{Tower, TowerEvaluator};
use tempfile::TempDir;
use tests::{InferenceServer, Python};
use weights::WeightsVersion;

/// Lines of play with positions to evaluate; the longest fills three columns.
const MOVES: [&str; 7] = ["", "4", "44", "445", "1212", "123456712", "444444333333222222"];

/// Kernel of the server, which also computes the expected results.
const PATH: network_cpu::KernelVariant = network_cpu::KernelVariant::PortableF32;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Returns Python with the packages that the clients need; `None` if there is no Python, which fails the test in CI.
fn python() -> Option<Python> {
    let requirements = repository().join("tests/python/requirements.txt");
    let python = Python::with(&requirements, Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    if python.is_none() {
        tests::skip_python("3.10");
    }
    python
}

/// Returns a server with random weights for Connect Four, and the weights.
fn server() -> (InferenceServer, Published) {
    server_of(ConnectFour::new().spec())
}

fn server_of(spec: &Spec) -> (InferenceServer, Published) {
    server_with(spec, &[])
}

fn server_with(spec: &Spec, more: &[&str]) -> (InferenceServer, Published) {
    let kernel = format!("inference.kernel={PATH}");
    let sets = [&[kernel.as_str(), "inference.precision=f32", "inference.batch_max=64"], more].concat();
    let mut server = InferenceServer::new(&spec.name, &sets).unwrap();
    let published = Published::random(spec, 12, 7);
    let manifest = published.write(server.directory());
    server.start(&manifest).unwrap();
    (server, published)
}

/// Returns a server with TLS, client certificates and tokens, and options for a client of the operator. The directory
/// has the files.
fn secured_server() -> (TempDir, InferenceServer, Published, Vec<String>) {
    let secrets = tempfile::tempdir().unwrap();
    let folder = secrets.path().join("secrets");
    let mut certs = Command::new(tests::program("xtask").unwrap());
    assert!(certs.args(["certs", "--out"]).arg(&folder).status().unwrap().success());
    let file = |name: &str| folder.join(name).display().to_string();
    let keys = [("certificate", "server.pem"), ("key", "server.key"), ("client_ca", "ca.pem"), ("tokens", "tokens")];
    let sets = keys.map(|(key, name)| format!("security.{key}={}", file(&format!("inference/{name}"))));
    let (server, published) = server_with(ConnectFour::new().spec(), &sets.each_ref().map(String::as_str));
    let options = [("--ca", "ca.pem"), ("--cert", "client.pem"), ("--key", "client.key"), ("--token", "token")];
    let options = options.into_iter().flat_map(|(name, value)| [name.to_owned(), file(&format!("operator/{value}"))]);
    (secrets, server, published, options.collect())
}

/// Returns the expected results for the lines of play as JSON, with a prior for every action.
fn expected(published: &Published) -> String {
    let game = ConnectFour::new();
    let spec = game.spec();
    let mut batch = Batch::new(spec.observation);
    let mut legal = Vec::new();
    for moves in MOVES {
        let actions: Vec<Action> = moves.bytes().map(|column| Action(u16::from(column - b'1'))).collect();
        let position = game.replay(&actions).unwrap();
        game.legal_actions(&position, &mut legal);
        batch.push(&legal, |planes| game.observe(&position, planes));
    }
    let tower = Tower::new(&published.manifest.architecture, &published.bytes, PATH).unwrap();
    let mut predictions = Predictions::new();
    TowerEvaluator::new(Arc::new(tower), WeightsVersion(12)).evaluate(&batch, &mut predictions).unwrap();
    let row = |(i, moves): (usize, &str)| {
        let mut priors = vec![0.0; spec.actions];
        for (action, prior) in batch.legal(i).iter().zip(predictions.priors(i)) {
            priors[action.index()] = *prior;
        }
        let value = predictions.wdl()[i];
        serde_json::json!({ "moves": moves, "priors": priors, "wdl": [value.win, value.draw, value.loss] })
    };
    serde_json::to_string(&MOVES.into_iter().enumerate().map(row).collect::<Vec<_>>()).unwrap()
}

/// Runs all checks with `tritonclient` and `grpcio`.
#[allow(clippy::print_stdout, reason = "what was checked is worth reading")]
fn check_answers(python: &Python, server: &InferenceServer, published: &Published, options: &[String]) {
    let answers = server.directory().join("expected.json");
    std::fs::write(&answers, expected(published)).unwrap();
    let script = repository().join("tests/python/open_inference.py");
    let arguments = [&[server.address(), answers.display().to_string()], options].concat();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let printed = python.run(&script, &arguments, &examples()).unwrap();
    println!("{printed}");
    assert!(printed.contains(" checks passed, 0 failed"), "{printed}");
}

#[test]
fn a_stock_tritonclient_finds_every_method_and_the_right_numbers() {
    let Some(python) = python() else { return };
    let (server, published) = server();
    check_answers(&python, &server, &published, &[]);
}

#[test]
fn a_stock_tritonclient_finds_the_same_over_tls_with_a_token() {
    let Some(python) = python() else { return };
    let (_secrets, server, published, options) = secured_server();
    check_answers(&python, &server, &published, &options);
}

fn examples() -> PathBuf {
    repository().join("clients/python")
}

#[test]
fn the_examples_evaluate_a_batch_and_play_a_game() {
    let Some(python) = python() else { return };
    let (server, _) = server();
    let address = server.address();
    let run = |script: &str, arguments: &[&str]| {
        let arguments = [&[address.as_str()], arguments].concat();
        python.run(&examples().join(script), &arguments, &examples()).unwrap()
    };
    let printed = run("evaluate_batch.py", &["4", "44", "1212"]);
    assert!(printed.starts_with("weights version 12"), "{printed}");
    assert_eq!(printed.lines().count(), 5, "a line for each position: {printed}");
    let printed = run("play.py", &["--opponent", "random", "--seed", "1", "--simulations", "20"]);
    let ending = printed.lines().last().unwrap_or_default();
    assert!(["X won", "the server won", "a draw"].contains(&ending), "{printed}");
}

#[test]
fn the_examples_call_a_server_with_tls_client_certificates_and_tokens_and_name_a_missing_option() {
    let Some(python) = python() else { return };
    let (_secrets, server, _, options) = secured_server();
    let (address, all) = (server.address(), options.iter().map(String::as_str).collect::<Vec<_>>());
    let run = |script: &str, arguments: &[&str]| {
        let arguments = [&[address.as_str()], arguments].concat();
        python.run(&examples().join(script), &arguments, &examples())
    };
    let printed = run("evaluate_batch.py", &[&all[..], &["4", "44"]].concat()).unwrap();
    assert!(printed.starts_with("weights version 12") && printed.lines().count() == 4, "{printed}");
    let more = ["--opponent", "random", "--seed", "1", "--simulations", "20"];
    let printed = run("play.py", &[&all[..], &more].concat()).unwrap();
    assert!(printed.contains("the server, plays"), "{printed}");
    let error = format!("{:#}", run("play.py", &[&all[..4], &more].concat()).unwrap_err());
    assert!(error.contains("--cert and --key belong together"), "{error}");
}

#[test]
#[allow(clippy::print_stdout, reason = "the output of the servers is worth reading")]
fn every_call_by_hand_in_the_docs_is_answered() {
    let Some(python) = python() else { return };
    let (connect_four, _) = server();
    let (tic_tac_toe, _) = server_of(TicTacToe::new().spec());
    let page = repository().join("docs/inference.md").display().to_string();
    let servers =
        [format!("connect_four={}", connect_four.address()), format!("tic_tac_toe={}", tic_tac_toe.address())];
    let script = repository().join("tests/python/by_hand.py");
    let printed = python.run(&script, &[&page, &servers[0], &servers[1]], &examples()).unwrap();
    println!("{printed}");
    let done = printed.matches("grpcurl -plaintext").count();
    assert!(done >= 10 && printed.contains(&format!("{done} lines were answered")), "{printed}");
}
