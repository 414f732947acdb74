//! Reads the table `wheels.json` of the wheels that each platform needs, and the files to extract.

use std::collections::BTreeSet;
use std::env::consts::{ARCH, OS};
use std::ffi::OsStr;
use std::path::Path;
use std::sync::LazyLock;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::VERSION;
use crate::files;
use crate::python::Python;

/// A platform for which libtorch can be fetched.
#[derive(Debug, Deserialize)]
pub struct Platform {
    /// Name in the stamp.
    pub(super) name: &'static str,
    /// Operating system and processor, named as in the standard library.
    os: &'static str,
    arch: &'static str,
    /// Libraries that every program needs to link or start.
    pub(super) libraries: Vec<&'static str>,
    torch: Wheel,
    /// Upper bound on the size of the extracted files, in percent of the wheel sizes.
    pub(super) installed_percent: u64,
    /// Lowest compute capability that `libtorch_cuda.so` was compiled for; `None` without a CUDA half.
    pub(super) capability_min: Option<f64>,
}

/// A wheel, and the files to extract from it.
#[derive(Debug, Deserialize)]
pub(super) struct Wheel {
    /// Requirement to pass to pip.
    pub(super) requirement: &'static str,
    /// Size in MB.
    download_mb: u64,
    /// Size in MB for ARM, if it differs.
    arm_mb: Option<u64>,
    /// Directory in the wheel that becomes `.libtorch`.
    root: &'static str,
    /// Files that every program needs, as prefixes of the names below `root`.
    #[serde(default)]
    cpu: Vec<&'static str>,
    /// Libraries of the CUDA half, as complete names below `lib`.
    #[serde(default)]
    cuda: Vec<&'static str>,
}

/// A library, and the names that it opens at run time.
type Opened = (&'static str, Vec<&'static str>);

/// Contents of `wheels.json`; keys that start with `why` are comments.
#[derive(Debug, Deserialize)]
struct Table {
    platforms: Vec<Platform>,
    nvidia: Vec<Wheel>,
    #[serde(borrow)]
    opened: Vec<(&'static str, Vec<&'static str>)>,
}

static TABLE: LazyLock<Table> =
    LazyLock::new(|| serde_json::from_str(include_str!("wheels.json")).expect("wheels.json describes wheels"));

/// Hashes of the wheels, as a requirements file.
pub(super) const HASHES: &str = include_str!("requirements.txt");

/// Returns the names that libraries of the CUDA half open at run time.
pub(super) fn opened() -> &'static [Opened] {
    &TABLE.opened
}

/// Returns the wheels for Linux on x86-64.
fn linux_wheels() -> impl Iterator<Item = &'static Wheel> {
    TABLE.platforms[0].wheels()
}

/// Returns true if a file in `lib` belongs to the CUDA half.
#[must_use]
pub fn is_cuda(name: &str) -> bool {
    TABLE.platforms.iter().flat_map(Platform::cuda_libraries).any(|library| library == name)
}

/// Returns the packages with files for the CPU half for Linux.
pub fn cpu_packages() -> impl Iterator<Item = &'static str> {
    linux_wheels().filter(|wheel| !wheel.cpu.is_empty()).map(Wheel::package)
}

/// Returns the additional packages that the CUDA half needs.
pub fn cuda_packages() -> impl Iterator<Item = &'static str> {
    linux_wheels().filter(|wheel| wheel.cpu.is_empty()).map(Wheel::package)
}

