//! Builds the programs of the check into one directory, and archives it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::session::DEVICE;
use super::steps::{self, Step};
use crate::workspace::{self, PROGRAMS, Program};
use crate::{files, libtorch};

/// Maximum size of the archive, since the machines that receive it accept no large files.
const BYTES_MAX: u64 = 45 << 20;
/// Name of the directory in the archive.
const NAME: &str = "device-check";
/// Programs of the check that are not part of a fleet.
const FURTHER: [Program; 2] = [("bench", "zerofleet-bench"), ("xtask", "xtask")];
/// Packages that lack the feature for evaluating and training with libtorch.
const WITHOUT_FEATURE: [&str; 3] = ["replay-server", "bench", "xtask"];
const SCRIPT: &str = r#"#!/bin/sh
# Checks zerofleet on the GPU of this machine; `--help` lists the options. See docs/device-check.md.
here=$(cd "$(dirname "$0")" && pwd)
exec "$here/bin/xtask" device-check --run --folder "$here" "$@"
"#;

/// Scripts of the archive.
const SCRIPTS: [(&str, &str); 4] = [
    ("run.sh", SCRIPT),
    ("half-hour-1.sh", include_str!("half-hour-1.sh")),
    ("half-hour-2.sh", include_str!("half-hour-2.sh")),
    ("half-hour-3.sh", include_str!("half-hour-3.sh")),
];

/// Builds the programs of these steps, strips them, and copies them into a directory with the library for CUDA graphs,
/// the scripts and the manifest.
///
/// # Errors
/// A build fails, or a program needs a library that other machines may lack.
pub(super) fn stage(root: &Path, chosen: &[&Step]) -> Result<PathBuf> {
    ensure!(cfg!(target_os = "linux"), "the check runs on Linux; pack the archive on a Linux machine");
    let programs = steps::programs(chosen);
    build(root, &programs)?;
    let target = workspace::target(root)?;
    let folder = target.join(NAME);
    files::remove_folder(&folder)?;
    let binaries = folder.join("bin");
    files::create_folder(&binaries)?;
    let mut sizes = Vec::new();
    for program in programs.into_iter().chain(["xtask"]) {
        let release = target.join("release");
        let from = if program == DEVICE { release.join("examples") } else { release }.join(program);
        let to = binaries.join(program);
        workspace::output(Command::new("strip").arg("-o").arg(&to).arg(&from))?;
        if let Some(library) = unexpected(&libtorch::needed_by(&to)?) {
            bail!("{program} needs {library}, which other machines may lack");
        }
        sizes.push(json!({"program": program, "bytes": files::size(&to)?}));
    }
    // Binaries search the sibling `lib`.
    libtorch::compile_graphs(root, &workspace::libtorch(root), &folder.join("lib").join(libtorch::GRAPHS))?;
    write_scripts(&folder)?;
    let git = |arguments: &[&str]| workspace::output(Command::new("git").current_dir(root).args(arguments));
    let manifest = json!({
        "commit": git(&["rev-parse", "HEAD"])?.trim(),
        "has_changes": !git(&["status", "--porcelain"])?.trim().is_empty(),
        "libtorch": libtorch::VERSION,
        "rustc": workspace::output(Command::new("rustc").arg("--version"))?.trim(),
        "steps": chosen.iter().map(|step| step.name).collect::<Vec<_>>(),
        "programs": sizes,
    });
    files::write(&folder.join("manifest.json"), serde_json::to_string_pretty(&manifest)? + "\n")?;
    Ok(folder)
}

/// Writes the scripts, executable.
fn write_scripts(folder: &Path) -> Result<()> {
    for (name, text) in SCRIPTS {
        let file = folder.join(name);
        files::write(&file, text)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755))
            .with_context(|| format!("make {name} executable"))?;
    }
    Ok(())
}

