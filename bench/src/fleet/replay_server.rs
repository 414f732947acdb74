use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use proto::replay::Inspector;

use crate::replay::server::UNLIMITED;
use fleet::child::{self, Child};
use service::net::{ReservedPort, reserve_ports};

/// The longest time from its start until the server serves.
const START_DEADLINE: Duration = Duration::from_secs(60);
/// The interval between two checks of the server.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A replay server in a child process, which is killed on drop.
#[derive(Debug)]
pub(crate) struct ReplayServer {
    /// The address where it serves.
    pub(crate) endpoint: String,
    child: Child,
    _ports: [ReservedPort; 2],
}

impl ReplayServer {
    /// Starts an empty server that keeps its log in `folder`, and waits until it serves.
    ///
    /// # Errors
    /// The server is not built, or does not start.
    pub(crate) async fn start(folder: &Path) -> anyhow::Result<Self> {
        let ports = reserve_ports().context("find free ports")?;
        let [listen, admin] = ports.each_ref().map(|port: &ReservedPort| port.address().to_string());
        let endpoint = format!("http://{listen}");
        let directory = format!("run.directory={}", folder.join("replay").display());
        let sets = UNLIMITED.into_iter().chain([directory.as_str()]).flat_map(|set| ["--set", set]);
        let arguments = ["--listen", &listen, "--admin", &admin, "--exit-with-parent"].into_iter().chain(sets);
        let program = fleet::beside_this_binary("replay-server", "replay-server")?;
        let settings = child::Settings {
            name: "replay-server".to_owned(),
            program,
            arguments: arguments.map(Into::into).collect(),
            environment: Vec::new(),
            log: folder.join("replay-server.log"),
        };
        let child = Child::start(settings, Instant::now()).context("start the replay server")?;
        let mut server = Self { endpoint, child, _ports: ports };
        server.wait().await?;
        Ok(server)
    }

    /// Returns the id of its process.
    pub(crate) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    async fn wait(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_DEADLINE;
        while Inspector::new(&self.endpoint)?.stats().await.is_err() {
            if let Some(event) = self.child.watch(Instant::now())? {
                bail!("the replay server does not start: {event:?}");
            }
            ensure!(Instant::now() < deadline, "the replay server does not serve after {START_DEADLINE:?}");
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        Ok(())
    }
}
