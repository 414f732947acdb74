//! A cluster in containers as defined by deploy/compose.yaml, with images of the built binaries.

mod needles;
mod program;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use tempfile::TempDir;
use toml::{Table, Value};

pub use needles::found;
pub use program::Program;

use crate::process::{get, program, run, value_of, wait_until};
use crate::skip;

/// Admin port of every container.
const ADMIN_PORT: u16 = 9100;
/// Images of the cluster's processes and of the check; `BELOW` lists the base images.
pub const IMAGES: [&str; 6] = ["replay-server", "learner", "inference-server", "actor", "arena", "cli"];
const BELOW: [&str; 2] = ["libtorch", "system"];

/// Returns the program of an image.
#[must_use]
pub fn program_in(image: &'static str) -> &'static str {
    if image == "cli" { "zerofleet" } else { image }
}

/// A Compose project; containers, volumes and images are removed on drop.
#[derive(Debug)]
pub struct Compose {
    program: Program,
    folder: TempDir,
    project: String,
    environment: Vec<(&'static str, String)>,
    /// The `docker logs` processes that follow containers to be removed.
    followers: Vec<Child>,
}

impl Compose {
    /// Builds images of the built binaries. Makes certificates, tokens and the run file of `game`, with `changes`
    /// (TOML) merged into it. Returns `None`, and [skips](fn@skip) the test, if this machine has no Docker engine or no
    /// Compose.
    ///
    /// # Errors
    /// An image, a certificate or a file cannot be made.
    #[allow(clippy::print_stderr, reason = "the output of tests must show which Compose it was")]
    pub fn new(game: &str, changes: &str) -> anyhow::Result<Option<Self>> {
        let local = cfg!(target_os = "linux") && std::env::var_os("DOCKER_HOST").is_none();
        if !local || docker(&["version"]).is_err() {
            skip("docker", "there is no Docker engine on this machine");
            return Ok(None);
        }
        let Some(program) = Program::on_this_machine()?.into_iter().next() else {
            skip("docker", "there is neither `docker compose` nor `docker-compose`");
            return Ok(None);
        };
        eprintln!("by compose {}", program.version()?);
        let folder = tempfile::tempdir().context("make the folder of the project")?;
        let tag = format!("test-{}", std::process::id());
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").canonicalize().context("find deploy/")?;
        let config = folder.path().join("zerofleet.toml");
        let written = std::fs::read_to_string(deploy.join("config").join(format!("{game}.toml")));
        std::fs::write(&config, changed(&written.context("read the run file")?, changes)?)
            .context("write a run file")?;
        let path = |path: PathBuf| path.display().to_string();
        std::fs::write(folder.path().join("env"), "").context("write an empty .env")?;
        let this = Self {
            program,
            environment: vec![
                ("COMPOSE_PROFILES", "cpu,console".to_owned()),
                ("ZEROFLEET_TAG", tag.clone()),
                ("ZEROFLEET_GAME", game.to_owned()),
                ("ZEROFLEET_CONFIG", path(config)),
                ("ZEROFLEET_SECRETS", path(folder.path().join("secrets"))),
                // An empty value selects any free port.
                ("INFERENCE_PORT", String::new()),
                ("CONSOLE_PORT", String::new()),
            ],
            project: format!("zerofleet-{tag}"),
            folder,
            followers: Vec::new(),
        };
        this.make(&tag)?;
        Ok(Some(this))
    }

    fn make(&self, tag: &str) -> anyhow::Result<()> {
        let xtask = program("xtask")?;
        let binaries = xtask.parent().context("xtask lies in a folder")?;
        let only = IMAGES.into_iter().flat_map(|image| ["--only", program_in(image)]);
        run(Command::new(&xtask).args(["image", "--tag", tag]).args(only).arg("--from").arg(binaries))?;
        run(Command::new(&xtask).args(["certs", "--out"]).arg(self.secrets())).map(drop)
    }

    /// Sets a variable of deploy/.env.example.
    pub fn set(&mut self, name: &'static str, value: &str) {
        self.environment.push((name, value.to_owned()));
    }

    /// Returns the directory of certificates and tokens, with a subdirectory for each service.
    #[must_use]
    pub fn secrets(&self) -> PathBuf {
        self.folder.path().join("secrets")
    }

    /// Runs a command of Compose; returns the output.
    ///
    /// # Errors
    /// The command fails; the error contains the output.
    pub fn run(&self, arguments: &[&str]) -> anyhow::Result<String> {
        use std::os::unix::fs::MetadataExt as _;

        let owner = std::fs::metadata(self.secrets().join("actor")).context("read the owner of the secrets")?;
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/compose.yaml");
        let mut command = self.program.command();
        command.arg("--file").arg(file).arg("--env-file").arg(self.folder.path().join("env"));
        command.args(["--project-name", &self.project]).args(arguments);
        command.env("ZEROFLEET_USER", format!("{}:{}", owner.uid(), owner.gid()));
        run(command.envs(self.environment.iter().map(|(name, value)| (name, value))))
    }

    /// Returns the running containers of a service.
    ///
    /// # Errors
    /// The engine does not respond.
    pub fn containers(&self, service: &str) -> anyhow::Result<Vec<Container>> {
        let project = format!("label=com.docker.compose.project={}", self.project);
        let service = format!("label=com.docker.compose.service={service}");
        let ids = docker(&["ps", "--quiet", "--no-trunc", "--filter", &project, "--filter", &service])?;
        Ok(ids.lines().map(|id| Container { id: id.to_owned() }).collect())
    }

    /// Waits until a service has `count` containers and all of them are healthy.
    ///
    /// # Errors
    /// The service is not healthy by the deadline; the error contains the output of the containers.
    pub fn healthy(&self, service: &str, count: usize, deadline: Duration) -> anyhow::Result<()> {
        wait_until(&format!("{count} of {service} are healthy"), deadline, || {
            let containers = self.containers(service)?;
            Ok(containers.len() == count && containers.iter().all(Container::is_healthy))
        })
    }

    /// Returns a metric of the first container of a service; `None` while it has none or does not respond.
    #[must_use]
    pub fn metric(&self, service: &str, name: &str) -> Option<f64> {
        self.containers(service).ok()?.first()?.metric(name)
    }

    /// Writes the past and future output of a container to a file, which outlives the container.
    ///
    /// # Errors
    /// The engine does not respond.
    pub fn follow(&mut self, container: &Container) -> anyhow::Result<PathBuf> {
        let path = self.folder.path().join(format!("{}.log", container.id));
        let log = std::fs::File::create(&path).context("make a file for a log")?;
        let mut command = Command::new("docker");
        command.args(["logs", "--follow", &container.id]).stdin(Stdio::null());
        command.stdout(log.try_clone().context("share the log")?).stderr(log);
        self.followers.push(command.spawn().context("start docker")?);
        Ok(path)
    }

    /// Returns the output of all containers, including stopped ones.
    #[must_use]
    pub fn logs(&self) -> String {
        self.run(&["logs", "--no-color"]).unwrap_or_default()
    }

    /// Returns the full name of an image.
    #[must_use]
    pub fn image(&self, name: &str) -> String {
        format!("zerofleet/{name}:{}", self.project.trim_start_matches("zerofleet-"))
    }

    /// Returns the texts that occur in these images: in a layer, in a file name or in the configuration.
    ///
    /// # Errors
    /// The engine cannot export the images.
    pub fn in_images<'a>(&self, images: &[&str], texts: &'a [String]) -> anyhow::Result<BTreeSet<&'a str>> {
        let mut command = Command::new("docker");
        command.arg("save").args(images.iter().map(|image| self.image(image)));
        let mut save = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("start docker")?;
        let layers = save.stdout.take().context("docker writes to a pipe")?;
        let found = found(layers, texts).context("read the layers")?;
        let status = save.wait().context("wait for docker")?;
        ensure!(status.success(), "{command:?} ended with {status}");
        Ok(found)
    }
}

