//! Downloads wheels with the Python of this machine: only its pip and standard library are used, and only while
//! fetching.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};

use crate::workspace;

/// A Python that can run pip.
#[derive(Debug, Clone)]
pub struct Python {
    program: OsString,
}

impl Python {
    /// The first of `$PYTHON`, `python3` and `python` that runs and has pip.
    ///
    /// # Errors
    /// One message with the missing program and the way to install it.
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
        match without_pip {
            Some(program) => bail!(
                "{} has no pip: install it (Debian: `apt-get install python3-pip`; elsewhere: `{} -m ensurepip`)",
                program.display(),
                program.display()
            ),
            None => {
                bail!(
                    "no Python 3.8 or newer was found as `python3` or `python`: install one with pip, or name it in PYTHON"
                )
            }
        }
    }

    /// Downloads the wheel of `requirement` for this platform into `folder`; pip shows its progress.
    ///
    /// # Errors
    /// The last output of pip, if it fails for this Python and for Python 3.12 as well.
    pub fn download_wheel(&self, requirement: &str, folder: &Path) -> Result<()> {
        // The wheels may be for another version of Python: none of the files that we extract depend on it.
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        let download = |more: &[&str]| {
            let mut command = self.pip("download");
            // Wheels have hundreds of megabytes: none stays in pip's cache, and none goes through a small `/tmp`.
            command.arg("--no-cache-dir").env("TMPDIR", folder);
            run(command.args(more).arg("--dest").arg(folder).arg(requirement), 6)
        };
        let Err(complaint) = download(&[]) else { return Ok(()) };
        if !complaint.to_string().contains("No matching distribution") {
            bail!("pip could not download {requirement} (is the package index reachable?):\n{complaint:#}");
        }
        download(&["--python-version", "3.12"]).map_err(|complaint| {
            anyhow!(
                "pip found no wheel of {requirement}: the package index cannot be reached, or has none for this \
                 platform:\n{complaint:#}"
            )
        })
    }

    fn pip(&self, task: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["-m", "pip", task, "--no-deps", "--only-binary=:all:", "--disable-pip-version-check"]);
        command
    }

    /// Runs a script of a few lines with arguments.
    ///
    /// # Errors
    /// The last output of the script.
    pub fn script(&self, script: &str, arguments: &[&OsStr]) -> Result<()> {
        run(Command::new(&self.program).arg("-c").arg(script).args(arguments), 3)
    }
}

/// Returns the folder `.tools/NAME` with these packages, one per line, and their programs, but not their dependencies;
/// installs them unless these versions are installed already.
///
/// # Errors
/// No Python is found, or pip fails; the error holds its last output.
pub fn packages(root: &Path, name: &str, requirements: &str) -> Result<PathBuf> {
    let folder = root.join(".tools").join(name);
    // Written last, so that an interrupted installation is repeated.
    let stamp = folder.join("requirements.txt");
    if fs::read_to_string(&stamp).is_ok_and(|text| text == requirements) {
        return Ok(folder);
    }
    let python = Python::find()?;
    let names: Vec<&str> = requirements.lines().collect();
    eprintln!("installing {} into {}", names[0], folder.display());
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let mut command = python.pip("install");
    run(command.args(["--quiet", "--upgrade", "--target"]).arg(&folder).args(&names), 6).map_err(|complaint| {
        let all = names.join(", ");
        anyhow!("pip could not install {all} (is the package index reachable?):\n{complaint:#}")
    })?;
    fs::write(&stamp, requirements).with_context(|| format!("write {}", stamp.display()))?;
    Ok(folder)
}

/// Runs a command that shows its own progress; fails with the last lines of its errors.
fn run(command: &mut Command, lines_max: usize) -> Result<()> {
    let output = command.stdin(Stdio::null()).stdout(Stdio::inherit()).output().context("start Python")?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        bail!("{}", lines[lines.len().saturating_sub(lines_max)..].join("\n"));
    }
    Ok(())
}
