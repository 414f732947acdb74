//! The commands and assertions of each step.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::load::{self, Sampler};
use super::row::{Kind, Rows};
use super::session::Session;
use crate::gpu::DRIVER_MIN;
use crate::{files, libtorch, workspace};

/// The lowest compute capability of the CUDA 13 kernels.
const CAPABILITY_MIN: f64 = 7.5;
/// Environment that turns TF32 off, so that float32 products are computed in float32.
const EXACT: [(&str, &str); 1] = [("NVIDIA_TF32_OVERRIDE", "0")];
/// Minimum evaluations/s of the network alone, as a multiple of PyTorch's best eager mode.
const REFERENCE_BAR: f64 = 1.1;
/// Minimum evaluations/s relative to a CUDA graph of fused kernels in PyTorch, by network and batch size.
const EVALUATION_BARS: [(&str, u32, Option<f64>); 6] = [
    ("6x64", 2048, Some(0.9)),
    ("10x128", 2048, Some(0.97)),
    ("20x256", 2048, Some(0.99)),
    ("6x64", 512, Some(0.75)),
    ("10x128", 512, Some(0.75)),
    ("20x256", 512, None),
];
/// Minimum training speed of 6x64 in batches of 256, relative to PyTorch in each mode.
const TRAINING_BARS: [(&str, Option<f64>); 3] = [("eager", None), ("compile", Some(1.2)), ("graph", Some(0.9))];
/// Minimum speed of self-play relative to the network alone, and minimum fraction of time in which a kernel runs.
const SELFPLAY_BAR: f64 = 0.85;
const BUSY_BAR: f64 = 0.9;
/// Maximum time from SIGINT to the exit of a run, in seconds.
const DRAIN_BAR_SECONDS: f64 = 10.0;
/// Time after SIGINT at which a run that has not exited is killed, in seconds. It exceeds the bar, so that a missed bar
/// has a measured value.
const DRAIN_KILL_SECONDS: u64 = 20;
/// Difference in device memory that is attributed to other programs, in MiB.
const MEMORY_BAR_MEBIBYTES: f64 = 64.0;
/// Maximum change of the device memory that a run holds, from minute 1 to minute 5, in MiB.
const MEMORY_GROWTH_BAR_MEBIBYTES: f64 = 256.0;
/// Returns true if a metrics reading shows that this part of the start is over.
type IsAfter = fn(&Value) -> bool;
/// Parts of the start of a run, each with the first reading after it.
const PARTS: [(&str, IsAfter); 3] = [
    ("reading of the metrics", |_| true),
    ("finished game", |reading| reading["games"].as_f64() > Some(0.0)),
    ("training step", |reading| reading["steps"].as_f64() > Some(0.0)),
];
/// Minimum accuracy of the trained version on the solved positions of Connect Four, with [`SIMULATIONS`].
const ACCURACY_BAR: f64 = 0.97;
const SIMULATIONS: &str = "64";

/// Reports the machine, and checks the libraries of every program.
pub(super) fn env(session: &mut Session) -> Result<()> {
    match session.gpu.clone() {
        Ok(gpu) => {
            session.rows.text("GPU", &gpu.to_string());
            let [driver, capability] = [gpu.driver_branch(), gpu.compute_capability].map(|of| of.unwrap_or(f64::NAN));
            session.rows.at_least("driver", (driver, ""), Kind::Correctness, DRIVER_MIN);
            session.rows.at_least("compute capability", (capability, ""), Kind::Correctness, CAPABILITY_MIN);
        }
        Err(reason) => session.rows.skipped("GPU and driver", &reason),
    }
    match session.libtorch.version.clone() {
        Some(version) => session.rows.claim("Python's torch", &version, version.starts_with(libtorch::VERSION)),
        None => session.rows.skipped("Python's torch", "not used by this check"),
    }
    let mut files = files::list(&session.binaries)?;
    match session.library("libtorch_cuda.so") {
        Some(library) => files.push(library),
        None if session.has_gpu() => {
            session.rows.claim("libtorch_cuda.so", "not found in any libtorch directory", false)
        }
        None => session.rows.skipped("libtorch_cuda.so", "this libtorch has no CUDA half"),
    }
    let mut missing = Vec::new();
    for file in &files {
        let ended = session.wait(session.command(Path::new("ldd"), &[&file.display().to_string()]))?;
        missing.extend(missing_libraries(&ended.output));
        missing.extend(ended.failure);
    }
    let found = if missing.is_empty() { "none".to_owned() } else { missing.join(", ") };
    let name = format!("missing libraries of {} programs and libraries", files.len());
    session.rows.claim(&name, &found, missing.is_empty());
    doctor(session)
}