impl Platform {
    /// Returns the platform on which this program runs.
    ///
    /// # Errors
    /// There are no wheels for this platform.
    pub fn here() -> Result<&'static Self> {
        let here = TABLE.platforms.iter().find(|platform| (platform.os, platform.arch) == (OS, ARCH));
        here.with_context(|| {
            format!(
                "no libtorch {VERSION} is available for {OS} on {ARCH}; set LIBTORCH to the directory of an existing \
                 install"
            )
        })
    }

    /// Returns the platform with this name.
    #[cfg(test)]
    pub(super) fn named(name: &str) -> &'static Self {
        TABLE.platforms.iter().find(|platform| platform.name == name).expect("a name in wheels.json")
    }

    /// Returns the names of the libraries in the CUDA half.
    pub(super) fn cuda_libraries(&'static self) -> impl Iterator<Item = &'static str> {
        self.wheels().flat_map(|wheel| wheel.cuda.iter().copied())
    }

    pub(super) fn wheels(&'static self) -> impl Iterator<Item = &'static Wheel> {
        let nvidia: &'static [Wheel] = if self.os == "linux" { &TABLE.nvidia } else { &[] };
        std::iter::once(&self.torch).chain(nvidia)
    }
}

impl Wheel {
    pub(super) fn download_mb(&self, platform: &Platform) -> u64 {
        self.arm_mb.filter(|_| platform.arch == "aarch64").unwrap_or(self.download_mb)
    }

    /// Returns the line of the requirements file with the hashes of this wheel.
    ///
    /// # Errors
    /// There is no such line: the version was changed without the hashes.
    pub(super) fn hashed(&self) -> Result<&'static str> {
        let start = HASHES.find(&format!("\n{} \\\n", self.requirement));
        let start = start.with_context(|| format!("find the hashes of {} in requirements.txt", self.requirement))? + 1;
        // Further lines of a requirement are indented.
        let ends = |at: &usize| !HASHES[at + 1..].starts_with(' ');
        let end = HASHES.match_indices('\n').map(|(at, _)| at).filter(|at| *at > start).find(ends);
        Ok(&HASHES[start..end.unwrap_or(HASHES.len())])
    }

    /// Returns the package name without the version.
    pub(super) fn package(&self) -> &'static str {
        self.requirement.split('=').next().unwrap_or_default()
    }

    /// Extracts the wanted files and the licence files.
    pub(super) fn unpack(&self, python: &Python, downloads: &Path, target: &Path, wanted: &Wanted) -> Result<()> {
        let mut take: Vec<String> = wanted.cpu(self).iter().map(|&prefix| prefix.to_owned()).collect();
        take.extend(wanted.cuda(self).map(|name| format!("lib/{name}")));
        let mut arguments = vec![downloads.as_os_str(), target.as_os_str(), OsStr::new(self.package())];
        arguments.push(OsStr::new(self.root));
        arguments.extend(take.iter().map(OsStr::new));
        python.script(include_str!("unpack.py"), &arguments).with_context(|| format!("unpack {}", self.requirement))?;
        if OS == "linux" && !wanted.cpu(self).is_empty() {
            // libtorch.so only has to satisfy `-ltorch`; the real library would load the CUDA libraries.
            files::write(&target.join("lib/libtorch.so"), "INPUT(-ltorch_cpu -lc10)\n")?;
        }
        Ok(())
    }
}

/// Missing parts of an installation.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// True if the CPU half is missing.
    pub(super) cpu: bool,
    /// Missing libraries of the CUDA half.
    pub(super) cuda: BTreeSet<&'static str>,
}

impl Wanted {
    pub(super) fn is_nothing(&self) -> bool {
        !self.cpu && self.cuda.is_empty()
    }

    /// Returns true for a missing library of a half, or `include`.
    pub(super) fn holds(&self, name: &str) -> bool {
        self.cuda.contains(name) || self.cpu && !is_cuda(name)
    }

    /// Returns the name prefixes that the CPU half takes from a wheel.
    pub(super) fn cpu<'a>(&self, wheel: &'a Wheel) -> &'a [&'static str] {
        if self.cpu { &wheel.cpu } else { &[] }
    }

    /// Returns the missing libraries of the CUDA half that a wheel holds.
    pub(super) fn cuda(&self, wheel: &Wheel) -> impl Iterator<Item = &'static str> {
        wheel.cuda.iter().copied().filter(|name| self.cuda.contains(name))
    }

    /// Returns the wheels to download.
    pub(super) fn wheels(&self, platform: &'static Platform) -> Vec<&'static Wheel> {
        let is_needed = |wheel: &&Wheel| !self.cpu(wheel).is_empty() || self.cuda(wheel).next().is_some();
        platform.wheels().filter(is_needed).collect()
    }
}
