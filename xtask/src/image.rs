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

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail, ensure};
use tempfile::TempDir;

use crate::libtorch::{self, Choice};
use crate::suite::LEARNER_TORCH;
use crate::workspace::{self, PROGRAMS, Program};
use crate::{certs, files};
use libraries::Libraries;
use recipe::{CUDA, Flavour, SCRATCH, SYSTEM, Stages, TORCH, flavour_of, image_of};

/// Package of the image with the bundled models, and the directory there, where the program finds them.
const MODELS: (&str, &str) = ("cli", "/usr/local/share/zerofleet/models");

/// Directories in `deploy` that containers mount, besides the secrets.
const MOUNTED: [&str; 4] = ["config", "grafana", "jaeger", "prometheus"];

/// Options for building container images.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Base image: `scratch`, or Debian, no older than on this machine.
    ///
    /// With `scratch`, shared libraries are copied from this machine.
    #[arg(long, default_value = SCRATCH)]
    pub base: String,
    /// Tag of the images.
    #[arg(long, default_value = "dev")]
    pub tag: String,
    /// Pack debug builds instead of release builds.
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

/// Builds binaries and images, makes mounted files readable, and creates the other files that compose needs:
/// certificates, tokens and `.env`.
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
    let programs = chosen(&options.only)?;
    let wanted = if options.gpu { Flavour::Gpu } else { Flavour::Cpu };
    let folder = build(root, options, &programs, wanted)?;
    let builder = Builder::new(root, options)?;
    let lib = builder.torch.join("lib");
    // A layer holds all libraries of a half, because some are loaded by name at run time.
    let torch = libraries::in_folder(&lib)?;
    let [cpu_half, cuda_half] = libraries::halves(&torch);
    let mut system = Libraries::new();
    let mut packed = Vec::new();
    for (package, name) in programs {
        let (flavour, binary) = (flavour_of(package, wanted), folder.join(name));
        ensure!(binary.is_file(), "{} is missing; build it with `cargo build --package {}`", binary.display(), package);
        let linked = libraries::linked(&binary, &lib, &torch)?;
        ensure!(
            linked.torch || flavour == Flavour::Cpu,
            "{} is not linked with libtorch; build it with `--features {}/torch`",
            binary.display(),
            package
        );
        system.extend(linked.system);
        let below = match (flavour, linked.torch) {
            (Flavour::Gpu, _) => CUDA,
            (Flavour::Cpu, true) => TORCH,
            (Flavour::Cpu, false) => SYSTEM,
        };
        packed.push(Packed { package, binary, name: image_of(package, flavour), below });
    }
    let needs_cuda = packed.iter().any(|packed| packed.below == CUDA);
    let needs_torch = needs_cuda || packed.iter().any(|packed| packed.below == TORCH);
    ensure!(
        !needs_cuda || !cuda_half.is_empty(),
        "{} has no CUDA half of libtorch; install it with `cargo xtask libtorch --cuda`",
        builder.torch.display()
    );
    if needs_torch {
        system.extend(libraries::needed_of_system(&cpu_half, &torch)?);
    }
    builder.system(&system)?;
    if needs_torch {
        builder.layer(TORCH, SYSTEM, &cpu_half, libtorch::cpu_packages())?;
    }
    if needs_cuda {
        if options.base == SCRATCH {
            for library in libraries::needed_of_system(&cuda_half, &torch)?.difference(&system) {
                builder.add(CUDA, library)?;
            }
        }
        // The toolkit that adds the driver to a container writes to this directory, and fails if it is missing.
        files::create_folder(&builder.place(CUDA, Path::new("/etc/ld.so.conf.d")))?;
        builder.layer(CUDA, TORCH, &cuda_half, libtorch::cuda_packages())?;
    }
    // Builds images in parallel, because the engine mostly waits for the disk.
    std::thread::scope(|scope| {
        let builder = &builder;
        let builds: Vec<_> = packed.iter().map(|packed| scope.spawn(move || builder.process(packed))).collect();
        builds.into_iter().try_for_each(|build| build.join().map_err(|_| anyhow!("an image thread panicked"))?)
    })?;
    for name in packed.iter().map(|packed| builder.image(&packed.name)) {
        let bytes = docker(&["image", "inspect", "--format", "{{.Size}}", &name])?;
        let bytes: u64 = bytes.trim().parse().with_context(|| format!("read the size of {name}"))?;
        println!("{name:<40} {:>8.1} MB", bytes as f64 / 1e6);
    }
    MOUNTED.iter().try_for_each(|name| files::share_with_all(&root.join("deploy").join(name)))?;
    if options.from.is_some() {
        return Ok(());
    }
    certs::ensure(&root.join(certs::FOLDER))?;
    environment(root, &options.tag)
}

/// A program to pack.
struct Packed {
    package: &'static str,
    binary: PathBuf,
    /// Name of the image.
    name: String,
    /// Name of the image below.
    below: &'static str,
}

