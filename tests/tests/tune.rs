//! `zerofleet tune` in realistic use: killed, started again, and with a trial that crashes; and `zerofleet ablate`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tests::{Process, SMALL_TIC_TAC_TOE, program, wait_until};

const DEADLINE: Duration = Duration::from_secs(120);

/// Learning rates including one that learns nothing, and two batch sizes. The budget does not depend on machine load.
const STUDY: &str = r#"
[study]
trials = 5
parallel = 2
sampler = "random"
seed = 3

[base]
game = "tic_tac_toe"
config = "small.toml"
actors = 1
set = ["learner.schedule=positions", "learner.schedule_positions=60000"]

[objective]
metric = "loss/total"
direction = "minimise"

[budget]
positions = 15000
minutes_max = 10

[halving]
rungs = 1
reduction_factor = 2

[settings]
learner.learning_rate = { choices = [1e-9, 0.005] }
learner.batch_size = { choices = [32, 64] }
"#;

/// A study in a temporary directory.
struct Study {
    tuner: Process,
    folder: PathBuf,
}

impl Study {
    fn new(folder: &Path) -> anyhow::Result<Self> {
        let file = folder.join("rates.toml");
        fs::write(&file, STUDY)?;
        fs::write(folder.join("small.toml"), SMALL_TIC_TAC_TOE)?;
        let arguments = ["tune".into(), file.into(), "--runs".into(), folder.into()];
        let tuner = Process::without_admin("tune", "zerofleet", arguments.into(), folder)?;
        Ok(Self { tuner, folder: folder.join("rates") })
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }

    /// Waits until a condition holds while the tuner runs.
    fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) -> anyhow::Result<()> {
        wait_until(what, DEADLINE, || {
            ensure!(self.tuner.is_running(), "the tuner has ended: {}", self.tuner.log_text());
            Ok(holds(self))
        })
    }

    fn has_checkpoint(&self, trial: usize) -> bool {
        let entries = fs::read_dir(self.folder.join(format!("trials/{trial}/checkpoints")));
        entries.is_ok_and(|mut entries| {
            entries.any(|entry| entry.is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("step-")))
        })
    }

    /// Returns the id of the process that trains a trial, as named by the lock.
    fn trainer(&self, trial: usize) -> anyhow::Result<libc::pid_t> {
        let lock = self.read(&format!("trials/{trial}/lock"));
        lock.strip_prefix("process ").context("read the lock")?.parse().context("parse the lock")
    }
}

#[test]
fn a_killed_tuner_goes_on_a_crashed_trial_is_recorded_and_the_learning_rate_that_learns_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let mut study = Study::new(folder.path()).unwrap();
    study.tuner.start().unwrap();
    // A fast machine has trained the whole budget soon after the first checkpoint, so the test waits for nothing else.
    let runs = |study: &Study| study.has_checkpoint(0) && study.tuner.log_text().contains("trial 1 starts: ");
    study.until("two trials run", runs).unwrap();
    let before = study.trainer(0).unwrap();
    study.tuner.kill().unwrap();

    study.tuner.start().unwrap();
    let is_new = |study: &Study| study.trainer(0).is_ok_and(|trainer| trainer != before);
    study.until("the first trial goes on", |study| is_new(study) && is_running(study.trainer(0).unwrap())).unwrap();
    // SAFETY: kill takes plain numbers. The process was started by the tuner, which has not reaped it: it runs.
    unsafe { libc::kill(study.trainer(0).unwrap(), libc::SIGKILL) };
    let output = study.tuner.ended(DEADLINE).unwrap();
    assert!(output.status.success(), "{}", output.text);
    let text = &output.text;
    assert!(text.contains("trial 0 continues: ") && text.contains("trial 1 continues: "), "{text}");
    assert!(text.contains("trial 0 failed") && text.contains("was killed by signal 9; last line of "), "{text}");

    let csv = study.read("trials.csv");
    let rows: Vec<Vec<&str>> = csv.lines().skip(1).map(|line| line.split(',').collect()).collect();
    let states: Vec<&str> = rows.iter().map(|row| row[1]).collect();
    assert_eq!((states.len(), states[0]), (5, "failed"), "{csv}");
    assert!(states[1..].iter().all(|state| ["completed", "stopped"].contains(state)), "{csv}");
    let rates: Vec<&str> = rows[1..].iter().map(|row| *row.last().unwrap()).collect();
    assert!(rates.contains(&"0.005") && rates.contains(&"1e-9"), "the seed proposes both: {csv}");
    let best = study.read("best.toml");
    assert!(best.contains("\nlearning_rate = 0.005"), "{csv}\n{best}");
    for name in ["objective.svg", "settings.svg"] {
        assert!(study.read(name).starts_with("<svg"), "{name}");
    }
    accepted(&study.folder.join("best.toml")).unwrap();

    // A complete study starts nothing, and reports again.
    study.tuner.start().unwrap();
    let output = study.tuner.ended(DEADLINE).unwrap();
    assert!(output.status.success(), "{}", output.text);
    assert_eq!(study.read("trials.csv"), csv);
}

