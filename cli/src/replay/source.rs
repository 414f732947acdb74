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

/// A live server, or a run.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Source {
    /// A live replay server: `http://127.0.0.1:7001`, or `https`.
    #[arg(long, value_name = "ENDPOINT", conflicts_with = "run", required_unless_present = "run")]
    server: Option<String>,
    #[command(flatten)]
    security: ClientSecurity,
    /// A run, while it is trained or afterwards.
    #[arg(long, value_name = "NAME")]
    run: Option<String>,
    /// The folder of runs.
    #[arg(long, value_name = "FOLDER", default_value = "runs")]
    runs: PathBuf,
    /// Which of the run's replay servers, from 1 on.
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    replay_server: NonZeroUsize,
}

/// A live server.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Live {
    /// A live replay server: `http://127.0.0.1:7001`, or `https`.
    #[arg(long, value_name = "ENDPOINT")]
    server: String,
    #[command(flatten)]
    security: ClientSecurity,
}

impl Live {
    /// The client of the server.
    ///
    /// # Errors
    /// An invalid endpoint, or no credentials for it.
    pub(super) fn inspector(&self) -> anyhow::Result<Inspector> {
        self.security.reach(&self.server)?;
        Ok(Inspector::new(&self.server)?)
    }
}

/// A run.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct RunArgs {
    /// The run's name.
    #[arg(long, value_name = "NAME")]
    run: String,
    /// The folder of runs.
    #[arg(long, value_name = "FOLDER", default_value = "runs")]
    runs: PathBuf,
    /// Which of the run's replay servers, from 1 on.
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    replay_server: NonZeroUsize,
}

impl RunArgs {
    /// The settings of its replay server.
    ///
    /// # Errors
    /// A run that does not exist, or whose configuration is invalid.
    pub(super) fn settings(&self) -> anyhow::Result<Settings> {
        let run = RunDirectory::existing(&self.runs, &self.run)?;
        let mut config: Config = load_run(&run)?;
        // The run may have been moved.
        let number = self.replay_server.get();
        config.run.directory = run.of_replay_server(number);
        ensure!(config.run.directory.is_dir(), "run {} has no replay server {number}", self.run);
        // Inspection neither restores from an archive nor writes to it.
        Ok(Settings { archive: None, ..config.settings()? })
    }

    /// The client of the live replay server of a run that is trained; `None` if the run's progress lists no such
    /// server.
    fn live(&self) -> anyhow::Result<Option<Inspector>> {
        let run = RunDirectory::existing(&self.runs, &self.run)?;
        let Some(progress) = run.progress()? else { return Ok(None) };
        let Some(address) = progress.replay.get(self.replay_server.get() - 1) else { return Ok(None) };
        Ok(Some(Inspector::new(&format!("{}://{address}", reach_run(&run)?))?))
    }
}

/// A server that takes requests.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) inspector: Inspector,
    /// A server of this process, which ends it.
    own: Option<(Running, Drain)>,
}

impl Source {
    /// Connects to the server that is named or to that of a run which is trained, or else starts a server on the run's
    /// log.
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
            (None, None) => bail!("name a run with --run or a live server with --server"),
        }
    }

    /// The client for requests that only a live server takes.
    ///
    /// # Errors
    /// An invalid endpoint, no credentials for it, or a run instead of a server.
    pub(super) fn live_only(&self) -> anyhow::Result<Inspector> {
        let Some(endpoint) = &self.server else {
            bail!("only a live server changes its settings, name it with --server; those of a run are in its run file")
        };
        self.security.reach(endpoint)?;
        Ok(Inspector::new(endpoint)?)
    }
}

/// Opens the log of a run, or connects to the server that has it open.
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

/// Whether another process has the directory of the log.
fn is_in_use(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| matches!(cause.downcast_ref(), Some(DirectoryError::InUse { .. })))
}

impl Opened {
    /// Ends the server of this process, if there is one. The error of the request precedes that of the server.
    ///
    /// # Errors
    /// That of the request, or of the server's end.
    pub(super) async fn close(self, asked: anyhow::Result<()>) -> anyhow::Result<()> {
        let Some((running, drain)) = self.own else { return asked };
        drain.start();
        let finished = running.finished().await;
        asked.and(finished)
    }
}
