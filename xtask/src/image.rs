//! `cargo xtask image`: builds one small image per process, from binaries built on this machine.
//!
//! An image has up to four layers, ordered by how rarely they change: the system files (`zerofleet/system`), the CPU
//! half of libtorch (`zerofleet/libtorch`, only below images of processes that link it), the CUDA half
//! (`zerofleet/cuda`, only below images for GPUs, with names in `-gpu`), and a binary. On `scratch` the first layer
//! holds the libraries that the binaries load, copied from this machine, so that no registry is needed; on a Debian
//! base it is empty. Builds are the same whether or not a registry is reachable, because the result must not depend on
//! the network.
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

use crate::libtorch::{self, Choice};
use crate::{certs, workspace};
use libraries::{Libraries, Linked};
use recipe::{CUDA, Flavour, Process, SYSTEM, Stages, TORCH};

/// Options for building container images.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Base image: `scratch`, or Debian, no older than on this machine.
    ///
    /// With `scratch`, shared libraries are copied from this machine.
    #[arg(long, default_value = recipe::SCRATCH)]
    pub base: String,
    /// Tag of the images.
    #[arg(long, default_value = "dev")]
    pub tag: String,
    /// Use debug builds instead of release builds.
    #[arg(long)]
    pub debug: bool,
    /// Pack the binaries in this directory instead of building binaries.
    ///
    /// With this option, no certificates are created.
    #[arg(long, value_name = "DIR", conflicts_with = "debug")]
    pub from: Option<PathBuf>,
    /// Build images for NVIDIA GPUs, with the name suffix `-gpu`.
    ///
    /// The images of learner, actor, inference server and arena then contain libtorch with CUDA.
    #[arg(long)]
    pub gpu: bool,
    /// Build the image of the learner without libtorch.
    ///
    /// The learner then trains only on CPUs, and only configurations that the CPU kernels support.
    #[arg(long, conflicts_with_all = ["gpu", "from"])]
    pub without_libtorch: bool,
    /// Build only the image of this binary; may be repeated.
    #[arg(long, value_name = "BINARY")]
    pub only: Vec<String>,
}

/// Builds binaries and images, and creates the other files that compose needs: certificates, tokens and `.env`.
///
/// # Errors
/// There is no Docker engine, a build fails, or an image does not start.
pub fn run(root: &Path, options: &Options) -> Result<()> {
    if !cfg!(target_os = "linux") {
        bail!(
            "images need Linux binaries, which this machine does not build; use `docker build` with deploy/Dockerfile"
        );
    }
    docker(&["version", "--format", "{{.Server.Version}}"]).context("read the version of the Docker engine")?;
    let processes = chosen(&options.only)?;
    let wanted = if options.gpu { Flavour::Gpu } else { Flavour::Cpu };
    let folder = build(root, options, &processes, wanted)?;
    let stage = Stage::new(&root.join("target").join("image"))?;

    let torch_folder = workspace::chosen_libtorch(root).unwrap_or_else(|| root.join(".libtorch"));
    // A layer holds all libraries of a half, because some are loaded by name at run time.
    let torch = Libraries::in_folder(&torch_folder.join("lib"))?;
    let [cpu_half, cuda_half] = torch.clone().halves();
    let mut packed = Vec::new();
    for process in processes {
        let flavour = process.flavour(wanted);
        let binary = stage.binary(&folder, process.binary)?;
        // Inspects the original binary, because it finds libtorch by a path relative to the file.
        let linked = libraries::of(&folder.join(process.binary), &torch_folder.join("lib"))?.system_and_other(&torch);
        ensure!(
            linked.torch || flavour == Flavour::Cpu,
            "{} is not linked with libtorch; build it with `--features {}/torch`",
            folder.join(process.binary).display(),
            process.package
        );
        packed.push(Packed { process, flavour, binary, linked });
    }
    let system: BTreeSet<PathBuf> = packed.iter().flat_map(|packed| packed.linked.system.clone()).collect();
    let needs_torch = packed.iter().any(|packed| packed.linked.torch);
    let needs_cuda = packed.iter().any(|packed| packed.flavour == Flavour::Gpu);
    ensure!(
        !needs_cuda || !cuda_half.is_empty(),
        "{} has no CUDA half of libtorch; install it with `cargo xtask libtorch --cuda`",
        torch_folder.display()
    );
    let [system_image, torch_image, cuda_image] = [SYSTEM, TORCH, CUDA].map(|name| image(name, &options.tag));
    let needed = if needs_torch { cpu_half.needed_of_system(&torch)? } else { BTreeSet::new() };
    let system = system.union(&needed).cloned().collect();
    stage.system(&options.base, &system)?;
    let stages = Stages::read(root)?;
    stage.build(&system_image, SYSTEM, &stages.system(&options.base)?)?;
    if needs_torch {
        let packages = libtorch::cpu_packages().collect();
        let layer = Layer { name: TORCH, image: &torch_image, below: &system_image, libraries: &cpu_half, packages };
        stage.layer(&layer, &torch_folder, &|content| Ok(recipe::torch(&system_image, content)))?;
    }
    if needs_cuda {
        if options.base == recipe::SCRATCH {
            let more = cuda_half.needed_of_system(&torch)?;
            stage.copy_system(CUDA, more.difference(&system))?;
        }
        // The toolkit that adds the driver to a container writes to this directory, and fails if it is missing.
        let configuration = stage.context(CUDA).join("root/etc/ld.so.conf.d");
        fs::create_dir_all(&configuration).with_context(|| format!("create {}", configuration.display()))?;
        let packages = libtorch::cuda_packages().collect();
        let layer = Layer { name: CUDA, image: &cuda_image, below: &torch_image, libraries: &cuda_half, packages };
        stage.layer(&layer, &torch_folder, &|content| stages.cuda(&torch_image, content))?;
    }
    // Builds images in parallel, because the engine mostly waits for the disk.
    std::thread::scope(|scope| {
        let makes = packed.iter().map(|packed| {
            let below = match (packed.flavour, packed.linked.torch) {
                (Flavour::Gpu, _) => &cuda_image,
                (Flavour::Cpu, true) => &torch_image,
                (Flavour::Cpu, false) => &system_image,
            };
            let (stage, stages) = (&stage, &stages);
            scope.spawn(move || stage.make(packed, &options.tag, &stages.process(packed.process, below)?))
        });
        let makes: Vec<_> = makes.collect();
        makes.into_iter().try_for_each(|make| make.join().map_err(|_| anyhow!("an image thread panicked"))?)
    })?;
    report(&packed.iter().map(|packed| packed.image(&options.tag)).collect::<Vec<_>>())?;
    if options.from.is_some() {
        return Ok(());
    }
    certs::ensure(&root.join(certs::FOLDER))?;
    environment(root, &options.tag)
}

