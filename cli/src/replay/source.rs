use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use fleet::run_directory::load_run;
use fleet::run_directory::{RunDirectory, archive_of_board, archive_of_replay_server};
use proto::replay::Inspector;
use replay_server::Running;
use run_file::replay::{Config, Settings};
use service::Drain;
use service::directory::DirectoryError;
use tokio::net::TcpListener;

use crate::client_security::{LiveServer, reach_run};

/// Arguments that name a live server or a run.
#[derive(Debug, Clone, clap::Args)]
#[group(required = true, multiple = false, args = ["server", "run"])]
pub(super) struct Source {
    #[command(flatten)]
    server: Option<LiveServer>,
    #[command(flatten)]
    run: Option<RunArgs>,
}

/// Arguments that name a run.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct RunArgs {
    /// Name of a run, in training or finished.
    #[arg(long, value_name = "NAME")]
    run: String,
    /// Directory of all runs.
    #[arg(long, value_name = "DIR", default_value = "runs")]
    runs: PathBuf,
    /// Number of the run's replay server, from 1.
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    replay_server: NonZeroUsize,
    /// Further board of the run, such as go-7 [default: the first board].
    #[arg(long, value_name = "GAME")]
    board: Option<String>,
}

impl RunArgs {
    /// Loads the settings of the run's replay server.
    ///
    /// # Errors
    /// The run does not exist, or the configuration is invalid.
    pub(super) fn settings(&self) -> anyhow::Result<Settings> {
        let run = RunDirectory::existing(&self.runs, &self.run)?;
        let mut config: Config = load_run(&run)?;
        // The run directory may have been moved.
        let number = self.replay_server.get();
        config.run.directory = match &self.board {
            None => run.of_replay_server(number),
            Some(board) => {
                config.run.game.clone_from(board);
                run.of_replay_server_of_board(board, number)
            }
        };
        let of_board = self.board.iter().map(|board| format!(" of {board}")).collect::<String>();
        ensure!(config.run.directory.is_dir(), "run {} has no replay server {number}{of_board}", self.run);
        // An inspection neither reads nor writes an archive.
        Ok(Settings { archive: None, ..config.settings()? })
    }

    /// Returns the archive of the run's replay server; `None` if it has none.
    ///
    /// # Errors
    /// The run does not exist, or the configuration is invalid.
    pub(super) fn archive(&self) -> anyhow::Result<Option<String>> {
        let run = RunDirectory::existing(&self.runs, &self.run)?;
        let archive = load_run::<Config>(&run)?.replay.archive;
        let number = self.replay_server.get();
        Ok((!archive.is_empty()).then(|| match &self.board {
            None => archive_of_replay_server(&archive, number),
            Some(board) => archive_of_board(&archive, board, number),
        }))
    }

    /// Returns a client of the live replay server of a run in training; `None` if the run's progress lists no such
    /// server.
    pub(super) fn live(&self) -> anyhow::Result<Option<Inspector>> {
        let run = RunDirectory::existing(&self.runs, &self.run)?;
        let Some(progress) = run.progress()? else { return Ok(None) };
        let servers = match &self.board {
            None => Some(&progress.replay),
            Some(board) => progress.boards.get(board),
        };
        let Some(address) = servers.and_then(|servers| servers.get(self.replay_server.get() - 1)) else {
            return Ok(None);
        };
        Ok(Some(Inspector::new(&format!("{}://{address}", reach_run(&run)?))?))
    }
}

/// A server that this process started and must drain.
pub(super) type OwnServer = (Running, Drain);

impl Source {
    /// Connects to the named server or to the server of a run in training; otherwise starts a server on the run's log.
    ///
    /// # Errors
    /// An invalid endpoint, no such run, or a log that another process uses.
    pub(super) async fn open(&self) -> anyhow::Result<(Inspector, Option<OwnServer>)> {
        match &self.run {
            Some(run) => start(run).await,
            None => Ok((self.live_only()?, None)),
        }
    }

    /// Returns a client for requests that only a live server accepts.
    ///
    /// # Errors
    /// An invalid endpoint, missing credentials, or a run instead of a server.
    pub(super) fn live_only(&self) -> anyhow::Result<Inspector> {
        let Some(server) = &self.server else {
            bail!("settings can be changed only on a live server; use --server, or edit the run file")
        };
        Ok(Inspector::new(server.reach()?)?)
    }
}

/// Starts a server on a run's log, or connects to the server that has the log open.
async fn start(run: &RunArgs) -> anyhow::Result<(Inspector, Option<OwnServer>)> {
    match serve(run.settings()?).await {
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

/// Starts a server with these settings; the caller must drain it.
///
/// # Errors
/// The log is in use by another process, or cannot be read.
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
