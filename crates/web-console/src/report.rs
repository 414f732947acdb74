//! The report of a run: one HTML file without scripts and forms that loads nothing. Start with [`report`].

use std::collections::VecDeque;
use std::fs;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use anyhow::{Context as _, bail};
use fleet::{JsonLines, RunDirectory};
use maud::{DOCTYPE, PreEscaped, html};
use run_metrics::roster::Roster;
use run_metrics::words::unix_seconds;
use run_metrics::{History, RunEvent};
use service::directory::if_exists;
use version_store::VersionStore;

use crate::charts::Charts;
use crate::games::Drawn;
use crate::overview::{self, Overview, Phase};
use crate::page::{head, table};
use crate::ratings::{Ratings, unreadable};
use crate::reader::keep_latest;
use crate::snapshot::IDS;
use crate::{configuration, strength_page, versions};

/// Ids of the parts that the navigation leads to.
const PARTS: [&str; 6] = ["state", "strength", "weights", "configuration", "events", "summary"];
/// Ids of the fragments from the overview.
const FRAGMENTS: [&str; 5] = ["warnings", "state", "now", "charts", "events"];
/// Maximum number of characters in the summary.
const SUMMARY_LENGTH_MAX: usize = 20_000;

/// Renders the report of a run from the files of the run: state, charts, strength, weights, differing configuration,
/// events and summary. Charts are thinned, and lists hold the latest versions and events only, so that the file stays
/// below 1 MB.
///
/// # Errors
/// The run has no metrics yet, or a file of the run cannot be read.
pub fn report(run: &RunDirectory) -> anyhow::Result<String> {
    let (mut history, ratings) = (History::default(), Arc::new(Ratings::new(run.clone())));
    JsonLines::new(run.metrics()).each(|reading| history.add(reading))?;
    of_charts(run, &ratings, &Charts::new(Arc::new(history), Arc::clone(&ratings)))
}

/// Renders the report with metrics and charts that are known.
pub(crate) fn of_charts(run: &RunDirectory, ratings: &Ratings, charts: &Charts) -> anyhow::Result<String> {
    let mut events = VecDeque::new();
    JsonLines::new(run.events()).each(|event| keep_latest(&mut events, event))?;
    let Some(last) = charts.history.readings().last() else {
        bail!("run {0} has no metrics yet; train it with zerofleet train --run {0}", run.name());
    };
    let fit = ratings.read();
    let rated = fit.as_deref().ok();
    let mut learning = charts.learning.clone();
    // Some charts are in both.
    learning.retain(|chart| !charts.strength.contains(chart.as_str()));
    let kept = VersionStore::kept(run.path())?;
    let rows: Vec<_> = versions::listed(&kept, 1, rated).into_iter().map(|(_, cells)| cells).collect();
    let (game, keys) = configuration::compare(run)?;
    // A session writes the summary at the end.
    let summary = run.path().join("summary.md");
    let summary = if_exists(fs::read_to_string(&summary)).with_context(|| format!("read {}", summary.display()))?;
    let summary: String = summary.unwrap_or_default().chars().take(SUMMARY_LENGTH_MAX).collect();
    let words = |cell: &str| cell.replace("\\|", "|");
    let row = |line: &str| {
        line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | ").map(|(a, b)| vec![words(a), words(b)])
    };
    let summary: Vec<Vec<String>> =
        summary.lines().skip_while(|line| !line.starts_with("|--")).filter_map(row).collect();
    let (now, unix_seconds) = (Instant::now(), unix_seconds(SystemTime::now()));
    let total_seconds = run.progress()?.map(|progress| 60.0 * progress.minutes);
    // A session that has ended holds the lock while it writes the report.
    let is_trained = run.is_trained() && events.iter().rev().find_map(RunEvent::starts_session) != Some(false);
    let parts = overview::render(&Overview {
        run: run.name(),
        problem: None,
        phase: Phase::of(Some(last), is_trained, total_seconds, unix_seconds),
        total_seconds: total_seconds.unwrap_or_default(),
        metrics: last.clone(),
        roster: &Roster::default(),
        charts: &learning,
        events: &events,
        games: &Drawn::default(),
        now,
        unix_seconds,
    });
    let shown = IDS.iter().zip(&parts).filter(|(id, _)| FRAGMENTS.contains(*id)).map(|(_, part)| PreEscaped(part));
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                (head(&format!("Report of {}", run.name())))
                style { (PreEscaped(include_str!("console.css"))) }
            }
            body {
                header {
                    strong.brand { "zerofleet" }
                    nav.parts aria-label="Parts" { @for id in PARTS { a href={ "#" (id) } { (id) } } }
                }
                main {
                    @for part in shown { (part) }
                    section id="strength" {
                        h1 { "Strength" }
                        (unreadable(&fit))
                        (strength_page::measured(rated, charts))
                    }
                    section id="weights" {
                        h1 { "Weights" }
                        p.note { (kept.len()) " versions are kept. The latest are listed." }
                        (table("Weights versions, the latest first", &versions::COLUMNS, &rows))
                    }
                    section id="configuration" { h1 { "Configuration" } (configuration::differences(&game, &keys)) }
                    section id="summary" { h1 { "Summary" } (table("Summary of the last session", &["metric", "value"], &summary)) }
                }
            }
        }
    };
    Ok(page.into_string())
}
