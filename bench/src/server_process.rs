//! A replay server or an inference server in a child process, so that memory and CPU time can be measured.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use proto::inference::AnalysisClient;
use proto::replay::Inspector;
use proto::weights::Published;

use crate::output;
use fleet::child::{self, Child, Exit};
use service::net::{ReservedPort, reserve_ports};

/// Settings of the game, and of a rate limiter with a wider band than any measurement needs.
const UNLIMITED: [&str; 4] =
    ["run.game=connect_four", "replay.min_items=1", "replay.samples_per_insert=1.0", "replay.error_items=1e15"];
/// Maximum time from the start of a server until it serves, and from the request to stop until it exits.
const DEADLINE: Duration = Duration::from_secs(60);
/// Interval between two checks of the server.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// A server in a child process, which is killed on drop.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    /// Address of the server.
    pub(crate) endpoint: String,
    child: Child,
    _ports: [ReservedPort; 2],
}

impl ServerProcess {
    /// Starts a replay server of Connect Four with a rate limiter that never blocks, and waits until it serves.
    /// `folder` holds the log, possibly of an earlier server. `sets` are further settings.
    ///
    /// # Errors
    /// The server is not built, or does not start.
    pub(crate) async fn replay(folder: &Path, sets: &[String]) -> anyhow::Result<Self> {
        let directory = format!("run.directory={}", folder.join("replay").display());
        let own = UNLIMITED.into_iter().map(str::to_owned).chain([directory]);
        let server = Self::start("replay-server", folder, own.chain(sets.iter().cloned()))?;
        let inspector = Inspector::new(&server.endpoint)?;
        server.wait(async || inspector.stats().await.is_ok()).await
    }

    /// Starts an inference server of these weights, which are written into `folder`, and waits until it serves. It has
    /// no cache, which would serve the requests that measure the evaluator. `sets` are further settings.
    ///
    /// # Errors
    /// The server is not built, or does not start.
    pub(crate) async fn inference(folder: &Path, weights: &Published, sets: &[String]) -> anyhow::Result<Self> {
        let path = folder.join("weights.json");
        output::write(&path, serde_json::to_vec(&weights.manifest)?)?;
        output::write(&path.with_extension("safetensors"), &weights.bytes)?;
        let own = [
            format!("run.game={}", weights.manifest.architecture.game),
            format!("run.directory={}", folder.join("inference").display()),
            format!("inference.weights={}", path.display()),
            "inference.cache_positions=0".to_owned(),
        ];
        let server = Self::start("inference-server", folder, own.into_iter().chain(sets.iter().cloned()))?;
        let client = AnalysisClient::new(&server.endpoint)?;
        server.wait(async || client.stats().await.is_ok()).await
    }

    fn start(name: &str, folder: &Path, sets: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        let ports = reserve_ports().context("find free ports")?;
        let [listen, admin] = ports.each_ref().map(|port: &ReservedPort| port.address().to_string());
        let endpoint = format!("http://{listen}");
        let own = ["--listen", &listen, "--admin", &admin, "--exit-with-parent"].map(str::to_owned);
        let sets = sets.flat_map(|set| ["--set".to_owned(), set]);
        let settings = child::Settings {
            name: name.to_owned(),
            program: fleet::beside_this_binary(name, name)?,
            arguments: own.into_iter().chain(sets).map(Into::into).collect(),
            environment: Vec::new(),
            log: folder.join(format!("{name}.log")),
        };
        let child = Child::start(settings, Instant::now()).with_context(|| format!("start the {name}"))?;
        Ok(Self { endpoint, child, _ports: ports })
    }

    /// Returns the id of the process.
    pub(crate) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Drains the server; the log of a replay server stays.
    ///
    /// # Errors
    /// The server failed, or does not exit.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.child.terminate();
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(Exit { succeeded, how, last_log_line }) = self.child.exit()? {
                ensure!(succeeded, "the server {how}; last log line: {last_log_line}");
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "the server did not exit within {DEADLINE:?}");
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    async fn wait(mut self, serves: impl AsyncFn() -> bool) -> anyhow::Result<Self> {
        let deadline = Instant::now() + DEADLINE;
        while !serves().await {
            if let Some(event) = self.child.watch(Instant::now())? {
                bail!("the server did not start: {event:?}");
            }
            ensure!(Instant::now() < deadline, "the server is not ready after {DEADLINE:?}");
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        Ok(self)
    }
}
