use std::path::{Path, PathBuf};

use anyhow::Context;
use proto::replay::{Inspector, TableStats};
use replay_server::{Config, Running, Settings};
use service::Drain;
use service::config::Sources;
use tokio::net::TcpListener;

use super::Args;

/// The limiter lets both sides run this far apart: further than any measurement gets.
const ERROR_ITEMS: &str = "1e15";
/// More than any measurement inserts.
const CAPACITY_ITEMS: &str = "1000000000";

/// A replay server in this process, behind a socket.
pub(super) struct Server {
    pub(super) endpoint: String,
    running: Running,
    drain: Drain,
    kept: Kept,
}

/// A stopped server: its log and settings.
pub(super) struct Kept {
    settings: Settings,
}

impl Server {
    /// An empty one, which keeps its log in a new folder.
    ///
    /// # Errors
    /// A setting that makes no sense, a folder that cannot be written.
    pub(super) async fn start(args: &Args, folder: &Path) -> anyhow::Result<Self> {
        Kept { settings: settings(&args.sets, folder.to_owned())? }.start_again().await
    }

    /// The statistics of its table.
    ///
    /// # Errors
    /// It does not answer.
    pub(super) async fn stats(&self) -> anyhow::Result<TableStats> {
        Ok(Inspector::new(&self.endpoint)?.stats().await?)
    }

    /// Drains it; what it wrote stays.
    ///
    /// # Errors
    /// The error that ended it early.
    pub(super) async fn stop(self) -> anyhow::Result<Kept> {
        self.drain.start();
        self.running.finished().await?;
        Ok(self.kept)
    }
}

impl Kept {
    /// A server that goes on with it.
    ///
    /// # Errors
    /// A folder that cannot be read or written.
    pub(super) async fn start_again(self) -> anyhow::Result<Server> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("listen on loopback")?;
        let drain = Drain::new();
        let running = replay_server::start(self.settings.clone(), listener, drain.clone()).await?;
        Ok(Server { endpoint: format!("http://{}", running.address), running, drain, kept: self })
    }
}

fn settings(sets: &[String], directory: PathBuf) -> anyhow::Result<Settings> {
    let ours = [
        "run.game=connect_four".to_owned(),
        "replay.min_items=1".to_owned(),
        "replay.samples_per_insert=1.0".to_owned(),
        format!("replay.error_items={ERROR_ITEMS}"),
        format!("replay.window_items_min={CAPACITY_ITEMS}"),
        format!("replay.capacity_items={CAPACITY_ITEMS}"),
    ];
    let sets = ours.into_iter().chain(sets.iter().cloned()).collect();
    let mut config: Config = Sources { file: None, env: std::iter::empty(), sets }.load()?;
    config.run.directory = directory;
    Ok(config.settings()?)
}