/// Returns the libraries that `ldd` did not find.
fn missing_libraries(output: &str) -> Vec<String> {
    let missing = output.lines().filter(|line| line.contains("not found"));
    missing.map(|line| line.split_whitespace().next().unwrap_or(line).to_owned()).collect()
}

/// Runs `zerofleet doctor`, which exits with a failure if something would stop a run.
fn doctor(session: &mut Session) -> Result<()> {
    let ended = session.wait(session.command(&session.program("zerofleet"), &["doctor"]))?;
    let found = ended.failure.as_deref().unwrap_or("nothing would stop a run");
    session.rows.claim("zerofleet doctor", found, ended.failure.is_none());
    Ok(())
}

/// Runs the step of the same name of the program `device`.
pub(super) fn device(session: &mut Session) -> Result<()> {
    session.device_step(&[], &[])
}

/// Checks the device lookup, also with the GPU hidden.
pub(super) fn load(session: &mut Session) -> Result<()> {
    if session.has_gpu() {
        session.device_step(&[], &[])?;
    }
    // The last option wins: with the GPU hidden, the check expects the CPU.
    session.device_step(&["--device", "cpu"], &[("CUDA_VISIBLE_DEVICES", "")])
}

/// Compares the outputs of the device with those of the CPU, in each number format.
pub(super) fn numbers(session: &mut Session) -> Result<()> {
    session.device_step(&["--arithmetic", "f32"], &EXACT)?;
    if session.has_gpu() {
        session.device_step(&["--arithmetic", "tf32"], &[])?;
        session.device_step(&["--arithmetic", "f16"], &[])?;
    } else {
        session.rows.skipped("numbers in tf32 and f16", "a CPU has no tf32, and computes f16 slowly");
    }
    session.device_step(&["--arithmetic", "bf16"], &[])
}

/// Compares training steps with the CPU: the step `train` also checks refused steps and checkpoints, the step `layers`
/// trains and evaluates every optional layer and model.
pub(super) fn train(session: &mut Session) -> Result<()> {
    session.device_step(&[], &EXACT)
}

/// Measures the same networks in PyTorch, and the speed of zerofleet as a multiple of PyTorch's.
pub(super) fn reference(session: &mut Session) -> Result<()> {
    let python =
        match session.gpu.as_ref().map_err(|reason| format!("no GPU: {reason}")).and_then(|_| session.python.clone()) {
            Ok(python) => python,
            Err(reason) => {
                session.rows.skipped("all", &reason);
                return Ok(());
            }
        };
    let script = session.work().join("reference.py");
    fs::write(&script, include_str!("reference.py")).context("write reference.py")?;
    let seconds = session.left().as_secs().saturating_sub(30).to_string();
    let mut command = session.command(Path::new(&python), &[&script.display().to_string(), "--seconds", &seconds]);
    // Python has a separate search path for libraries.
    command.env_remove("LD_LIBRARY_PATH").env("TORCHINDUCTOR_CACHE_DIR", session.work().join("inductor"));
    // A failure of PyTorch or the compiler in it is no fault of this program.
    if let Some(failure) = session.add_rows(command)? {
        session.rows.skipped("reference.py was completed", &failure);
    }
    for tower in ["6x64", "10x128", "20x256"] {
        let Some(ours) = session.rows.best("sweep", |name| name.starts_with(&format!("{tower} bf16, batch"))) else {
            let name = format!("{tower} as a multiple of PyTorch");
            session.rows.skipped(&name, "the step sweep measured nothing to compare");
            continue;
        };
        for (mode, name) in [("eager", "folded"), ("fused", "fused"), ("graphs", "graph"), ("compile", "compile")] {
            let fits = |row: &str| [mode, name].iter().any(|name| row.starts_with(&format!("{tower} {name} ")));
            let Some(theirs) = session.rows.best("reference", fits) else { continue };
            let bar = ((tower, mode) == ("20x256", "eager")).then_some(REFERENCE_BAR);
            session.rows.speed(&format!("{tower} as a multiple of PyTorch's best {mode}"), (ours / theirs, "x"), bar);
        }
    }
    for (tower, batch, bar) in EVALUATION_BARS {
        let names = ["bf16", "graph of fused bf16"].map(|mode| format!("{tower} {mode}, batch {batch}"));
        multiple(&mut session.rows, ("sweep", &names), bar);
    }
    for tower in ["6x64", "10x128", "20x256"] {
        for (mode, bar) in TRAINING_BARS {
            let names = ["bf16", &format!("training {mode}")].map(|mode| format!("{tower} {mode}, batch 256"));
            multiple(&mut session.rows, ("learner", &names), bar.filter(|_| tower == "6x64"));
        }
    }
    Ok(())
}

