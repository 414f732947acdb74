//! Log lines name the process, and neither log lines nor printed configurations contain a secret.

use std::process::Command;
use std::time::Duration;

use tests::{Cluster, Role, SMALL_TIC_TAC_TOE, program, wait_until};

const DEADLINE: Duration = Duration::from_secs(60);
/// Token of the actor, with the digest as `sha256sum` prints it.
const TOKEN: &str = "correct-horse-battery-staple-8153";
const DIGEST: &str = "0d09082d6dee777937ead54ec3f340cd5bf9126a388572fbd12a0be843185ea0";
/// Token of the learner, which no server accepts.
const UNKNOWN: &str = "hunter2-of-another-fleet";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_log_line_and_no_printed_configuration_holds_a_token_and_each_line_names_its_process() {
    let mut cluster = Cluster::new("tic_tac_toe", SMALL_TIC_TAC_TOE).unwrap();
    let folder = cluster.directory().to_owned();
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let tokens = file("tokens", &format!("actor act {DIGEST}\n"));
    let (known, unknown) = (file("actor.token", TOKEN), file("learner.token", UNKNOWN));
    let roles = [
        (Role::Replay, format!("security.tokens={tokens}")),
        (Role::Learner, format!("security.token_file={unknown}")),
        (Role::Actor, format!("security.token_file={known}")),
    ];
    for (role, setting) in &roles {
        let arguments = ["--set", setting, "--log-format", "json", "--log-level", "trace"];
        cluster.process(*role).argue(&arguments);
    }
    cluster.start(&roles.each_ref().map(|(role, _)| *role)).unwrap();
    wait_until("the actor's trajectories come in", DEADLINE, || {
        Ok(cluster.metric(Role::Replay, "zerofleet_replay_trajectories").is_some_and(|held| held > 0.0))
    })
    .unwrap();
    wait_until("the learner receives the rejection of its token", DEADLINE, || {
        Ok(cluster.process(Role::Learner).log_text().contains("token"))
    })
    .unwrap();
    for (role, setting) in &roles {
        cluster.process(*role).kill().unwrap();
        let text = cluster.process(*role).log_text();
        holds_no_secret(&text);
        for line in text.lines().filter(|line| line.starts_with('{')).take(100) {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let fields = ["run", "role", "version", "instance"].map(|key| line[key].as_str().unwrap_or_default());
            assert!(fields.iter().all(|fields| !fields.is_empty()), "{line}");
            assert_eq!(fields[1], cluster.process(*role).name());
        }
        let printed = printed_configuration(cluster.process(*role).name(), setting);
        assert!(printed.contains("[telemetry]") && printed.contains("[security]"), "{printed}");
        holds_no_secret(&printed);
    }
}

#[test]
fn a_printed_configuration_repeats_the_notes_of_the_run_file_and_no_other_comment() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    let note = "#: value for a GPU: learner.batch_size = 1024 (preset: 256; measured)\n";
    std::fs::write(&file, format!("{note}# a remark\n[learner]\nbatch_size = 1024\n")).unwrap();
    let mut learner = Command::new(program("learner").unwrap());
    let output = learner.arg("--config").arg(&file).arg("--print-config").output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.starts_with(note) && printed.contains("\nbatch_size = 1024\n"), "{printed}");
    assert!(!printed.contains("a remark"), "{printed}");
}

fn printed_configuration(name: &str, setting: &str) -> String {
    let output = Command::new(program(name).unwrap()).args(["--print-config", "--set", setting]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn holds_no_secret(text: &str) {
    for secret in [TOKEN, UNKNOWN] {
        let line = text.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "a token is logged");
    }
}
