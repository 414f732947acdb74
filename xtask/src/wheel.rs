//! `cargo xtask wheel`: builds the Python package as a wheel, with the programs of a fleet and the models.
//!
//! The wheel runs on glibc 2.28 and newer: Zig links programs and extension against the symbols of that version. With
//! `--torch` it is followed by a second wheel of the programs with libtorch, which they load from the package `torch`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::train::EVALUATING;
use crate::workspace::{self, PROGRAMS};
use crate::{files, libtorch, python};

const REQUIREMENTS: &str = include_str!("wheel/requirements.txt");

/// Oldest version of glibc on which the wheel runs.
const GLIBC: [u32; 2] = [2, 28];
/// Maximum size of the wheel with the models.
const BYTES_MAX: u64 = 60 << 20;
/// Folder of the package `zerofleet`.
const PACKAGE: &str = "python/zerofleet";
/// Folder of the package `zerofleet_torch`.
const PACKAGE_TORCH: &str = "python/libtorch/zerofleet_torch";

/// Options of the task.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Directory for the wheels.
    #[arg(long, value_name = "DIR", default_value = "target/wheels")]
    output: PathBuf,
    /// Also build the wheel `zerofleet-torch`: the programs with libtorch.
    #[arg(long)]
    torch: bool,
}

/// Builds the wheels and prints the path of each.
///
/// # Errors
/// A build fails, or a wheel is too large or needs a newer glibc.
pub fn run(root: &Path, Options { output, torch }: &Options) -> Result<()> {
    ensure!(cfg!(target_os = "linux"), "the wheels are built on Linux");
    let tools = Tools(python::packages(root, "wheel", REQUIREMENTS)?);
    let output = root.join(output);
    files::create_folder(&output)?;
    build(root, &tools, &output)?;
    if *torch {
        build_torch(root, &tools, &output)?;
    }
    Ok(())
}

/// The folder with the installed programs and modules that build wheels.
struct Tools(PathBuf);

impl Tools {
    /// Lets a command find the programs and modules.
    fn within(&self, mut command: Command) -> Result<Command> {
        let inherited = std::env::var_os("PATH").unwrap_or_default();
        let paths = std::iter::once(self.0.join("bin")).chain(std::env::split_paths(&inherited));
        command.env("PATH", std::env::join_paths(paths)?).env("PYTHONPATH", &self.0);
        Ok(command)
    }

    /// Returns a command of Python in the repository.
    fn python(&self, root: &Path, module: &str) -> Result<Command> {
        let mut command = Command::new("python3");
        command.current_dir(root).args(["-m", module]);
        self.within(command)
    }
}

/// Folders in a package during a build. Git ignores them, and dropping the value removes them, so that an import from
/// the checkout does not find old programs.
struct Staged([PathBuf; 2]);

impl Drop for Staged {
    fn drop(&mut self) {
        // The next build replaces a folder that cannot be removed.
        self.0.iter().for_each(|folder| drop(files::remove_folder(folder)));
    }
}

/// Returns the version of glibc in the platform tag that `auditwheel show` prints, as needed by programs and extension;
/// `None` if the wheel needs further libraries or a newer version than any tag has.
fn glibc(shown: &str) -> Option<[u32; 2]> {
    // The output is wrapped.
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut parts = words.split_once("platform tag: \"manylinux_")?.1.split('_').map(str::parse::<u32>);
    Some([parts.next()?.ok()?, parts.next()?.ok()?])
}

