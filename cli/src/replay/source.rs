use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use proto::replay::Inspector;
use replay_server::{Config, Running, Settings};
use service::Drain;
use tokio::net::TcpListener;

use crate::trust::Trust;
use fleet::config::load_run;
use fleet::run_directory::RunDirectory;

/// A server, or a run whose server does not run.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Source {
    /// A live replay server: `http://127.0.0.1:7001`, or `https`.
    #[arg(long, value_name = "ENDPOINT", conflicts_with = "run", required_unless_present = "run")]
    server: Option<String>,
    #[command(flatten)]
    trust: Trust,
    /// A run that is not under way.
    #[arg(long, value_name = "NAME")]
    run: Option<String>,
    /// Where runs lie.
    #[arg(long, value_name = "FOLDER", default_value = "runs")]
    runs: PathBuf,
    /// Which of the run's replay servers, from 1 on.
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    replay_server: NonZeroUsize,
}

/// A server that runs.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Live {
    /// A live replay server: `http://127.0.0.1:7001`, or `https`.
    #[arg(long, value_name = "ENDPOINT")]
    server: String,
    #[command(flatten)]
    trust: Trust,
}

impl Live {
    /// Whom to ask.
    ///
    /// # Errors
    /// No endpoint, or no credentials for it.
    pub(super) fn inspector(&self) -> anyhow::Result<Inspector> {
        self.trust.reach(&self.server)?;
        Ok(Inspector::new(&self.server)?)
    }
}

/// A run.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct RunArgs {
    /// The run's name.
    #[arg(long, value_name = "NAME")]
    run: String,
    /// Where runs lie.
    #[arg(long, value_name = "FOLDER", default_value = "runs")]
    runs: PathBuf,
    /// Which of the run's replay servers, from 1 on.
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    replay_server: NonZeroUsize,
}

impl RunArgs {
    /// What its replay server goes by.
    ///
    /// # Errors
    /// A run that is not there, or whose configuration makes no sense.
    pub(super) fn settings(&self) -> anyhow::Result<Settings> {
        let run = RunDirectory::existing(&self.runs, &self.run)?;
        let mut config: Config = load_run(&run)?;
        // Wherever the run was moved to since.
        let number = self.replay_server.get();
        config.run.directory = run.of_replay_server(number);
        ensure!(config.run.directory.is_dir(), "run {} has no replay server {number}", self.run);
        // Who looks in keeps no archive, and needs none.
        Ok(Settings { archive: None, ..config.settings()? })
    }
}

/// A server that can be asked.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) inspector: Inspector,
    /// It is ours to end.
    own: Option<(Running, Drain)>,
}

impl Source {
    /// Connects, or starts a server on what a run has written.
    ///
    /// # Errors
    /// No endpoint, no such run, or a run whose server runs.
    pub(super) async fn open(&self) -> anyhow::Result<Opened> {
        match (&self.server, &self.run) {
            (Some(_), _) => Ok(Opened { inspector: self.live_only()?, own: None }),
            (None, Some(run)) => {
                let (run, runs, replay_server) = (run.clone(), self.runs.clone(), self.replay_server);
                start(RunArgs { run, runs, replay_server }).await
            }
            (None, None) => bail!("name a run with --run or a live server with --server"),
        }
    }

    /// Whom to ask for what only a live server does.
    ///
    /// # Errors
    /// No endpoint, no credentials for it, or a run instead of a server.
    pub(super) fn live_only(&self) -> anyhow::Result<Inspector> {
        let Some(endpoint) = &self.server else {
            bail!("only a live server changes its settings, name it with --server; those of a run are in its run file")
        };
        self.trust.reach(endpoint)?;
        Ok(Inspector::new(endpoint)?)
    }
}

async fn start(run: RunArgs) -> anyhow::Result<Opened> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("listen on loopback")?;
    let drain = Drain::new();
    let started = replay_server::start(run.settings()?, listener, drain.clone()).await;
    let running = started.with_context(|| {
        format!("open the replay log of run {}; if the run is under way, name its live server with --server", run.run)
    })?;
    let inspector = Inspector::new(&format!("http://{}", running.address))?;
    Ok(Opened { inspector, own: Some((running, drain)) })
}

impl Opened {
    /// Ends a server of ours; what was asked comes first among errors.
    ///
    /// # Errors
    /// That of the question, or of the server's end.
    pub(super) async fn close(self, asked: anyhow::Result<()>) -> anyhow::Result<()> {
        let Some((running, drain)) = self.own else { return asked };
        drain.start();
        let finished = running.finished().await;
        asked.and(finished)
    }
}
