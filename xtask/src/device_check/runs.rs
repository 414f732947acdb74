//! Steps that train for a minute: MuZero, two boards, two learners on one GPU, and a learner that is killed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::checks;
use super::session::Session;
use crate::workspace;

/// Time after SIGINT that a run has left in a step, in seconds.
const END_SECONDS: u64 = 30;
/// Log line of a learner that continues from a checkpoint.
const RESUMED: &str = "continuing at training step";
/// Log line of a learner that sums over Gloo.
const BY_GLOO: &str = "gradient sums use Gloo";

/// Measures simulations/s of self-play with a learned model, while actors never wait for the learner.
pub(super) fn muzero(session: &mut Session) -> Result<()> {
    let threads = workspace::cores().min(16).to_string();
    let set = format!("actor.threads={threads}");
    let mut more = vec!["--algorithm", "gumbel-muzero", "--set", &set, "--set", "replay.error_items=1e15"];
    // Named devices, so that two builds are measured on the same one.
    let sets = ["learner", "actor"].map(|role| format!("{role}.device={}", session.device()));
    more.extend(sets.iter().flat_map(|set| ["--set", set]));
    let game = session.sized("connect_four", "tic_tac_toe");
    let readings = trained(session, game, session.sized("0.9", "0.4"), &more)?;
    let name = format!("MuZero, {threads} threads");
    match rate(&readings, "simulations") {
        Some(rate) => session.rows.value(&name, rate, "simulations/s"),
        None => session.rows.claim(&name, "the run recorded no simulations", false),
    }
    Ok(())
}

/// Trains one network on two boards.
pub(super) fn boards(session: &mut Session) -> Result<()> {
    let [game, board] = session.sized(["go-9", "go-7"], ["hex-5", "hex-4"]);
    let small = ["--set", "network.blocks=1", "--set", "network.channels=16"];
    let mut more = vec!["--boards", board, "--set", "network.heads=pooled", "--set", "replay.min_items=500"];
    more.extend(session.sized(None, Some(small)).into_iter().flatten());
    trained(session, game, session.sized("0.8", "0.6"), &more).map(drop)
}

/// Trains with two learners, which share the only GPU and sum by Gloo.
pub(super) fn group(session: &mut Session) -> Result<()> {
    let game = session.sized("connect_four", "tic_tac_toe");
    let learners = ["--learners", "2", "--set", "learner.collective=gloo"];
    trained(session, game, session.sized("0.8", "0.6"), &learners)?;
    let line = logged(&session.work().join(session.rows.step()).join("run/logs"), BY_GLOO);
    session.rows.claim("the learners sum by Gloo", line.as_deref().unwrap_or("no learner reports it"), line.is_some());
    Ok(())
}

/// Trains for some minutes with these options and returns the metrics. The learner must have trained on the device.
fn trained(session: &mut Session, game: &str, minutes: &str, more: &[&str]) -> Result<Vec<Value>> {
    let runs = session.work().join(session.rows.step());
    let mut command = checks::training(session, &runs, game, minutes, session.sized("auto", "cpu"));
    command.args(more);
    let ended = session.wait(command)?;
    let found = ended.failure.as_deref().unwrap_or("as planned");
    session.rows.claim("the run ended", found, ended.failure.is_none());
    let readings = checks::readings(&runs.join("run/metrics.jsonl"));
    let steps = readings.last().and_then(|last| last["steps"].as_f64()).unwrap_or(0.0);
    session.rows.claim("training steps", &steps.to_string(), steps > 0.0);
    checks::placed(session, &readings);
    Ok(readings)
}

