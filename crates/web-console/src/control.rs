//! Changes a run while a session trains it: number of actors, samples per insert, stop. Start with [`change`].
//!
//! The console changes replay servers itself, as for a quarantine. The supervisor makes the other changes and records
//! all of them as events: a console that `zerofleet train` has started sends each as a [line](Change::of_line). Other
//! consoles show commands.

use std::collections::BTreeMap;

use fleet::{ACTORS_MAX, Listed, Role, read_list};
use maud::{Markup, html};
use proto::replay::TableChange;
use transport::security::Scope;

use crate::page::hidden;
use crate::problem::{Problem, blocking};
use crate::replay_servers::{all, check_session, within};
use crate::site::Site;
use crate::snapshot::FLEET;
use crate::visitors::Form;

/// Path of the page with the forms, and of the forms.
pub(crate) const PATH: &str = "/fleet/changes";
/// Queries with which the page of the fleet shows the notice of a change: the supervisor makes it, or it is made.
pub(crate) const REQUESTED: &str = "change=requested";
pub(crate) const MADE: &str = "change=made";

/// Key of the samples per insert in the run file, with the maximum.
const SAMPLES: &str = "samples_per_insert";
const SAMPLES_MAX: f64 = 1e6;
const DRAIN: &str = "drain";
/// Longest value in bytes: the name of an actor.
const VALUE_LENGTH_MAX: usize = 64;

/// A change of a session.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// The session gets this number of actors.
    Actors(usize),
    /// The actor with this name drains and starts again.
    Drain(String),
    /// The main table of each replay server now has this number of samples per insert.
    SamplesPerInsert(f64),
    /// The session drains and ends.
    Stop,
}

impl Change {
    /// Parses a change; `None` for an unknown name or a value that is out of range or too long for a line.
    fn parse(name: &str, value: &str) -> Option<Self> {
        match name {
            _ if value.len() > VALUE_LENGTH_MAX => None,
            "actors" => value.parse().ok().filter(|count| (1..=ACTORS_MAX).contains(count)).map(Self::Actors),
            DRAIN if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Some(Self::Drain(value.to_owned()))
            }
            SAMPLES => {
                let is_in_range = |samples: &f64| *samples > 0.0 && *samples <= SAMPLES_MAX;
                value.parse().ok().filter(is_in_range).map(Self::SamplesPerInsert)
            }
            "stop" => value.is_empty().then_some(Self::Stop),
            _ => None,
        }
    }

    /// Parses `NAME=VALUE VISITOR` as a change and the name of the visitor; `None` for a malformed line.
    #[must_use]
    pub fn of_line(line: &str) -> Option<(Self, String)> {
        let (change, visitor) = line.split_once(' ')?;
        let (name, value) = change.split_once('=')?;
        let is_named = !visitor.is_empty() && !visitor.contains(char::is_control);
        is_named.then_some((Self::parse(name, value)?, visitor.to_owned()))
    }
}

/// Makes or requests the change of a confirmed form, and returns the address of the page that shows it.
pub(crate) async fn change(site: &Site, visitor: &str, form: &Form) -> Result<String, Problem> {
    let (name, value) = (form.text("change"), form.text("value"));
    let Some(change) = Change::parse(name, value) else {
        return Err(Problem::invalid(format!("`{name}` cannot be changed to `{value}`.")));
    };
    form.confirmed()?;
    check_session(site)?;
    tracing::info!(visitor, change = name, value, "a visitor requested a change of the session");
    let is_of_replay = matches!(change, Change::SamplesPerInsert(_));
    if is_of_replay {
        configure(site, BTreeMap::from([(name.to_owned(), value.to_owned())])).await?;
    }
    let line = format!("{name}={value} {visitor}");
    let is_sent = site.settings.supervisor.as_ref().is_some_and(|supervisor| supervisor.try_send(line).is_ok());
    if !is_sent && !is_of_replay {
        return Err(Problem::invalid("zerofleet train has not started this console, or is busy; try again later."));
    }
    Ok(format!("{FLEET}?{}", if is_sent { REQUESTED } else { MADE }))
}

/// Changes settings of the main table on every replay server, and returns each server with the samples per insert.
async fn configure(site: &Site, settings: BTreeMap<String, String>) -> Result<Vec<(String, String)>, Problem> {
    let (servers, change) = (all(site).await?, TableChange { settings, ..TableChange::default() });
    let mut in_force = Vec::new();
    for (name, inspector) in servers {
        let configured = within(inspector.configure(change.clone())).await;
        let mut settings = configured.map_err(|problem| problem.after(&in_force))?;
        in_force.push((name, settings.remove(SAMPLES).unwrap_or_default()));
    }
    Ok(in_force)
}