/// A process with the copied binary and the libraries found in it.
struct Packed {
    process: &'static Process,
    flavour: Flavour,
    binary: PathBuf,
    linked: Linked,
}

impl Packed {
    /// Returns the image name with the tag.
    fn image(&self, tag: &str) -> String {
        image(&self.process.image(self.flavour), tag)
    }
}

/// An image that adds a half of libtorch to the image below.
struct Layer<'a> {
    /// Name of the context.
    name: &'static str,
    image: &'a str,
    below: &'a str,
    libraries: &'a Libraries,
    /// Packages with licences to copy into the layer.
    packages: Vec<&'static str>,
}

fn image(name: &str, tag: &str) -> String {
    format!("zerofleet/{name}:{tag}")
}

fn chosen(only: &[String]) -> Result<Vec<&'static Process>> {
    let known = || recipe::PROCESSES.iter().map(|process| process.binary).collect::<Vec<_>>().join(", ");
    for name in only {
        ensure!(
            recipe::PROCESSES.iter().any(|process| process.binary == name),
            "unknown binary `{name}`; binaries are {}",
            known()
        );
    }
    let wanted = |process: &&Process| only.is_empty() || only.iter().any(|name| process.binary == name);
    Ok(recipe::PROCESSES.iter().filter(wanted).collect())
}

/// Builds the requested binaries and returns the directory with them.
fn build(root: &Path, options: &Options, processes: &[&Process], wanted: Flavour) -> Result<PathBuf> {
    if let Some(folder) = &options.from {
        return Ok(folder.clone());
    }
    let (gpu, cpu): (Vec<&Process>, Vec<&Process>) =
        processes.iter().partition(|process| process.flavour(wanted) == Flavour::Gpu);
    let (bare, cpu): (Vec<&Process>, Vec<&Process>) =
        cpu.iter().partition(|process| options.without_libtorch && process.package == "learner");
    let (profile, folder) = if options.debug { (None, "debug") } else { (Some("--release"), "release") };
    if !options.without_libtorch {
        let choice = if gpu.is_empty() { Choice::Cpu } else { Choice::CudaForImages };
        libtorch::ensure(root, libtorch::Check::Stamp, choice)?;
    }
    // One build each: cargo unifies features over all packages of a build, so that `cli` would be linked with libtorch.
    for (packages, default, feature) in
        [(bare, Some("--no-default-features"), ""), (cpu, None, ""), (gpu, None, "/torch")]
    {
        let mut command = workspace::cargo(root);
        command.arg("build").args(profile).args(default);
        for package in packages.iter().map(|process| process.package) {
            command.args(["--package", package]);
            if !feature.is_empty() {
                command.args(["--features", &format!("{package}{feature}")]);
            }
        }
        if !packages.is_empty() {
            workspace::run(&mut command)?;
        }
    }
    Ok(workspace::metadata(root)?.target_directory.join(folder).into())
}

/// A temporary directory for the files sent to the engine; removed with the contents on drop, also after an error.
struct Stage(TempDir);

impl Stage {
    fn new(work: &Path) -> Result<Self> {
        fs::create_dir_all(work).with_context(|| format!("create {}", work.display()))?;
        Ok(Self(TempDir::new_in(work).with_context(|| format!("create a directory in {}", work.display()))?))
    }

