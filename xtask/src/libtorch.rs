//! libtorch in `.libtorch`: fetched from the Python package index, which serves every machine we build on.
//!
//! A wheel is a zip; a few of its files are taken (see `wheels`). What was taken is written into a stamp, so that a
//! missing or damaged file is noticed and fetched again. Start with [`ensure`].

mod stamp;
mod wheels;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::python::Python;
use stamp::Stamp;
pub use wheels::Platform;

/// The version `tch` is bound to; another one does not link.
pub const VERSION: &str = "2.11.0";

/// How closely to look at what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// Sizes and dates; the bytes of a file whose date has changed.
    Stamp,
    /// Every byte.
    Bytes,
}

/// Where libtorch is to be found once [`ensure`] has returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In `.libtorch`, where binaries look by themselves.
    Ours,
    /// Where `LIBTORCH` points: binaries need the path of its libraries.
    Elsewhere(PathBuf),
}

/// Makes sure that libtorch is there and whole; silent when it is.
///
/// # Errors
/// One message that names what is missing (Python, pip, network, a wheel for this platform) and what to do.
pub fn ensure(root: &Path, check: Check) -> Result<Place> {
    if let Some(folder) = chosen_elsewhere(root) {
        accept(&folder)?;
        return Ok(Place::Elsewhere(folder));
    }
    let platform = Platform::here()?;
    let folder = root.join(".libtorch");
    let tools = root.join(".tools");
    fs::create_dir_all(&tools).with_context(|| format!("create {}", tools.display()))?;
    // Two chores at once fetch once: the second finds what the first brought.
    let lock = File::create(tools.join("libtorch.lock")).context("create .tools/libtorch.lock")?;
    lock.lock().context("lock .tools/libtorch.lock")?;

    match Stamp::check(&folder, platform, check) {
        Ok(()) => return Ok(Place::Ours),
        Err(reason) => eprintln!("libtorch {VERSION}: {reason:#}; fetching it"),
    }
    fetch(platform, &folder, &tools).with_context(|| {
        format!(
            "fetch libtorch {VERSION} (an existing install serves as well: set LIBTORCH to the folder that holds its \
             `include` and `lib`)"
        )
    })?;
    Ok(Place::Ours)
}

/// The folder a person named in `LIBTORCH`, if it is another than the one `.cargo/config.toml` names.
#[must_use]
pub fn chosen_elsewhere(root: &Path) -> Option<PathBuf> {
    let chosen = PathBuf::from(std::env::var_os("LIBTORCH")?);
    let same = |a: &Path, b: &Path| a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b);
    (!chosen.as_os_str().is_empty() && !same(&chosen, &root.join(".libtorch"))).then_some(chosen)
}

fn accept(folder: &Path) -> Result<()> {
    let library = format!("lib/{}torch_cpu{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    for part in ["include/torch", &library] {
        if !folder.join(part).exists() {
            bail!(
                "LIBTORCH is {}, which has no `{part}`: point it to a libtorch {VERSION}, or unset it to have one fetched",
                folder.display()
            );
        }
    }
    Ok(())
}

/// Downloads and unpacks beside `folder`, then puts the result in its place with a rename.
fn fetch(platform: Platform, folder: &Path, tools: &Path) -> Result<()> {
    let start = Instant::now();
    let python = Python::find()?;
    let work = Workspace::new(tools.join(format!("libtorch-{}", std::process::id())))?;
    let fresh = work.0.join("libtorch");
    for wheel in platform.wheels() {
        eprintln!("libtorch {VERSION}: downloading {} ({}, once)", wheel.requirement, wheel.size);
        let downloads = work.0.join(wheel.folder_name());
        python.download_wheel(wheel.requirement, &downloads)?;
        eprintln!("libtorch {VERSION}: unpacking {}", wheel.requirement);
        wheel.unpack(&python, &downloads, &fresh)?;
        fs::remove_dir_all(&downloads).with_context(|| format!("remove {}", downloads.display()))?;
    }
    platform.finish(&fresh)?;
    Stamp::write(&fresh, platform)?;

    let old = work.0.join("old");
    if folder.exists() {
        fs::rename(folder, &old).with_context(|| format!("move {} away", folder.display()))?;
    }
    fs::rename(&fresh, folder).with_context(|| format!("move the new libtorch to {}", folder.display()))?;
    eprintln!("libtorch {VERSION}: ready in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// A folder that goes away with its contents, whatever happens.
struct Workspace(PathBuf);

impl Workspace {
    fn new(folder: PathBuf) -> Result<Self> {
        fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("could not remove {}: {error}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests;