/// Returns true while the process runs and is not a zombie.
fn is_running(process: libc::pid_t) -> bool {
    let command = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&command).contains("--exit-with-parent")
}

/// Checks that `zerofleet train` accepts a run file, without training.
fn accepted(file: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(program("zerofleet")?);
    let output = command.args(["train", "--needs-libtorch", "--run", "best", "--config"]).arg(file).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// A screen of two switches. 4,000 positions take seconds; `minutes_max` only bounds a run that hangs.
const SCREEN: &str = r#"
[base]
game = "tic_tac_toe"
config = "small.toml"
actors = 1
set = ["learner.schedule=positions", "learner.schedule_positions=60000", "learner.publish_interval_steps=20"]

[budget]
positions = 4000
minutes_max = 5

[design]
kind = "screen"

[switches]
batch = { on = { learner.batch_size = 32 } }
draws = { off = { selfplay.temperature_early = 0.5 }, on = { selfplay.temperature_early = 1.0 } }

[eval]
positions = "solved.csv"
simulations = 8
"#;

/// After the first player's corner only the centre keeps the draw; after the centre, the corners.
const SOLVED: &str = "\
moves,band,c1,c2,c3,c4,c5,c6,c7,c8,c9
1,early,,-1,-1,-1,0,-1,-1,-1,-1
5,early,0,-1,0,-1,,-1,0,-1,0
";

#[test]
fn a_row_and_its_mirror_make_the_positions_of_the_budget_and_the_report_follows_from_their_rows() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("screen.toml", SCREEN), ("small.toml", SMALL_TIC_TAC_TOE), ("solved.csv", SOLVED)] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let ablate = |options: &[&str]| -> String {
        let mut command = Command::new(program("zerofleet").unwrap());
        command.arg("ablate").arg(folder.path().join("screen.toml")).arg("--runs").arg(folder.path()).args(options);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        text
    };
    let ran = ablate(&["--rows", "3"]);
    let csv = fs::read_to_string(folder.path().join("screen/rows.csv")).unwrap();
    let columns: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    let field = |line: &str, name: &str| {
        let fields: Vec<String> = line.split(',').map(str::to_owned).collect();
        let from_the_end = columns.len() - columns.iter().position(|column| *column == name).unwrap();
        // The name of a processor may hold commas.
        fields[fields.len() - from_the_end].clone()
    };
    let rows: Vec<&str> = csv.lines().skip(1).collect();
    assert_eq!(rows.len(), 2, "{csv}{ran}");
    let begins = |start: &str| rows.iter().any(|row| row.starts_with(start));
    assert!(begins("screen,screen,3,+,1,0,1,") && begins("screen,screen,3,-,0,1,1,"), "{csv}");
    let positions: Vec<f64> = rows.iter().map(|row| field(row, "positions").parse().unwrap()).collect();
    // A run stops at the first reading beyond the budget; there is a reading every five seconds.
    assert!(positions.iter().all(|&positions| (4000.0..40_000.0).contains(&positions)), "{csv}");
    for row in &rows {
        let of_run = ["steps", "games", "loss/total", "distinct/overall", "distinct/top_1000"];
        let of_positions = ["optimal/overall", "optimal/early", "value_error/overall"];
        let accuracies = ["raw", "search"].map(|search| of_positions.map(|of| format!("accuracy/{search}/{of}")));
        for name in of_run.map(str::to_owned).iter().chain(accuracies.as_flattened()) {
            assert!(field(row, name).parse::<f64>().is_ok(), "{name}: {csv}");
        }
        assert_eq!(field(row, "distinct/empty/24-"), "", "no game of tic-tac-toe is so long");
    }
    assert!(ran.contains("row 3 + is complete: optimal raw "), "{ran}");
    // The pair is complete, and nothing runs again.
    assert!(ablate(&["--rows", "3"]).contains("study screen: 0 pairs to run"));
    fs::remove_dir_all(folder.path().join("screen/trials")).unwrap();
    let report = ablate(&["--report"]);
    assert!(report.starts_with("study screen: screen, 1 of 12 pairs\n1 pairs on "), "{report}");
    assert!(report.contains("batch ") && report.contains("draws "), "{report}");
}
