//! The text of the Dockerfiles sent to the engine. The instructions that configure containers are copied from the
//! stages of deploy/Dockerfile.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::certs::USER;
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

/// Target hardware of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flavour {
    /// CPUs; only the learner may contain libtorch.
    Cpu,
    /// NVIDIA GPUs; every process that evaluates or trains contains both halves of libtorch.
    Gpu,
}

/// A process with the image built for it; the image has the name of the stage.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) binary: &'static str,
    pub(super) package: &'static str,
    pub(super) image: &'static str,
}

/// All processes, each with an image.
pub(super) const PROCESSES: [Process; 6] = [
    same("replay-server"),
    same("learner"),
    same("inference-server"),
    same("actor"),
    same("arena"),
    Process { package: "cli", image: "cli", binary: "zerofleet" },
];

impl Process {
    /// Returns the flavour of the image when `wanted` images are built: processes that neither evaluate nor train stay
    /// on CPUs.
    pub(super) fn flavour(&self, wanted: Flavour) -> Flavour {
        let computes = self.package == "learner" || EVALUATING.contains(&self.package);
        if computes { wanted } else { Flavour::Cpu }
    }

    /// Returns the image name for a flavour.
    pub(super) fn image(&self, flavour: Flavour) -> String {
        match flavour {
            Flavour::Cpu => self.image.to_owned(),
            Flavour::Gpu => format!("{}-gpu", self.image),
        }
    }
}

const fn same(name: &'static str) -> Process {
    Process { binary: name, package: name, image: name }
}

/// Text of deploy/Dockerfile.
#[derive(Debug)]
pub(super) struct Stages(String);

impl Stages {
    /// Reads the stages from the repository.
    pub(super) fn read(root: &Path) -> Result<Self> {
        Ok(Self(fs::read_to_string(root.join("deploy/Dockerfile")).context("read deploy/Dockerfile")?))
    }

    /// Returns the instructions of a stage that configure containers: all except COPY, RUN and comments.
    fn instructions(&self, stage: &str) -> Result<String> {
        let is_head = |line: &str| line.starts_with("FROM ") && line.ends_with(&format!(" AS {stage}"));
        let lines = self.0.lines().skip_while(|line| !is_head(line)).skip(1).take_while(|line| !line.is_empty());
        let lines = lines.filter(|line| !["COPY ", "RUN ", "#"].iter().any(|word| line.starts_with(word)));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        ensure!(!text.is_empty(), "deploy/Dockerfile has no stage `{stage}`");
        Ok(text)
    }

    /// Returns the recipe of the common base image. It contains the parts shared by all images, so that each image
    /// needs only a few steps.
    pub(super) fn system(&self, base: &str) -> Result<String> {
        // On another base the directory is empty, and the classic builder creates no layer from an empty directory.
        let root = if base == SCRATCH { "COPY root/ /\n" } else { "" };
        let instructions = self.instructions(SYSTEM)?;
        Ok(format!("FROM {base}\n{root}COPY --chown={USER}:{USER} owned/ /\n{instructions}"))
    }

    /// Returns the recipe of the image that adds the CUDA half of libtorch to `torch`, the image with the CPU half. The
    /// directory `root` holds further system libraries that the CUDA half loads.
    pub(super) fn cuda(&self, torch: &str, content: &str) -> Result<String> {
        let instructions = self.instructions(CUDA)?;
        Ok(format!("FROM {torch}\nCOPY root/ /\n{COPY_LIBTORCH}{instructions}LABEL {CONTENT}=\"{content}\"\n"))
    }

    /// Returns the recipe of the image for one binary.
    pub(super) fn process(&self, process: &Process, below: &str) -> Result<String> {
        let Process { binary, image, .. } = process;
        let instructions = self.instructions(image)?;
        Ok(format!("FROM {below}\nCOPY {binary} /usr/local/bin/{binary}\n{instructions}"))
    }
}

/// Instructions that copy a half of libtorch with the licences. Binaries in `bin` search for libtorch in the sibling
/// `lib`.
const COPY_LIBTORCH: &str = "COPY lib/ /usr/local/lib/\nCOPY licenses/ /licenses/\n";

