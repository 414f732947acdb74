//! Builds the programs of the check into one directory, and archives it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::session::DEVICE;
use super::steps::{self, Step};
use crate::{libtorch, workspace};

/// Maximum archive size: the machines that receive it accept little.
const BYTES_MAX: u64 = 45 << 20;
/// Name of the directory in the archive.
const NAME: &str = "device-check";
/// Libraries that the programs may need: from a plain Linux with glibc, and from libtorch.
const EXPECTED: [&str; 10] = [
    "libtorch_cpu.so",
    "libc10.so",
    "libstdc++.so.6",
    "libgcc_s.so.1",
    "libm.so.6",
    "libc.so.6",
    "libdl.so.2",
    "libpthread.so.0",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
];
/// Features with which programs evaluate and train with libtorch.
const FEATURES: &str = "cli/torch,actor/torch,arena/torch,inference-server/torch,learner/torch";
/// Package of each program.
const PACKAGES: [(&str, &str); 7] = [
    ("zerofleet", "cli"),
    ("replay-server", "replay-server"),
    ("learner", "learner"),
    ("actor", "actor"),
    ("arena", "arena"),
    ("inference-server", "inference-server"),
    ("zerofleet-bench", "bench"),
];
const SCRIPT: &str = r#"#!/bin/sh
# Checks zerofleet on the GPU of this machine; `--help` lists the options. See docs/device-check.md.
here=$(cd "$(dirname "$0")" && pwd)
exec "$here/bin/xtask" device-check --run --folder "$here" "$@"
"#;

/// Builds the programs of these steps, strips them, and copies them into a directory with the script and the manifest.
///
/// # Errors
/// A build fails, or a program needs a library that other machines may lack.
pub(super) fn stage(root: &Path, chosen: &[&Step]) -> Result<PathBuf> {
    ensure!(cfg!(target_os = "linux"), "the check runs on Linux; pack the archive on a Linux machine");
    let programs = steps::programs(chosen);
    build(root, &programs)?;
    let target: PathBuf = workspace::metadata(root)?.target_directory.into();
    let folder = target.join(NAME);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    let binaries = folder.join("bin");
    fs::create_dir_all(&binaries).with_context(|| format!("create {}", binaries.display()))?;
    let mut sizes = Vec::new();
    for program in programs.into_iter().chain(["xtask"]) {
        let release = target.join("release");
        let from = if program == DEVICE { release.join("examples") } else { release }.join(program);
        let to = binaries.join(program);
        workspace::output(Command::new("strip").arg("-o").arg(&to).arg(&from))?;
        let dynamic = workspace::output(Command::new("readelf").arg("--dynamic").arg(&to))?;
        if let Some(library) = unexpected(&dynamic) {
            bail!("{program} needs {library}, which other machines may lack");
        }
        let bytes = fs::metadata(&to).with_context(|| format!("read the size of {}", to.display()))?.len();
        sizes.push(json!({"program": program, "bytes": bytes}));
    }
    let script = folder.join("run.sh");
    fs::write(&script, SCRIPT).context("write run.sh")?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).context("make run.sh executable")?;
    let git = |arguments: &[&str]| workspace::output(Command::new("git").current_dir(root).args(arguments));
    let manifest = json!({
        "commit": git(&["rev-parse", "HEAD"])?.trim(),
        "has_changes": !git(&["status", "--porcelain"])?.trim().is_empty(),
        "libtorch": libtorch::VERSION,
        "rustc": workspace::output(Command::new("rustc").arg("--version"))?.trim(),
        "steps": chosen.iter().map(|step| step.name).collect::<Vec<_>>(),
        "programs": sizes,
    });
    fs::write(folder.join("manifest.json"), serde_json::to_string_pretty(&manifest)? + "\n")
        .context("write manifest.json")?;
    Ok(folder)
}

/// Builds the programs and xtask in release mode with one call of cargo, so that features are unified over all
/// programs.
fn build(root: &Path, programs: &[&str]) -> Result<()> {
    libtorch::ensure(root, libtorch::Check::Stamp, libtorch::Choice::Cpu)?;
    let mut build = workspace::cargo(root);
    build.args(["build", "--release", "--package", "xtask", "--bin", "xtask"]);
    for (program, package) in PACKAGES.iter().filter(|(program, _)| programs.contains(program)) {
        build.args(["--package", package, "--bin", program]);
    }
    if programs.contains(&DEVICE) {
        build.args(["--package", "network-torch", "--example", DEVICE]);
    }
    // Cargo would refuse the features of packages that are not selected.
    let selected = |feature: &&str| {
        PACKAGES
            .iter()
            .any(|(program, package)| feature.split('/').next() == Some(package) && programs.contains(program))
    };
    let features: Vec<&str> = FEATURES.split(',').filter(selected).collect();
    workspace::run(build.args(["--no-default-features", "--features", &features.join(",")]))
}