/// Builds the programs and xtask in release mode with one call of cargo, so that features are unified over all
/// programs.
fn build(root: &Path, programs: &[&str]) -> Result<()> {
    libtorch::ensure(root, libtorch::Check::Stamp, libtorch::Choice::Cpu)?;
    let is_chosen = |(_, binary): &Program| *binary == "xtask" || programs.contains(binary);
    let chosen: Vec<Program> = PROGRAMS.into_iter().chain(FURTHER).filter(is_chosen).collect();
    let packages = chosen.iter().filter(|(package, _)| !WITHOUT_FEATURE.contains(package));
    let features = packages.map(|(package, _)| format!("{package}/torch")).collect::<Vec<_>>().join(",");
    let mut options = vec!["--release", "--no-default-features", "--features", &features];
    if programs.contains(&DEVICE) {
        options.extend(["--package", "network-torch", "--example", DEVICE]);
    }
    workspace::build(root, &chosen, &options)
}

/// Returns the first library that belongs neither to a plain Linux, which may lack zlib, nor to libtorch.
fn unexpected(needed: &[String]) -> Option<&String> {
    let is_plain = |name: &str| libtorch::SYSTEM.contains(&name) && name != "libz.so.1";
    needed.iter().find(|name| !is_plain(name) && !["libtorch_cpu.so", "libc10.so"].contains(&name.as_str()))
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
    let bytes = files::size(output)?;
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
    serde_json::from_str(&files::read(&file)?).with_context(|| format!("read {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_other_machines_may_lack_is_named() {
        let names = ["libtorch_cpu.so", "libc.so.6", "libnuma.so.1"].map(str::to_owned);
        assert_eq!(unexpected(&names[..2]), None);
        assert_eq!(unexpected(&names).unwrap(), "libnuma.so.1");
    }

    #[test]
    fn every_program_of_the_steps_has_a_package() {
        let packaged = PROGRAMS.iter().chain(&FURTHER).map(|(_, binary)| *binary).chain([DEVICE]);
        assert!(steps::PROGRAMS.iter().all(|program| packaged.clone().any(|name| name == *program)));
        assert!(WITHOUT_FEATURE.iter().all(|package| PROGRAMS.iter().chain(&FURTHER).any(|(name, _)| name == package)));
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
    fn scripts_have_the_syntax_of_a_shell_name_existing_steps_and_explain_missing_arguments() {
        let work = tempfile::tempdir().unwrap();
        write_scripts(work.path()).unwrap();
        for (name, text) in &SCRIPTS[1..] {
            workspace::output(Command::new("sh").arg("-n").arg(work.path().join(name))).unwrap();
            for (_, rest) in text.match_indices("--steps ").map(|(at, found)| text.split_at(at + found.len())) {
                let named = rest.split([' ', '\n']).next().unwrap();
                let named: Vec<String> = named.split(',').map(str::to_owned).collect();
                assert_eq!(steps::chosen(&named).unwrap().len(), named.len(), "{name}");
            }
            let error = workspace::output(&mut Command::new(work.path().join(name))).unwrap_err().to_string();
            assert!(error.contains("usage: ") && error.contains(name), "{error}");
        }
    }

    #[test]
    fn a_folder_is_packed_with_its_executable_scripts() {
        let work = tempfile::tempdir().unwrap();
        let folder = work.path().join(NAME);
        fs::create_dir_all(folder.join("bin")).unwrap();
        write_scripts(&folder).unwrap();
        let output = work.path().join("check.tar.gz");
        archive(&folder, &output).unwrap();
        let listed = workspace::output(Command::new("tar").arg("--list").arg("--verbose").arg("--file").arg(&output));
        let listed = listed.unwrap();
        for (name, _) in SCRIPTS {
            let is_script =
                |line: &str| line.starts_with("-rwxr-xr-x") && line.ends_with(&format!("device-check/{name}"));
            assert!(listed.lines().any(is_script), "{listed}");
        }
    }
}
