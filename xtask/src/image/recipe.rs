//! Generates the Dockerfiles that are sent to the engine. The instructions that configure containers are copied from
//! the stages of deploy/Dockerfile.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::certs::USER;
use crate::files;
use crate::train::EVALUATING;

/// Name of the image and the context with the system files.
pub(super) const SYSTEM: &str = "system";
/// Name of the image and the context with the CPU half of libtorch.
pub(super) const TORCH: &str = "libtorch";
/// Name of the image, the context and the stage with the CUDA half of libtorch.
pub(super) const CUDA: &str = "cuda";
/// Empty base image.
pub(super) const SCRATCH: &str = "scratch";
/// Label that identifies the content of a libtorch layer.
pub(super) const CONTENT: &str = "zerofleet.content";

/// The hardware for which an image is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flavour {
    /// CPUs; only the learner may contain libtorch.
    Cpu,
    /// NVIDIA GPUs; every process that evaluates or trains contains both halves of libtorch.
    Gpu,
}

/// Returns the flavour of the image of a package when `wanted` images are built: processes that neither evaluate nor
/// train stay on CPUs.
pub(super) fn flavour_of(package: &str, wanted: Flavour) -> Flavour {
    if package == "learner" || EVALUATING.contains(&package) { wanted } else { Flavour::Cpu }
}

/// Returns the image name of a package for a flavour.
pub(super) fn image_of(package: &str, flavour: Flavour) -> String {
    match flavour {
        Flavour::Cpu => package.to_owned(),
        Flavour::Gpu => format!("{package}-gpu"),
    }
}

/// Text of deploy/Dockerfile.
#[derive(Debug)]
pub(super) struct Stages(String);

impl Stages {
    /// Reads the stages from the repository.
    pub(super) fn read(root: &Path) -> Result<Self> {
        files::read(&root.join("deploy/Dockerfile")).map(Self)
    }

    /// Returns the instructions of a stage that configure containers: all except COPY, RUN and comments.
    fn instructions(&self, stage: &str) -> Result<String> {
        let is_head = |line: &str| line.starts_with("FROM ") && line.ends_with(&format!(" AS {stage}"));
        let mut lines = self.0.lines().skip_while(|line| !is_head(line));
        ensure!(lines.next().is_some(), "deploy/Dockerfile has no stage `{stage}`");
        let lines = lines.take_while(|line| !line.is_empty());
        let lines = lines.filter(|line| !["COPY ", "RUN ", "#"].iter().any(|word| line.starts_with(word)));
        Ok(lines.map(|line| format!("{line}\n")).collect())
    }

    /// Returns the recipe of the common base image. It contains the parts shared by all images, so that each image
    /// needs only a few steps.
    pub(super) fn system(&self, base: &str) -> Result<String> {
        // On another base there are no further files.
        let root = if base == SCRATCH { COPY_ROOT } else { "" };
        let instructions = self.instructions(SYSTEM)?;
        Ok(format!("FROM {base}\n{root}COPY --chown={USER}:{USER} owned/ /\n{instructions}"))
    }

    /// Returns the recipe of the image that adds a half of libtorch to the image below.
    pub(super) fn layer(&self, stage: &str, below: &str, content: &str) -> Result<String> {
        let instructions = self.instructions(stage)?;
        Ok(format!("FROM {below}\n{COPY_ROOT}{instructions}LABEL {CONTENT}=\"{content}\"\n"))
    }

    /// Returns the recipe for the image of a package's program. The stage has the name of the program.
    pub(super) fn process(&self, package: &str, below: &str) -> Result<String> {
        let instructions = self.instructions(package)?;
        Ok(format!("FROM {below}\n{COPY_ROOT}{instructions}"))
    }
}

/// Instruction that copies the files of an image, which lie in `root` as in the image. Binaries in `bin` search for
/// libtorch in the sibling `lib`.
const COPY_ROOT: &str = "COPY root/ /\n";

