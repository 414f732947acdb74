//! Python with the packages of a requirements file, for third-party clients.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::process::run;

/// Oldest Python version that the packages of most requirements support.
const OLDEST: (u8, u8) = (3, 10);
/// Name of the file that is written after an installation, so that an incomplete installation is repeated.
const STAMP: &str = "requirements.installed";

/// A Python interpreter and a directory of packages.
#[derive(Debug)]
pub struct Python {
    program: OsString,
    packages: PathBuf,
}

impl Python {
    /// Finds the first of `$PYTHON`, `python3` and `python` that is 3.10 or newer and has pip, and installs
    /// `requirements` (a file) below `folder`, unless they are installed already. Returns `None` if there is no such
    /// Python.
    ///
    /// # Errors
    /// The packages cannot be installed; the error contains the output of pip.
    pub fn with(requirements: &Path, folder: &Path) -> anyhow::Result<Option<Self>> {
        Self::with_version(requirements, folder, OLDEST)
    }

    /// As [`with`](Self::with), with a Python of version `oldest` or newer.
    ///
    /// # Errors
    /// The same as for [`with`](Self::with).
    pub fn with_version(requirements: &Path, folder: &Path, oldest: (u8, u8)) -> anyhow::Result<Option<Self>> {
        Self::install(requirements, folder, oldest, &[])
    }

    /// As [`with`](Self::with), but installs exactly the packages that `requirements` lists, without dependencies.
    ///
    /// # Errors
    /// The same as for [`with`](Self::with).
    pub fn with_exactly(requirements: &Path, folder: &Path) -> anyhow::Result<Option<Self>> {
        Self::install(requirements, folder, OLDEST, &["--no-deps"])
    }

    fn install(requirements: &Path, folder: &Path, oldest: (u8, u8), options: &[&str]) -> anyhow::Result<Option<Self>> {
        let Some(program) = find(oldest) else { return Ok(None) };
        let wanted = read_whole(requirements)?;
        // Packages of one Python version do not work with another.
        let mut version = Command::new(&program);
        version.args(["-c", "import sys; print(sys.implementation.cache_tag, end='')"]);
        let version = run(&mut version)?;
        let packages = folder.join(format!("python-{version}"));
        std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        // Concurrent tests wait here, and then find the installed packages.
        let lock = File::create(packages.with_extension("lock")).context("make a lock of the packages")?;
        lock.lock().context("lock the packages")?;
        let stamp = packages.join(STAMP);
        if !std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
            install(&program, requirements, &packages, options)?;
            std::fs::write(stamp, wanted).context("record the installed packages")?;
        }
        Ok(Some(Self { program, packages }))
    }

    /// Returns the interpreter.
    #[must_use]
    pub fn program(&self) -> &Path {
        Path::new(&self.program)
    }

    /// Returns the directory of the installed packages.
    #[must_use]
    pub fn packages(&self) -> &Path {
        &self.packages
    }

    /// Runs a script until it exits, with the modules in `modules` in addition to the packages. Returns the output.
    ///
    /// # Errors
    /// The script cannot be started or fails; the error contains the output.
    pub fn run(&self, script: &Path, arguments: &[&str], modules: &Path) -> anyhow::Result<String> {
        let path = std::env::join_paths([modules, &self.packages]).context("join the folders of modules")?;
        let mut command = Command::new(&self.program);
        // `-s` excludes the user's own packages, and `-B` writes no bytecode next to the sources.
        command.arg("-sB").arg(script).args(arguments).env("PYTHONPATH", path);
        run(&mut command)
    }
}

fn find((major, minor): (u8, u8)) -> Option<OsString> {
    let is_new_enough = format!("import sys, pip; sys.exit(sys.version_info < ({major}, {minor}))");
    let candidates = std::env::var_os("PYTHON").into_iter().chain(["python3".into(), "python".into()]);
    candidates.into_iter().find(|program| run(Command::new(program).args(["-c", &is_new_enough])).is_ok())
}

fn install(program: &OsString, requirements: &Path, packages: &Path, options: &[&str]) -> anyhow::Result<()> {
    match std::fs::remove_dir_all(packages) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).context("remove the old packages")?,
        _ => {}
    }
    let mut command = Command::new(program);
    command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:", "--target"]);
    command.arg(packages).arg("--requirement").arg(requirements).args(options);
    run(&mut command).with_context(|| format!("install the requirements of {}", requirements.display()))?;
    Ok(())
}

/// Returns the text of a requirements file and, recursively, of all included files.
fn read_whole(requirements: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(requirements).with_context(|| format!("read {}", requirements.display()))?;
    let folder = requirements.parent().context("requirements have a folder")?;
    let mut whole = String::new();
    for line in text.lines() {
        match line.strip_prefix("-r ") {
            Some(other) => whole.push_str(&read_whole(&folder.join(other.trim()))?),
            None => whole.extend([line, "\n"]),
        }
    }
    Ok(whole)
}
