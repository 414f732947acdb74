//! Installs libtorch in `.libtorch`, from the Python package index, which has wheels for every supported platform.
//!
//! libtorch has two halves. Every program that links libtorch needs the CPU half. The CUDA half, for NVIDIA GPUs, is in
//! the same flat directory, with everything that it loads at run time; programs open it if present. A wheel is a zip
//! file, and only a few files are extracted (see `wheels`). A stamp lists the extracted files, so that a missing or
//! damaged file is detected and fetched again. Start with [`ensure`].

mod gpu;
mod needed;
mod stamp;
#[cfg(test)]
mod tests;
mod wheels;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure as ensure_that};
use tempfile::TempDir;

use crate::python::Python;
use crate::workspace;
use gpu::Survey;
use stamp::Stamp;
pub use wheels::{Platform, cpu_packages, cuda_packages, is_cuda};
use wheels::{Wanted, Wheel};

/// Version that `tch` is bound to; another version does not link.
pub const VERSION: &str = "2.11.0";

/// Directory of the licence files below the directory of libtorch, with one subdirectory per package.
pub const LICENSES: &str = "licenses";

/// Thoroughness of the check of an existing installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// Checks sizes and dates, and the bytes of a file with a changed date.
    Stamp,
    /// Checks every byte of the libraries.
    Bytes,
}

/// Halves of libtorch to install. A half that is not chosen is left unchanged.
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
        accept(&folder)?;
        // With a libtorch of the user, the platform may be one without wheels.
        let halves = Platform::here().map_or(Ok(Halves::Cpu), |platform| choose(platform, choice))?;
        return accept_halves(&folder, halves, choice);
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
    fs::create_dir_all(&install.tools).with_context(|| format!("create {}", install.tools.display()))?;
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
    if choice == Choice::Cpu {
        return Ok(Halves::Cpu);
    }
    if choice == Choice::CudaForImages {
        return Ok(Halves::CpuAndCuda);
    }
    decide(gpu::survey(capability_min), choice)
}

/// Decides from the search for GPUs; `choice` is `Cuda` or `Auto`.
fn decide(survey: Survey, choice: Choice) -> Result<Halves> {
    const REMEDY: &str = "`cargo xtask libtorch --cpu` installs only the CPU half";
    match (survey, choice) {
        (Survey::Usable { gpus, notes }, _) => {
            for line in gpus.iter().map(ToString::to_string).chain(notes) {
                eprintln!("libtorch {VERSION}: {line}");
            }
            Ok(Halves::CpuAndCuda)
        }
        (Survey::TooOld(reasons), Choice::Auto) => {
            for reason in reasons {
                eprintln!("libtorch {VERSION}: {reason}");
            }
            eprintln!("libtorch {VERSION}: no usable GPU; continuing with the CPU");
            Ok(Halves::Cpu)
        }
        (Survey::TooOld(reasons), _) => bail!("{} ({REMEDY})", reasons.join("; ")),
        (Survey::Absent(_), Choice::Auto) => Ok(Halves::Cpu),
        (Survey::Absent(why), _) => {
            eprintln!("libtorch {VERSION}: no NVIDIA GPU here ({why}); the CUDA half is for images and other machines");
            Ok(Halves::CpuAndCuda)
        }
    }
}

/// Checks that every library required by the installed libraries is present, and prints the counts.
///
/// # Errors
/// A library is not found anywhere.
pub fn check_needed(root: &Path) -> Result<()> {
    let folder = workspace::chosen_libtorch(root).unwrap_or_else(|| root.join(".libtorch"));
    let lib = folder.join("lib");
    let checked = needed::check(&lib)?;
    let driver = match checked.without_driver.as_slice() {
        [] => String::new(),
        names => format!("; not included, since the NVIDIA driver provides them: {}", names.join(", ")),
    };
    println!("{}: {} libraries load {} names{driver}", lib.display(), checked.libraries, checked.names);
    workspace::report(&checked.unresolved, "libraries are missing")
}

fn accept(folder: &Path) -> Result<()> {
    let library = format!("lib/{}torch_cpu{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    for part in ["include/torch", &library] {
        if !folder.join(part).exists() {
            bail!(
                "LIBTORCH is {}, which has no `{part}`; set it to libtorch {VERSION}, or unset it to fetch libtorch",
                folder.display()
            );
        }
    }
    Ok(())
}

