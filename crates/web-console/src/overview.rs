//! Renders the parts of pages that change: state, current values, bottleneck, charts, events, processes and their load.
//! Start with [`render`].

use std::collections::VecDeque;
use std::time::Instant;

use maud::{Markup, PreEscaped, html};
use run_metrics::bottleneck::{Bottleneck, Load, bottleneck as find_bottleneck};
use run_metrics::roster::{Process, Roster, State};
use run_metrics::words::{
    clock, count, date, device_lines, elo, engines_line, losses, mean_return, number, percent, validation, warnings,
    whole, window,
};
use run_metrics::{RunEvent, RunMetrics};

use crate::games::Drawn;
use crate::processes::{load, processes};
use crate::snapshot::IDS;

/// Age in seconds from which the recorded metrics of a training run are stale; a session writes every five seconds.
const STALE_SECONDS: f64 = 20.0;

/// The phase of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Phase {
    /// A session trains the run.
    Training,
    /// A session trains the run, but has recorded nothing for some time.
    Stale {
        /// Unix time of the last reading in seconds.
        since: f64,
    },
    /// An orchestrator runs the processes, and no session records metrics.
    Deployed,
    /// No session has recorded metrics yet.
    Untrained,
    /// Sessions have ended before the planned time.
    Stopped,
    /// The planned time is over.
    Finished,
}

impl Phase {
    /// Returns the phase after the reading `last`, for a planned training time.
    pub(crate) fn of(
        last: Option<&RunMetrics>,
        is_trained: bool,
        total_seconds: Option<f64>,
        unix_seconds: f64,
    ) -> Self {
        match last {
            Some(last) if is_trained && unix_seconds - last.unix_seconds > STALE_SECONDS => {
                Self::Stale { since: last.unix_seconds }
            }
            _ if is_trained => Self::Training,
            None => Self::Untrained,
            Some(last) if total_seconds.is_some_and(|total| last.elapsed_seconds >= total) => Self::Finished,
            Some(_) => Self::Stopped,
        }
    }
}

/// A run at one time.
#[derive(Debug)]
pub(crate) struct Overview<'a> {
    /// Name of the run.
    pub(crate) run: &'a str,
    /// The reason why the files of the run cannot be read.
    pub(crate) problem: Option<String>,
    pub(crate) phase: Phase,
    /// Planned training time.
    pub(crate) total_seconds: f64,
    pub(crate) metrics: RunMetrics,
    /// The processes of a training run.
    pub(crate) roster: &'a Roster,
    /// The charts of the recorded metrics.
    pub(crate) charts: &'a [String],
    /// The latest events, oldest first.
    pub(crate) events: &'a VecDeque<RunEvent>,
    /// Games in progress.
    pub(crate) games: &'a Drawn,
    pub(crate) now: Instant,
    /// The time `now`.
    pub(crate) unix_seconds: f64,
}

/// Returns the fragments of a run, in the order of [`IDS`].
pub(crate) fn render(run: &Overview<'_>) -> [String; IDS.len()] {
    let parts = [
        problems(run),
        state(run),
        processes(run),
        now(&run.metrics),
        bottleneck(run),
        load(run),
        run.games.overview.clone(),
        html! { h2 { "Learning" } div.charts { @for chart in run.charts { (PreEscaped(chart)) } } },
        events(run.events),
        run.games.page.clone(),
    ];
    framed(parts)
}

/// Returns the fragments before the run was read for the first time.
pub(crate) fn loading() -> [String; IDS.len()] {
    // The overview and the fleet have a heading that changes.
    let heading = |id: &str| html! { @if ["state", "processes"].contains(&id) { h1 { "Reading the run…" } } };
    framed(IDS.map(heading))
}

/// Wraps each part in an element with the id.
fn framed(parts: [Markup; IDS.len()]) -> [String; IDS.len()] {
    let mut parts = parts.into_iter();
    IDS.map(|id| {
        let part = parts.next().unwrap_or_else(|| PreEscaped(String::new()));
        // Assistive technology reads changed warnings at once.
        let role = (id == IDS[0]).then_some("status");
        html! { section id=(id) role=[role] { (part) } }.into_string()
    })
}

fn problems(run: &Overview<'_>) -> Markup {
    let fault = run.metrics.health.fault.iter().map(|fault| ("The run learns nothing", fault.clone()));
    let problem = run.problem.iter().map(|problem| ("The run cannot be read", problem.clone()));
    let stale = match run.phase {
        Phase::Stale { since } => {
            Some(("No new metrics", format!("the last reading is of {}, as are the values below", date(since))))
        }
        _ => None,
    };
    let lost = run.roster.processes().filter(|(_, process)| !matches!(process.state, State::Ready));
    let lost = lost.map(|(_, process)| (process.state.name(), described(process, run)));
    html! {
        @for (what, text) in problem.chain(stale).chain(fault).chain(warnings(&run.metrics)).chain(lost) {
            p.warning { strong { (what) ": " } (text) }
        }
    }
}

