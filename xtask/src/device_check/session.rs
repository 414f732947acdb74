//! A check in progress: locations of programs and libraries, the rows so far, and the log.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::load;
use super::row::{self, Rows, Verdict};
use super::{Options, Wanted};
use crate::gpu::{self, Gpu};
use crate::{libtorch, workspace};

/// Program that computes on a device, which is an example of the crate network-torch.
pub(super) const DEVICE: &str = "device";
/// Time after the stop signal at which an overdue program is killed, in seconds.
const KILL_AFTER_SECONDS: u64 = 5;

/// The libraries with which the programs run.
#[derive(Debug, Deserialize)]
pub(super) struct Libtorch {
    /// Version of Python's torch, if it provides the libraries.
    pub(super) version: Option<String>,
    folders: Vec<PathBuf>,
}

/// Outcome of a finished program.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) output: String,
    /// Status and last line of standard error, if the program failed.
    pub(super) failure: Option<String>,
}

/// State of a check in progress.
#[derive(Debug)]
pub(super) struct Session {
    /// Directory of the programs.
    pub(super) binaries: PathBuf,
    pub(super) libtorch: Libtorch,
    /// The Python interpreter with torch, or the reason if there is none.
    pub(super) python: Result<OsString, String>,
    /// The GPU, or the reason for skipping steps that need one.
    pub(super) gpu: Result<Gpu, String>,
    pub(super) out: PathBuf,
    /// Report of the baseline.
    pub(super) against: Option<PathBuf>,
    /// Highest clock of the GPU after a step, in MHz.
    clock: Option<f64>,
    log: File,
    work: TempDir,
    pub(super) rows: Rows,
    deadline: Instant,
}

impl Session {
    /// Finds libtorch and the GPU, and creates the log.
    ///
    /// # Errors
    /// There is no libtorch, a GPU was requested and there is none, or a file cannot be created.
    pub(super) fn new(root: &Path, options: &Options, folder: &Path) -> Result<Self> {
        let gpu = match options.device {
            Wanted::Cpu => Err("the check was started with --device cpu".to_owned()),
            Wanted::Auto | Wanted::Cuda => gpu::list().map(|mut gpus| gpus.swap_remove(0)),
        };
        if let (Wanted::Cuda, Err(reason)) = (options.device, &gpu) {
            bail!("find a CUDA device: {reason}");
        }
        let name = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
        let located = locate(&name);
        let python = located.as_ref().map(|_| name).map_err(Clone::clone);
        let libtorch = match (&options.libtorch, located) {
            (Some(folder), _) => Libtorch { version: None, folders: vec![folder.clone()] },
            (None, Ok(libtorch)) => libtorch,
            (None, Err(reason)) => {
                let folder = workspace::libtorch(root).join("lib");
                if !folder.exists() {
                    bail!("no libtorch {}: {reason}; pass a directory with --libtorch", libtorch::VERSION);
                }
                Libtorch { version: None, folders: vec![folder] }
            }
        };
        let file = options.out.join("steps.log");
        Ok(Self {
            binaries: folder.join("bin").canonicalize().with_context(|| format!("find {}/bin", folder.display()))?,
            libtorch,
            python,
            gpu,
            out: options.out.clone(),
            against: options.against.clone(),
            clock: None,
            log: File::create(&file).with_context(|| format!("create {}", file.display()))?,
            work: TempDir::with_prefix("device-check-").context("create a temporary directory")?,
            rows: Rows::default(),
            deadline: Instant::now(),
        })
    }

    /// Runs a step; an error becomes a failed row.
    pub(super) fn run(&mut self, step: &'static str, limit: Duration, check: fn(&mut Self) -> Result<()>) {
        self.rows.start(step);
        self.deadline = Instant::now() + limit;
        self.log(&format!("\n==== {step}, at most {} s", limit.as_secs()));
        if let Err(error) = check(self) {
            let text = format!("{error:#}");
            self.log(&text);
            self.rows.claim("the step was completed", &text, false);
        }
        if self.has_gpu() {
            self.clock = [self.clock, load::clock_megahertz()].into_iter().flatten().reduce(f64::max);
        }
    }

    /// Describes the conditions of all numbers in one line.
    pub(super) fn card(&self) -> String {
        let peak = |step: &&str| self.rows.best(step, |name| name.starts_with("peak: "));
        match &self.gpu {
            Ok(gpu) => card(gpu, self.clock, ["sweep", "learner", "reference"].iter().find_map(peak)),
            Err(reason) => format!("the CPU ({reason})"),
        }
    }

    pub(super) fn verdict(&self, step: &str) -> Verdict {
        row::verdict_of(self.rows.all(), step)
    }

    /// Returns one line with the device and the location of libtorch.
    pub(super) fn describe(&self) -> String {
        let device = self.gpu.as_ref().map_or_else(|reason| format!("the CPU ({reason})"), |gpu| gpu.name.clone());
        format!("{device}, libtorch in {}", self.libtorch.folders[0].display())
    }

