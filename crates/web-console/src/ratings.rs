//! The ratings of a run, in one fit of all recorded games. Start with [`Ratings::read`].

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context as _;
use fleet::RunDirectory;
use fleet::run_directory::load_run;
use maud::{Markup, html};
use parking_lot::Mutex;
use run_file::RunFile;
use run_metrics::words::unix_seconds;
use service::directory::if_exists;
use strength::ledger::{Ledger, Player, Rated};
use weights::WeightsVersion;

/// End of a sentence that explains why there is nothing to show.
pub(crate) const IN_A_CLUSTER: &str = "in a cluster, the console needs the volume of the arena, mounted read-only.";

/// All rated games of a run, with the ratings that follow from them.
#[derive(Debug)]
pub(crate) struct Fit {
    pub(crate) ledger: Ledger,
    pub(crate) ratings: Vec<Rated>,
    /// Time of the last recorded match in seconds since 1970; `None` without games.
    pub(crate) unix_seconds: Option<f64>,
}

impl Fit {
    /// Returns the Elo of a version in words; `None` without games.
    pub(crate) fn elo(&self, version: WeightsVersion) -> Option<String> {
        self.ratings.iter().find(|rated| rated.player == Player::Version(version)).map(elo)
    }
}

/// The ratings of a run, computed at most once per change of the file, for all visitors.
#[derive(Debug)]
pub(crate) struct Ratings {
    run: RunDirectory,
    path: PathBuf,
    last: Mutex<Option<(Stamp, Arc<Fit>)>>,
}

/// Modification time and size of the file; `None` without a file.
pub(crate) type Stamp = Option<(SystemTime, u64)>;

impl Ratings {
    pub(crate) fn new(run: RunDirectory) -> Self {
        Self { path: run.path().join("ratings.json"), run, last: Mutex::default() }
    }

    /// Returns the ratings. Blocks the thread, also while another thread computes them.
    ///
    /// # Errors
    /// The run file or the ratings cannot be read.
    pub(crate) fn read(&self) -> anyhow::Result<Arc<Fit>> {
        let mut last = self.last.lock();
        // Taken before the file is read: a later change gives another stamp.
        let stamp = self.stamp()?;
        if let Some((of, fit)) = &*last
            && *of == stamp
        {
            return Ok(Arc::clone(fit));
        }
        let config: RunFile = load_run(&self.run)?;
        let ledger = Ledger::load(&self.path, &config.run.game)?;
        let unix_seconds = stamp.map(|(time, _)| unix_seconds(time));
        let fit = Arc::new(Fit { ratings: ledger.ratings(), ledger, unix_seconds });
        *last = Some((stamp, Arc::clone(&fit)));
        Ok(fit)
    }

    /// Returns the state of the file.
    ///
    /// # Errors
    /// The state cannot be read.
    pub(crate) fn stamp(&self) -> anyhow::Result<Stamp> {
        let found = std::fs::metadata(&self.path).and_then(|found| Ok((found.modified()?, found.len())));
        if_exists(found).with_context(|| format!("read {}", self.path.display()))
    }
}

/// Renders the reason why ratings cannot be read, if any.
pub(crate) fn unreadable(fit: &anyhow::Result<Arc<Fit>>) -> Markup {
    html! {
        @if let Err(error) = fit { p.warning { strong { "The ratings cannot be read: " } (format!("{error:#}")) } }
    }
}

/// Formats a rating with the 95 % interval, on one line of narrow tables.
pub(crate) fn elo(Rated { elo, low, high, .. }: &Rated) -> String {
    format!("{elo:.0} ({low:.0} to {high:.0})").replace(' ', "\u{a0}")
}
