use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use proto::replay::Inspector;

use fleet::child::{self, Child};

/// The longest time until it serves.
const START_DEADLINE: Duration = Duration::from_secs(60);
/// The interval between two checks of it.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// The limiter lets inserts run this far ahead: further than any measurement gets.
const ERROR_ITEMS: &str = "1e15";

/// A replay server in a process of its own, which ends with this.
#[derive(Debug)]
pub(super) struct ReplayServer {
    /// The address where it serves.
    pub(super) endpoint: String,
    child: Child,
}

impl ReplayServer {
    /// An empty one, which keeps its log in `folder` and serves when this returns.
    ///
    /// # Errors
    /// It is not built, or does not come up.
    pub(super) async fn start(folder: &Path) -> anyhow::Result<Self> {
        let ports = fleet::free_ports(2)?;
        let endpoint = format!("http://{}", ports[0]);
        let mut arguments: Vec<String> =
            ["--listen", &ports[0].to_string(), "--admin", &ports[1].to_string(), "--exit-with-parent"]
                .map(str::to_owned)
                .to_vec();
        let sets = [
            "run.game=connect_four".to_owned(),
            format!("run.directory={}", folder.join("replay").display()),
            "replay.min_items=1".to_owned(),
            "replay.samples_per_insert=1.0".to_owned(),
            format!("replay.error_items={ERROR_ITEMS}"),
        ];
        arguments.extend(sets.into_iter().flat_map(|set| ["--set".to_owned(), set]));
        let program = fleet::beside_this_binary("replay-server", "replay-server")?;
        let settings = child::Settings {
            name: "replay-server".to_owned(),
            program,
            arguments: arguments.into_iter().map(Into::into).collect(),
            log: folder.join("replay-server.log"),
        };
        let child = Child::start(settings, Instant::now()).context("start the replay server")?;
        let mut server = Self { endpoint, child };
        server.wait().await?;
        Ok(server)
    }

    /// Its process.
    pub(super) fn id(&self) -> Option<u32> {
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