/// Writes files that `scratch` lacks into the directory `etc`: user names, and the configuration for looking up host
/// names.
pub(super) fn user_files(etc: &Path) -> Result<()> {
    files::create_folder(etc)?;
    files::write(&etc.join("passwd"), format!("zerofleet:x:{USER}:{USER}::/data:/nonexistent\n"))?;
    files::write(&etc.join("group"), format!("zerofleet:x:{USER}:\n"))?;
    files::write(&etc.join("nsswitch.conf"), "hosts: files dns\n")
}

/// Creates a directory that is writable by all users. A container may run as the owner of the secrets on the host,
/// rather than as the user of the image. A volume takes the permissions of the directory at the mount point.
pub(super) fn writable_by_all(folder: &Path) -> Result<()> {
    files::create_folder(folder)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o1777))
        .with_context(|| format!("make {} writable for all users", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::{self, PROGRAMS};

    fn stages() -> Stages {
        Stages::read(&workspace::root()).unwrap()
    }

    #[test]
    fn no_image_runs_as_root_or_needs_a_shell() {
        let system = stages().system(SCRATCH).unwrap();
        assert!(system.contains("\nUSER 10001:10001\n") && system.contains("\nSTOPSIGNAL SIGTERM\n"), "{system}");
        for (package, _) in PROGRAMS {
            for line in stages().process(package, "zerofleet/system:dev").unwrap().lines() {
                let command = ["CMD ", "ENTRYPOINT ", "HEALTHCHECK "].iter().any(|word| line.starts_with(word));
                assert!(!command || line.contains('['), "not run by a shell: {line}");
                assert!(!line.starts_with("RUN ") && !line.starts_with("USER "), "{line}");
            }
        }
    }

    #[test]
    fn the_dockerfile_of_the_repository_has_the_same_lines() {
        for (package, binary) in PROGRAMS {
            let recipe = stages().process(package, "").unwrap();
            let end: String = recipe.lines().skip(2).map(|line| format!("{line}\n")).collect();
            assert!(stages().0.contains(&end), "deploy/Dockerfile has not:\n{end}");
            let entry = format!("ENTRYPOINT [\"/usr/local/bin/{binary}\"]");
            assert!(end.contains(&entry), "{end}");
            // Processes that serve until a signal drains them have a probe.
            let probe = end.contains(&format!("CMD [\"/usr/local/bin/{binary}\", \"--admin\""));
            assert_eq!(probe, package != "cli", "{end}");
        }
        assert!(stages().instructions("driver").unwrap_err().to_string().contains("has no stage `driver`"));
    }

    #[test]
    fn images_for_gpus_have_names_of_their_own_and_find_the_driver_of_their_host() {
        let names = PROGRAMS.map(|(package, _)| image_of(package, flavour_of(package, Flavour::Gpu)));
        assert_eq!(names, ["cli", "replay-server", "learner-gpu", "actor-gpu", "arena-gpu", "inference-server-gpu"]);
        let cuda = stages().layer(CUDA, "zerofleet/libtorch:dev", "1234").unwrap();
        assert!(cuda.starts_with("FROM zerofleet/libtorch:dev\nCOPY root/ /\n"), "{cuda}");
        // On an empty base the loader has no cache, and searches none of the directories with mounted drivers.
        assert!(cuda.contains("\nENV LD_LIBRARY_PATH=/usr/local/nvidia/lib64:/usr/lib64:"), "{cuda}");
        // NVML, which reads load and memory, belongs to `utility`.
        assert!(cuda.contains("\nENV NVIDIA_DRIVER_CAPABILITIES=compute,utility\n"), "{cuda}");
        assert!(!cuda.contains("NVIDIA_VISIBLE_DEVICES"), "a container gets a GPU only if one was requested for it");
    }

    #[test]
    fn a_code_change_ships_neither_the_system_nor_libtorch_again() {
        let recipe = stages().process("learner", "zerofleet/libtorch:dev").unwrap();
        let copies: Vec<&str> = recipe.lines().filter(|line| line.starts_with("COPY")).collect();
        assert_eq!(copies, ["COPY root/ /"], "the directory holds the binary alone");
    }
}
