//! Renders the parts of the fleet's page: processes, and the load of threads, limiter, queue and devices.

use fleet::Role;
use maud::{Markup, html};
use run_metrics::roster::Roster;
use run_metrics::rows::{Row, limiter_waits, phases, rows};
use run_metrics::words::{
    MISSING, count, counted, device_lines, engines_line, limited, number, rates, replay, span, whole,
};

use crate::overview::Overview;
use crate::page::table;

/// Maximum number of processes in the table.
const ROWS_MAX: usize = 200;

/// Renders the processes, one per row.
pub(crate) fn processes(run: &Overview<'_>) -> Markup {
    let rows = rows(run.roster, run.metrics.weights_version, run.now, run.unix_seconds);
    let gone: usize = run.roster.gone().map(|(_, count, _)| count).sum::<usize>() + rows.len().saturating_sub(ROWS_MAX);
    let cells: Vec<Vec<String>> = rows.iter().take(ROWS_MAX).map(cells).collect();
    let columns = ["process", "address", "state", "up", "version", "weights", "lag", "work/s"];
    html! {
        h1 { "Fleet of " (run.run) }
        @if rows.is_empty() {
            p.empty { "No processes are known. They appear while zerofleet train runs, or once cluster hosts resolve." }
        } @else {
            p { strong { (counted(&rows)) } }
            p { (rates(&run.metrics)) }
            (table("Processes", &columns, &cells))
            p.note {
                @if gone > 0 { (gone) " more are lost or not shown. " }
                "Work: inserts, training steps, evaluations, rated games, moves. Lag: versions behind the learner."
            }
        }
    }
}

fn cells(row: &Row) -> Vec<String> {
    let lost = row.lost_seconds.map(|seconds| format!(" for {}", span(Some(seconds))));
    let reason = row.reason.as_ref().map(|reason| format!(": {reason}"));
    vec![
        row.name.clone(),
        row.address.clone(),
        row.state.to_owned() + &lost.or(reason).unwrap_or_default(),
        span(row.age_seconds),
        row.version.clone().unwrap_or_else(|| MISSING.to_owned()),
        whole(row.weights_version),
        whole(row.lag_versions),
        number(row.work_per_second),
    ]
}

/// Renders phases of threads, replay servers with limiter and queue, policy lag, and devices.
pub(crate) fn load(run: &Overview<'_>) -> Markup {
    let r = &run.metrics;
    let fleet = run.roster.fleet();
    let is_limited = fleet.0.iter().any(|(role, _)| *role == Role::Replay);
    let (actor, samples) = (whole(r.weights_lag), number(r.sample_version_lag));
    let facts = [
        ("Limiter", if is_limited { limited(&limiter_waits(&fleet)) } else { MISSING.to_owned() }),
        ("Replay", replay(r)),
        ("Queue", format!("{} games of actors are not acknowledged yet", count(r.unacknowledged))),
        ("Policy lag", format!("{actor} versions of the slowest actor, {samples} of the latest samples")),
        ("Engines", engines_line(&r.engines)),
        ("Devices", device_lines(&r.devices).join("; ")),
    ];
    html! {
        h2 { "Phases" }
        (bars(run.roster))
        h2 { "Limiter, queue and devices" }
        dl.tiles { @for (name, text) in &facts { div { dt { (name) } dd { (text) } } } }
    }
}

/// Renders the share of each phase in the time of a role's threads.
fn bars(roster: &Roster) -> Markup {
    let fleet = roster.fleet();
    let phases = Role::ALL.map(|role| (role.name(), phases(&fleet, role)));
    let is_measured = |(_, shares): &(&str, Vec<(String, f64)>)| !shares.is_empty();
    html! {
        @if !phases.iter().any(is_measured) { p.empty { "Phases are measured while the run trains." } }
        @for (role, shares) in phases.iter().filter(|phases| is_measured(phases)) {
            h3 { (role) }
            dl.bars { @for (phase, share) in shares { div {
                dt { (phase) }
                dd { meter min="0" max="1" value=(format!("{share:.3}")) aria-label=(phase) {} }
                dd { (format!("{:.0} %", 100.0 * share)) }
            } } }
        }
    }
}