fn described(process: &Process, run: &Overview<'_>) -> String {
    let name = &process.name;
    match &process.state {
        State::Lost(since) => {
            // A time, not an age, which would be announced again every second.
            let ago = run.now.saturating_duration_since(*since).as_secs_f64();
            format!("{name} stopped responding at {}", date(run.unix_seconds - ago))
        }
        State::NotReady(reason) => format!("{name}: {reason}"),
        State::Ready | State::Silent => name.clone(),
    }
}

fn state(run: &Overview<'_>) -> Markup {
    let (elapsed, total) = (run.metrics.elapsed_seconds, run.total_seconds);
    let left = (total - elapsed).max(0.0);
    let name = match run.phase {
        Phase::Training | Phase::Stale { .. } => "Training",
        Phase::Deployed => "In a cluster",
        Phase::Untrained => "Not trained yet",
        Phase::Stopped => "Stopped",
        Phase::Finished => "Finished",
    };
    let answering = run.roster.processes().filter(|(_, process)| process.answers()).count();
    let processes = run.roster.processes().count();
    html! {
        h1 { (run.run) " " span.phase { (name) } }
        @if run.phase == Phase::Untrained {
            p.empty { "The run has no metrics yet. They appear here seconds after zerofleet train has started." }
        } @else if run.phase == Phase::Deployed {
            p { strong { (answering) " of " (processes) " processes respond" } }
            p.note { "Charts cover the " (clock(elapsed)) " since this console started." }
        } @else {
            p {
                strong { (clock(elapsed)) } " of " (clock(total)) " trained"
                @if left > 0.0 { ", " (clock(left)) " left" }
                @if processes > 0 { " · " (answering) " of " (processes) " processes respond" }
            }
            progress max=(total.max(1.0)) value=(elapsed) aria-label="Share of the planned time" {}
        }
    }
}

fn now(r: &RunMetrics) -> Markup {
    let accuracy = |search| percent(r.accuracy_of(search, "preserving"));
    let tiles: Vec<(&str, String, String)> = [
        Some((
            "Training step",
            count(r.steps),
            format!(
                "{} steps/s · weights v{}, policy lag {}",
                number(r.steps_per_second),
                whole(r.weights_version),
                whole(r.weights_lag)
            ),
        )),
        r.has_returns().then(|| ("Mean return", mean_return(r), format!("random play {}", number(r.random_return)))),
        (!r.has_returns()).then(|| ("Elo", elo(r), "random play is 0; 95 % interval".to_owned())),
        (!r.accuracy.is_empty())
            .then(|| ("Solved positions", accuracy("search"), format!("with search; raw policy {}", accuracy("raw")))),
        Some(("Games/s", number(r.games_per_second), format!("{} games so far", count(r.games)))),
        Some((
            "Evaluations/s",
            number(r.evaluations_per_second),
            format!("{} moves/s", number(r.positions_per_second)),
        )),
        Some(("Replay window", window(r), format!("{} samples per insert", number(r.samples_per_insert)))),
        Some(("Loss", losses(r), validation(r).map(|text| format!("held out: {text}")).unwrap_or_default())),
        Some(("Device", device_lines(&r.devices).join("; "), engines_line(&r.engines))),
    ]
    .into_iter()
    .flatten()
    .collect();
    html! {
        h2 { "Now" }
        dl.tiles { @for (name, value, note) in &tiles { div { dt { (name) } dd.value { (value) } dd.note { (note) } } } }
    }
}

fn bottleneck(run: &Overview<'_>) -> Markup {
    let found = Load::of(&run.roster.fleet()).as_ref().map(find_bottleneck);
    html! {
        h2 { "Bottleneck" }
        @if let Some(Bottleneck { sentence, remedy, .. }) = found { p { strong { (sentence) } } p { (remedy) } }
        @else { p.empty { "It is measured while the run trains." } }
    }
}

fn events(events: &VecDeque<RunEvent>) -> Markup {
    html! {
        h2 { "Events" }
        @if events.is_empty() {
            p.empty { "Nothing has happened yet. Sessions of zerofleet train record events; a cluster has logs." }
        }
        ol.events reversed {
            @for event in events.iter().rev() { li { span.time { (date(event.unix_seconds)) } " " (event.text) } }
        }
    }
}
