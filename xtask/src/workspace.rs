//! Finds the root of the repository, and runs cargo there.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::{Metadata, MetadataCommand};

/// A program of the workspace: package and name.
pub(crate) type Program = (&'static str, &'static str);

/// Programs of a fleet; `zerofleet` finds the other programs in its own directory.
pub(crate) const PROGRAMS: [Program; 6] = [
    ("cli", "zerofleet"),
    ("replay-server", "replay-server"),
    ("learner", "learner"),
    ("actor", "actor"),
    ("arena", "arena"),
    ("inference-server", "inference-server"),
];

/// Returns the root of the repository in which this program was built.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies below the root").to_owned()
}

/// Returns the packages of a workspace with dependencies, without a request to any registry.
///
/// # Errors
/// Cargo cannot read a manifest.
pub fn metadata(manifest: &Path) -> Result<Metadata> {
    let metadata = MetadataCommand::new().manifest_path(manifest).no_deps().exec();
    metadata.with_context(|| format!("read {} with `cargo metadata`", manifest.display()))
}

/// Returns the directory in which cargo builds: with subdirectories `debug` and `release`.
///
/// # Errors
/// Cargo cannot read a manifest.
pub fn target(root: &Path) -> Result<PathBuf> {
    Ok(metadata(&root.join("Cargo.toml"))?.target_directory.into())
}

/// Returns a cargo command in the repository, with the environment of a shell.
///
/// Cargo set `LIBTORCH` for this program from `.cargo/config.toml`; if inherited, it would look like the user's choice.
#[must_use]
pub fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    if chosen_libtorch(root).is_none() {
        command.env_remove("LIBTORCH");
    }
    // If one of these variables changes, the build script of `ring` runs again and dependent crates are compiled again.
    std::env::vars_os().filter(|(name, _)| is_of_package(name)).for_each(|(name, _)| _ = command.env_remove(name));
    command
}

/// Returns true for a variable with which cargo describes the package of the running program, here xtask.
fn is_of_package(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
}

/// Returns the directory that the user set in `LIBTORCH`, if it differs from the one in `.cargo/config.toml`.
#[must_use]
pub fn chosen_libtorch(root: &Path) -> Option<PathBuf> {
    let chosen = PathBuf::from(std::env::var_os("LIBTORCH")?);
    let same = |a: &Path, b: &Path| a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b);
    (!chosen.as_os_str().is_empty() && !same(&chosen, &root.join(".libtorch"))).then_some(chosen)
}

/// Returns the directory of libtorch: the user's, else `.libtorch`.
#[must_use]
pub fn libtorch(root: &Path) -> PathBuf {
    chosen_libtorch(root).unwrap_or_else(|| root.join(".libtorch"))
}

/// Builds programs with these further options of `cargo build`.
///
/// # Errors
/// The build fails.
pub(crate) fn build(root: &Path, programs: &[Program], options: &[&str]) -> Result<()> {
    let mut build = cargo(root);
    build.arg("build").args(options);
    build.args(programs.iter().flat_map(|(package, binary)| ["--package", package, "--bin", binary]));
    run(&mut build)
}

/// Runs a command that prints messages itself, and fails if the command fails.
///
/// # Errors
/// The command cannot start, or exits with another status than 0.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("start {}", line(command)))?;
    if !status.success() {
        bail!("{} failed: {status}", line(command));
    }
    Ok(())
}

/// Runs a command until it exits, and returns the standard output.
///
/// # Errors
/// The command cannot start, or exits with another status than 0; the error holds the complete output.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("start {}", line(command)))?;
    let [text, errors] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    if !output.status.success() {
        bail!("{} failed: {}", line(command), format!("{}\n{}", text.trim(), errors.trim()).trim());
    }
    Ok(text)
}

/// Prints the findings of a check, one per line.
///
/// # Errors
/// There are findings; the message holds the count, then `what`.
pub fn report(found: &[String], what: &str) -> Result<()> {
    for one in found {
        println!("{one}");
    }
    ensure!(found.is_empty(), "{} {what}", found.len());
    Ok(())
}

/// Returns the number of cores that this process may use.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Formats the command as it would be typed in a shell.
#[must_use]
pub fn line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let mut line = program.to_string_lossy().into_owned();
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_is_called_without_the_description_of_this_package() {
        // Cargo sets this variable for every test.
        assert!(
            std::env::var_os("CARGO_PKG_VERSION_MAJOR").is_some() || std::env::var_os("CARGO_MANIFEST_DIR").is_some()
        );
        let command = cargo(Path::new("."));
        let removed = |name: &str| command.get_envs().any(|(key, value)| key == name && value.is_none());
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            let describes = name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
            assert_eq!(
                removed(&name),
                describes || name == "LIBTORCH" && chosen_libtorch(Path::new(".")).is_none(),
                "{name}"
            );
        }
    }
}
