//! The processes of one run.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use tempfile::TempDir;

use crate::process::Process;

/// Starting libtorch on a busy machine takes a while.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// The seed of every run.
pub const SEED: u64 = 1;

/// A run small enough for two busy cores: a tiny network, few games at once, one thread each.
pub const SMALL_TIC_TAC_TOE: &str = r#"
[network]
channels = 16
blocks = 1

[selfplay]
games = 16
full_simulations = 24
fast_simulations = 8
full_search_probability = 0.5

[replay]
min_items = 200
samples_per_insert = 8
error_items = 2000
fsync_ms = 2

[learner]
device = "cpu"
precision = "f32"
threads = 1
batch_size = 64
learning_rate = 0.005
warm_up_steps = 20
schedule_minutes = 3
publish_interval_seconds = 1
checkpoint_interval_seconds = 2

[actor]
device = "cpu"
precision = "f32"
threads = 1

[arena]
device = "cpu"
precision = "f32"
simulations = 32
games_per_version = 0
version_interval_seconds = 1
cpu_share = 0.5
"#;

/// A process's part in the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Keeps trajectories.
    Replay,
    /// Trains.
    Learner,
    /// Plays.
    Actor,
    /// Measures.
    Arena,
}

impl Role {
    /// Every role, in the order in which they are started.
    pub const ALL: [Self; 4] = [Self::Replay, Self::Learner, Self::Actor, Self::Arena];
}

/// One process of each role, in a run directory that is deleted at the end. Their logs are printed if the test panics.
#[derive(Debug)]
pub struct Cluster {
    directory: TempDir,
    processes: [Process; 4],
    replay: u16,
    learner: u16,
}

impl Cluster {
    /// Writes the run file and describes the processes; nothing runs yet.
    ///
    /// # Errors
    /// A binary is missing, or the run directory cannot be made.
    pub fn new(game: &str, sections: &str) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir().context("make the run directory")?;
        let run = format!("[run]\ngame = \"{game}\"\nseed = {SEED}\ndirectory = \"{}\"\n", directory.path().display());
        std::fs::write(directory.path().join("config.toml"), format!("{run}{sections}"))
            .context("write config.toml")?;
        let [replay, learner, a, b, c, d] = free_ports()?;
        let processes = [
            process("replay-server", a, directory.path(), Some(replay), &[])?,
            process(
                "learner",
                b,
                directory.path(),
                Some(learner),
                &[format!("learner.replay=http://127.0.0.1:{replay}")],
            )?,
            process(
                "actor",
                c,
                directory.path(),
                None,
                &[
                    format!("actor.replay=http://127.0.0.1:{replay}"),
                    format!("actor.learner=http://127.0.0.1:{learner}"),
                ],
            )?,
            process("arena", d, directory.path(), None, &[format!("arena.weights=http://127.0.0.1:{learner}")])?,
        ];
        Ok(Self { directory, processes, replay, learner })
    }

    /// A replay server beside that of the cluster, with a log of its own below the run directory, and where it will
    /// listen. It is the caller's to start.
    ///
    /// # Errors
    /// A binary is missing, or no port is free.
    pub fn another_replay(&self, name: &str) -> anyhow::Result<(Process, String)> {
        let [listen, admin] = free_ports()?;
        let own = format!("run.directory={}", self.directory.path().join(name).display());
        let mut process = process("replay-server", admin, self.directory.path(), Some(listen), &[own])?;
        process.rename(name);
        Ok((process, format!("http://127.0.0.1:{listen}")))
    }

    /// An inference server for the weights of the cluster's learner, and where it will listen. It is the caller's to start,
    /// and to tell the actor.
    ///
    /// # Errors
    /// A binary is missing, or no port is free.
    pub fn inference_server(&self) -> anyhow::Result<(Process, String)> {
        let [listen, admin] = free_ports()?;
        let learner = format!("inference.learner={}", self.learner_endpoint());
        let process = process("inference-server", admin, self.directory.path(), Some(listen), &[learner])?;
        Ok((process, format!("http://127.0.0.1:{listen}")))
    }

    /// Starts these roles, in order, each ready before the next where it serves someone.
    ///
    /// # Errors
    /// One does not get ready.
    pub fn start(&mut self, roles: &[Role]) -> anyhow::Result<()> {
        for &role in roles {
            self.process(role).start()?;
            if matches!(role, Role::Replay | Role::Learner) {
                self.process(role).ready(START_DEADLINE)?;
            }
        }
        Ok(())
    }

    /// The process in a role.
    pub fn process(&mut self, role: Role) -> &mut Process {
        &mut self.processes[role as usize]
    }

    /// A metric of the process in a role.
    #[must_use]
    pub fn metric(&self, role: Role, name: &str) -> Option<f64> {
        self.processes[role as usize].metric(name)
    }

    /// The run directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Where the replay server listens.
    #[must_use]
    pub fn replay_endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.replay)
    }

    /// Where the learner serves weights.
    #[must_use]
    pub fn learner_endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.learner)
    }

    /// The port on which the replay server listens.
    #[must_use]
    pub fn replay_port(&self) -> u16 {
        self.replay
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for process in &self.processes {
                print_log(process);
            }
        }
    }
}

#[allow(clippy::print_stderr, reason = "a failed test shows what its processes said")]
pub(crate) fn print_log(process: &Process) {
    let text = process.log_text();
    let lines: Vec<&str> = text.lines().collect();
    eprintln!("---- {}, last lines ----\n{}", process.name(), lines[lines.len().saturating_sub(40)..].join("\n"));
}

fn process(name: &str, admin: u16, directory: &Path, listen: Option<u16>, sets: &[String]) -> anyhow::Result<Process> {
    let mut arguments = vec!["--config".into(), directory.join("config.toml").display().to_string()];
    if let Some(port) = listen {
        arguments.extend(["--listen".into(), format!("127.0.0.1:{port}")]);
    }
    arguments.extend(sets.iter().flat_map(|set| ["--set".to_owned(), set.clone()]));
    Process::new(name, name, arguments, admin, directory)
}

/// Ports that nobody holds now; they are held together, so that they differ.
pub(crate) fn free_ports<const N: usize>() -> anyhow::Result<[u16; N]> {
    let mut ports = [0; N];
    let mut held = Vec::new();
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("find a free port")?;
        *port = listener.local_addr().context("read the port")?.port();
        held.push(listener);
    }
    Ok(ports)
}
