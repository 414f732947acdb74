//! `zerofleet tune` as a user runs it: killed, started again, and with a trial that crashes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tests::{Process, SMALL_TIC_TAC_TOE, program, wait_until};

const DEADLINE: Duration = Duration::from_secs(120);

/// Learning rates of which one learns nothing, and two batches. The budget does not depend on the load of the machine.
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

/// A study in a temporary folder.
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

    /// Returns the id of the process that trains a trial, as its lock names it.
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
    // A fast machine has trained the whole budget soon after the first checkpoint: nothing else is waited for.
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
    assert!(text.contains("trial 0 goes on: ") && text.contains("trial 1 goes on: "), "{text}");
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

    // A study that is complete starts nothing, and reports again.
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

/// Checks that `zerofleet train` takes a run file, without training.
fn accepted(file: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(program("zerofleet")?);
    let output = command.args(["train", "--needs-libtorch", "--run", "best", "--config"]).arg(file).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
