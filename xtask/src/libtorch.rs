//! Installs libtorch in `.libtorch`, from the Python package index, which has wheels for every supported platform.
//!
//! libtorch has two halves. Every program that links libtorch needs the CPU half. The CUDA half, for NVIDIA GPUs, is in
//! the same flat directory, with everything that it loads at run time and with a library for CUDA graphs, which is
//! compiled here; programs open both if present. A wheel is a zip file, and only a few files are extracted (see
//! `wheels`). A stamp lists the extracted files, so that a missing or damaged file is detected and fetched again. Start
//! with [`ensure`].

mod graphs;
mod needed;
mod own;
mod stamp;
#[cfg(test)]
mod tests;
mod wheels;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure as ensure_that};
use tempfile::TempDir;

use crate::gpu::{self, DRIVER_MIN, Gpu};
use crate::python::Python;
use crate::{files, workspace};
pub use graphs::check as check_graphs;
pub(crate) use graphs::{GRAPHS, compile as compile_graphs};
pub(crate) use needed::{SYSTEM, needed_by};
use stamp::Stamp;
use wheels::Wanted;
pub use wheels::{Platform, cpu_packages, cuda_packages, is_cuda};

/// Version that `tch` is bound to; another version does not link.
pub const VERSION: &str = "2.11.0";

/// Directory of the licence files below the directory of libtorch, with one subdirectory per package.
pub const LICENSES: &str = "licenses";

/// How thoroughly an existing installation is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// Checks sizes and dates, and the bytes of a file with a changed date.
    Stamp,
    /// Checks every byte of the libraries.
    Bytes,
}

/// The halves of libtorch to install. A half that is not chosen is left unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Only the CPU half is needed.
    Cpu,
    /// The CUDA half is needed; a GPU of this machine that cannot run it is an error.
    Cuda,
    /// The CUDA half is needed for other machines, regardless of the GPU of this machine.
    CudaForImages,
    /// The CUDA half is needed if a GPU of this machine can run it.
    Auto,
}

/// Halves of libtorch that a program can use on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Halves {
    /// The CPU half, with MPS on a Mac.
    Cpu,
    /// Both halves, so that NVIDIA GPUs can compute.
    CpuAndCuda,
}

impl Halves {
    /// Returns true if a GPU may compute with these halves: Apple's through MPS, or NVIDIA's through CUDA.
    pub(crate) fn use_a_gpu(self) -> bool {
        cfg!(target_os = "macos") || self == Self::CpuAndCuda
    }
}

/// Ensures that libtorch is installed and intact: in `.libtorch`, or in the directory that `LIBTORCH` names. Prints
/// nothing in that case, unless a GPU cannot be used.
///
/// # Errors
/// A part is missing (Python, pip, network, room on the disk, a wheel for this platform, a driver, a GPU); the message
/// names the part and a remedy.
pub fn ensure(root: &Path, check: Check, choice: Choice) -> Result<Halves> {
    if let Some(folder) = workspace::chosen_libtorch(root) {
        own::check(&folder)?;
        let has_gpu = choice != Choice::Auto || visible_gpus().is_ok();
        let halves = own::halves(&folder, if has_gpu { choice } else { Choice::Cpu })?;
        graphs::ensure_compiled(root, &folder, halves);
        return Ok(halves);
    }
    let platform = Platform::here()?;
    install(root, platform, choose(platform, choice)?, check)
}

/// Ensures that libtorch is installed, as [`ensure`] does, on machines where every run uses it: `LIBTORCH` is set, or a
/// GPU of this machine can run it. On other machines, it fetches nothing and returns `None`.
///
/// # Errors
/// The errors of [`ensure`].
pub fn ensure_for_gpu(root: &Path, check: Check) -> Result<Option<Halves>> {
    if workspace::chosen_libtorch(root).is_some() {
        return ensure(root, check, Choice::Auto).map(Some);
    }
    // A platform without wheels trains on the CPU.
    let Ok(platform) = Platform::here() else { return Ok(None) };
    let halves = choose(platform, Choice::Auto)?;
    if !halves.use_a_gpu() {
        return Ok(None);
    }
    install(root, platform, halves, check).map(Some)
}

/// Fetches missing parts of these halves into `.libtorch`.
fn install(root: &Path, platform: &'static Platform, halves: Halves, check: Check) -> Result<Halves> {
    let install = Install { platform, folder: root.join(".libtorch"), tools: root.join(".tools") };
    files::create_folder(&install.tools)?;
    // With two concurrent tasks, only the first fetches libtorch; the second finds it installed.
    let lock = File::create(install.tools.join("libtorch.lock")).context("create .tools/libtorch.lock")?;
    lock.lock().context("lock .tools/libtorch.lock")?;

    let wanted = install.wanted(halves, check)?;
    if !wanted.is_nothing() {
        install.fetch(&wanted).with_context(|| {
            format!(
                "fetch libtorch {VERSION} (to use an existing install, set LIBTORCH to the directory with \
                 `include` and `lib`)"
            )
        })?;
    }
    graphs::ensure_compiled(root, &install.folder, halves);
    Ok(halves)
}

