//! A learner of Connect Four in a child process, beside a replay server in another.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use fleet::Role;
use fleet::child::{self, Child};
use fleet::exposition::{self, Exposition};
use service::net::{ReservedPort, reserve_ports};

use crate::replay::{games::Games, load};
use crate::server_process::ServerProcess;
use crate::training_run::{Reading, Window};
use crate::usage;

/// The deadline of the first step; its process first writes weights.
const START_DEADLINE: Duration = Duration::from_secs(120);
/// The interval between two checks of the process.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// The longest time of one request for metrics.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(10);

/// A learner in a child process, which is killed on drop.
#[derive(Debug)]
pub(crate) struct LearnerProcess {
    child: Child,
    admin: SocketAddr,
    _ports: [ReservedPort; 2],
}

impl LearnerProcess {
    /// Starts a learner of Connect Four on the CPU that draws from the replay server at `replay` and writes its files
    /// below `folder`. `sets` are its other settings.
    ///
    /// # Errors
    /// The learner is not built, or does not start.
    pub(crate) fn start(sets: &[String], replay: &str, folder: &Path) -> anyhow::Result<Self> {
        let ports: [ReservedPort; 2] = reserve_ports().context("find free ports")?;
        let [listen, admin] = ports.each_ref().map(ReservedPort::address);
        let own = [
            "run.game=connect_four".to_owned(),
            format!("run.directory={}", folder.join("run").display()),
            format!("learner.replay={replay}"),
            "learner.device=cpu".to_owned(),
            // What is drawn is trained on, and all time is that of training.
            "learner.validation_share=0".to_owned(),
        ];
        let sets = own.into_iter().chain(sets.iter().cloned()).flat_map(|set| ["--set".to_owned(), set]);
        let [listen_text, admin_text] = [listen, admin].map(|address| address.to_string());
        let fixed =
            ["--listen", &listen_text, "--admin", &admin_text, "--exit-with-parent"].into_iter().map(str::to_owned);
        let settings = child::Settings {
            name: "learner".to_owned(),
            program: fleet::beside_this_binary("learner", "learner")?,
            arguments: fixed.chain(sets).map(Into::into).collect(),
            environment: Vec::new(),
            log: folder.join("learner.log"),
        };
        let child = Child::start(settings, Instant::now()).context("start the learner")?;
        Ok(Self { child, admin, _ports: ports })
    }

    /// Waits until it has taken a training step.
    ///
    /// # Errors
    /// The process dies, or takes no step in time.
    pub(crate) fn wait_for_the_first_step(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_DEADLINE;
        let steps = |scraped: Exposition| scraped.get("zerofleet_learner_steps_total", &[]);
        while self.scrape().and_then(steps).is_none_or(|steps| steps == 0.0) {
            ensure!(Instant::now() < deadline, "no training step was taken within {START_DEADLINE:?}");
            self.look()?;
        }
        Ok(())
    }

    /// Waits while it trains.
    ///
    /// # Errors
    /// The process dies.
    pub(crate) fn run_for(&mut self, time: Duration) -> anyhow::Result<()> {
        let start = Instant::now();
        while start.elapsed() < time {
            self.look()?;
        }
        Ok(())
    }

    /// Returns its metrics and its usage of the machine.
    ///
    /// # Errors
    /// It does not answer.
    pub(crate) fn read(&self) -> anyhow::Result<Reading> {
        let exposition = self.scrape().context("read the learner's metrics")?;
        Ok(reading("learner", Role::Learner, exposition, self.child.id()))
    }

    /// Waits for one interval; the death of the process is an error.
    fn look(&mut self) -> anyhow::Result<()> {
        if let Some(event) = self.child.watch(Instant::now())? {
            bail!("the learner does not run: {event:?}");
        }
        std::thread::sleep(LOOK_INTERVAL);
        Ok(())
    }

    fn scrape(&self) -> Option<Exposition> {
        exposition::scrape(&exposition::agent(SCRAPE_TIMEOUT), self.admin)
    }
}

/// Starts a replay server with files below `folder`, and fills it with `positions` positions of games.
///
/// # Errors
/// The server is not built, or does not take the games.
pub(crate) fn filled_server(folder: &Path, games: &Games, positions: u64) -> anyhow::Result<ServerProcess> {
    let runtime = tokio::runtime::Runtime::new().context("start the runtime")?;
    runtime.block_on(async {
        let server = ServerProcess::replay(folder, &[]).await?;
        load::fill(&server.endpoint, games, positions).await?;
        Ok(server)
    })
}

/// Shares of the time of the training thread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Lost {
    /// Waiting for data.
    pub(crate) waiting: f64,
    /// Copying its state for publications and checkpoints.
    pub(crate) copying: f64,
}

impl Lost {
    /// Those of a measurement.
    pub(crate) fn of(window: &Window) -> Self {
        let phase = |phase| window.growth(Role::Learner, "zerofleet_learner_seconds_total", &[("phase", phase)]);
        let [wait, train, publish] = ["wait", "train", "publish"].map(|name| phase(name).unwrap_or(0.0));
        let all = wait + train + publish;
        Self { waiting: wait / all, copying: publish / all }
    }
}

/// Returns the usage of the machine of a replay server, without its metrics.
pub(crate) fn replay_reading(server: &ServerProcess) -> Reading {
    reading("replay-server", Role::Replay, Exposition::default(), server.id())
}

fn reading(name: &str, role: Role, exposition: Exposition, id: Option<u32>) -> Reading {
    Reading { name: name.to_owned(), role, exposition, usage: id.and_then(usage::of) }
}
