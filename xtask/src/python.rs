//! Downloads wheels with the Python of this machine. Only pip and the standard library are used, and only for
//! downloads.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::{files, workspace};

/// A Python interpreter that can run pip.
#[derive(Debug, Clone)]
pub struct Python {
    program: OsString,
}

impl Python {
    /// Returns the first of `$PYTHON`, `python3` and `python` that runs and has pip.
    ///
    /// # Errors
    /// There is no such program; the message explains how to install the missing part.
    pub fn find() -> Result<Self> {
        let mut without_pip = None;
        let candidates = std::env::var_os("PYTHON").into_iter().chain(["python3".into(), "python".into()]);
        for program in candidates {
            let succeeds = |arguments: &[&str]| workspace::output(Command::new(&program).args(arguments)).is_ok();
            if !succeeds(&["-c", "import sys; sys.exit(sys.version_info < (3, 8))"]) {
                continue;
            }
            if succeeds(&["-m", "pip", "--version"]) {
                return Ok(Self { program });
            }
            without_pip.get_or_insert(program);
        }
        let Some(program) = without_pip.map(|program| program.display().to_string()) else {
            bail!("no Python 3.8 or newer found as `python3` or `python`; install Python with pip, or set PYTHON")
        };
        bail!(
            "{program} has no pip; install it (Debian: `apt-get install python3-pip`; elsewhere: `{program} -m ensurepip`)"
        )
    }

    /// Downloads the wheel for a line of a requirements file into `folder`, for this platform; pip shows the progress.
    /// The line has the hashes of accepted wheels, which pip checks.
    ///
    /// # Errors
    /// pip fails; the error holds the last lines of output.
    pub fn download_wheel(&self, line: &str, folder: &Path) -> Result<()> {
        // Wheels have hundreds of megabytes: none stays in the cache of pip or goes through a small `/tmp`. With a
        // single Python version, there is one wheel per platform; the extracted files do not depend on the version.
        let options = ["--no-cache-dir", "--require-hashes", "--python-version", "3.12", "--dest"];
        self.pip("download", line, folder, |command| command.env("TMPDIR", folder).args(options).arg(folder))
    }

    /// Runs a task of pip with the packages of a requirements file. The file is written into `folder`, since pip reads
    /// hashes only from a file.
    fn pip(
        &self,
        task: &str,
        requirements: &str,
        folder: &Path,
        options: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Result<()> {
        files::create_folder(folder)?;
        let listed = folder.join("requested.txt");
        files::write(&listed, requirements)?;
        let mut command = Command::new(&self.program);
        command.args(["-m", "pip", task, "--no-deps", "--only-binary=:all:", "--disable-pip-version-check"]);
        run(options(&mut command).arg("--requirement").arg(listed), 6).with_context(|| {
            let all = names(requirements).collect::<Vec<_>>().join(", ");
            format!(
                "{task} {all} with pip (is the package index reachable, and does it have wheels for this platform?)"
            )
        })
    }

    /// Runs a short Python script with arguments.
    ///
    /// # Errors
    /// The script fails; the error holds the last lines of output.
    pub fn script(&self, script: &str, arguments: &[&OsStr]) -> Result<()> {
        run(Command::new(&self.program).arg("-c").arg(script).args(arguments), 3)
    }
}

/// Returns the directory `.tools/NAME` with the packages of a requirements file and the programs in them, without
/// dependencies. Installs the packages unless these versions are installed already. If a line has hashes, pip accepts
/// no other wheels.
///
/// # Errors
/// There is no Python, or pip fails; the error holds the last lines of output.
pub fn packages(root: &Path, name: &str, requirements: &str) -> Result<PathBuf> {
    let folder = root.join(".tools").join(name);
    // Written last, so that an interrupted installation is repeated.
    let stamp = folder.join("requirements.txt");
    if std::fs::read_to_string(&stamp).is_ok_and(|text| text == requirements) {
        return Ok(folder);
    }
    let python = Python::find()?;
    eprintln!("installing {} into {}", names(requirements).next().unwrap_or(name), folder.display());
    files::remove_folder(&folder)?;
    python.pip("install", requirements, &folder, |command| {
        command.args(["--quiet", "--upgrade", "--target"]).arg(&folder)
    })?;
    files::write(&stamp, requirements)?;
    Ok(folder)
}

/// Returns the packages of a requirements file, with versions.
pub(crate) fn names(requirements: &str) -> impl Iterator<Item = &str> {
    let words = requirements.lines().filter(|line| !line.starts_with(['#', ' '])).map(str::split_whitespace);
    words.filter_map(|mut words| words.next())
}

/// Runs a command that shows progress by itself; an error holds the last lines of standard error.
fn run(command: &mut Command, lines_max: usize) -> Result<()> {
    let output = command.stdin(Stdio::null()).stdout(Stdio::inherit()).output().context("start Python")?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        bail!("{}", lines[lines.len().saturating_sub(lines_max)..].join("\n"));
    }
    Ok(())
}