/// Adds the speed of an earlier step as a multiple of the speed in PyTorch, from the rows with these names.
fn multiple(rows: &mut Rows, (step, [ours, theirs]): (&str, &[String; 2]), bar: Option<f64>) {
    let of = |step, name: &String| rows.best(step, |row| row == name);
    let name = format!("{ours}: multiple of {}", theirs.rsplit_once(',').map_or(theirs.as_str(), |(mode, _)| mode));
    match of(step, ours).zip(of("reference", theirs)) {
        Some((ours, theirs)) => rows.speed(&name, (ours / theirs, "x"), bar),
        None => rows.skipped(&name, &format!("{step} and reference did not both measure it")),
    }
}

/// Measures the speed of self-play relative to the network alone, and the load of the GPU during self-play.
pub(super) fn selfplay(session: &mut Session) -> Result<()> {
    let settings: &[[&str; 3]] =
        session.sized(&[["20", "256", "1024"], ["6", "64", "1024"], ["20", "256", "128"]], &[["2", "16", "32"]]);
    let seconds = session.sized(4.0, 1.0);
    let threads = session.sized(workspace::cores().min(16), workspace::cores()).to_string();
    for [blocks, channels, games] in settings {
        // Without cache and subtree reuse, every simulation is one evaluation.
        let duration = seconds.to_string();
        let mut arguments =
            vec!["selfplay", "--json", "--device", session.device(), "--blocks", blocks, "--channels", channels];
        arguments.extend(["--precision", "bf16", "--threads", &threads, "--games", games, "--seconds", &duration]);
        arguments.extend(["--whole-only", "--repeats", "1", "--cache-positions", "0", "--simulations", "64"]);
        arguments.extend(["--subtree-reuse", "false", "--symmetry-reuse", "false"]);
        arguments.extend(session.sized(None, Some(["--kernel", "libtorch"])).into_iter().flatten());
        let command = session.command(&session.program("zerofleet-bench"), &arguments);
        let sampler = session.has_gpu().then(|| Sampler::start(session.work())).transpose()?;
        let ended = session.wait(command)?;
        let load = sampler.map(|sampler| sampler.stop(seconds)).transpose()?.flatten();
        let name = format!("{blocks}x{channels}, {threads} threads of {games} games");
        let rate = ended.failure.is_none().then(|| report_value(&ended.output, "self-play", "evaluations/s")).flatten();
        let of = |what: &str| format!("{name}: {what}");
        let Some(rate) = rate else {
            let failure = ended.failure.unwrap_or_else(|| "the report contains no evaluations/s".to_owned());
            session.rows.claim(&of("bench selfplay"), &failure, false);
            continue;
        };
        session.rows.value(&name, rate, "evaluations/s");
        // The bars hold only for enough games to fill the batches.
        let has_bar = session.has_gpu() && *games != "128";
        let tower = format!("{blocks}x{channels} bf16, batch");
        let [alone, busy] = ["share of the network alone", "share of time in which a kernel runs"].map(&of);
        match session.rows.best("sweep", |name| name.starts_with(&tower)) {
            Some(raw) => session.rows.speed(&alone, (rate / raw, "share"), has_bar.then_some(SELFPLAY_BAR)),
            None => session.rows.skipped(&alone, "not measured by the earlier step sweep"),
        }
        match load {
            Some(load) => {
                session.rows.speed(&busy, (load.busy_share, "share"), has_bar.then_some(BUSY_BAR));
                session.rows.value(&of("device memory held"), load.memory_mebibytes, "MiB");
            }
            None => session.rows.skipped(&busy, "no GPU was sampled"),
        }
    }
    Ok(())
}

