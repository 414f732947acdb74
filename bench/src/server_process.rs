//! A replay server or an inference server in a child process, so that memory and CPU time can be measured.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use proto::inference::AnalysisClient;
use proto::replay::Inspector;

use crate::replay::server::UNLIMITED;
use fleet::child::{self, Child};
use service::net::{ReservedPort, reserve_ports};

/// Maximum time from the start of a server until it serves.
const START_DEADLINE: Duration = Duration::from_secs(60);
/// Interval between two checks of the server.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A server in a child process, which is killed on drop.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    /// Address of the server.
    pub(crate) endpoint: String,
    child: Child,
    _ports: [ReservedPort; 2],
}

impl ServerProcess {
    /// Starts an empty replay server of Connect Four, with the log in `folder` and a rate limiter that never blocks,
    /// and waits until it serves. `sets` are further settings.
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

    /// Starts an inference server with these settings, and waits until it serves.
    ///
    /// # Errors
    /// The server is not built, or does not start.
    pub(crate) async fn inference(folder: &Path, sets: &[String]) -> anyhow::Result<Self> {
        let server = Self::start("inference-server", folder, sets.iter().cloned())?;
        let client = AnalysisClient::new(&server.endpoint)?;
        server.wait(async || client.stats().await.is_ok()).await
    }

    fn start(name: &str, folder: &Path, sets: impl Iterator<Item = String>) -> anyhow::Result<Self> {
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

    async fn wait(mut self, serves: impl AsyncFn() -> bool) -> anyhow::Result<Self> {
        let deadline = Instant::now() + START_DEADLINE;
        while !serves().await {
            if let Some(event) = self.child.watch(Instant::now())? {
                bail!("the server did not start: {event:?}");
            }
            ensure!(Instant::now() < deadline, "the server is not ready after {START_DEADLINE:?}");
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        Ok(self)
    }
}
