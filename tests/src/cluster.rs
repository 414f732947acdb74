//! The processes of one run.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use fleet::Role;
use fleet::wiring::{self, Wiring};
use service::net::{ReservedPort, reserve_ports};
use tempfile::TempDir;

use crate::process::Process;

/// Starting libtorch on a busy machine takes a while.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// Seed of every run.
pub const SEED: u64 = 1;

/// A run small enough for two busy cores: a tiny network, few games at once, one thread each.
pub const SMALL_TIC_TAC_TOE: &str = r#"
[network]
channels = 16
blocks = 1

[selfplay]
games = 16
full_simulations = 24
# A game without a full search has no items: it is acknowledged and not stored.
full_search_probability = 1.0

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

/// One process per role, in a run directory that is deleted at the end. The logs are printed if the test panics.
#[derive(Debug)]
pub struct Cluster {
    directory: TempDir,
    processes: [Process; 4],
    replay: u16,
    learner: u16,
}

impl Cluster {
    /// Roles of the processes, in start order.
    pub const ROLES: [Role; 4] = [Role::Replay, Role::Learner, Role::Actor, Role::Arena];

    /// Writes the run file and creates the processes without starting them.
    ///
    /// # Errors
    /// A binary is missing, or the run directory cannot be made.
    pub fn new(game: &str, sections: &str) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir().context("make the run directory")?;
        let run = format!("[run]\ngame = \"{game}\"\nseed = {SEED}\ndirectory = \"{}\"\n", directory.path().display());
        std::fs::write(directory.path().join("config.toml"), format!("{run}{sections}"))
            .context("write config.toml")?;
        let [replay, learner, a, b, c, d] = reserve_ports().context("find free ports")?;
        let [replay_port, learner_port] = [&replay, &learner].map(|port| port.address().port());
        let wiring =
            Wiring { replay: vec![endpoint(replay_port)], learner: endpoint(learner_port), ..Wiring::default() };
        let process = |role: Role, admin, listen| {
            let sets = wiring.sets(role);
            process(role.program(), admin, directory.path(), listen, sets)
        };
        let [first, second, third, fourth] = Self::ROLES;
        let processes = [
            process(first, a, Some(replay))?,
            process(second, b, Some(learner))?,
            process(third, c, None)?,
            process(fourth, d, None)?,
        ];
        Ok(Self { directory, processes, replay: replay_port, learner: learner_port })
    }

    /// Returns a further replay server with a separate log below the run directory, and the endpoint. The caller starts
    /// the server.
    ///
    /// # Errors
    /// A binary is missing, or no port is free.
    pub fn another_replay(&self, name: &str) -> anyhow::Result<(Process, String)> {
        let [listen, admin] = reserve_ports().context("find free ports")?;
        let serves = endpoint(listen.address().port());
        let own = format!("run.directory={}", self.directory.path().join(name).display());
        let mut process = process(Role::Replay.program(), admin, self.directory.path(), Some(listen), vec![own])?;
        process.rename(name);
        Ok((process, serves))
    }

    /// Returns a further actor with this name and id. The caller starts it.
    ///
    /// # Errors
    /// A binary is missing, or no port is free.
    pub fn another_actor(&self, name: &str, id: u64) -> anyhow::Result<Process> {
        let [admin] = reserve_ports().context("find a free port")?;
        let (replay, learner) = (vec![self.replay_endpoint()], self.learner_endpoint());
        let wiring = Wiring { replay, learner, ..Wiring::default() };
        let sets = wiring.sets(Role::Actor).into_iter().chain([format!("actor.id={id}")]).collect();
        let mut process = process(Role::Actor.program(), admin, self.directory.path(), None, sets)?;
        process.rename(name);
        Ok(process)
    }

    /// Returns a further learner that listens at `listen`, with a separate directory below the run directory and these
    /// settings. The caller starts it.
    ///
    /// # Errors
    /// A binary is missing, or no port is free.
    pub fn another_learner(&self, name: &str, listen: ReservedPort, sets: Vec<String>) -> anyhow::Result<Process> {
        let [admin] = reserve_ports().context("find a free port")?;
        let own = format!("run.directory={}", self.directory.path().join(name).display());
        let wiring = Wiring { replay: vec![self.replay_endpoint()], ..Wiring::default() };
        let sets = wiring.sets(Role::Learner).into_iter().chain([own]).chain(sets).collect();
        let mut process = process(Role::Learner.program(), admin, self.directory.path(), Some(listen), sets)?;
        process.rename(name);
        Ok(process)
    }

    /// Returns an inference server for the weights of the cluster's learner, and the address. The caller starts the
    /// server and configures the actor with the address.
    ///
    /// # Errors
    /// A binary is missing, or no port is free.
    pub fn inference_server(&self) -> anyhow::Result<(Process, String)> {
        let [listen, admin] = reserve_ports().context("find free ports")?;
        let serves = endpoint(listen.address().port());
        let wiring = Wiring { learner: self.learner_endpoint(), ..Wiring::default() };
        let (role, directory) = (Role::Inference, self.directory.path());
        let process = process(role.program(), admin, directory, Some(listen), wiring.sets(role))?;
        Ok((process, serves))
    }

    /// Starts the processes of these roles in order, and waits for each server to be ready before the next start.
    ///
    /// # Errors
    /// A process cannot be started, or a server does not become ready.
    pub fn start(&mut self, roles: &[Role]) -> anyhow::Result<()> {
        for &role in roles {
            self.process(role).start()?;
            if matches!(role, Role::Replay | Role::Learner) {
                self.process(role).ready(START_DEADLINE)?;
            }
        }
        Ok(())
    }

    /// Returns the processes, in the order of [`Self::ROLES`].
    pub fn processes(&mut self) -> &mut [Process; 4] {
        &mut self.processes
    }

    /// Returns the process of a role.
    pub fn process(&mut self, role: Role) -> &mut Process {
        &mut self.processes[Self::index(role)]
    }

    fn index(role: Role) -> usize {
        Self::ROLES.iter().position(|other| *other == role).expect("a cluster has a process of this role")
    }

    /// Returns a metric of the process of a role; `None` while it has none or does not respond.
    #[must_use]
    pub fn metric(&self, role: Role, name: &str) -> Option<f64> {
        self.processes[Self::index(role)].metric(name)
    }

    /// Returns the run directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the endpoint of the replay server.
    #[must_use]
    pub fn replay_endpoint(&self) -> String {
        endpoint(self.replay)
    }

    /// Returns the learner's endpoint for weights.
    #[must_use]
    pub fn learner_endpoint(&self) -> String {
        endpoint(self.learner)
    }

    /// Returns the port on which the replay server listens.
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

#[allow(clippy::print_stderr, reason = "a failed test shows the output of its processes")]
pub(crate) fn print_log(process: &Process) {
    let text = process.log_text();
    let lines: Vec<&str> = text.lines().collect();
    eprintln!("---- {}, last lines ----\n{}", process.name(), lines[lines.len().saturating_sub(40)..].join("\n"));
}

fn endpoint(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

fn process(
    name: &str,
    admin: ReservedPort,
    directory: &Path,
    listen: Option<ReservedPort>,
    sets: Vec<String>,
) -> anyhow::Result<Process> {
    let address = listen.as_ref().map(|port| port.address().to_string());
    let arguments = wiring::arguments(&directory.join("config.toml"), address.as_deref(), sets);
    let mut process = Process::new(name, name, arguments, admin.address().port(), directory)?;
    process.keep(listen.into_iter().chain([admin]));
    Ok(process)
}
