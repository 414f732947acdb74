//! `cargo xtask image`: builds one small image per process, from binaries built on this machine.
//!
//! An image has three layers, ordered by how often they change: the files of the system (`zerofleet/system`), libtorch
//! (`zerofleet/libtorch`, only below the images of processes that are linked with it), and a binary. On `scratch` the
//! first holds the libraries that the binaries load, copied from this machine, so that no registry is needed; on a
//! Debian base it is empty. An image is built in the same way whether or not a registry is reachable, because the
//! result must not depend on the network.
//!
//! deploy/Dockerfile builds the same images on machines that have only Docker. Start with [`run`].

mod libraries;
mod recipe;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail, ensure};
use tempfile::TempDir;

use crate::{certs, libtorch, workspace};
use libraries::Libraries;
use recipe::{Process, SYSTEM, Stages, TORCH};

/// Options of the images.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// The base image: any Debian at least as new as this machine's, or `scratch` with libraries copied from this
    /// machine.
    #[arg(long, default_value = recipe::SCRATCH)]
    pub base: String,
    /// The tag of the images.
    #[arg(long, default_value = "dev")]
    pub tag: String,
    /// Debug builds instead of release builds.
    #[arg(long)]
    pub debug: bool,
    /// Build nothing: pack the binaries in this folder, and make no certificates.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["debug", "torch"])]
    pub from: Option<PathBuf>,
    /// Link the inference server with libtorch, for accelerators.
    #[arg(long)]
    pub torch: bool,
    /// Only the image of this binary; may be given many times.
    #[arg(long, value_name = "BINARY")]
    pub only: Vec<String>,
}

/// Builds binaries and images, and creates the other files that compose needs: certificates, tokens and `.env`.
///
/// # Errors
/// There is no Docker engine, something does not build, or an image does not start.
pub fn run(root: &Path, options: &Options) -> Result<()> {
    if !cfg!(target_os = "linux") {
        bail!("images hold Linux binaries, and those of this machine are others: `docker build` deploy/Dockerfile");
    }
    docker(&["version", "--format", "{{.Server.Version}}"]).context("read the version of the Docker engine")?;
    let processes = chosen(&options.only)?;
    let folder = build(root, options, &processes)?;
    let stage = Stage::new(&root.join("target").join("image"))?;

    let torch_folder = torch_folder(root);
    let torch = Libraries::in_folder(&torch_folder)?;
    let mut packed = Vec::new();
    for process in processes {
        let binary = stage.binary(&folder, process.binary)?;
        // The original binary is inspected, because it finds libtorch by a path relative to its own location.
        let linked = libraries::of(&folder.join(process.binary), &torch_folder)?.system_and_other(&torch);
        packed.push((process, binary, linked));
    }
    let system: BTreeSet<PathBuf> = packed.iter().flat_map(|(_, _, linked)| linked.system.clone()).collect();
    let needs_torch = packed.iter().any(|(_, _, linked)| linked.torch);
    let system_image = image(SYSTEM, &options.tag);
    stage.system(&options.base, &system, needs_torch.then_some(&torch))?;
    let stages = Stages::read(root)?;
    stage.build(&system_image, SYSTEM, &stages.system(&options.base)?)?;
    let torch_image = image(TORCH, &options.tag);
    if needs_torch {
        stage.torch(&system_image, &torch_image, &torch)?;
    }
    // Images are built in parallel, because the engine mostly waits for its disk.
    std::thread::scope(|scope| {
        let makes = packed.iter().map(|(process, binary, linked)| {
            let below = if linked.torch { &torch_image } else { &system_image };
            let name = image(process.image, &options.tag);
            let (stage, stages) = (&stage, &stages);
            scope.spawn(move || stage.make(process, binary, &name, &stages.process(process, below)?))
        });
        let makes: Vec<_> = makes.collect();
        makes.into_iter().try_for_each(|make| make.join().map_err(|_| anyhow!("an image was not made"))?)
    })?;
    report(&packed.iter().map(|(process, ..)| image(process.image, &options.tag)).collect::<Vec<_>>())?;
    if options.from.is_some() {
        return Ok(());
    }
    certs::ensure(&root.join(certs::FOLDER))?;
    environment(root, &options.tag)
}

