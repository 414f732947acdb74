use std::path::Path;

use anyhow::Context;
use inference_server::{Config, Running};
use proto::inference::AnalysisClient;
use service::config::Sources;
use service::{Drain, Readiness};
use tokio::net::TcpListener;
use weights::Manifest;

use super::Args;

/// An inference server in this process, behind a socket.
pub(super) struct Server {
    pub(super) endpoint: String,
    running: Running,
    drain: Drain,
}

impl Server {
    /// Serves these weights, which are written into `folder`.
    ///
    /// # Errors
    /// A setting that makes no sense, a folder that cannot be written.
    pub(super) async fn start(
        args: &Args,
        threads: usize,
        folder: &Path,
        (manifest, bytes): (&Manifest, &[u8]),
    ) -> anyhow::Result<Self> {
        let path = folder.join("weights.json");
        std::fs::write(&path, serde_json::to_vec(manifest)?).with_context(|| format!("write {}", path.display()))?;
        let beside = path.with_extension("safetensors");
        std::fs::write(&beside, bytes).with_context(|| format!("write {}", beside.display()))?;
        let mut sets = vec![
            format!("run.game={}", args.game),
            format!("inference.weights={}", path.display()),
            format!("inference.threads={threads}"),
            format!("inference.kernel={}", args.kernel),
            // The cache would answer what the evaluator is to be measured with.
            "inference.cache_positions=0".to_owned(),
            "inference.asks_max=4096".to_owned(),
        ];
        sets.extend(args.sets.iter().cloned());
        let config: Config = Sources { file: None, env: std::iter::empty(), sets }.load()?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("listen on loopback")?;
        let drain = Drain::new();
        let running =
            inference_server::start(config.settings()?, listener, Readiness::starting(), drain.clone()).await?;
        Ok(Self { endpoint: format!("http://{}", running.address), running, drain })
    }

    /// Drains it; what evaluated, in its own words.
    ///
    /// # Errors
    /// The error that ended it early.
    pub(super) async fn stop(self) -> anyhow::Result<String> {
        let stats = AnalysisClient::new(&self.endpoint)?.stats().await.context("ask the server what it is")?;
        self.drain.start();
        self.running.finished().await?;
        Ok(stats.evaluator)
    }
}
