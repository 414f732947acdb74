//! The page of the strength: charts, accuracy on solved positions, losses on held-out games, results between players,
//! two versions compared, and matches.

use std::cmp::Reverse;

use maud::{Markup, PreEscaped, html};
use run_metrics::RunMetrics;
use run_metrics::words::{MISSING, date, percent, validation};
use strength::ledger::{Player, Rated, Tally};
use version_store::VersionStore;
use weights::WeightsVersion;

use crate::charts::Charts;
use crate::comparison;
use crate::matches;
use crate::page::table;
use crate::ratings::{self, Fit, IN_A_CLUSTER, unreadable};
use crate::site::Site;
use crate::visitors::Form;

/// Maximum number of players in the table of results.
const PLAYERS_MAX: usize = 16;

/// Renders the page. Blocks the thread: ratings and versions are on a disk.
pub(crate) fn render(site: &Site, fields: &Form) -> Markup {
    let (snapshot, fit) = (site.snapshot(), site.ratings.read());
    // The page of the weights shows the reason why versions cannot be listed.
    let kept = VersionStore::kept(site.settings.run.path()).unwrap_or_default();
    let chosen = ["a", "b"].map(|name| fields.text(name).parse().ok().map(WeightsVersion));
    html! {
        h1 { "Strength of " (site.settings.run.name()) }
        (unreadable(&fit))
        @if let Some(charts) = &snapshot.charts {
            (measured(fit.as_deref().ok(), charts))
            @if let Ok(fit) = &fit { (comparison::render(fit, charts.history.readings(), &kept, chosen)) }
        } @else { p.empty { "Reading the run…" } }
        h2 { "Match" }
        (site.matches.render())
        @if site.settings.run.admins().is_some() { (matches::command(site.settings.run.name(), chosen)) }
        @else if let Some(word) = site.word_of_changes() { (site.matches.controls(word, chosen)) }
    }
}

/// Renders the measurements of a run, and the ratings, if they can be read.
pub(crate) fn measured(fit: Option<&Fit>, Charts { history, strength, .. }: &Charts) -> Markup {
    let readings = history.readings();
    let held_out = readings.iter().rev().find_map(validation);
    html! {
        @if let Some(fit) = fit { (games(fit)) }
        @if strength.is_empty() { p.empty { "Charts appear with the first measurement of the arena." } }
        @else { div.charts { (PreEscaped(strength.as_str())) } }
        h2 { "Solved positions" }
        (solved(readings))
        h2 { "Held-out games" }
        p { (held_out.as_deref().unwrap_or("No losses on held-out games are measured.")) }
        @if let Some(fit) = fit { h2 { "Results between players" } (crosstable(fit)) }
    }
}

fn games(fit: &Fit) -> Markup {
    let (games, date) = (fit.ledger.games(), fit.unix_seconds.map(date).unwrap_or_default());
    html! {
        @if games == 0 {
            p.empty { "The run has no rated games yet. The arena plays them while the run trains; " (IN_A_CLUSTER) }
        } @else { p.note { "One fit of all " (games) " games until " (date) "; random play is 0." } }
    }
}

fn solved(readings: &[RunMetrics]) -> Markup {
    let Some(latest) = readings.iter().rev().find(|reading| !reading.accuracy.is_empty()) else {
        return html! { p.empty { "No accuracy is measured: solved positions exist for some games only." } };
    };
    let row = |band: &str| {
        let measures = ["raw/preserving", "search/preserving", "raw/optimal", "search/optimal"];
        let share = |measure| percent(latest.accuracy.get(&format!("{measure}/{band}")).copied());
        [band.to_owned()].into_iter().chain(measures.map(share)).collect()
    };
    // Bands without a place here follow in the order of their names.
    let place = |band: &&str| ["early", "middle", "late"].iter().position(|name| name == band).unwrap_or(usize::MAX);
    let mut bands: Vec<&str> = latest.accuracy.keys().filter_map(|name| name.strip_prefix("raw/preserving/")).collect();
    bands.sort_by_key(place);
    let columns = ["band", "outcome kept, raw", "outcome kept, search", "best move, raw", "best move, search"];
    table("Accuracy on solved positions by band", &columns, &bands.into_iter().map(row).collect::<Vec<Vec<String>>>())
}

/// Renders the points and the games of the players with the most games against each other.
fn crosstable(fit: &Fit) -> Markup {
    let mut players: Vec<&Rated> = fit.ratings.iter().filter(|rated| rated.games > 0).collect();
    let count = players.len();
    players.sort_by_key(|rated| Reverse((rated.games, rated.player)));
    players.truncate(PLAYERS_MAX);
    players.sort_by(|a, b| b.elo.total_cmp(&a.elo));
    let points = |a: Player, b: Player| {
        let tally = if a == b { Tally::default() } else { fit.ledger.results(a, b).tally };
        if tally.games() == 0 { MISSING.to_owned() } else { format!("{}/{}", tally.points(), tally.games()) }
    };
    if players.is_empty() {
        return html! { p.empty { "No rated games have been played yet." } };
    }
    let names = players.iter().map(|column| column.player.to_string());
    let columns: Vec<String> = ["player", "Elo"].map(str::to_owned).into_iter().chain(names).collect();
    let row = |row: &&Rated| {
        let points = players.iter().map(|column| points(row.player, column.player));
        [row.player.to_string(), ratings::elo(row)].into_iter().chain(points).collect()
    };
    let rows: Vec<Vec<String>> = players.iter().map(row).collect();
    html! {
        p.note {
            "Points of the row against the column, of the games that count, for "
            (rows.len()) " of " (count) " players: those with the most games."
        }
        (table("Results between players", &columns, &rows))
    }
}
