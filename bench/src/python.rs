//! Virtual environments of Python, for libraries that benchmarks compare with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

/// Returns the Python interpreter of the virtual environment in `folder`, which is created if it does not exist.
///
/// # Errors
/// There is no Python, or it cannot make virtual environments.
pub(crate) fn environment(folder: &Path) -> anyhow::Result<PathBuf> {
    // Absolute, because scripts in the environment name the directory.
    let folder = std::path::absolute(folder).context("resolve the directory")?;
    let python = folder.join("bin").join("python");
    if !python.is_file() {
        let mut command = Command::new("python3");
        run(command.args(["-m", "venv"]).arg(&folder), "create a virtual environment")?;
    }
    Ok(python)
}

/// Returns the Python interpreter of the virtual environment in `folder` with the packages of a requirements file,
/// without dependencies. Installs the packages unless these versions are installed already; pip prints the progress to
/// standard error.
///
/// # Errors
/// The errors of [`environment`]; also a failure of pip.
pub(crate) fn environment_with(folder: &Path, requirements: &str) -> anyhow::Result<PathBuf> {
    let python = environment(folder)?;
    // Written last, so that an interrupted installation is repeated.
    let stamp = folder.join("requirements.txt");
    if fs::read_to_string(&stamp).is_ok_and(|text| text == requirements) {
        return Ok(python);
    }
    let write = |path: &Path| fs::write(path, requirements).with_context(|| format!("write {}", path.display()));
    let requested = folder.join("requested.txt");
    write(&requested)?;
    let mut command = Command::new(&python);
    command.args(["-m", "pip", "install", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check"]);
    // Wheels have hundreds of megabytes: none stays in the cache of pip or goes through a small `/tmp`.
    command.arg("--no-cache-dir").env("TMPDIR", folder).arg("--requirement").arg(&requested);
    run(command.stdout(std::io::stderr()), "install the packages")?;
    write(&stamp)?;
    Ok(python)
}

/// Runs a command until it exits; an error holds the last printed line.
///
/// # Errors
/// The command cannot be started, or fails.
pub(crate) fn run(command: &mut Command, what: &str) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| what.to_owned())?;
    if output.status.success() {
        return Ok(());
    }
    let printed = String::from_utf8_lossy(if output.stderr.is_empty() { &output.stdout } else { &output.stderr });
    let last = printed.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no output");
    bail!("{what}: {}", last.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_that_has_its_packages_is_used_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let python = folder.path().join("bin").join("python");
        fs::create_dir(folder.path().join("bin")).unwrap();
        fs::write(&python, "").unwrap();
        fs::write(folder.path().join("requirements.txt"), "torch==1").unwrap();
        assert_eq!(environment_with(folder.path(), "torch==1").unwrap(), python);
    }

    #[test]
    fn a_command_that_fails_is_reported_by_its_last_line() {
        let mut command = Command::new("sh");
        let error = run(command.args(["-c", "echo first; echo last >&2; exit 1"]), "try").unwrap_err();
        assert_eq!(error.to_string(), "try: last");
    }
}