    /// Describes the machine for `check.json`.
    pub(super) fn machine(&self) -> Value {
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpu
            .lines()
            .find_map(|line| line.strip_prefix("model name"))
            .map(|text| text.trim_start_matches(['\t', ' ', ':']));
        json!({
            "cpu": model,
            "cores": workspace::cores(),
            "gpu": self.gpu.as_ref().ok(),
            "no_gpu": self.gpu.as_ref().err(),
            "card": self.card(),
            "libtorch": self.libtorch.folders,
            "torch_version": self.libtorch.version,
        })
    }

    pub(super) fn has_gpu(&self) -> bool {
        self.gpu.is_ok()
    }

    /// Returns the device name for configurations.
    pub(super) fn device(&self) -> &'static str {
        if self.has_gpu() { "cuda" } else { "cpu" }
    }

    /// Returns `full` on a GPU, and `small` for a trial on a CPU.
    pub(super) fn sized<T>(&self, full: T, small: T) -> T {
        if self.has_gpu() { full } else { small }
    }

    /// Returns the file of a library in the directories of libtorch.
    pub(super) fn library(&self, name: &str) -> Option<PathBuf> {
        self.libtorch.folders.iter().map(|folder| folder.join(name)).find(|file| file.exists())
    }

    /// Returns the path of a program in the archive.
    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.binaries.join(name)
    }

    /// Returns a directory for temporary files.
    pub(super) fn work(&self) -> &Path {
        self.work.path()
    }

    /// Returns the time left for the step.
    pub(super) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Adds a text to the log. A log that cannot be written does not fail the check.
    pub(super) fn log(&mut self, text: &str) {
        let _ = writeln!(self.log, "{text}");
    }

    /// Returns a command for a program, with libtorch in the library path, under `timeout` for the time left in the
    /// step.
    pub(super) fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        self.command_that_drains(program, arguments, KILL_AFTER_SECONDS)
    }

    /// Returns a command for a program that `timeout` kills only `seconds` after the signal.
    pub(super) fn command_that_drains(&self, program: &Path, arguments: &[&str], seconds: u64) -> Command {
        let mut command = Command::new("timeout");
        command.arg(format!("--kill-after={seconds}")).arg(self.left().as_secs().max(1).to_string());
        command.arg(program).args(arguments).stdin(Stdio::null());
        let earlier = std::env::var_os("LD_LIBRARY_PATH").filter(|path| !path.is_empty());
        let earlier: Vec<PathBuf> = earlier.iter().flat_map(|path| std::env::split_paths(path)).collect();
        if let Ok(path) = std::env::join_paths(self.libtorch.folders.iter().chain(&earlier)) {
            command.env("LD_LIBRARY_PATH", path);
        }
        command
    }

    /// Runs a command until it exits, and logs all output.
    ///
    /// # Errors
    /// The command cannot be started, or a file cannot be written.
    pub(super) fn wait(&mut self, mut command: Command) -> Result<Ended> {
        let line = workspace::line(&command);
        self.log(&format!("\n$ {line}"));
        // Files instead of pipes: a program that fills a pipe would wait for the reader.
        let [output, errors] = ["output", "errors"].map(|name| self.work().join(name));
        let create = |path: &Path| File::create(path).with_context(|| format!("create {}", path.display()));
        command.stdout(create(&output)?).stderr(create(&errors)?);
        let status = command.status().with_context(|| format!("start {line}"))?;
        let read = |path: &Path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let [output, errors] = [read(&output)?, read(&errors)?];
        self.log(&format!("{output}{errors}({status})"));
        let failure = match status.code() {
            Some(0) => None,
            // The exit statuses of `timeout` after the signal and after the kill.
            Some(124 | 137) => Some("did not end in time".to_owned()),
            _ => {
                let last = errors.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no error output");
                Some(format!("{status}: {last}"))
            }
        };
        Ok(Ended { output, failure })
    }

    /// Runs a program that prints rows, and adds the rows. Returns the reason if the program failed.
    ///
    /// # Errors
    /// The same errors as [`wait`](Self::wait), or a malformed row.
    pub(super) fn add_rows(&mut self, command: Command) -> Result<Option<String>> {
        let Ended { output, failure } = self.wait(command)?;
        self.rows.extend(&output).map_err(anyhow::Error::msg).context("read the rows of the program")?;
        Ok(failure)
    }

    /// Runs the current step of the program `device`; a failure adds one more row.
    ///
    /// # Errors
    /// The same errors as [`add_rows`](Self::add_rows).
    pub(super) fn device_step(&mut self, more: &[&str], environment: &[(&str, &str)]) -> Result<()> {
        let mut arguments = vec![self.rows.step(), "--device", self.device()];
        arguments.extend(self.sized(None, Some("--small")));
        arguments.extend(more);
        let mut command = self.command(&self.program(DEVICE), &arguments);
        command.envs(environment.iter().copied());
        if let Some(failure) = self.add_rows(command)? {
            self.rows.claim(&format!("device {} was completed", arguments.join(" ")), &failure, false);
        }
        Ok(())
    }
}