fn chosen(only: &[String]) -> Result<Vec<Program>> {
    let known = PROGRAMS.map(|(_, binary)| binary);
    if let Some(unknown) = only.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("unknown binary `{unknown}`; binaries are {}", known.join(", "));
    }
    let is_wanted = |(_, binary): &Program| only.is_empty() || only.iter().any(|name| name == binary);
    Ok(PROGRAMS.into_iter().filter(is_wanted).collect())
}

/// Builds the requested binaries and returns the directory with them.
fn build(root: &Path, options: &Options, programs: &[Program], wanted: Flavour) -> Result<PathBuf> {
    if let Some(folder) = &options.from {
        return Ok(folder.clone());
    }
    let (gpu, cpu): (Vec<Program>, Vec<Program>) =
        programs.iter().partition(|(package, _)| flavour_of(package, wanted) == Flavour::Gpu);
    let (linked, cpu): (Vec<Program>, Vec<Program>) =
        cpu.iter().partition(|(package, _)| *package == "learner" && !options.without_libtorch);
    if !options.without_libtorch {
        let choice = if gpu.is_empty() { Choice::Cpu } else { Choice::CudaForImages };
        libtorch::ensure(root, libtorch::Check::Stamp, choice)?;
    }
    let features = gpu.iter().map(|(package, _)| format!("{package}/torch")).collect::<Vec<_>>().join(",");
    let (profile, folder) = if options.debug { (None, "debug") } else { (Some("--release"), "release") };
    // One build each: cargo unifies features over all packages of a build, so that `cli` would be linked with libtorch.
    let groups: [(_, &[&str]); 3] =
        [(cpu, &[]), (linked, &["--features", LEARNER_TORCH]), (gpu, &["--features", &features])];
    for (programs, more) in groups {
        if !programs.is_empty() {
            workspace::build(root, &programs, &[profile.as_slice(), more].concat())?;
        }
    }
    Ok(workspace::target(root)?.join(folder))
}

/// Builds images from files in a temporary directory, which is removed with the contents on drop, also after an error.
struct Builder<'a> {
    work: TempDir,
    stages: Stages,
    options: &'a Options,
    /// Directory of libtorch.
    torch: PathBuf,
    /// Directory of the bundled models.
    models: PathBuf,
}

impl<'a> Builder<'a> {
    fn new(root: &Path, options: &'a Options) -> Result<Self> {
        let work = root.join("target").join("image");
        files::create_folder(&work)?;
        let work = TempDir::new_in(&work).with_context(|| format!("create a directory in {}", work.display()))?;
        let (torch, models) = (workspace::libtorch(root), root.join("models"));
        Ok(Self { work, stages: Stages::read(root)?, options, torch, models })
    }

    /// Returns the name of an image with the tag.
    fn image(&self, name: &str) -> String {
        format!("zerofleet/{name}:{}", self.options.tag)
    }

    /// Returns the directory with the files of an image.
    fn context(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }

