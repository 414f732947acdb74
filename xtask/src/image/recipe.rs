//! The text of the Dockerfiles that the engine is sent. deploy/Dockerfile ends with the same lines.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context, Result};

use crate::certs::USER;

/// The name of the image of what the system brings, and of its context.
pub(super) const SYSTEM: &str = "system";
/// The name of the image with libtorch, and of its context.
pub(super) const TORCH: &str = "libtorch";
/// The base that has nothing in it.
pub(super) const SCRATCH: &str = "scratch";
/// The label with the content of the layer of libtorch.
pub(super) const CONTENT: &str = "zerofleet.content";
/// Of `/metrics`, `/healthz` and `/readyz`, in every container.
const ADMIN_PORT: u16 = 9100;

/// A process and its image.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) binary: &'static str,
    pub(super) package: &'static str,
    pub(super) image: &'static str,
    runs: Runs,
    /// Between two probes, and how long one may take.
    probe_seconds: [u32; 2],
}

/// The lifetime of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runs {
    /// Until it is drained by a signal; it serves gRPC on this port.
    Serving(u16),
    /// Until it is drained by a signal.
    Working,
    /// For as long as its command takes.
    Once,
}

/// Every image.
pub(super) const PROCESSES: [Process; 6] = [
    same("replay-server", Runs::Serving(7001)),
    // Loading libtorch takes a probe most of a second of a core.
    Process { probe_seconds: [15, 15], ..same("learner", Runs::Serving(7002)) },
    same("inference-server", Runs::Serving(7003)),
    same("actor", Runs::Working),
    same("arena", Runs::Working),
    Process { package: "cli", image: "cli", ..same("zerofleet", Runs::Once) },
];

const fn same(name: &'static str, runs: Runs) -> Process {
    Process { binary: name, package: name, image: name, runs, probe_seconds: [5, 5] }
}

/// The image below all others: what they all are, so that each is a few steps.
pub(super) fn system(base: &str) -> String {
    // On another base the folder is empty, and the classic builder makes no layer of nothing.
    let root = if base == SCRATCH { "COPY root/ /\n" } else { "" };
    format!(
        "FROM {base}\n\
         {root}\
         COPY --chown={USER}:{USER} owned/ /\n\
         USER {USER}:{USER}\n\
         WORKDIR /data\n\
         STOPSIGNAL SIGTERM\n\
         EXPOSE {ADMIN_PORT}\n"
    )
}

/// libtorch, where binaries look for it: in `lib` beside their `bin`.
pub(super) fn torch(system: &str, content: &str) -> String {
    format!("FROM {system}\nCOPY lib/ /usr/local/lib/\nLABEL {CONTENT}=\"{content}\"\n")
}

/// One binary, and how it is run.
pub(super) fn process(process: &Process, below: &str) -> String {
    let binary = process.binary;
    let mut recipe = format!(
        "FROM {below}\n\
         COPY {binary} /usr/local/bin/{binary}\n\
         ENTRYPOINT [\"/usr/local/bin/{binary}\"]\n"
    );
    let listen = match process.runs {
        Runs::Once => return recipe,
        Runs::Working => String::new(),
        Runs::Serving(port) => format!("\"--listen\", \"0.0.0.0:{port}\", "),
    };
    let [interval, timeout] = process.probe_seconds;
    recipe.push_str(&format!(
        "HEALTHCHECK --interval={interval}s --timeout={timeout}s --start-period=60s --retries=3 \
         CMD [\"/usr/local/bin/{binary}\", \"--admin\", \"0.0.0.0:{ADMIN_PORT}\", \"--probe\", \"ready\"]\n\
         CMD [\"--config\", \"/config/zerofleet.toml\", {listen}\"--admin\", \"0.0.0.0:{ADMIN_PORT}\", \
         \"--log-format\", \"json\"]\n"
    ));
    recipe
}

/// The files of `scratch` that name the user and configure the lookup of host names.
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

/// A container may run as another user than the image's: the owner of the secrets on its host. A volume takes the
/// permissions of the folder that it is mounted over.
pub(super) fn writable_by_all(folder: &Path) -> Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o1777))
        .with_context(|| format!("open {} to all", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_image_runs_as_root_or_needs_a_shell() {
        let system = system(SCRATCH);
        assert!(system.contains("\nUSER 10001:10001\n") && system.contains("\nSTOPSIGNAL SIGTERM\n"), "{system}");
        for process in &PROCESSES {
            for line in super::process(process, "zerofleet/system:dev").lines() {
                let command = ["CMD ", "ENTRYPOINT ", "HEALTHCHECK "].iter().any(|word| line.starts_with(word));
                assert!(!command || line.contains('['), "not run by a shell: {line}");
                assert!(!line.starts_with("RUN ") && !line.starts_with("USER "), "{line}");
            }
        }
    }

    #[test]
    fn the_dockerfile_of_the_repository_has_the_same_lines() {
        let file = fs::read_to_string(crate::workspace::root().join("deploy/Dockerfile")).unwrap();
        let recipes = PROCESSES.iter().map(|process| super::process(process, "")).chain([system("debian")]);
        for recipe in recipes {
            let end: String = recipe.lines().skip(2).map(|line| format!("{line}\n")).collect();
            assert!(file.contains(&end), "deploy/Dockerfile has not:\n{end}");
        }
    }

    #[test]
    fn a_code_change_ships_neither_the_system_nor_libtorch_again() {
        let recipe = super::process(&PROCESSES[1], "zerofleet/libtorch:dev");
        let copies: Vec<&str> = recipe.lines().filter(|line| line.starts_with("COPY")).collect();
        assert_eq!(copies, ["COPY learner /usr/local/bin/learner"]);
    }
}