    /// Returns the directory with the files of an image.
    fn context(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Copies a binary without the debug information.
    fn binary(&self, folder: &Path, name: &str) -> Result<PathBuf> {
        let (from, to) = (folder.join(name), self.context("binaries").join(name));
        ensure!(from.is_file(), "{} is missing; build it with `cargo build --package {name}`", from.display());
        copy(&from, &to)?;
        let stripped = Command::new("strip").arg("--strip-debug").arg(&to).status();
        if !stripped.is_ok_and(|status| status.success()) {
            eprintln!("image: cannot strip {name} (binutils missing?); the image is larger than necessary");
        }
        Ok(to)
    }

    /// Creates the files of the system image: directories that processes may write to, and on `scratch` also libraries,
    /// user files and certificate authorities.
    fn system(&self, base: &str, libraries: &BTreeSet<PathBuf>) -> Result<()> {
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
        self.copy_system(SYSTEM, libraries.iter().chain(&libraries::of_name_lookups(libraries)))?;
        let authorities = Path::new("/etc/ssl/certs/ca-certificates.crt");
        if authorities.exists() {
            copy(authorities, &below(&root, authorities)?)?;
        }
        Ok(())
    }

    /// Copies libraries of this machine to the same place in an image.
    fn copy_system<'a>(&self, context: &str, libraries: impl Iterator<Item = &'a PathBuf>) -> Result<()> {
        let root = self.context(context).join("root");
        for library in libraries {
            copy(library, &below(&root, library)?)?;
        }
        Ok(())
    }

    /// Builds the image with a half of libtorch and the licences, unless an image with the same content exists.
    fn layer(&self, layer: &Layer<'_>, folder: &Path, recipe: &dyn Fn(&str) -> Result<String>) -> Result<()> {
        let below = docker(&["image", "inspect", "--format", "{{.Id}}", layer.below])?;
        let content = format!("{} on {}", layer.libraries.stamp()?, below.trim());
        let format = format!("{{{{index .Config.Labels \"{}\"}}}}", recipe::CONTENT);
        if docker(&["image", "inspect", "--format", &format, layer.image]).is_ok_and(|found| found.trim() == content) {
            return Ok(());
        }
        let context = self.context(layer.name);
        for library in layer.libraries.paths() {
            let file = library.file_name().context("a library has a name")?;
            link_or_copy(library, &context.join("lib").join(file))?;
        }
        self.licenses(folder, layer)?;
        self.build(layer.image, layer.name, &recipe(&content)?)
    }

    /// Copies the licences of the wheels for a half of libtorch. Installations older than this rule have no licences
    /// for the CPU half, and a libtorch installed by the user has none at all.
    fn licenses(&self, folder: &Path, layer: &Layer<'_>) -> Result<()> {
        let (from, to) = (folder.join(libtorch::LICENSES), self.context(layer.name).join("licenses"));
        fs::create_dir_all(&to).with_context(|| format!("create {}", to.display()))?;
        for package in &layer.packages {
            let files = fs::read_dir(from.join(package)).into_iter().flatten();
            let mut count = 0;
            for file in files {
                let file = file.with_context(|| format!("list the licences of {package}"))?;
                copy(&file.path(), &to.join(package).join(file.file_name()))?;
                count += 1;
            }
            if count == 0 {
                eprintln!(
                    "image: {} has no licence of {package}, which published images must contain; remove {} and \
                     retry",
                    from.display(),
                    folder.join("include").display()
                );
            }
        }
        Ok(())
    }

    fn make(&self, packed: &Packed, tag: &str, recipe: &str) -> Result<()> {
        let (context, name) = (packed.process.image(packed.flavour), packed.image(tag));
        copy(&packed.binary, &self.context(&context).join(packed.process.binary))?;
        self.build(&name, &context, recipe)?;
        // The binary starts only if every library is present and new enough.
        docker(&["run", "--rm", "--network", "none", "--read-only", &name, "--help"])
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

/// Copies contents and permissions of a file; follows symbolic links.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    }
    fs::copy(from, to).with_context(|| format!("copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

/// Links a file into a context instead of copying gigabytes, if both are on one file system; copies it otherwise.
fn link_or_copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    }
    fs::hard_link(from, to).or_else(|_| copy(from, to))
}

/// Runs `docker` and returns the output.
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

/// Writes `deploy/.env` for this machine unless it exists: the example, with the tag and the user that may read the
/// secrets.
fn environment(root: &Path, tag: &str) -> Result<()> {
    use std::os::unix::fs::MetadataExt as _;

    let path = root.join("deploy").join(".env");
    if path.exists() {
        return Ok(());
    }
    let example = fs::read_to_string(root.join("deploy").join(".env.example")).context("read deploy/.env.example")?;
    let owner = fs::metadata(root.join(certs::FOLDER).join("actor")).context("read the owner of the secrets")?;
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