/// Measures training steps alone, and the share of time in which kernels of a learner run that never waits for games.
pub(super) fn learner(session: &mut Session) -> Result<()> {
    let name = "learner with a full replay server: share of time in which a kernel runs";
    session.device_step(&[], &[])?;
    if !session.has_gpu() {
        session.rows.skipped(name, "no GPU");
        return Ok(());
    }
    // The only process on the GPU, so that the load of the GPU is the load by the learner.
    let mut arguments = vec!["phases", "--full-replay", "--json", "--set", "learner.device=cuda"];
    arguments.extend(["--seconds", "10", "--warm-up-seconds", "8"]);
    let ended = session.wait(session.command(&session.program("zerofleet-bench"), &arguments))?;
    match ended.failure.as_deref().map_or_else(|| busy_share(&ended.output).ok_or("no load in the report"), Err) {
        Ok(share) => session.rows.speed(name, (share, "share"), Some(BUSY_BAR)),
        Err(reason) => session.rows.claim(name, reason, false),
    }
    Ok(())
}

/// Returns the load of the first accelerator, from a report of `bench phases --json`.
fn busy_share(output: &str) -> Option<f64> {
    let report: Value = serde_json::from_str(output).ok()?;
    let mut notes = report["notes"].as_array()?.iter().filter_map(Value::as_str);
    let note = notes.find(|note| note.starts_with("accelerator: "))?;
    let percent: f64 = note.split_once(", busy ")?.1.split_once(" % ")?.0.parse().ok()?;
    Some(percent / 100.0)
}

/// Returns the first value of `metric` in `section`, from a report of `zerofleet-bench --json`.
fn report_value(output: &str, section: &str, metric: &str) -> Option<f64> {
    let report: Value = serde_json::from_str(output).ok()?;
    let fits = |row: &&Value| row["section"] == section && row["metric"] == metric;
    report["rows"].as_array()?.iter().find(fits)?["value"].as_f64()
}

/// Checks the placement of parameters and self-play in a short training run.
pub(super) fn run(session: &mut Session) -> Result<()> {
    let device = session.device();
    let sets = [format!("learner.device={device}"), format!("actor.device={device}")];
    let mut arguments = vec!["phases", "--placement", "--json", "--set", &sets[0], "--set", &sets[1]];
    arguments.extend(session.sized(
        ["--game", "connect_four", "--seconds", "10", "--warm-up-seconds", "4"],
        ["--game", "tic_tac_toe", "--seconds", "3", "--warm-up-seconds", "1"],
    ));
    let ended = session.wait(session.command(&session.program("zerofleet-bench"), &arguments))?;
    if let Some(failure) = ended.failure {
        bail!("bench phases: {failure}");
    }
    let report: Value = serde_json::from_str(&ended.output).context("read the report of bench phases")?;
    let notes: Vec<&str> = report["notes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for what in ["parameters", "weights and activations of self-play"] {
        let note = notes.iter().find(|note| note.starts_with(what)).copied().unwrap_or("no note in the report");
        session.rows.claim(&format!("{what}: on {device}"), note, is_placed(note, device));
    }
    for row in report["rows"].as_array().into_iter().flatten().filter(|row| row["section"] == "rates") {
        let run = row["dimensions"]["run"].as_str().unwrap_or("?");
        if let (Some(metric), Some(value)) = (row["metric"].as_str(), row["value"].as_f64()) {
            session.rows.value(&format!("{run}: {metric}"), value, "");
        }
    }
    Ok(())
}