/// Decides which halves are needed, and prints the reason if a GPU is not used.
fn choose(platform: &Platform, choice: Choice) -> Result<Halves> {
    let Some(capability_min) = platform.capability_min else {
        ensure_that!(
            matches!(choice, Choice::Cpu | Choice::Auto),
            "libtorch has no CUDA half for {}; Apple GPUs need none, since libtorch for macOS contains MPS",
            platform.name
        );
        return Ok(Halves::Cpu);
    };
    match choice {
        Choice::Cpu => Ok(Halves::Cpu),
        Choice::CudaForImages => Ok(Halves::CpuAndCuda),
        Choice::Cuda | Choice::Auto => decide(visible_gpus(), capability_min, choice),
    }
}

/// Lists the GPUs. An empty `CUDA_VISIBLE_DEVICES` hides every GPU, as for CUDA.
fn visible_gpus() -> Result<Vec<Gpu>, String> {
    match std::env::var("CUDA_VISIBLE_DEVICES") {
        Ok(visible) if ["", "-1"].contains(&visible.trim()) => Err("CUDA_VISIBLE_DEVICES hides all GPUs".to_owned()),
        _ => gpu::list(),
    }
}

/// Decides from the GPUs, or from the reason why there is none; `choice` is `Cuda` or `Auto`.
fn decide(found: Result<Vec<Gpu>, String>, capability_min: f64, choice: Choice) -> Result<Halves> {
    let gpus = match found {
        Ok(gpus) => gpus,
        Err(_) if choice == Choice::Auto => return Ok(Halves::Cpu),
        Err(why) => {
            eprintln!("libtorch {VERSION}: no NVIDIA GPU here ({why}); the CUDA half is for images and other machines");
            return Ok(Halves::CpuAndCuda);
        }
    };
    let obstacles: Vec<String> = gpus.iter().filter_map(|gpu| obstacle(gpu, capability_min)).collect();
    let is_usable = obstacles.len() < gpus.len();
    ensure_that!(
        is_usable || choice == Choice::Auto,
        "{} (`cargo xtask libtorch --cpu` installs only the CPU half)",
        obstacles.join("; ")
    );
    let usable = gpus.iter().filter(|gpu| obstacle(gpu, capability_min).is_none());
    for line in usable.map(ToString::to_string).chain(obstacles) {
        eprintln!("libtorch {VERSION}: {line}");
    }
    if is_usable {
        return Ok(Halves::CpuAndCuda);
    }
    eprintln!("libtorch {VERSION}: no usable GPU; continuing with the CPU");
    Ok(Halves::Cpu)
}

/// Remedy for a GPU or driver that the wheels do not support.
const OWN: &str = "set LIBTORCH to a libtorch 2.11 for an older CUDA (docs/install.md#an-older-driver)";

/// Returns the reason why libtorch cannot use a GPU, with a remedy.
fn obstacle(gpu: &Gpu, capability_min: f64) -> Option<String> {
    if gpu.compute_capability.is_some_and(|capability| capability < capability_min) {
        return Some(format!(
            "{gpu}; libtorch {VERSION} needs compute capability {capability_min:.1} or higher: use another GPU, or {OWN}"
        ));
    }
    let is_old = gpu.compute_capability.is_none() || gpu.driver_branch().is_none_or(|branch| branch < DRIVER_MIN);
    is_old.then(|| format!("{gpu}; CUDA 13 needs driver {DRIVER_MIN} or newer: update the NVIDIA driver, or {OWN}"))
}

/// Checks that every library that the installed libraries need or open is present; the NVIDIA driver may be missing.
///
/// # Errors
/// A library is not found anywhere.
pub fn check_needed(root: &Path) -> Result<()> {
    let lib = workspace::libtorch(root).join("lib");
    workspace::report(&needed::unresolved(&lib)?, "libraries are missing")?;
    println!("{}: no library is missing", lib.display());
    Ok(())
}

/// An installation in `.libtorch`, and the directory for work in progress.
struct Install {
    platform: &'static Platform,
    folder: PathBuf,
    tools: PathBuf,
}

impl Install {
    /// Returns the missing or damaged parts of `halves`, and prints the reason.
    fn wanted(&self, halves: Halves, check: Check) -> Result<Wanted> {
        let defects = Stamp::defects(&self.folder, self.platform, check)?;
        let (cuda, cpu): (Vec<_>, Vec<_>) = defects.into_iter().partition(|(name, _)| is_cuda(name));
        let mut wanted = Wanted { cpu: !cpu.is_empty(), ..Wanted::default() };
        if let Some((_, reason)) = cpu.first() {
            eprintln!("libtorch {VERSION}: {reason}; fetching it");
        }
        let all = self.platform.cuda_libraries().count();
        // A thorough check repairs an installed CUDA half even if it is not needed.
        let is_needed = halves == Halves::CpuAndCuda || check == Check::Bytes && cuda.len() < all;
        if let Some((_, reason)) = cuda.first().filter(|_| is_needed) {
            eprintln!("libtorch {VERSION}, CUDA half: {reason}; fetching {} of {all} libraries", cuda.len());
            let is_missing = |name: &&str| cuda.iter().any(|(missing, _)| missing == name);
            wanted.cuda = self.platform.cuda_libraries().filter(is_missing).collect();
        }
        Ok(wanted)
    }

