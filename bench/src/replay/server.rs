use std::path::Path;

use anyhow::Context;
use replay_server::Running;
use run_file::replay::Config;
use service::Drain;
use service::config::Sources;
use tokio::net::TcpListener;

use super::Args;

/// Settings of the game, and of a rate limiter with a wider band than any measurement needs.
pub(crate) const UNLIMITED: [&str; 4] =
    ["run.game=connect_four", "replay.min_items=1", "replay.samples_per_insert=1.0", "replay.error_items=1e15"];
/// Settings of a table that holds more than any measurement inserts.
const CAPACITY: [&str; 2] = ["replay.window_items_min=1000000000", "replay.capacity_items=1000000000"];

/// A replay server in this process, with a socket.
pub(super) struct Server {
    pub(super) endpoint: String,
    running: Running,
    drain: Drain,
}

impl Server {
    /// Starts a server with the log in `folder`, which an earlier server may have written.
    ///
    /// # Errors
    /// A setting is invalid, or the directory cannot be read or written to.
    pub(super) async fn start(args: &Args, folder: &Path) -> anyhow::Result<Self> {
        let sets = UNLIMITED.into_iter().chain(CAPACITY).map(str::to_owned).chain(args.sets.iter().cloned()).collect();
        let mut config: Config = Sources { file: None, env: std::iter::empty(), sets }.layers()?.load()?;
        folder.clone_into(&mut config.run.directory);
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("listen on loopback")?;
        let drain = Drain::new();
        let running = replay_server::start(config.settings()?, listener, drain.clone()).await?;
        Ok(Self { endpoint: format!("http://{}", running.address), running, drain })
    }

    /// Drains the server; the log stays.
    ///
    /// # Errors
    /// The server failed before the drain.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        self.drain.start();
        self.running.finished().await
    }
}
