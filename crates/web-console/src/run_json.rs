//! The run as JSON, for programs.

use fleet::run_directory::load_run;
use run_file::RunFile;
use serde_json::json;
use strength::ledger::Player;
use version_store::VersionStore;

use crate::site::Site;
use crate::versions::ROWS_MAX;
use crate::visitors::Form;

/// Path of the state of the run.
pub(crate) const RUN: &str = "/run.json";
/// Path of the recorded metrics.
pub(crate) const METRICS: &str = "/metrics.json";

/// Returns name, game and latest metrics, and a page of the kept weights versions, the latest first, each with manifest
/// and rating. A page after the last is empty. Blocks the thread: the files are on a disk.
///
/// # Errors
/// Run file, ratings or versions cannot be read.
pub(crate) fn run(site: &Site, fields: &Form) -> anyhow::Result<String> {
    let config: RunFile = load_run(&site.settings.run)?;
    let (snapshot, fit) = (site.snapshot(), site.ratings.read()?);
    let kept = VersionStore::kept(site.settings.run.path())?;
    let page = fields.text("page").parse::<usize>().unwrap_or(1).max(1);
    let mut versions = Vec::new();
    for (&version, store) in kept.iter().rev().skip(ROWS_MAX.saturating_mul(page - 1)).take(ROWS_MAX) {
        // A training run has removed the version meanwhile, or the page of the weights shows the damage.
        let Ok(manifest) = store.manifest(version) else { continue };
        let rated = fit.ratings.iter().find(|rated| rated.player == Player::Version(version));
        versions.push(json!({
            "manifest": manifest,
            "elo": rated.map(|rated| rated.elo),
            "elo_low": rated.map(|rated| rated.low),
            "elo_high": rated.map(|rated| rated.high),
        }));
    }
    let state = json!({
        "name": site.settings.run.name(),
        "game": config.run.game,
        "is_trained": snapshot.is_trained,
        "metrics": snapshot.charts.as_deref().and_then(|charts| charts.history.readings().last()),
        "versions": versions,
        "pages": kept.len().div_ceil(ROWS_MAX),
    });
    Ok(state.to_string())
}

/// Returns the recorded metrics, evenly thinned, oldest first.
///
/// # Errors
/// A reading cannot be written as JSON, which is a bug.
pub(crate) fn metrics(site: &Site) -> anyhow::Result<String> {
    let snapshot = site.snapshot();
    let rows = snapshot.charts.as_deref().map(|charts| charts.history.readings()).unwrap_or_default();
    Ok(format!("{{\"rows\":{}}}", serde_json::to_string(rows)?))
}