fn image(name: &str, tag: &str) -> String {
    format!("zerofleet/{name}:{tag}")
}

fn chosen(only: &[String]) -> Result<Vec<&'static Process>> {
    let known = || recipe::PROCESSES.iter().map(|process| process.binary).collect::<Vec<_>>().join(", ");
    for name in only {
        ensure!(recipe::PROCESSES.iter().any(|process| process.binary == name), "no image of `{name}`: {}", known());
    }
    let wanted = |process: &&Process| only.is_empty() || only.iter().any(|name| process.binary == name);
    Ok(recipe::PROCESSES.iter().filter(wanted).collect())
}

/// Builds the requested binaries and returns their directory.
fn build(root: &Path, options: &Options, processes: &[&Process]) -> Result<PathBuf> {
    if let Some(folder) = &options.from {
        return Ok(folder.clone());
    }
    let (profile, folder) = if options.debug { (None, "debug") } else { (Some("--release"), "release") };
    libtorch::ensure(root, libtorch::Check::Stamp, libtorch::Choice::Cpu)?;
    let packages = processes.iter().flat_map(|process| ["--package", process.package]);
    workspace::run(workspace::cargo(root).arg("build").args(profile).args(packages))?;
    if options.torch {
        let torch = ["--package", "inference-server", "--features", "torch"];
        workspace::run(workspace::cargo(root).arg("build").args(profile).args(torch))?;
    }
    Ok(workspace::metadata(root)?.target_directory.join(folder).into())
}

/// Returns the folder of the libraries of libtorch. All of them go into its layer, because some are loaded by name at
/// run time.
fn torch_folder(root: &Path) -> PathBuf {
    workspace::chosen_libtorch(root).unwrap_or_else(|| root.join(".libtorch")).join("lib")
}

/// A temporary folder for the files that are sent to the engine; it is removed with its contents on drop, also after an
/// error.
struct Stage(TempDir);

impl Stage {
    fn new(work: &Path) -> Result<Self> {
        fs::create_dir_all(work).with_context(|| format!("create {}", work.display()))?;
        Ok(Self(TempDir::new_in(work).with_context(|| format!("create a folder in {}", work.display()))?))
    }

