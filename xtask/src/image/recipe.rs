//! The text of the Dockerfiles that are sent to the engine; the instructions that configure containers are copied from
//! the stages of deploy/Dockerfile.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::certs::USER;

/// The name of the image with the files of the system, and of its context.
pub(super) const SYSTEM: &str = "system";
/// The name of the image with libtorch, and of its context.
pub(super) const TORCH: &str = "libtorch";
/// The empty base image.
pub(super) const SCRATCH: &str = "scratch";
/// The label with the content of the layer of libtorch.
pub(super) const CONTENT: &str = "zerofleet.content";

/// A process and its image, whose name is that of its stage.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) binary: &'static str,
    pub(super) package: &'static str,
    pub(super) image: &'static str,
}

/// Every image.
pub(super) const PROCESSES: [Process; 6] = [
    same("replay-server"),
    same("learner"),
    same("inference-server"),
    same("actor"),
    same("arena"),
    Process { package: "cli", image: "cli", binary: "zerofleet" },
];

const fn same(name: &'static str) -> Process {
    Process { binary: name, package: name, image: name }
}

/// The stages of deploy/Dockerfile.
#[derive(Debug)]
pub(super) struct Stages(String);

impl Stages {
    /// Reads the stages from the repository.
    pub(super) fn read(root: &Path) -> Result<Self> {
        Ok(Self(fs::read_to_string(root.join("deploy/Dockerfile")).context("read deploy/Dockerfile")?))
    }

    /// Returns the instructions of a stage that configure its containers: all except those that build, copy and test.
    fn instructions(&self, stage: &str) -> Result<String> {
        let is_head = |line: &str| line.starts_with("FROM ") && line.ends_with(&format!(" AS {stage}"));
        let lines = self.0.lines().skip_while(|line| !is_head(line)).skip(1).take_while(|line| !line.is_empty());
        let lines = lines.filter(|line| !["COPY ", "RUN ", "#"].iter().any(|word| line.starts_with(word)));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        ensure!(!text.is_empty(), "deploy/Dockerfile has no stage `{stage}`");
        Ok(text)
    }

    /// Returns the recipe of the base of all other images: it has their common parts, so that each needs only a few
    /// steps.
    pub(super) fn system(&self, base: &str) -> Result<String> {
        // On another base the folder is empty, and the classic builder creates no layer from an empty folder.
        let root = if base == SCRATCH { "COPY root/ /\n" } else { "" };
        let instructions = self.instructions(SYSTEM)?;
        Ok(format!("FROM {base}\n{root}COPY --chown={USER}:{USER} owned/ /\n{instructions}"))
    }

    /// Returns the recipe of the image of one binary.
    pub(super) fn process(&self, process: &Process, below: &str) -> Result<String> {
        let Process { binary, image, .. } = process;
        let instructions = self.instructions(image)?;
        Ok(format!("FROM {below}\nCOPY {binary} /usr/local/bin/{binary}\n{instructions}"))
    }
}

/// Returns the recipe of the image with libtorch, in the folder where binaries search for it: `lib` beside their `bin`.
pub(super) fn torch(system: &str, content: &str) -> String {
    format!("FROM {system}\nCOPY lib/ /usr/local/lib/\nLABEL {CONTENT}=\"{content}\"\n")
}

/// Writes the files that `scratch` lacks to name the user and to configure the lookup of host names.
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

/// Makes a folder writable by all users. A container may run as another user than the image's: the owner of the secrets
/// on its host. A volume takes the permissions of the folder that it is mounted over.
pub(super) fn writable_by_all(folder: &Path) -> Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o1777))
        .with_context(|| format!("open {} to all", folder.display()))
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
            // The processes that serve until a signal drains them are probed.
            let probe = end.contains(&format!("CMD [\"/usr/local/bin/{}\", \"--admin\"", process.binary));
            assert_eq!(probe, process.image != "cli", "{end}");
        }
        assert!(stages().instructions("driver").unwrap_err().to_string().contains("has no stage `driver`"));
    }

    #[test]
    fn a_code_change_ships_neither_the_system_nor_libtorch_again() {
        let recipe = stages().process(&PROCESSES[1], "zerofleet/libtorch:dev").unwrap();
        let copies: Vec<&str> = recipe.lines().filter(|line| line.starts_with("COPY")).collect();
        assert_eq!(copies, ["COPY learner /usr/local/bin/learner"]);
    }
}