    /// Downloads, unpacks and adopts wheel by wheel, so that an interrupted download is resumed.
    fn fetch(&self, wanted: &Wanted) -> Result<()> {
        let start = Instant::now();
        self.remove_remains()?;
        self.announce(wanted)?;
        let python = Python::find()?;
        let wheels = wanted.wheels(self.platform);
        for (index, wheel) in wheels.iter().enumerate() {
            let (number, count, size_mb) = (index + 1, wheels.len(), wheel.download_mb(self.platform));
            eprintln!("libtorch {VERSION}: {number} of {count}: {} ({size_mb} MB)", wheel.requirement);
            // Removed with the contents on drop: the next wheel needs the room.
            let work = TempDir::with_prefix_in("libtorch-", &self.tools).context("create a directory in .tools")?;
            let [downloads, part] = ["download", "part"].map(|name| work.path().join(name));
            python.download_wheel(wheel.hashed()?, &downloads)?;
            wheel.unpack(&python, &downloads, &part, wanted)?;
            self.adopt(&part)?;
        }
        let defects = Stamp::defects(&self.folder, self.platform, Check::Stamp)?;
        if let Some((_, reason)) = defects.iter().find(|(name, _)| wanted.holds(name)) {
            bail!("the wheels of torch {VERSION} are incomplete: {reason}");
        }
        if !wanted.cuda.is_empty() {
            let unresolved = needed::unresolved(&self.folder.join("lib"))?;
            ensure_that!(unresolved.is_empty(), "the CUDA half is incomplete: {}", unresolved.join("; "));
        }
        eprintln!("libtorch {VERSION}: ready in {:.0} s", start.elapsed().as_secs_f64());
        Ok(())
    }

    /// Moves the unpacked files of a wheel from `part` into the installation, and adds the files to the stamp. An
    /// installation of another version is removed first.
    fn adopt(&self, part: &Path) -> Result<()> {
        let mut stamp = match Stamp::read(&self.folder, self.platform) {
            Ok(stamp) => stamp,
            Err(_) => {
                files::remove_folder(&self.folder)?;
                Stamp::new(self.platform)
            }
        };
        let has_headers = part.join("include").exists();
        if has_headers {
            files::remove_folder(&self.folder.join("include"))?;
        }
        for file in files::below(part)? {
            let name = file.strip_prefix(part).context("find the name of an unpacked file")?;
            files::rename(&file, &self.folder.join(name))?;
            if name.starts_with("lib") {
                stamp.add_library(&self.folder, &name.display().to_string())?;
            }
        }
        if has_headers {
            stamp.add_headers(&self.folder)?;
        }
        stamp.save(&self.folder)
    }

    /// Removes the files of interrupted downloads.
    fn remove_remains(&self) -> Result<()> {
        for path in files::list(&self.tools)? {
            if path.is_dir() && files::name(&path).starts_with("libtorch-") {
                files::remove_folder(&path)?;
            }
        }
        Ok(())
    }

    /// Prints the sizes of the download, and checks that the disk has room.
    fn announce(&self, wanted: &Wanted) -> Result<()> {
        let room = rustix::fs::statvfs(&self.tools)
            .with_context(|| format!("read the free space of {}", self.tools.display()))?;
        let free_mb = room.f_bavail.saturating_mul(room.f_frsize) / 1_000_000;
        let Sizes { wheels, download_mb, installed_mb, peak_mb } = Sizes::of(self.platform, wanted);
        ensure_that!(
            free_mb >= peak_mb,
            "{free_mb} MB are free in {}, but {peak_mb} MB are needed to fetch libtorch{}",
            self.tools.display(),
            if wanted.cuda.is_empty() { "" } else { " (less without the CUDA half: `cargo xtask libtorch --cpu`)" }
        );
        eprintln!(
            "libtorch {VERSION}: downloading {download_mb} MB in {wheels} wheels, once; at most {installed_mb} MB on \
             the disk; {free_mb} MB are free"
        );
        Ok(())
    }
}

/// Sizes of a download, in megabytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sizes {
    wheels: usize,
    download_mb: u64,
    /// Upper bound on the installed size.
    installed_mb: u64,
    /// Disk space needed during the download.
    peak_mb: u64,
}

impl Sizes {
    fn of(platform: &'static Platform, wanted: &Wanted) -> Self {
        let sizes: Vec<u64> = wanted.wheels(platform).into_iter().map(|wheel| wheel.download_mb(platform)).collect();
        let download_mb: u64 = sizes.iter().sum();
        let installed_mb = download_mb * platform.installed_percent / 100;
        // pip writes a wheel twice.
        let peak_mb = installed_mb + 2 * sizes.iter().copied().max().unwrap_or(0);
        Self { wheels: sizes.len(), download_mb, installed_mb, peak_mb }
    }
}