/// Kills the learner of a run with SIGKILL. The run must continue on the same device from a checkpoint.
pub(super) fn killed(session: &mut Session) -> Result<()> {
    let runs = session.work().join("killed");
    let game = session.sized("connect_four", "tic_tac_toe");
    let mut command = checks::training(session, &runs, game, "10", session.sized("auto", "cpu"));
    command.args(["--set", "learner.checkpoint_interval_seconds=2"]);
    let mut child = checks::start(command, session.work())?;
    let (run, text) = (runs.join("run"), runs.display().to_string());
    let metrics = run.join("metrics.jsonl");
    let steps = || checks::readings(&metrics).last().and_then(|last| last["steps"].as_f64()).unwrap_or(0.0);
    let deadline = Instant::now() + session.left().saturating_sub(Duration::from_secs(END_SECONDS));
    let mut until = |is_reached: &dyn Fn() -> bool| -> Result<bool> {
        while !is_reached() {
            if let Some(status) = child.try_wait().context("watch the run")? {
                bail!("the run ended early: {status}");
            }
            if Instant::now() > deadline {
                return Ok(false);
            }
            thread::sleep(Duration::from_millis(200));
        }
        Ok(true)
    };
    let has_checkpoint = || {
        let mut entries = fs::read_dir(run.join("checkpoints")).into_iter().flatten().flatten();
        entries.any(|entry| entry.file_name().to_string_lossy().starts_with("step-"))
    };
    let has_trained = until(&|| steps() > 0.0 && has_checkpoint())?;
    let before = steps();
    let learner = learner_of(&checks::processes_with(&text));
    session.rows.claim("the learner had trained and written a checkpoint", &before.to_string(), has_trained);
    if let Some(process) = learner.as_ref().filter(|_| has_trained) {
        workspace::output(Command::new("kill").args(["-KILL", process])).context("kill the learner")?;
        let killed = Instant::now();
        let line = || logged(&run.join("logs"), RESUMED);
        let has_continued = until(&|| line().is_some() && steps() > before)?;
        session.rows.value("time from SIGKILL to a further training step", killed.elapsed().as_secs_f64(), "s");
        session.rows.claim("it continued", &line().unwrap_or_else(|| "from nothing".to_owned()), has_continued);
    } else {
        session.rows.claim("it was killed", learner.as_deref().map_or("no process", |_| "no checkpoint"), false);
    }
    workspace::output(Command::new("kill").args(["-INT", &child.id().to_string()])).context("send SIGINT")?;
    // `timeout` ends a run that does not end by itself.
    let status = child.wait().context("wait for the run")?;
    session.rows.claim("exit status of the run", &status.to_string(), status.success());
    let log = fs::read_to_string(session.work().join("run.log")).unwrap_or_default();
    session.log(&format!("zerofleet train with a killed learner:\n{log}({status})"));
    checks::placed(session, &checks::readings(&metrics));
    Ok(())
}

/// Returns the id of the learner among processes, pairs of an id and a command line.
fn learner_of(processes: &[(String, String)]) -> Option<String> {
    let is_learner = |line: &str| line.split(' ').next().is_some_and(|program| program.ends_with("/learner"));
    processes.iter().find(|(_, line)| is_learner(line)).map(|(id, _)| id.clone())
}

/// Returns the first line with `text` in the logs of the learners.
fn logged(logs: &Path, text: &str) -> Option<String> {
    let files = fs::read_dir(logs).into_iter().flatten().flatten();
    let learners = files.filter(|file| file.file_name().to_string_lossy().starts_with("learner"));
    let mut texts = learners.filter_map(|file| fs::read_to_string(file.path()).ok());
    texts.find_map(|log| log.lines().find(|line| line.contains(text)).map(str::to_owned))
}

/// Returns the growth of a total per second, over the second half of the training time.
fn rate(readings: &[Value], total: &str) -> Option<f64> {
    let point = |reading: &Value| Some((reading["elapsed_seconds"].as_f64()?, reading[total].as_f64()?));
    let points: Vec<_> = readings.iter().filter_map(point).collect();
    let (end, last) = points.last()?;
    let (begin, first) = points.iter().find(|(seconds, _)| *seconds >= end / 2.0)?;
    (end > begin).then(|| (last - first) / (end - begin))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rate_is_over_the_second_half_of_the_run() {
        let readings = [[0.0, 0.0], [5.0, 50.0], [6.0, 100.0], [10.0, 500.0]]
            .map(|[seconds, simulations]| json!({"elapsed_seconds": seconds, "simulations": simulations}));
        assert_eq!(rate(&readings, "simulations"), Some(90.0));
        assert_eq!([rate(&readings[..1], "simulations"), rate(&readings, "steps"), rate(&[], "steps")], [None; 3]);
    }

    #[test]
    fn the_learner_is_found_among_the_processes_of_a_run() {
        let of = |lines: &[&str]| {
            let processes = lines.iter().zip(7..).map(|(line, id)| (id.to_string(), (*line).to_owned()));
            learner_of(&processes.collect::<Vec<_>>())
        };
        let train = "timeout 90 /bin/zerofleet train --runs /tmp/learner --run run";
        assert_eq!(of(&[train, "/bin/actor /tmp/run", "/bin/learner --config /tmp/run"]).as_deref(), Some("9"));
        assert_eq!(of(&[train, ""]), None);
    }

    #[test]
    fn lines_are_searched_in_the_logs_of_learners_only() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(logged(folder.path(), BY_GLOO), None);
        fs::write(folder.path().join("actor-0.log"), format!("{BY_GLOO}\n")).unwrap();
        assert_eq!(logged(folder.path(), BY_GLOO), None);
        fs::write(folder.path().join("learner-2.log"), format!("first\nINFO {BY_GLOO}: shared\nlast\n")).unwrap();
        assert_eq!(logged(folder.path(), BY_GLOO).unwrap(), format!("INFO {BY_GLOO}: shared"));
    }
}