/// Returns true if a note of `bench phases --placement` names `device`, or an index of it such as `cuda:1`.
fn is_placed(note: &str, device: &str) -> bool {
    let found = note.split_once("): on ").and_then(|(_, rest)| rest.split([',', ' ']).next());
    found.is_some_and(|found| found == device || found.strip_prefix(device).is_some_and(|rest| rest.starts_with(':')))
}

/// Stops a training run with SIGINT: the run must exit in time, and leave no process and no device memory.
pub(super) fn drain(session: &mut Session) -> Result<()> {
    let before = load::memory_mebibytes();
    let runs = session.work().join("drain");
    let game = session.sized("connect_four", "tic_tac_toe");
    let command = training(session, &runs, game, "10", session.sized("auto", "cpu"));
    let mut child = start(command, session.work())?;
    let metrics = runs.join("run").join("metrics.jsonl");
    // The time left after the wait is for the shutdown of the run.
    let wait = session.left().saturating_sub(Duration::from_secs(DRAIN_KILL_SECONDS + 5));
    let (begun, mut parts) = (Instant::now(), PARTS.iter().peekable());
    while parts.peek().is_some() && begun.elapsed() < wait && child.try_wait().context("watch the run")?.is_none() {
        thread::sleep(Duration::from_millis(200));
        let readings = readings(&metrics);
        while let Some((part, _)) = parts.next_if(|(_, is_reached)| readings.iter().any(is_reached)) {
            session.rows.value(&format!("time to the first {part}"), begun.elapsed().as_secs_f64(), "s");
        }
    }
    let trained = parts.peek().is_none();
    if let Some(status) = child.try_wait().context("watch the run")? {
        bail!("the run ended before SIGINT: {status}: {}", last_line(session.work()));
    }
    let signalled = Instant::now();
    // `timeout` forwards the signal to the run.
    workspace::output(Command::new("kill").args(["-INT", &child.id().to_string()])).context("send SIGINT")?;
    let status = loop {
        if let Some(status) = child.try_wait().context("wait for the run")? {
            break status;
        }
        if signalled.elapsed() > Duration::from_secs(DRAIN_KILL_SECONDS + 5) {
            // The processes of the run stop with it.
            child.kill().context("kill the run")?;
            bail!("the run did not end after SIGINT: {}", last_line(session.work()));
        }
        thread::sleep(Duration::from_millis(50));
    };
    let seconds = signalled.elapsed().as_secs_f64();
    let log = fs::read_to_string(session.work().join("run.log")).unwrap_or_default();
    session.log(&format!("zerofleet train, stopped by SIGINT:\n{log}({status})"));
    let found = if trained { "yes".to_owned() } else { last_line(session.work()) };
    session.rows.claim("it had trained before SIGINT", &found, trained);
    placed(session, &readings(&metrics));
    session.rows.claim("its exit status", &status.to_string(), status.success());
    session.rows.at_most("time from SIGINT to its end", (seconds, "s"), Kind::Correctness, DRAIN_BAR_SECONDS);
    let left = processes_with(&runs.display().to_string());
    let lines: Vec<&str> = left.iter().map(|(_, line)| line.as_str()).collect();
    let found = if left.is_empty() { "none".to_owned() } else { lines.join("; ") };
    session.rows.claim("processes left", &found, left.is_empty());
    match before.filter(|_| session.has_gpu()) {
        Some(before) => {
            let after = load::memory_mebibytes().unwrap_or(f64::NAN);
            let left = (after - before, "MiB");
            session.rows.at_most("device memory left", left, Kind::Correctness, MEMORY_BAR_MEBIBYTES);
        }
        None => session.rows.skipped("device memory left", "no GPU"),
    }
    Ok(())
}

