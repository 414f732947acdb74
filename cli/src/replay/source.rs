use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use fleet::run_directory::{RunDirectory, archive_of_replay_server, load_run};
use proto::replay::Inspector;
use replay_server::Running;
use run_file::replay::{Config, Settings};
use service::Drain;
use service::directory::DirectoryError;
use tokio::net::TcpListener;

use crate::client_security::LiveServer;

/// Arguments that select a live replay server or a run.
#[derive(Debug, Clone, clap::Args)]
#[group(required = true, multiple = false, args = ["server", "run"])]
pub(crate) struct Source {
    #[command(flatten)]
    server: Option<LiveServer>,
    #[command(flatten)]
    run: Option<RunArgs>,
}

/// Arguments that select a replay server of a run.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RunArgs {
    /// Name of a run, which may be in training or finished.
    #[arg(long, value_name = "NAME")]
    run: String,
    /// Directory of all runs.
    #[arg(long, value_name = "DIR", default_value = "runs")]
    runs: PathBuf,
    /// Replay server of the run to use, counted from 1.
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    replay_server: NonZeroUsize,
    /// Use the replay server of an additional board, such as go-7 [default: the first board].
    #[arg(long, value_name = "GAME")]
    board: Option<String>,
}

impl RunArgs {
    /// Loads the settings of the selected replay server, and the archive URL; `None` if no archive is configured.
    ///
    /// # Errors
    /// The run does not exist, or the configuration is invalid.
    pub(super) fn settings(&self) -> anyhow::Result<(Settings, Option<String>)> {
        let run = RunDirectory::existing(&self.runs, &self.run)?;
        let mut config: Config = load_run(&run)?;
        let (board, number) = (self.board.as_deref(), self.replay_server.get());
        // Sets the directory anew, since the run directory may have been moved.
        config.run.directory = run.of_replay_server(board, number);
        config.run.game = board.map_or(config.run.game, str::to_owned);
        let of_board = board.map(|board| format!(" of {board}")).unwrap_or_default();
        ensure!(config.run.directory.is_dir(), "run {} has no replay server {number}{of_board}", self.run);
        let archive = &config.replay.archive;
        let archive = (!archive.is_empty()).then(|| archive_of_replay_server(archive, board, number));
        // An inspection neither reads nor writes the archive.
        Ok((Settings { archive: None, ..config.settings()? }, archive))
    }

    /// Returns a client of the selected replay server while the run trains; `None` if the progress file of the run does
    /// not list the server.
    pub(super) fn live(&self) -> anyhow::Result<Option<Inspector>> {
        let servers = RunDirectory::existing(&self.runs, &self.run)?.reach_replay_servers()?;
        let number = self.replay_server.get();
        let wanted = servers.iter().find(|server| server.board == self.board && server.number == number);
        Ok(wanted.map(|server| Inspector::new(&server.endpoint)).transpose()?)
    }
}

/// A replay server that this process has started, and the drain that must stop it.
pub(super) type OwnServer = (Running, Drain);

impl Source {
    /// Connects to the selected server, or to the replay server of a run that is training. For any other run, starts a
    /// server on the log.
    ///
    /// # Errors
    /// The endpoint is invalid, the run does not exist, or another process uses the log.
    pub(super) async fn open(&self) -> anyhow::Result<(Inspector, Option<OwnServer>)> {
        match &self.run {
            Some(run) => start(run).await,
            None => Ok((self.live_only()?, None)),
        }
    }

    /// Returns a client for requests that only a live server accepts.
    ///
    /// # Errors
    /// The endpoint is invalid, credentials are missing, or the arguments select a run and not a server.
    pub(super) fn live_only(&self) -> anyhow::Result<Inspector> {
        let Some(server) = &self.server else {
            bail!("settings can be changed only on a live server; use --server, or edit the run file")
        };
        Ok(Inspector::new(server.reach()?)?)
    }
}

/// Starts a server on the log of a run, or connects to the live server that already uses the log.
async fn start(run: &RunArgs) -> anyhow::Result<(Inspector, Option<OwnServer>)> {
    match serve(run.settings()?.0).await {
        Ok((inspector, own)) => Ok((inspector, Some(own))),
        Err(error) => {
            if is_in_use(&error)
                && let Some(inspector) = run.live()?
            {
                return Ok((inspector, None));
            }
            Err(error.context(format!("open the replay log of run {}", run.run)))
        }
    }
}

/// Starts a replay server with these settings on a free local port. The caller must drain the server.
///
/// # Errors
/// Another process uses the log, or the log cannot be read.
pub(super) async fn serve(settings: Settings) -> anyhow::Result<(Inspector, OwnServer)> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("listen on loopback")?;
    let drain = Drain::new();
    let running = replay_server::start(settings, listener, drain.clone()).await?;
    let inspector = Inspector::new(&format!("http://{}", running.address))?;
    Ok((inspector, (running, drain)))
}

/// Returns true if another process uses the log directory.
fn is_in_use(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| matches!(cause.downcast_ref(), Some(DirectoryError::InUse { .. })))
}