    /// Returns the path, below the directory of an image, of a file with this absolute path in the image.
    fn place(&self, name: &str, path: &Path) -> PathBuf {
        self.context(name).join("root").join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Copies a file from this machine to the same path in an image.
    fn add(&self, name: &str, path: &Path) -> Result<()> {
        files::copy(path, &self.place(name, path))
    }

    /// Builds the common base image: directories that processes may write to, and on `scratch` also libraries, user
    /// files and certificate authorities.
    fn system(&self, libraries: &Libraries) -> Result<()> {
        recipe::writable_by_all(&self.context(SYSTEM).join("owned/data"))?;
        if self.options.base == SCRATCH {
            recipe::user_files(&self.place(SYSTEM, Path::new("/etc")))?;
            let authorities = Some(PathBuf::from("/etc/ssl/certs/ca-certificates.crt")).filter(|path| path.exists());
            for file in libraries.iter().chain(&libraries::of_name_lookups(libraries)).chain(&authorities) {
                self.add(SYSTEM, file)?;
            }
        }
        self.build(SYSTEM, &self.stages.system(&self.options.base)?)
    }

    /// Builds the image with a half of libtorch and the licences of these packages, unless an image with the same
    /// content exists.
    fn layer(
        &self,
        name: &str,
        below: &str,
        half: &Libraries,
        packages: impl Iterator<Item = &'static str>,
    ) -> Result<()> {
        let below = self.image(below);
        let id = docker(&["image", "inspect", "--format", "{{.Id}}", &below])?;
        let content = format!("{} on {}", libraries::stamp(half)?, id.trim());
        let format = format!("{{{{index .Config.Labels \"{}\"}}}}", recipe::CONTENT);
        let found = docker(&["image", "inspect", "--format", &format, &self.image(name)]);
        if found.is_ok_and(|found| found.trim() == content) {
            return Ok(());
        }
        for library in half {
            link_or_copy(library, &self.place(name, &Path::new("/usr/local/lib").join(files::name(library))))?;
        }
        for package in packages {
            self.licences(name, package)?;
        }
        self.build(name, &self.stages.layer(name, &below, &content)?)
    }

    /// Copies the licences of a wheel. Older installations have no licences for the CPU half, and a libtorch that the
    /// user installed has none at all.
    fn licences(&self, name: &str, package: &str) -> Result<()> {
        let folder = self.torch.join(libtorch::LICENSES);
        let licences = files::list(&folder.join(package)).unwrap_or_default();
        for licence in &licences {
            let path = Path::new("/licenses").join(package).join(files::name(licence));
            files::copy(licence, &self.place(name, &path))?;
        }
        if licences.is_empty() {
            eprintln!(
                "image: {} has no licence of {package}, which published images must contain; remove {} and retry",
                folder.display(),
                self.torch.join("include").display()
            );
        }
        Ok(())
    }

    /// Builds the image of a process, with the binary without debug information, and starts it once.
    fn process(&self, Packed { package, binary, name, below }: &Packed) -> Result<()> {
        let place = self.place(name, &Path::new("/usr/local/bin").join(files::name(binary)));
        files::copy(binary, &place)?;
        let stripped = Command::new("strip").arg("--strip-debug").arg(&place).status();
        if !stripped.is_ok_and(|status| status.success()) {
            eprintln!("image: cannot strip {name} (binutils missing?); the image is larger than necessary");
        }
        let (with_models, target) = MODELS;
        if *package == with_models {
            files::copy_below(&self.models, &self.place(name, Path::new(target)))?;
        }
        self.build(name, &self.stages.process(package, &self.image(below))?)?;
        // The binary starts only if every library is present and new enough.
        let image = self.image(name);
        docker(&["run", "--rm", "--network", "none", "--read-only", &image, "--help"])
            .with_context(|| format!("start {image}"))?;
        Ok(())
    }

    fn build(&self, name: &str, recipe: &str) -> Result<()> {
        let context = self.context(name);
        files::write(&context.join("Dockerfile"), recipe)?;
        files::share_with_all(&context)?;
        docker(&["build", "--quiet", "--tag", &self.image(name), &context.display().to_string()])
            .with_context(|| format!("build {}", self.image(name)))?;
        files::remove_folder(&context)
    }
}

/// Links a file into a context instead of copying gigabytes, if both are on one file system; copies it otherwise.
fn link_or_copy(from: &Path, to: &Path) -> Result<()> {
    files::create_folder(to.parent().unwrap_or(to))?;
    fs::hard_link(from, to).or_else(|_| files::copy(from, to))
}

/// Runs `docker` and returns the output.
fn docker(arguments: &[&str]) -> Result<String> {
    workspace::output(Command::new("docker").args(arguments))
}

/// Writes `deploy/.env` for this machine unless it exists: the example, with the tag and the user that may read the
/// secrets.
fn environment(root: &Path, tag: &str) -> Result<()> {
    use std::os::unix::fs::MetadataExt as _;

    let path = root.join("deploy").join(".env");
    if path.exists() {
        return Ok(());
    }
    let example = files::read(&root.join("deploy").join(".env.example"))?;
    let owner = fs::metadata(root.join(certs::FOLDER).join("actor")).context("read the owner of the secrets")?;
    let lines = example.lines().map(|line| match line.split_once('=') {
        Some(("ZEROFLEET_TAG", _)) => format!("ZEROFLEET_TAG={tag}"),
        Some(("ZEROFLEET_USER", _)) => format!("ZEROFLEET_USER={}:{}", owner.uid(), owner.gid()),
        _ => line.to_owned(),
    });
    let text: String = lines.map(|line| line + "\n").collect();
    files::write(&path, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_directory_that_compose_mounts_from_the_checkout_is_made_readable() {
        let text = files::read(&workspace::root().join("deploy/compose.yaml")).unwrap();
        let mounted = |line: &str| {
            let path = line.split_once("- ./").or_else(|| line.split_once(":-./"))?.1;
            path.split(['/', ':', '}']).next().filter(|name| *name != "secrets").map(str::to_owned)
        };
        let mut found: Vec<String> = text.lines().filter(|line| line.contains(":ro")).filter_map(mounted).collect();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found, MOUNTED);
    }

    #[test]
    fn both_builds_put_the_models_where_the_program_finds_them() {
        let (_, target) = MODELS;
        let dockerfile = files::read(&workspace::root().join("deploy/Dockerfile")).unwrap();
        assert!(dockerfile.contains(&format!("\nCOPY models/ {target}/\n")));
        let models = files::read(&workspace::root().join("cli/src/models.rs")).unwrap();
        let place = target.strip_prefix("/usr/local/").unwrap();
        assert!(
            models.contains(&format!("\"../{place}\"")),
            "relative to the directory of the program in /usr/local/bin"
        );
    }

    #[test]
    fn unknown_images_are_refused_by_name() {
        let error = chosen(&["actors".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("actors") && error.contains("replay-server"), "{error}");
        assert_eq!(chosen(&[]).unwrap(), PROGRAMS);
        assert_eq!(chosen(&["actor".to_owned()]).unwrap(), [("actor", "actor")]);
    }
}