/// Returns the usable halves of a libtorch that the user installed; at most the `chosen` halves.
fn accept_halves(folder: &Path, chosen: Halves, choice: Choice) -> Result<Halves> {
    if chosen == Halves::Cpu || folder.join("lib/libtorch_cuda.so").exists() {
        return Ok(chosen);
    }
    let complaint = format!(
        "LIBTORCH is {}, which has no `lib/libtorch_cuda.so`; set it to libtorch {VERSION} for CUDA, or unset it to \
         fetch libtorch",
        folder.display()
    );
    if choice != Choice::Auto {
        bail!(complaint);
    }
    eprintln!("libtorch {VERSION}: continuing without the GPU: {complaint}");
    Ok(Halves::Cpu)
}

/// An installation in `.libtorch`, and the directory for work in progress.
struct Install {
    platform: &'static Platform,
    folder: PathBuf,
    tools: PathBuf,
}

impl Install {
    /// Returns the missing or damaged files of `halves`, and prints the reason.
    fn wanted(&self, halves: Halves, check: Check) -> Result<Wanted> {
        let mut wanted = Wanted::default();
        if let Err(reason) = Stamp::check(&self.folder, self.platform, check) {
            eprintln!("libtorch {VERSION}: {reason:#}; fetching it");
            wanted.cpu = true;
        }
        let missing = Stamp::missing_cuda(&self.folder, self.platform, check)?;
        let all = self.platform.cuda_libraries().count();
        // A thorough check repairs an installed CUDA half even if it is not needed.
        if halves == Halves::CpuAndCuda || check == Check::Bytes && missing.len() < all {
            match missing.as_slice() {
                [] => {}
                [(_, reason), ..] if missing.len() < all => {
                    eprintln!("libtorch {VERSION}, CUDA half: {reason}; fetching {} of {all} libraries", missing.len());
                }
                _ => eprintln!("libtorch {VERSION}, CUDA half: not installed; fetching it"),
            }
            wanted.cuda = missing.into_iter().map(|(name, _)| name).collect();
        }
        Ok(wanted)
    }

    /// Downloads and unpacks next to the installation. A missing CPU half replaces the whole directory by a rename. The
    /// libraries of the CUDA half are moved into the directory wheel by wheel, so that an interrupted download is
    /// resumed.
    fn fetch(&self, wanted: &Wanted) -> Result<()> {
        let start = Instant::now();
        self.remove_remains()?;
        self.announce(wanted)?;
        let python = Python::find()?;
        // The directory is removed with the contents on drop, also after an error.
        let work = TempDir::with_prefix_in("libtorch-", &self.tools).context("create a directory in .tools")?;
        let wheels = wanted.wheels(self.platform);
        let (cpu, cuda): (Vec<&Wheel>, Vec<&Wheel>) = wheels.iter().partition(|wheel| !wanted.cpu(wheel).is_empty());
        let count = wheels.len();
        let unpack = |number: usize, wheel: &Wheel, target: &Path| {
            let size_mb = wheel.download_mb(self.platform);
            eprintln!("libtorch {VERSION}: {number} of {count}: {} ({size_mb} MB)", wheel.requirement);
            let downloads = work.path().join("download");
            python.download_wheel(wheel.hashed()?, &downloads)?;
            wheel.unpack(&python, &downloads, target, wanted)?;
            // Removed at once, because the next wheel needs the room.
            fs::remove_dir_all(&downloads).with_context(|| format!("remove {}", downloads.display()))
        };
        if wanted.cpu {
            let fresh = work.path().join("libtorch");
            for (index, wheel) in cpu.iter().enumerate() {
                unpack(index + 1, wheel, &fresh)?;
            }
            self.replace(&fresh, &work.path().join("old"))?;
        }
        for (index, wheel) in cuda.iter().enumerate() {
            let part = work.path().join("part");
            unpack(cpu.len() + index + 1, wheel, &part)?;
            move_files(&part.join(LICENSES), &self.folder.join(LICENSES))?;
            let names: Vec<&str> = wanted.cuda(wheel).collect();
            for name in &names {
                move_file(&part.join("lib").join(name), &self.folder.join("lib").join(name))?;
            }
            Stamp::add(&self.folder, self.platform, &names)?;
            fs::remove_dir_all(&part).with_context(|| format!("remove {}", part.display()))?;
        }
        if !wanted.cuda.is_empty() {
            let unresolved = needed::check(&self.folder.join("lib"))?.unresolved;
            ensure_that!(unresolved.is_empty(), "the CUDA half is incomplete: {}", unresolved.join("; "));
        }
        eprintln!("libtorch {VERSION}: ready in {:.0} s", start.elapsed().as_secs_f64());
        Ok(())
    }