    /// The folder of the files of an image.
    fn context(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Copies a binary without its debug information.
    fn binary(&self, folder: &Path, name: &str) -> Result<PathBuf> {
        let (from, to) = (folder.join(name), self.context("binaries").join(name));
        ensure!(from.is_file(), "{} is missing: build it with `cargo build --package {name}`", from.display());
        copy(&from, &to)?;
        let stripped = Command::new("strip").arg("--strip-debug").arg(&to).status();
        if !stripped.is_ok_and(|status| status.success()) {
            eprintln!("image: cannot strip {name} (binutils are missing?); its image is larger than need be");
        }
        Ok(to)
    }

    /// Creates the files of the system image: folders that processes may write to, and on `scratch` also libraries,
    /// user files and certificate authorities.
    fn system(&self, base: &str, libraries: &BTreeSet<PathBuf>, torch: Option<&Libraries>) -> Result<()> {
        let context = self.context(SYSTEM);
        let (root, owned) = (context.join("root"), context.join("owned"));
        for folder in [&root, &owned.join("data")] {
            fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        }
        recipe::writable_by_all(&owned.join("data"))?;
        if base != recipe::SCRATCH {
            return Ok(());
        }
        recipe::user_files(&root)?;
        let needed = torch.map(Libraries::needed_of_system).transpose()?.unwrap_or_default();
        for library in libraries.iter().chain(&needed).cloned().chain(libraries::of_name_lookups(libraries)) {
            copy(&library, &below(&root, &library)?)?;
        }
        let authorities = Path::new("/etc/ssl/certs/ca-certificates.crt");
        if authorities.exists() {
            copy(authorities, &below(&root, authorities)?)?;
        }
        Ok(())
    }

    /// Builds the image with libtorch, unless an image with the same content exists.
    fn torch(&self, system: &str, name: &str, torch: &Libraries) -> Result<()> {
        let below = docker(&["image", "inspect", "--format", "{{.Id}}", system])?;
        let content = format!("{} on {}", torch.stamp()?, below.trim());
        let format = format!("{{{{index .Config.Labels \"{}\"}}}}", recipe::CONTENT);
        if docker(&["image", "inspect", "--format", &format, name]).is_ok_and(|found| found.trim() == content) {
            return Ok(());
        }
        let context = self.context(TORCH);
        for library in torch.paths() {
            let file = library.file_name().context("a library has a name")?;
            copy(library, &context.join("lib").join(file))?;
        }
        self.build(name, TORCH, &recipe::torch(system, &content))
    }

    fn make(&self, process: &Process, binary: &Path, name: &str, recipe: &str) -> Result<()> {
        copy(binary, &self.context(process.image).join(process.binary))?;
        self.build(name, process.image, recipe)?;
        // The binary starts only if every library is present and new enough.
        docker(&["run", "--rm", "--network", "none", "--read-only", name, "--help"])
            .with_context(|| format!("start {name}"))?;
        Ok(())
    }

    fn build(&self, name: &str, context: &str, recipe: &str) -> Result<()> {
        let context = self.context(context);
        let file = context.join("Dockerfile");
        fs::write(&file, recipe).with_context(|| format!("write {}", file.display()))?;
        let (file, folder) = (file.display().to_string(), context.display().to_string());
        docker(&["build", "--quiet", "--tag", name, "--file", &file, &folder])
            .with_context(|| format!("build {name}"))?;
        fs::remove_dir_all(&context).with_context(|| format!("remove {}", context.display()))
    }
}

/// Maps an absolute path of this machine to a path below `root`.
fn below(root: &Path, path: &Path) -> Result<PathBuf> {
    Ok(root.join(path.strip_prefix("/").with_context(|| format!("{} is not absolute", path.display()))?))
}

/// Copies the contents and the permissions of a file; symbolic links are followed.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    }
    fs::copy(from, to).with_context(|| format!("copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

/// Runs `docker` and returns its output.
fn docker(arguments: &[&str]) -> Result<String> {
    workspace::output(Command::new("docker").args(arguments))
}

fn report(images: &[String]) -> Result<()> {
    for name in images {
        let bytes = docker(&["image", "inspect", "--format", "{{.Size}}", name])?;
        let bytes: u64 = bytes.trim().parse().with_context(|| format!("read the size of {name}"))?;
        println!("{name:<40} {:>8.1} MB", bytes as f64 / 1e6);
    }
    Ok(())
}

/// Writes `deploy/.env` for this machine unless it exists: the example, with the tag and with the user that may read
/// the secrets.
fn environment(root: &Path, tag: &str) -> Result<()> {
    use std::os::unix::fs::MetadataExt as _;

    let path = root.join("deploy").join(".env");
    if path.exists() {
        return Ok(());
    }
    let example = fs::read_to_string(root.join("deploy").join(".env.example")).context("read deploy/.env.example")?;
    let owner = fs::metadata(root.join(certs::FOLDER).join("actor")).context("look at who owns the secrets")?;
    let lines = example.lines().map(|line| match line.split_once('=') {
        Some(("ZEROFLEET_TAG", _)) => format!("ZEROFLEET_TAG={tag}"),
        Some(("ZEROFLEET_USER", _)) => format!("ZEROFLEET_USER={}:{}", owner.uid(), owner.gid()),
        _ => line.to_owned(),
    });
    let text: String = lines.map(|line| line + "\n").collect();
    fs::write(&path, text).context("write deploy/.env")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_images_are_refused_by_name() {
        let error = chosen(&["actors".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("actors") && error.contains("replay-server"), "{error}");
        assert_eq!(chosen(&[]).unwrap().len(), recipe::PROCESSES.len());
        assert_eq!(chosen(&["actor".to_owned()]).unwrap().len(), 1);
    }
}