/// Describes a GPU, the highest clock after a step in MHz, and the measured peak in TFLOP/s.
fn card(gpu: &Gpu, clock: Option<f64>, peak: Option<f64>) -> String {
    let clock = clock.map_or("unknown".to_owned(), |clock| format!("{clock:.0} MHz"));
    let peak = peak.map_or("not measured".to_owned(), |peak| format!("{peak:.0} TFLOP/s"));
    format!("{gpu}, clock {clock}, peak of the bf16 product {peak}")
}

/// Finds the libraries of Python's torch.
fn locate(python: &OsString) -> Result<Libtorch, String> {
    let mut command = Command::new(python);
    let found = workspace::output(command.args(["-c", include_str!("locate.py")]));
    // The error repeats the script; the reason is the last part.
    let reason = |error: anyhow::Error| format!("{error:#}").rsplit("failed: ").next().unwrap_or_default().to_owned();
    let found = found.map_err(reason)?;
    serde_json::from_str(&found).map_err(|error| format!("Python printed `{}`: {error}", found.trim()))
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    //! Steps with a shell script in place of the program `device`.

    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Runs the step `abi` with a script as the program, and returns the session.
    fn checked(script: &str) -> Session {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("bin").join(DEVICE);
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let options = Options {
            pack: false,
            run: true,
            steps: Vec::new(),
            output: PathBuf::new(),
            out: folder.path().to_owned(),
            folder: None,
            device: Wanted::Cpu,
            libtorch: Some("/libraries".into()),
            against: None,
            budget_seconds: None,
        };
        let mut session = Session::new(folder.path(), &options, folder.path()).unwrap();
        session.run("abi", Duration::from_secs(60), |session| session.device_step(&[], &[]));
        let log = fs::read_to_string(folder.path().join("steps.log")).unwrap();
        assert!(log.contains("==== abi") && log.contains("device abi --device cpu --small"), "{log}");
        session
    }

    const ROW: &str = r#"{"step": "x", "name": "n", "value": "$*, $LD_LIBRARY_PATH", "unit": "", "bar": "holds",
        "kind": "correctness", "ok": true}"#;

    fn print_row() -> String {
        format!("cat <<END\nnote\n{}\nEND", ROW.replace('\n', " "))
    }

    #[test]
    fn a_program_runs_with_the_device_its_size_and_the_libraries_and_its_rows_are_those_of_the_step() {
        let session = checked(&print_row());
        let [row] = session.rows.all() else { panic!("{:?}", session.rows.all()) };
        let text = row.value.as_str().unwrap();
        assert!(text.starts_with("abi --device cpu --small, /libraries"), "{text}");
        assert_eq!((row.step.as_str(), session.verdict("abi")), ("abi", Verdict::Pass));
    }

    #[test]
    fn a_program_that_fails_keeps_its_rows_and_fails_the_step_with_its_last_error() {
        let session = checked(&(print_row() + "\necho first >&2; echo out of memory >&2; exit 3"));
        let [_, row] = session.rows.all() else { panic!("{:?}", session.rows.all()) };
        assert!(row.value.as_str().unwrap().ends_with(": out of memory"), "{row:?}");
        assert_eq!(session.verdict("abi"), Verdict::Fail);
    }

    #[test]
    fn a_program_that_prints_nothing_or_no_rows_fails_the_step() {
        assert_eq!(checked("exit 0").verdict("abi"), Verdict::Fail);
        let session = checked("echo '{\"step\": 1}'");
        assert_eq!((session.verdict("abi"), session.rows.all().len()), (Verdict::Fail, 1));
    }

    #[test]
    fn the_card_is_described_with_driver_clock_and_peak() {
        let gpu = gpu::parse("9.0, 0, 580.95, 143771, NVIDIA H200\n").remove(0);
        let text = "GPU 0: NVIDIA H200, driver 580.95, compute capability 9.0, memory 143771 MiB, clock 1980 MHz, \
                    peak of the bf16 product 671 TFLOP/s";
        assert_eq!(card(&gpu, Some(1980.0), Some(671.2)), text);
        assert!(card(&gpu, None, None).ends_with("clock unknown, peak of the bf16 product not measured"));
        assert_eq!(checked("exit 0").card(), "the CPU (the check was started with --device cpu)");
    }

    #[test]
    fn a_program_that_is_ended_by_its_limit_is_reported_so() {
        // Exit status of `timeout` after the signal.
        let session = checked("exit 124");
        assert!(
            session.rows.all()[0].value.as_str().unwrap().contains("did not end in time"),
            "{:?}",
            session.rows.all()
        );
    }
}
