//! `zerofleet replay drill`: tests that an archive of a replay log can be restored before a disk is lost. The drill
//! restores the archive to another directory, checks the restored log and serves it, and changes neither archive nor
//! run.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use experience::TrajectoryId;
use proto::replay::{Inspector, ListQuery};
use replay_server::archive::{Archive, Copied};
use run_file::replay::{Config, Settings};
use service::config::Sources;

use super::source::{RunArgs, serve};
use super::{finish, report_verified};

/// Arguments that select an archive.
#[derive(Debug, Clone, clap::Args)]
#[group(id = "of", required = true, multiple = false, args = ["run", "config"])]
pub(crate) struct Args {
    #[command(flatten)]
    run: Option<RunArgs>,
    /// Run file with the replay server's settings, if there is no run directory.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// URL of the archive [default: `replay.archive` of the run].
    #[arg(long, value_name = "URL")]
    archive: Option<String>,
    /// New directory for the restored log [default: a temporary directory].
    ///
    /// The directory must not exist yet, and is kept after the drill.
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
}

impl Args {
    /// Restores, checks and serves the log, and prints the contents and the trajectories missing from the archive.
    ///
    /// # Errors
    /// No archive is configured, the directory already exists, the archive cannot be read, or the log is damaged.
    pub(super) async fn run(&self, out: &mut impl Write) -> anyhow::Result<()> {
        let (settings, archive) = self.settings()?;
        let Some(url) = self.archive.clone().or(archive) else {
            bail!("no archive configured: set replay.archive or pass --archive URL")
        };
        let temporary = tempfile::tempdir().context("create a temporary directory")?;
        let folder = self.into.clone().unwrap_or_else(|| temporary.path().join("replay"));
        std::fs::create_dir(&folder).with_context(|| format!("create {}", folder.display()))?;
        let settings = Settings { directory: folder.clone(), archive: None, ..settings };
        restore(&url, &folder, out).await?;
        report_verified(&settings, out)?;

        let begun = Instant::now();
        let (inspector, own) = serve(settings).await.context("start a replay server on the restored log")?;
        let restored = inspector.list(ListQuery::default()).await;
        finish(own).await?;
        let restored = restored.context("list the restored trajectories")?;
        let seconds = begun.elapsed().as_secs_f64();
        writeln!(out, "a replay server on the restored log listed {} trajectories in {seconds:.1} s", restored.len())?;
        if let Some(live) = self.run.as_ref().map(RunArgs::live).transpose()?.flatten() {
            compare(&live, restored, out).await?;
        }
        if self.into.is_some() {
            writeln!(out, "the restored log is kept in {}", folder.display())?;
        }
        Ok(())
    }

    /// Returns the settings of the replay server and the archive URL; `None` if no archive is configured.
    fn settings(&self) -> anyhow::Result<(Settings, Option<String>)> {
        let Some(run) = &self.run else {
            let sources = Sources { file: self.config.clone(), env: std::env::vars_os(), sets: Vec::new() };
            let settings = sources.layers()?.load::<Config>()?.settings()?;
            let archive = settings.archive.as_ref().map(|archive| archive.url.clone());
            return Ok((settings, archive));
        };
        run.settings()
    }
}

/// Prints how many trajectories on the live server of a run are missing in `restored`. The server of a finished run
/// does not respond, which is not an error.
async fn compare(live: &Inspector, restored: Vec<TrajectoryId>, out: &mut impl Write) -> anyhow::Result<()> {
    // The live list is more recent than the archive. If the disk failed now, trajectories that arrived since the last
    // upload to the archive would be lost.
    let live = match live.list(ListQuery::default()).await {
        Err(error) if error.is_unavailable() => {
            writeln!(out, "no response from the replay server of the run: archive not compared")?;
            return Ok(());
        }
        listed => listed.context("list the trajectories of the live server")?,
    };
    let restored: BTreeSet<_> = restored.into_iter().collect();
    let missing = live.iter().filter(|id| !restored.contains(*id)).count();
    let held = live.len();
    writeln!(out, "the live server holds {held} trajectories, {missing} newer than the archive")?;
    Ok(())
}

/// Copies all segments of the archive to the directory `folder`.
async fn restore(url: &str, folder: &Path, out: &mut impl Write) -> anyhow::Result<()> {
    let begun = Instant::now();
    let Copied { segments, bytes } = Archive::of_process(url, folder)?.copy_out().await?;
    ensure!(segments > 0, "the archive {url} is empty");
    let seconds = begun.elapsed().as_secs_f64();
    writeln!(out, "restored {segments} files ({:.1} MB) from {url} in {seconds:.1} s", bytes as f64 / 1e6)?;
    Ok(())
}
