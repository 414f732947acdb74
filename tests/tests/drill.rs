//! The restore drill of docs/recovery.md, word for word, during a training run.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tests::{TrainingRun, program};

const DEADLINE: Duration = Duration::from_secs(90);

/// Returns the arguments of the command in docs/recovery.md.
fn documented() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/recovery.md");
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("zerofleet replay drill ")).unwrap();
    let line = line.split('#').next().unwrap();
    ["replay", "drill"].into_iter().chain(line.split_whitespace()).map(str::to_owned).collect()
}

/// Runs the drill in this directory, and returns the output.
fn drill(folder: &Path) -> String {
    let output = Command::new(program("zerofleet").unwrap()).args(documented()).current_dir(folder).output().unwrap();
    let [text, errors] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(output.status.success(), "{text}{errors}");
    text
}

#[test]
fn the_documented_drill_restores_the_archive_of_a_run_in_training_or_ended_and_names_what_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let (runs, archive) = (folder.path().join("runs"), folder.path().join("archive"));
    let mut run = TrainingRun::new(&runs, folder.path()).unwrap();
    run.set(&format!("replay.archive=file://{}", archive.display()));
    run.set("replay.archive_seconds=1");
    run.start().unwrap();
    let archived = |run: &TrainingRun| {
        run.metric("replay-server", "zerofleet_replay_inserts_total") > Some(20.0)
            && run.metric("replay-server", "zerofleet_replay_archive_bytes") > Some(0.0)
    };
    run.until("the archive is kept up", DEADLINE, archived).unwrap();

    let mut text = String::new();
    run.until("the archive holds games", DEADLINE, |_| {
        text = drill(folder.path());
        !text.contains("listed 0 trajectories")
    })
    .unwrap();
    for part in
        ["restored ", "all checksums are valid", "a replay server on the restored log listed", "the live server holds "]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    run.stop().unwrap();
    // The run has stopped, and the server with it.
    assert!(drill(folder.path()).contains("no response from the replay server of the run"));
}
