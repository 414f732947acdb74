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
    let read = versions.map(|version| {
        let is_before = |r: &&RunMetrics| r.weights_version.is_some_and(|latest| latest <= version.0 as f64);
        readings.iter().rev().find(is_before)
    });
    // The cells are those of the first and the second version.
    let row = |name: &str, cell: &dyn Fn(usize) -> Option<String>| {
        let cells = [0, 1].map(|side| cell(side).unwrap_or_else(|| MISSING.to_owned()));
        [name.to_owned()].into_iter().chain(cells).collect::<Vec<_>>()
    };
    let step = |version: WeightsVersion| Some(kept.get(&version)?.manifest(version).ok()?.training_step.to_string());
    let mut rows = vec![
        row("training step", &|side| step(versions[side])),
        row("Elo", &|side| fit.elo(versions[side])),
        row("Elo above the other", &|side| fit.ledger.difference(players[side], players[1 - side]).as_ref().map(elo)),
        row("points against the other", &|side| {
            let tally = fit.ledger.results(players[side], players[1 - side]).tally;
            Some(format!("{} of {}", tally.points(), tally.games()))
        }),
        row("held-out games", &|side| read[side].and_then(validation)),
    ];
    let measures = read.iter().flatten().flat_map(|r| r.accuracy.keys());
    for measure in measures.filter(|name| name.contains("/preserving/")).collect::<BTreeSet<_>>() {
        let share = |side: usize| read[side]?.accuracy.get(measure).map(|share| percent(Some(*share)));
        rows.push(row(&format!("outcome kept, {}", measure.replace("/preserving/", ", ")), &share));
    }
    rows
}
