use super::super::NetworkSize;
use super::*;

fn architecture() -> Architecture {
    NetworkSize { blocks: 1, channels: 16, height: 3, width: 4 }.architecture()
}

/// A script that says `answers` in turn, one for each request after the first.
fn script(answers: &[&str]) -> anyhow::Result<Peers> {
    let (first, rest) = answers.split_first().unwrap();
    let said: String = rest.iter().map(|answer| format!("read request; echo '{answer}'; ")).collect();
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("echo '{first}'; {said}read forever"));
    Peers::converse(command, Duration::from_secs(60))
}

const HELLO: &str = r#"{"id": 0, "versions": "openvino 1.2.3"}"#;

/// What comes of one request that is answered so.
fn asked(answer: &str) -> Result<f64, String> {
    let mut peers = script(&[HELLO, answer]).unwrap();
    peers.measure(Engine::Onnxruntime, &architecture(), 8, Duration::ZERO).map_err(|error| error.to_string())
}

#[test]
fn speeds_are_read_in_turn() {
    let answer = |id, speed| format!(r#"{{"id": {id}, "evaluations_per_second": {speed}}}"#);
    let mut peers = script(&[HELLO, &answer(1, 10.5), &answer(2, 20.0)]).unwrap();
    assert_eq!(peers.versions, "openvino 1.2.3");
    for expected in [10.5, 20.0] {
        let speed = peers.measure(Engine::PEERS[0], &architecture(), 1, Duration::ZERO);
        assert_eq!(speed.unwrap(), expected);
    }
}

#[test]
fn malformed_lines_are_quoted() {
    for line in ["Illegal instruction", r#"{"id": 1, "evaluations_per_second": NaN}"#, "", r#"{"error": "no id"}"#] {
        assert_eq!(asked(line).unwrap_err(), format!("it said `{line}`, which is no answer"));
    }
}

#[test]
fn errors_wrong_ids_and_missing_speeds_are_told() {
    assert_eq!(asked(r#"{"id": 1, "error": "no module"}"#).unwrap_err(), "no module");
    assert_eq!(asked(r#"{"id": 4, "evaluations_per_second": 1}"#).unwrap_err(), "it answered request 4 instead of 1");
    for nothing in [r#"{"id": 1}"#, r#"{"id": 1, "evaluations_per_second": 0}"#] {
        assert_eq!(asked(nothing).unwrap_err(), "it did not answer with a speed");
    }
}

#[test]
fn a_script_that_ends_or_says_nothing_is_told() {
    let mut command = Command::new("sh");
    command.args(["-c", "exit 3"]);
    assert_eq!(Peers::converse(command, Duration::from_secs(60)).unwrap_err().to_string(), "it ended");
    let mut command = Command::new("sh");
    command.args(["-c", "read forever"]);
    let error = Peers::converse(command, Duration::ZERO).unwrap_err();
    assert_eq!(error.to_string(), "it did not answer within 0 s");
}

#[test]
fn a_request_names_engine_and_network() {
    let network = Network { blocks: 6, channels: 64, planes: 3, height: 6, width: 7, actions: 7 };
    let request = Request { id: 9, engine: Engine::PEERS[0], network, batch: 8, seconds: 0.5 };
    assert_eq!(
        serde_json::to_string(&request).unwrap(),
        r#"{"id":9,"engine":"openvino bf16","network":{"blocks":6,"channels":64,"planes":3,"height":6,"width":7,"actions":7},"batch":8,"seconds":0.5}"#
    );
}

#[test]
fn an_environment_that_cannot_be_made_is_a_reason() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = Peers::start(file.path(), 1, 1).unwrap_err().to_string();
    assert!(error.starts_with("make a virtual environment"), "{error}");
}