/// Builds the wheel `zerofleet`.
fn build(root: &Path, tools: &Tools, output: &Path) -> Result<()> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut cargo = tools.within(workspace::cargo(root))?;
    cargo.args(["zigbuild", "--release", "--no-default-features", "--features", "cli/parquet"]);
    let [major, minor] = GLIBC;
    cargo.arg("--target").arg(format!("{target}.{major}.{minor}"));
    cargo.args(PROGRAMS.iter().flat_map(|(package, binary)| ["--package", package, "--bin", binary]));
    workspace::run(&mut cargo)?;
    let release = workspace::target(root)?.join(&target).join("release");
    let staged = Staged(["bin", "models"].map(|folder| root.join(PACKAGE).join(folder)));
    stage_programs(&release, &staged.0[0])?;
    files::remove_folder(&staged.0[1])?;
    files::copy_below(&root.join("models"), &staged.0[1])?;
    let mut maturin = tools.within(Command::new("maturin"))?;
    maturin.current_dir(root);
    maturin.args(["build", "--release", "--zig", "--manifest-path", "python/Cargo.toml", "--target", &target]);
    maturin.arg("--compatibility").arg(format!("manylinux_{major}_{minor}")).arg("--out").arg(output);
    workspace::run(&mut maturin)?;
    let wheel = newest(output, "zerofleet-")?;
    let size = files::size(&wheel)?;
    ensure!(size <= BYTES_MAX, "{} has {} MiB, at most {} fit", wheel.display(), size >> 20, BYTES_MAX >> 20);
    let shown = workspace::output(tools.python(root, "auditwheel")?.arg("show").arg(&wheel))?;
    println!("{}", shown.trim());
    let is_old_enough = glibc(&shown).is_some_and(|needed| needed <= GLIBC);
    ensure!(is_old_enough, "{} does not run with glibc {major}.{minor}", wheel.display());
    println!("{} ({:.1} MB)", wheel.display(), size as f64 / 1e6);
    Ok(())
}

/// Builds the wheel `zerofleet-torch` with the compiler of this machine, since libtorch has the C++ library of GCC.
fn build_torch(root: &Path, tools: &Tools, output: &Path) -> Result<()> {
    libtorch::ensure(root, libtorch::Check::Stamp, libtorch::Choice::Cpu)?;
    let packages = EVALUATING.iter().chain(&["learner", "cli"]);
    let features: Vec<String> = packages.map(|package| format!("{package}/torch")).collect();
    let features = format!("cli/parquet,{}", features.join(","));
    workspace::build(root, &PROGRAMS, &["--release", "--no-default-features", "--features", &features])?;
    let package = root.join(PACKAGE_TORCH);
    let staged = Staged(["bin", "lib"].map(|folder| package.join(folder)));
    stage_programs(&workspace::target(root)?.join("release"), &staged.0[0])?;
    // The programs search the folder next to theirs.
    libtorch::compile_graphs(root, &workspace::libtorch(root), &staged.0[1].join(libtorch::GRAPHS))?;
    let mut pip = tools.python(root, "pip")?;
    pip.args(["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]).arg(output);
    workspace::run(pip.arg(root.join("python/libtorch")))?;
    println!("{}", newest(output, "zerofleet_torch-")?.display());
    Ok(())
}

/// Copies the programs of a fleet from `release` into an empty `folder`, without symbols.
fn stage_programs(release: &Path, folder: &Path) -> Result<()> {
    files::remove_folder(folder)?;
    files::create_folder(folder)?;
    for (_, program) in PROGRAMS {
        let (from, to) = (release.join(program), folder.join(program));
        workspace::output(Command::new("strip").arg("-o").arg(to).arg(from))?;
    }
    Ok(())
}

/// Returns the newest wheel in `folder` with this start of the name.
fn newest(folder: &Path, start: &str) -> Result<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(start) {
            found.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    found.sort();
    found.pop().map(|(_, wheel)| wheel).with_context(|| format!("no wheel {start} in {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_platform_tag_of_an_audited_wheel_has_the_needed_version_of_glibc() {
        let shown = |tag: &str| {
            format!(
                "zerofleet-1-cp310-abi3-manylinux_2_28_x86_64.whl is consistent with\nthe following platform\ntag: \
                 \"{tag}\".\n\nThis constrains the platform tag to \"manylinux_2_17_x86_64\"."
            )
        };
        assert_eq!(glibc(&shown("manylinux_2_28_x86_64")), Some([2, 28]));
        assert_eq!(glibc(&shown("manylinux_2_5_aarch64")), Some([2, 5]));
        assert_eq!(glibc(&shown("linux_x86_64")), None);
    }

    #[test]
    fn staged_folders_do_not_outlive_a_failed_build() {
        let folder = tempfile::tempdir().unwrap();
        let folders = ["bin", "models"].map(|name| folder.path().join(name));
        let failed = || -> Result<()> {
            let staged = Staged(folders.clone());
            files::create_folder(&staged.0[0])?;
            files::write(&staged.0[0].join("old"), "")?;
            anyhow::bail!("the build fails")
        };
        assert!(failed().is_err() && !folders[0].exists());
    }
}