    /// Replaces the installation by `fresh`, with the intact CUDA libraries and the licences of the old installation.
    fn replace(&self, fresh: &Path, old: &Path) -> Result<()> {
        self.platform.finish(fresh)?;
        // After a change of version, the stamp counts all libraries as missing.
        let missing = Stamp::missing_cuda(&self.folder, self.platform, Check::Stamp)?;
        for name in self.platform.cuda_libraries().filter(|name| missing.iter().all(|(missing, _)| missing != name)) {
            move_file(&self.folder.join("lib").join(name), &fresh.join("lib").join(name))?;
        }
        Stamp::write(fresh, self.platform)?;
        if self.folder.exists() {
            fs::rename(&self.folder, old).with_context(|| format!("move {} away", self.folder.display()))?;
        }
        fs::rename(fresh, &self.folder)
            .with_context(|| format!("move the new libtorch to {}", self.folder.display()))?;
        move_files(&old.join(LICENSES), &self.folder.join(LICENSES))
    }

    /// Removes the files of interrupted downloads.
    fn remove_remains(&self) -> Result<()> {
        for entry in fs::read_dir(&self.tools).with_context(|| format!("list {}", self.tools.display()))? {
            let path = entry.with_context(|| format!("list {}", self.tools.display()))?.path();
            if path.is_dir() && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libtorch-")) {
                fs::remove_dir_all(&path).with_context(|| format!("remove {}", path.display()))?;
            }
        }
        Ok(())
    }

    /// Prints sizes and expected times, and checks that there is room.
    fn announce(&self, wanted: &Wanted) -> Result<()> {
        let room = rustix::fs::statvfs(&self.tools)
            .with_context(|| format!("read the free space of {}", self.tools.display()))?;
        let free_mb = room.f_bavail.saturating_mul(room.f_frsize) / 1_000_000;
        let sizes = Sizes::of(self.platform, wanted);
        ensure_that!(
            free_mb >= sizes.peak_mb,
            "{free_mb} MB are free in {}, but {} MB are needed to fetch libtorch{}",
            self.tools.display(),
            sizes.peak_mb,
            if wanted.cuda.is_empty() { "" } else { " (less without the CUDA half: `cargo xtask libtorch --cpu`)" }
        );
        eprintln!("libtorch {VERSION}: {sizes}; {free_mb} MB are free");
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
    /// Room needed during the download.
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

impl std::fmt::Display for Sizes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let minutes = |mbit_per_s: u64| (self.download_mb * 8).div_ceil(mbit_per_s * 60);
        let Self { wheels, download_mb, installed_mb, .. } = self;
        let (fast, slow) = (minutes(500), minutes(50));
        write!(
            f,
            "downloading {download_mb} MB in {wheels} wheels, once: {fast} min at 500 Mbit/s, {slow} min at 50 Mbit/s; \
             at most {installed_mb} MB on the disk"
        )
    }
}

/// Moves every entry of `from`, if it exists, into `to`, except entries that already exist there.
fn move_files(from: &Path, to: &Path) -> Result<()> {
    if !from.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(from).with_context(|| format!("list {}", from.display()))? {
        let entry = entry.with_context(|| format!("list {}", from.display()))?;
        let target = to.join(entry.file_name());
        if !target.exists() {
            move_file(&entry.path(), &target)?;
        }
    }
    Ok(())
}

/// Moves a file or directory within a file system; replaces an existing file.
fn move_file(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    }
    fs::rename(from, to).with_context(|| format!("move {} to {}", from.display(), to.display()))
}
