//! Two versions compared, as part of the page of the strength.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};
use run_metrics::RunMetrics;
use run_metrics::words::{MISSING, percent, validation};
use strength::ledger::Player;
use version_store::VersionStore;
use weights::WeightsVersion;

use crate::matches;
use crate::page::table;
use crate::ratings::{Fit, elo};

/// Renders the form that selects two kept versions, and the comparison of the versions `chosen`.
pub(crate) fn render(
    fit: &Fit,
    readings: &[RunMetrics],
    kept: &BTreeMap<WeightsVersion, VersionStore>,
    chosen: [Option<WeightsVersion>; 2],
) -> Markup {
    let names = [("a", "First version"), ("b", "Second version")];
    html! {
        @if kept.len() > 1 {
            h2 { "Two versions compared" }
            form.search method="get" action=(matches::PAGE) {
                @for (((name, label), chosen), latest) in names.into_iter().zip(chosen).zip(kept.keys().rev()) {
                    @let version = chosen.unwrap_or(*latest);
                    label { (label) input type="number" name=(name) min="1" value=(version.0) required; }
                }
                button { "Compare" }
            }
        }
        @if let [Some(a), Some(b)] = chosen {
            @let columns = ["measure".to_owned(), a.to_string(), b.to_string()];
            (table("Comparison of two versions", &columns, &rows(fit, readings, kept, [a, b])))
            p.note { "Accuracy and losses are of the last reading before the next version." }
        }
    }
}

fn rows(
    fit: &Fit,
    readings: &[RunMetrics],
    kept: &BTreeMap<WeightsVersion, VersionStore>,
    versions: [WeightsVersion; 2],
) -> Vec<Vec<String>> {
    let players = versions.map(Player::Version);
    let step = |version: WeightsVersion| Some(kept.get(&version)?.manifest(version).ok()?.training_step.to_string());
    let rating = |player: Player| fit.ratings.iter().find(|rated| rated.player == player).map(elo);
    let above = |[player, other]: [Player; 2]| fit.ledger.difference(player, other).as_ref().map(elo);
    let points = |[player, other]: [Player; 2]| {
        let tally = fit.ledger.results(player, other).tally;
        Some(format!("{} of {}", tally.points(), tally.games()))
    };
    let pairs = [players, [players[1], players[0]]];
    let read = versions.map(|version| {
        let is_before = |r: &&RunMetrics| r.weights_version.is_some_and(|latest| latest <= version.0 as f64);
        readings.iter().rev().find(is_before)
    });
    let mut rows = vec![
        ("training step".to_owned(), versions.map(step)),
        ("Elo".to_owned(), players.map(rating)),
        ("Elo above the other".to_owned(), pairs.map(above)),
        ("points against the other".to_owned(), pairs.map(points)),
        ("held-out games".to_owned(), read.map(|r| r.and_then(validation))),
    ];
    let measures = read.iter().flatten().flat_map(|r| r.accuracy.keys());
    for measure in measures.filter(|name| name.contains("/preserving/")).collect::<BTreeSet<_>>() {
        let share = |r: Option<&RunMetrics>| r?.accuracy.get(measure).map(|share| percent(Some(*share)));
        rows.push((format!("outcome kept, {}", measure.replace("/preserving/", ", ")), read.map(share)));
    }
    let cells = |(name, [a, b]): (String, [Option<String>; 2])| {
        [Some(name), a, b].map(|cell| cell.unwrap_or_else(|| MISSING.to_owned())).to_vec()
    };
    rows.into_iter().map(cells).collect()
}