/// Adds the device of learner and actors, which `auto` must have placed on the GPU, and the most memory of a device.
pub(super) fn placed(session: &mut Session, readings: &[Value]) {
    let expected = session.device();
    for role in ["learner", "actor"] {
        let engine = readings.iter().rev().find_map(|reading| reading["engines"][role].as_str()).unwrap_or("unknown");
        session.rows.claim(&format!("{role}: on {expected}"), engine, engine.contains(expected));
    }
    if let Some(mebibytes) = readings.iter().filter_map(held_mebibytes).reduce(f64::max) {
        session.rows.value("most device memory of the run", mebibytes, "MiB");
    }
}

/// Returns the memory that a run holds on the device with the most, in MiB.
fn held_mebibytes(reading: &Value) -> Option<f64> {
    let held = |device: &Value| device["memory_held_bytes"].as_f64().or(device["memory_used_bytes"].as_f64());
    let most = reading["devices"].as_array()?.iter().filter_map(held).reduce(f64::max)?;
    Some(most / f64::from(1 << 20))
}

/// Returns the change of the device memory of a run from minute 1 to minute 5, in MiB.
fn memory_growth(readings: &[Value]) -> Option<f64> {
    let held_at = |seconds: f64| {
        let is_reached = |reading: &&Value| reading["elapsed_seconds"].as_f64() >= Some(seconds);
        readings.iter().find(is_reached).and_then(held_mebibytes)
    };
    Some(held_at(300.0)? - held_at(60.0)?)
}

/// Returns a command that trains on `device`, with the run `run` in the directory `runs`. With `auto` the processes are
/// placed as in any run.
pub(super) fn training(session: &Session, runs: &Path, game: &str, minutes: &str, device: &str) -> Command {
    let runs = runs.display().to_string();
    let roles: &[&str] = if device == "auto" { &["learner", "actor"] } else { &["learner", "actor", "arena"] };
    let sets: Vec<String> = roles.iter().map(|role| format!("{role}.device={device}")).collect();
    let mut arguments =
        vec!["train", "--no-console", "--runs", &runs, "--run", "run", "--game", game, "--minutes", minutes];
    arguments.extend(sets.iter().flat_map(|set| ["--set", set]));
    session.command_that_drains(&session.program("zerofleet"), &arguments, DRAIN_KILL_SECONDS)
}

/// Starts a run with output to the file `run.log`.
pub(super) fn start(mut command: Command, work: &Path) -> Result<std::process::Child> {
    let log = fs::File::create(work.join("run.log")).context("create run.log")?;
    command.stdout(log.try_clone().context("use run.log for both output and errors")?).stderr(log);
    command.spawn().context("start zerofleet train")
}

fn last_line(work: &Path) -> String {
    let log = fs::read_to_string(work.join("run.log")).unwrap_or_default();
    log.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no output").to_owned()
}

/// Returns the recorded metrics of a run, without an incomplete last line.
pub(super) fn readings(metrics: &Path) -> Vec<Value> {
    let text = fs::read_to_string(metrics).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Returns id and command line of each process with `text` in the command line.
pub(super) fn processes_with(text: &str) -> Vec<(String, String)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let process = |entry: fs::DirEntry| {
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(text).then(|| (entry.file_name().to_string_lossy().into_owned(), line))
    };
    entries.filter_map(process).collect()
}

/// Trains Connect Four on the device for as long as the step permits.
pub(super) fn connect4(session: &mut Session) -> Result<()> {
    connect_four(session, session.sized("auto", "cpu"), "connect4")
}

/// Trains Connect Four for the same time on the CPU of the machine.
pub(super) fn connect4_cpu(session: &mut Session) -> Result<()> {
    connect_four(session, "cpu", "connect4-cpu")
}