/// Renders the page with a form for each change, or with commands.
pub(crate) async fn render(site: &Site) -> Markup {
    if !site.settings.scopes.contains(Scope::Admin) {
        return html! { p.empty { "This console does not grant the scope admin (--console-scopes)." } };
    }
    let servers = configure(site, BTreeMap::new()).await;
    let (run, fleet) = (site.settings.run.name(), site.settings.run.fleet());
    let processes = blocking(move || read_list(&fleet)).await.unwrap_or_default();
    html! {
        h1 { "Changes of " (run) }
        @if site.settings.supervisor.is_some() {
            p.note { "Each change is an event of the run, with the name of the visitor's token." }
        }
        h2 { "Samples per insert" }
        p.note {
            "At most error_items of the table. A resume keeps the value until the run file changes the table. The ratio \
             counts all inserts of the run: after an increase actors wait, after a decrease the learner waits."
        }
        @match &servers {
            Ok(servers) => {
                @for (name, samples) in servers { p { "Replay server " (name) ": " strong { (samples) } } }
                (form(site, SAMPLES, "Change samples per insert", &number(SAMPLES_MAX)))
            },
            Err(Problem { text, .. }) => { p.empty { (text) } },
        }
        h2 { "Actors and stop" }
        @if site.settings.supervisor.is_some() && site.snapshot().is_trained {
            p.note {
                "The number of actors holds until the session ends: a resume starts the number of --actors. A further \
                 actor has the threads and the device of an earlier one. An excess actor drains, and keeps games that \
                 are not acknowledged."
            }
            (form(site, "actors", "Change the number of actors", &number(ACTORS_MAX as f64)))
            p.note { "An actor that drains finishes or keeps the games, and starts again with the same settings." }
            (form(site, DRAIN, "Drain and restart an actor", &actors(&processes)))
            p.note { "A stop drains all processes, as Ctrl-C does. To resume: zerofleet train --run " (run) "." }
            (form(site, "stop", "Stop the session", &html! {}))
        } @else {
            p { "Only a console that zerofleet train has started makes these changes. The commands are:" }
            ul {
                li { "zerofleet train: Ctrl-C, then " code { "zerofleet train --run " (run) " --actors N" } }
                li { "compose: " code { "docker compose -f deploy/compose.yaml up -d --no-recreate --scale actor=N" } }
                li { "Kubernetes: " code { "kubectl -n zerofleet scale deployment/actor --replicas=N" } }
            }
        }
    }
}

/// Renders the field of a new value.
fn number(max: f64) -> Markup {
    html! { p { label { "New value " input type="number" name="value" min="0" max=(max) step="any" required; } } }
}

/// Renders the choice of an actor.
fn actors(processes: &[Listed]) -> Markup {
    let actors = processes.iter().filter(|each| each.role == Role::Actor);
    html! { p { label { "Actor " select name="value" { @for each in actors { option { (each.name) } } } } } }
}

/// Renders the form of a change, with the fields of the change.
fn form(site: &Site, name: &str, verb: &str, fields: &Markup) -> Markup {
    html! {
        form method="post" action=(PATH) {
            (hidden([("word", site.word.as_str()), ("change", name)]))
            (fields)
            p { label { input type="checkbox" name="confirm" value="yes" required; " " (verb) ", I am sure" } }
            button { (verb) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_change_with_the_name_of_the_visitor() {
        for (line, change) in [
            ("actors=64 alice", Change::Actors(64)),
            ("drain=actor-go-7-0 alice", Change::Drain("actor-go-7-0".to_owned())),
            ("samples_per_insert=0.1 alice", Change::SamplesPerInsert(0.1)),
            ("samples_per_insert=1e6 alice", Change::SamplesPerInsert(1e6)),
            ("stop= alice", Change::Stop),
        ] {
            assert_eq!(Change::of_line(line), Some((change, "alice".to_owned())));
        }
        let (_, visitor) = Change::of_line("stop= a visitor of this machine").unwrap();
        assert_eq!(visitor, "a visitor of this machine");
    }

    #[test]
    fn malformed_lines_and_values_out_of_range_are_no_requests() {
        for line in [
            "",
            "console: http://127.0.0.1:7080",
            "actors=3",
            "actors=3 ",
            "actors=0 alice",
            "actors=65 alice",
            "actors=-1 alice",
            "actors=1.5 alice",
            "actors=18446744073709551616 alice",
            "actors 3 alice",
            "samples_per_insert=0 alice",
            "samples_per_insert=NaN alice",
            "samples_per_insert=inf alice",
            "samples_per_insert=1000001 alice",
            "stop=now alice",
            "stop= alice\u{1b}[2J",
            "drain= alice",
            "drain=actor\u{7}0 alice",
        ] {
            assert_eq!(Change::of_line(line), None, "{line:?}");
        }
    }
}