impl Drop for Compose {
    #[allow(clippy::print_stderr, reason = "a failed test shows the output of its processes")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let logs = self.logs();
            let lines: Vec<&str> = logs.lines().collect();
            eprintln!("---- containers, last lines ----\n{}", lines[lines.len().saturating_sub(120)..].join("\n"));
        }
        for follower in &mut self.followers {
            // A process that has exited by itself cannot be killed.
            let _ = follower.kill();
            let _ = follower.wait();
        }
        if let Err(error) = self.run(&["down", "--volumes", "--timeout", "5"]) {
            eprintln!("the cluster is not removed: {error:#}");
        }
        let images: Vec<String> = IMAGES.iter().chain(&BELOW).map(|name| self.image(name)).collect();
        let names: Vec<&str> = images.iter().map(String::as_str).collect();
        if let Err(error) = docker(&[&["image", "rm"][..], &names].concat()) {
            eprintln!("images are not removed: {error:#}");
        }
    }
}

/// A running container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// Id assigned by the engine.
    pub id: String,
}

impl Container {
    /// Returns the output of `docker inspect` for the container, in the format of a template.
    ///
    /// # Errors
    /// The container no longer exists.
    pub fn inspect(&self, format: &str) -> anyhow::Result<String> {
        Ok(docker(&["inspect", "--format", format, &self.id])?.trim().to_owned())
    }

    /// Returns the address of the container on the network of the project, which this machine reaches.
    ///
    /// # Errors
    /// The container no longer exists.
    pub fn address(&self) -> anyhow::Result<String> {
        self.inspect("{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}")
    }

    fn is_healthy(&self) -> bool {
        self.inspect("{{.State.Health.Status}}").is_ok_and(|status| status == "healthy")
    }

    /// Returns a metric of the container, without labels; `None` while it has none or does not respond.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<f64> {
        value_of(name, &get(&format!("{}:{ADMIN_PORT}", self.address().ok()?), "metrics").ok()?)
    }
}

/// Merges the sections of `changes` into a run file.
fn changed(config: &str, changes: &str) -> anyhow::Result<String> {
    let mut config: Table = config.parse().context("parse the run file")?;
    for (section, keys) in changes.parse::<Table>().context("parse the changes")? {
        match (config.get_mut(&section), keys) {
            (Some(Value::Table(old)), Value::Table(new)) => old.extend(new),
            (_, keys) => drop(config.insert(section, keys)),
        }
    }
    Ok(config.to_string())
}

fn docker(arguments: &[&str]) -> anyhow::Result<String> {
    run(Command::new("docker").args(arguments))
}