fn connect_four(session: &mut Session, device: &str, name: &str) -> Result<()> {
    let minutes = session.sized("7.5", "0.7");
    let runs = session.work().join(name);
    let command = training(session, &runs, "connect_four", minutes, device);
    let ended = session.wait(command)?;
    let run = runs.join("run");
    for (file, kept) in [("metrics.jsonl", "jsonl"), ("picture.svg", "svg")] {
        // A run that failed early has no picture.
        let _ = fs::copy(run.join(file), session.out.join(format!("{name}.{kept}")));
    }
    let readings = readings(&run.join("metrics.jsonl"));
    let Some(last) = readings.last() else {
        bail!("the run recorded no metrics: {}", ended.failure.unwrap_or_default());
    };
    session.rows.claim("the run ended", ended.failure.as_deref().unwrap_or("as planned"), ended.failure.is_none());
    for metric in ["steps", "games", "evaluations"] {
        session.rows.value(metric, last[metric].as_f64().unwrap_or(f64::NAN), "");
    }
    for (role, engine) in last["engines"].as_object().into_iter().flatten() {
        session.rows.text(&format!("engine of {role}"), engine.as_str().unwrap_or("?"));
    }
    if device == "auto" {
        placed(session, &readings);
    }
    let name = "change of device memory from minute 1 to minute 5";
    match memory_growth(&readings) {
        Some(growth) => {
            let bar = MEMORY_GROWTH_BAR_MEBIBYTES;
            session.rows.at_most(name, (growth.abs(), "MiB"), Kind::Correctness, bar);
        }
        None => session.rows.skipped(name, "no device memory is recorded at both times"),
    }
    let curve = curve(&readings);
    for minute in 1..=8 {
        let accuracy = curve.iter().rfind(|(seconds, _)| *seconds <= 60.0 * f64::from(minute) + 5.0);
        if let Some((seconds, accuracy)) = accuracy.filter(|(seconds, _)| *seconds > 60.0 * f64::from(minute - 1)) {
            session.rows.value(&format!("accuracy with search at {seconds:.0} s"), *accuracy, "share");
        }
    }
    if let Some((seconds, _)) = curve.iter().find(|(_, accuracy)| *accuracy >= ACCURACY_BAR) {
        session.rows.value("time to 97 % of the solved positions, with search", *seconds, "s");
    }
    let runs = runs.display().to_string();
    let mut arguments = vec!["eval", "--run", "run", "--runs", &runs, "--device", device, "--json"];
    arguments.extend(["--simulations", SIMULATIONS]);
    let ended = session.wait(session.command(&session.program("zerofleet"), &arguments))?;
    if let Some(failure) = ended.failure {
        bail!("zerofleet eval: {failure}");
    }
    let [positions, accuracy] = evaluated(&ended.output).context("read the report of zerofleet eval")?;
    let name = format!("accuracy of the trained version on {positions} positions, {SIMULATIONS} simulations");
    if device == "auto" {
        session.rows.at_least(&name, (accuracy, "share"), Kind::Correctness, ACCURACY_BAR);
    } else {
        session.rows.value(&name, accuracy, "share");
    }
    Ok(())
}

/// Returns position count and accuracy with search, from a report of `zerofleet eval --json`.
fn evaluated(output: &str) -> Option<[f64; 2]> {
    let report: Value = serde_json::from_str(output).ok()?;
    let overall = &report["with_search"]["overall"];
    Some([overall["positions"].as_f64()?, overall["outcome_preserving_share"].as_f64()?])
}