/// Returns the recipe of the image with the CPU half of libtorch.
pub(super) fn torch(system: &str, content: &str) -> String {
    format!("FROM {system}\n{COPY_LIBTORCH}LABEL {CONTENT}=\"{content}\"\n")
}

/// Writes files that `scratch` lacks: user names, and the configuration for looking up host names.
pub(super) fn user_files(root: &Path) -> Result<()> {
    let etc = root.join("etc");
    fs::create_dir_all(&etc).with_context(|| format!("create {}", etc.display()))?;
    let files = [
        ("passwd", format!("zerofleet:x:{USER}:{USER}::/data:/nonexistent\n")),
        ("group", format!("zerofleet:x:{USER}:\n")),
        ("nsswitch.conf", "hosts: files dns\n".to_owned()),
    ];
    for (name, text) in files {
        fs::write(etc.join(name), text).with_context(|| format!("write {name}"))?;
    }
    Ok(())
}

/// Makes a directory writable by all users. A container may run as the owner of the secrets on the host, rather than as
/// the user of the image. A volume takes the permissions of the directory at the mount point.
pub(super) fn writable_by_all(folder: &Path) -> Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o1777))
        .with_context(|| format!("make {} readable for all users", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    fn stages() -> Stages {
        Stages::read(&workspace::root()).unwrap()
    }

    #[test]
    fn no_image_runs_as_root_or_needs_a_shell() {
        let system = stages().system(SCRATCH).unwrap();
        assert!(system.contains("\nUSER 10001:10001\n") && system.contains("\nSTOPSIGNAL SIGTERM\n"), "{system}");
        for process in &PROCESSES {
            for line in stages().process(process, "zerofleet/system:dev").unwrap().lines() {
                let command = ["CMD ", "ENTRYPOINT ", "HEALTHCHECK "].iter().any(|word| line.starts_with(word));
                assert!(!command || line.contains('['), "not run by a shell: {line}");
                assert!(!line.starts_with("RUN ") && !line.starts_with("USER "), "{line}");
            }
        }
    }

    #[test]
    fn the_dockerfile_of_the_repository_has_the_same_lines() {
        for process in &PROCESSES {
            let recipe = stages().process(process, "").unwrap();
            let end: String = recipe.lines().skip(2).map(|line| format!("{line}\n")).collect();
            assert!(stages().0.contains(&end), "deploy/Dockerfile has not:\n{end}");
            let entry = format!("ENTRYPOINT [\"/usr/local/bin/{}\"]", process.binary);
            assert!(end.contains(&entry), "{end}");
            // Processes that serve until a signal drains them have a probe.
            let probe = end.contains(&format!("CMD [\"/usr/local/bin/{}\", \"--admin\"", process.binary));
            assert_eq!(probe, process.image != "cli", "{end}");
        }
        assert!(stages().instructions("driver").unwrap_err().to_string().contains("has no stage `driver`"));
    }

    #[test]
    fn images_for_gpus_have_names_of_their_own_and_find_the_driver_of_their_host() {
        let names: Vec<String> = PROCESSES.iter().map(|process| process.image(process.flavour(Flavour::Gpu))).collect();
        assert_eq!(names, ["replay-server", "learner-gpu", "inference-server-gpu", "actor-gpu", "arena-gpu", "cli"]);
        let cuda = stages().cuda("zerofleet/libtorch:dev", "1234").unwrap();
        assert!(cuda.starts_with("FROM zerofleet/libtorch:dev\n") && cuda.contains("COPY licenses/ /licenses/\n"));
        // On an empty base the loader has no cache, and searches none of the directories with mounted drivers.
        assert!(cuda.contains("\nENV LD_LIBRARY_PATH=/usr/local/nvidia/lib64:/usr/lib64:"), "{cuda}");
        assert!(!cuda.contains("NVIDIA_VISIBLE_DEVICES"), "a container gets a GPU only if one was requested for it");
    }

    #[test]
    fn a_code_change_ships_neither_the_system_nor_libtorch_again() {
        let recipe = stages().process(&PROCESSES[1], "zerofleet/libtorch:dev").unwrap();
        let copies: Vec<&str> = recipe.lines().filter(|line| line.starts_with("COPY")).collect();
        assert_eq!(copies, ["COPY learner /usr/local/bin/learner"]);
    }
}
