use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use proto::replay::Inspector;
use replay_server::{Config, Running, Settings};
use service::Drain;
use service::directory::DirectoryError;
use tokio::net::TcpListener;

use crate::client_security::{ClientSecurity, reach_run};
use fleet::config::load_run;
use fleet::run_directory::RunDirectory;

/// The arguments that name a live server or a run.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Source {
    /// Endpoint of a live replay server: `http://127.0.0.1:7001`, or `https`.
    #[arg(long, value_name = "ENDPOINT", conflicts_with = "run", required_unless_present = "run")]
    server: Option<String>,
    #[command(flatten)]
    security: ClientSecurity,
    /// Name of a run, in training or finished.
    #[arg(long, value_name = "NAME")]
    run: Option<String>,
    /// Folder of all runs.
    #[arg(long, value_name = "FOLDER", default_value = "runs")]
    runs: PathBuf,
    /// Number of the run's replay server, from 1.
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    replay_server: NonZeroUsize,
}

/// The arguments that name a live server.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Live {
    /// Endpoint of a live replay server: `http://127.0.0.1:7001`, or `https`.
    #[arg(long, value_name = "ENDPOINT")]
    server: String,
    #[command(flatten)]
    security: ClientSecurity,
}

impl Live {
    /// Returns the client of the server.
    ///
    /// # Errors
    /// An invalid endpoint, or no credentials for it.
    pub(super) fn inspector(&self) -> anyhow::Result<Inspector> {
        self.security.reach(&self.server)?;
        Ok(Inspector::new(&self.server)?)
    }
}

/// The arguments that name a run.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct RunArgs {
    /// Name of the run.
    #[arg(long, value_name = "NAME")]
    run: String,
    /// Folder of all runs.
    #[arg(long, value_name = "FOLDER", default_value = "runs")]
    runs: PathBuf,
    /// Number of the run's replay server, from 1.
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    replay_server: NonZeroUsize,
}

impl RunArgs {
    /// Loads the settings of the run's replay server.
    ///
    /// # Errors
    /// A run that does not exist, or whose configuration is invalid.
    pub(super) fn settings(&self) -> anyhow::Result<Settings> {
        let run = RunDirectory::existing(&self.runs, &self.run)?;
        let mut config: Config = load_run(&run)?;
        // The folder of the run may have been moved.
        let number = self.replay_server.get();
        config.run.directory = run.of_replay_server(number);
        ensure!(config.run.directory.is_dir(), "run {} has no replay server {number}", self.run);
        // An inspection neither restores from an archive nor writes to it.
        Ok(Settings { archive: None, ..config.settings()? })
    }

    /// Returns the client of the live replay server of a run in training; `None` if the run's progress lists no such
    /// server.
    fn live(&self) -> anyhow::Result<Option<Inspector>> {
        let run = RunDirectory::existing(&self.runs, &self.run)?;
        let Some(progress) = run.progress()? else { return Ok(None) };
        let Some(address) = progress.replay.get(self.replay_server.get() - 1) else { return Ok(None) };
        Ok(Some(Inspector::new(&format!("{}://{address}", reach_run(&run)?))?))
    }
}

/// A client with the server behind it, if this process started one.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) inspector: Inspector,
    /// The server that this process started and has to drain.
    own: Option<(Running, Drain)>,
}

impl Source {
    /// Connects to the named server or to that of a run in training, or else starts a server on the run's log.
    ///
    /// # Errors
    /// An invalid endpoint, no such run, or a log that another process uses.
    pub(super) async fn open(&self) -> anyhow::Result<Opened> {
        match (&self.server, &self.run) {
            (Some(_), _) => Ok(Opened { inspector: self.live_only()?, own: None }),
            (None, Some(run)) => {
                let (run, runs, replay_server) = (run.clone(), self.runs.clone(), self.replay_server);
                start(RunArgs { run, runs, replay_server }).await
            }
            (None, None) => bail!("use --run or --server"),
        }
    }

    /// Returns the client for requests that only a live server accepts.
    ///
    /// # Errors
    /// An invalid endpoint, no credentials for it, or a run instead of a server.
    pub(super) fn live_only(&self) -> anyhow::Result<Inspector> {
        let Some(endpoint) = &self.server else {
            bail!("only a live server can change its settings; use --server, or edit the run file")
        };
        self.security.reach(endpoint)?;
        Ok(Inspector::new(endpoint)?)
    }
}

/// Starts a server on the log of a run, or connects to the server that has it open.
async fn start(run: RunArgs) -> anyhow::Result<Opened> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("listen on loopback")?;
    let drain = Drain::new();
    let started = replay_server::start(run.settings()?, listener, drain.clone()).await;
    let running = match started {
        Ok(running) => running,
        Err(error) => {
            if is_in_use(&error)
                && let Some(inspector) = run.live()?
            {
                return Ok(Opened { inspector, own: None });
            }
            return Err(error.context(format!("open the replay log of run {}", run.run)));
        }
    };
    let inspector = Inspector::new(&format!("http://{}", running.address))?;
    Ok(Opened { inspector, own: Some((running, drain)) })
}

/// Returns true if another process uses the directory of the log.
fn is_in_use(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| matches!(cause.downcast_ref(), Some(DirectoryError::InUse { .. })))
}

impl Opened {
    /// Drains the server of this process, if there is one. An error of the request takes precedence over one of the
    /// server.
    ///
    /// # Errors
    /// The error of the request, or of the server's drain.
    pub(super) async fn close(self, asked: anyhow::Result<()>) -> anyhow::Result<()> {
        let Some((running, drain)) = self.own else { return asked };
        drain.start();
        let finished = running.finished().await;
        asked.and(finished)
    }
}