/// Returns the first library in the output of `readelf --dynamic` that is not in [`EXPECTED`].
fn unexpected(dynamic: &str) -> Option<&str> {
    let needed = dynamic.lines().filter(|line| line.contains("(NEEDED)"));
    let mut names = needed.filter_map(|line| Some(line.split_once('[')?.1.split_once(']')?.0));
    names.find(|name| !EXPECTED.contains(name))
}

/// Packs the directory into the archive `output`.
///
/// # Errors
/// The archive has an unknown file extension, a program run by `tar` fails, or the archive is too large.
pub(super) fn archive(folder: &Path, output: &Path) -> Result<()> {
    let above = folder.parent().context("find the parent directory")?;
    let mut tar = Command::new("tar");
    tar.arg("--use-compress-program").arg(compressor(output)?).args([
        "--owner=0",
        "--group=0",
        "--sort=name",
        "--create",
    ]);
    workspace::output(tar.arg("--file").arg(output).arg("--directory").arg(above).arg(NAME))?;
    let bytes = fs::metadata(output).with_context(|| format!("read the size of {}", output.display()))?.len();
    println!(
        "{}: {:.1} MiB; unpack it on a machine with PyTorch {} and run {NAME}/run.sh",
        output.display(),
        mebibytes(bytes),
        libtorch::VERSION
    );
    check_size(bytes)
}

/// Returns the compressor for the file extension of the archive. Programs share most of the code; xz and zstd find the
/// repetitions within the longer windows.
fn compressor(output: &Path) -> Result<&'static str> {
    match output.extension().and_then(|ending| ending.to_str()) {
        Some("gz" | "tgz") => Ok("gzip -9"),
        Some("xz") => Ok("xz --lzma2=preset=6,dict=128MiB"),
        Some("zst") => Ok("zstd -19 --long=27 --threads=0 --quiet"),
        _ => bail!("the archive {} must end in .tar.gz, .tar.xz or .tar.zst", output.display()),
    }
}

fn check_size(bytes: u64) -> Result<()> {
    let max = mebibytes(BYTES_MAX);
    ensure!(
        bytes <= BYTES_MAX,
        "the archive has {:.1} MiB, more than {max:.0} MiB; choose fewer --steps, or the extension .tar.xz",
        mebibytes(bytes)
    );
    Ok(())
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Reads the manifest of an unpacked archive.
///
/// # Errors
/// The manifest is missing, or is no JSON.
pub(super) fn manifest(folder: &Path) -> Result<Value> {
    let file = folder.join("manifest.json");
    let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("read {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_other_machines_may_lack_is_named() {
        let line = |name: &str| format!(" 0x0000000000000001 (NEEDED)  Shared library: [{name}]\n");
        let usual = line("libtorch_cpu.so") + &line("libc.so.6") + " 0x1d (RUNPATH) Library runpath: [$ORIGIN]\n";
        assert_eq!(unexpected(&usual), None);
        assert_eq!(unexpected(&(usual + &line("libnuma.so.1"))), Some("libnuma.so.1"));
    }

    #[test]
    fn every_program_of_the_steps_has_a_package_and_a_known_feature() {
        let packaged = |program: &str| program == DEVICE || PACKAGES.iter().any(|(name, _)| *name == program);
        assert!(steps::PROGRAMS.iter().all(|program| packaged(program)));
        for feature in FEATURES.split(',') {
            assert!(PACKAGES.iter().any(|(_, package)| feature.strip_suffix("/torch") == Some(package)), "{feature}");
        }
    }

    #[test]
    fn an_archive_that_is_too_large_is_refused_with_a_remedy() {
        assert!(check_size(BYTES_MAX).is_ok());
        let error = check_size(BYTES_MAX + (1 << 20)).unwrap_err().to_string();
        assert!(error.contains("46.0 MiB") && error.contains("--steps"), "{error}");
    }

    #[test]
    fn the_ending_of_the_archive_chooses_the_compression() {
        assert_eq!(compressor(Path::new("a/check.tar.gz")).unwrap(), "gzip -9");
        assert!(compressor(Path::new("check.tar.zst")).unwrap().starts_with("zstd"));
        assert!(compressor(Path::new("check.zip")).unwrap_err().to_string().contains(".tar.gz"));
    }

    #[test]
    fn a_folder_is_packed_with_its_executable_script() {
        let work = tempfile::tempdir().unwrap();
        let folder = work.path().join(NAME);
        fs::create_dir_all(folder.join("bin")).unwrap();
        fs::write(folder.join("run.sh"), SCRIPT).unwrap();
        fs::set_permissions(folder.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        let output = work.path().join("check.tar.gz");
        archive(&folder, &output).unwrap();
        let listed = workspace::output(Command::new("tar").arg("--list").arg("--verbose").arg("--file").arg(&output));
        let listed = listed.unwrap();
        assert!(
            listed.lines().any(|line| line.starts_with("-rwxr-xr-x") && line.ends_with("device-check/run.sh")),
            "{listed}"
        );
    }
}