/// Returns the learning curve: pairs of seconds and the fraction of solved positions in which a search preserves the
/// outcome.
fn curve(readings: &[Value]) -> Vec<(f64, f64)> {
    let point = |reading: &Value| {
        Some((reading["elapsed_seconds"].as_f64()?, reading["accuracy"]["search/preserving/overall"].as_f64()?))
    };
    readings.iter().filter_map(point).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::row::Verdict;
    use super::*;

    #[test]
    fn libraries_that_the_loader_does_not_find_are_listed() {
        let output =
            "\tlibtorch_cuda.so => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x1)\n\tlibnccl.so.2 => not found\n";
        assert_eq!(missing_libraries(output), ["libtorch_cuda.so", "libnccl.so.2"]);
    }

    #[test]
    fn the_value_of_a_report_is_that_of_section_and_metric() {
        let report = json!({"rows": [
            {"section": "evaluators alone", "metric": "evaluations/s", "value": 9.0},
            {"section": "self-play", "metric": "positions/s", "value": 8.0},
            {"section": "self-play", "metric": "evaluations/s", "value": 7.0},
        ]});
        assert_eq!(report_value(&report.to_string(), "self-play", "evaluations/s"), Some(7.0));
        assert_eq!(report_value("no report", "self-play", "evaluations/s"), None);
    }

    #[test]
    fn a_multiple_is_of_the_rows_with_exactly_these_names() {
        let names = ["6x64 bf16, batch 256", "6x64 training graph, batch 256"].map(str::to_owned);
        let mut rows = Rows::default();
        rows.start("learner");
        rows.value(&names[0], 90.0, "positions/s");
        rows.value("6x64 bf16, batch 2560", 900.0, "positions/s");
        rows.start("reference");
        multiple(&mut rows, ("learner", &names), Some(0.9));
        rows.value(&names[1], 120.0, "positions/s");
        multiple(&mut rows, ("learner", &names), Some(0.9));
        let [.., skipped, _, measured] = rows.all() else { panic!("{rows:?}") };
        assert_eq!(skipped.verdict(), Verdict::Skip);
        assert_eq!((measured.verdict(), measured.value.as_f64()), (Verdict::Warn, Some(0.75)));
        assert_eq!(measured.name, "6x64 bf16, batch 256: multiple of 6x64 training graph");
    }

    #[test]
    fn the_load_of_the_accelerator_is_read_from_a_note() {
        let share = |note: &str| busy_share(&json!({"notes": ["first", note]}).to_string());
        assert_eq!(share("accelerator: NVIDIA H200, busy 92.5 % of the time, 3.00 GB in use"), Some(0.925));
        assert_eq!(share("accelerator: NVIDIA H200, busy – of the time, unknown memory in use"), None);
        assert_eq!([share("accelerator: none in use"), busy_share("no report")], [None; 2]);
    }

    #[test]
    fn data_is_placed_on_the_device_that_the_note_names() {
        let note = |device: &str| format!("parameters, activations (learner): on {device}, computed by libtorch, bf16");
        assert!(
            is_placed(&note("cuda"), "cuda") && is_placed(&note("cuda:1"), "cuda") && is_placed(&note("cpu"), "cpu")
        );
        assert!(!is_placed(&note("cpu"), "cuda") && !is_placed(&note("unknown"), "cuda"));
        assert!(!is_placed("no note in the report", "cuda"));
    }

    #[test]
    fn the_accuracy_of_a_report_is_the_one_with_search_on_all_positions() {
        let tally = |share: f64| json!({"overall": {"positions": 1260, "outcome_preserving_share": share}});
        let report = json!({"with_search": tally(0.98), "without_search": tally(0.9)});
        assert_eq!(evaluated(&report.to_string()), Some([1260.0, 0.98]));
        assert_eq!(evaluated(&json!({"with_search": null, "without_search": tally(0.9)}).to_string()), None);
    }

    #[test]
    fn the_growth_of_memory_is_between_the_first_readings_of_minute_1_and_minute_5() {
        let reading = |seconds: f64, mebibytes: f64| {
            let device = json!({"memory_held_bytes": null, "memory_used_bytes": mebibytes * 1_048_576.0});
            json!({"elapsed_seconds": seconds, "devices": [device, {"device": "cpu"}]})
        };
        let readings = [reading(5.0, 10.0), reading(61.0, 500.0), reading(299.0, 900.0), reading(301.0, 400.0)];
        assert_eq!(memory_growth(&readings), Some(-100.0));
        assert_eq!(memory_growth(&readings[..3]), None, "the run was too short");
        assert_eq!(memory_growth(&[json!({"elapsed_seconds": 400.0})]), None);
    }

    #[test]
    fn the_curve_has_a_point_for_each_reading_with_an_accuracy() {
        let readings = [
            json!({"elapsed_seconds": 5.0, "accuracy": {}}),
            json!({"elapsed_seconds": 60.0, "accuracy": {"search/preserving/overall": 0.9}}),
            json!({"elapsed_seconds": 65.0, "accuracy": {"raw/preserving/overall": 0.8}}),
        ];
        assert_eq!(curve(&readings), [(60.0, 0.9)]);
    }
}
