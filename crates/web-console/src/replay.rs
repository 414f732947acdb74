//! The page of the replay: a search for stored games, page by page, and the share of distinct positions. The replay
//! server searches and pages; the console holds no index. Start with [`render`].

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use axum::http::StatusCode;
use experience::Filter;
use game::{Outcome, Player};
use maud::{Markup, PreEscaped, html};
use proto::replay::{Found, ListOrder, SearchPage, SearchQuery};
use run_metrics::words::MISSING;

use crate::page::table;
use crate::play_page::Shown;
use crate::problem::Problem;
use crate::replay_game;
use crate::replay_servers::{Servers, within, without_session};
use crate::site::Site;
use crate::visitors::{Form, address};

/// Path of the page.
pub(crate) const PATH: &str = "/replay";

/// Fields that the address of the next page repeats.
const FIELDS: [&str; 9] =
    ["server", "outcome", "actor", "version_min", "version_max", "plies_min", "plies_max", "quarantined", "order"];
/// Choices of a field, each with the meaning; the first applies if the field is missing.
const OUTCOMES: [(&str, Option<Outcome>); 6] = [
    ("any", None),
    named(Outcome::Win(Player::First)),
    named(Outcome::Win(Player::Second)),
    named(Outcome::Draw),
    named(Outcome::Finished),
    named(Outcome::Truncated),
];
const QUARANTINED: [(&str, Option<bool>); 3] = [("any", None), ("no", Some(false)), ("yes", Some(true))];
const ORDERS: [(&str, ListOrder); 2] = [("newest", ListOrder::Newest), ("surprising", ListOrder::Surprising)];
/// Columns of the table.
const COLUMNS: [&str; 7] = ["game", "outcome", "plies", "actor", "version", "surprise", "state"];
/// Longest cursor in bytes.
const CURSOR_BYTES_MAX: usize = 256;

const fn named(outcome: Outcome) -> (&'static str, Option<Outcome>) {
    (outcome.name(), Some(outcome))
}

/// Renders the page for the fields of a search.
pub(crate) async fn render(site: &Site, fields: &Form) -> Shown {
    let snapshot = site.snapshot();
    let distinct = snapshot.charts.as_ref().map_or("", |charts| charts.distinct.as_str());
    let (status, stored) = if snapshot.is_trained {
        stored(site, fields).await
    } else {
        (StatusCode::OK, html! { p.empty { (without_session(site)) } })
    };
    let main = html! {
        h1 { "Replay of " (site.settings.run.name()) }
        (stored)
        h2 { "Distinct positions" }
        div.charts { (PreEscaped(distinct)) }
    };
    Shown::Page { status, next: None, main }
}

/// Renders the form and the result of the search.
async fn stored(site: &Site, fields: &Form) -> (StatusCode, Markup) {
    let mut names = Vec::new();
    let found = async {
        let servers = Servers::of(site, fields.text("server")).await?;
        names.clone_from(&servers.names);
        let page = within(servers.inspector.search(query(fields).map_err(Problem::invalid)?)).await?;
        Ok::<_, Problem>(results(&page, &servers.name, fields))
    };
    let (status, shown) = match found.await {
        Ok(results) => (StatusCode::OK, results),
        Err(Problem { status, text }) => (status, html! { p.warning role="alert" { (text) } }),
    };
    (status, html! { (form(&names, fields)) (shown) })
}

/// Reads the conditions of a search; the error is a sentence.
fn query(fields: &Form) -> Result<SearchQuery, String> {
    let cursor = fields.text("cursor");
    if cursor.len() > CURSOR_BYTES_MAX || !cursor.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
        return Err("This is no page of a search.".to_owned());
    }
    let any = Filter::default();
    let filter = Filter {
        outcome: fields.picked("outcome", "Outcome", &OUTCOMES)?,
        actor: fields.number("actor", "Actor")?,
        weights_versions: range(fields, ["version_min", "version_max"], "Version", any.weights_versions)?,
        plies: range(fields, ["plies_min", "plies_max"], "Length", any.plies)?,
    };
    Ok(SearchQuery {
        order: fields.picked("order", "Order", &ORDERS)?,
        filter,
        quarantined: fields.picked("quarantined", "In quarantine", &QUARANTINED)?,
        cursor: (!cursor.is_empty()).then(|| cursor.to_owned()),
        ..SearchQuery::default()
    })
}

/// Reads the first and the last number of a range, of which each may be empty.
fn range<N: FromStr + PartialOrd + Copy + Display>(
    fields: &Form,
    [first, last]: [&str; 2],
    what: &str,
    all: RangeInclusive<N>,
) -> Result<RangeInclusive<N>, String> {
    let low = fields.number(first, what)?.unwrap_or(*all.start());
    let high = fields.number(last, what)?.unwrap_or(*all.end());
    if low > high {
        return Err(format!("{what}: {low} to {high} is not a range; the first number must not exceed the second."));
    }
    Ok(low..=high)
}

fn form(names: &[String], fields: &Form) -> Markup {
    let names: Vec<(&str, ())> = names.iter().map(|name| (name.as_str(), ())).collect();
    html! {
        form.search method="get" action=(PATH) role="search" {
            @if names.len() > 1 { (choice(fields, "server", "Replay server", &names)) }
            (choice(fields, "outcome", "Outcome", &OUTCOMES))
            (entry(fields, "actor", "Actor"))
            (entry(fields, "version_min", "Version from"))
            (entry(fields, "version_max", "Version to"))
            (entry(fields, "plies_min", "Length from"))
            (entry(fields, "plies_max", "Length to"))
            (choice(fields, "quarantined", "In quarantine", &QUARANTINED))
            (choice(fields, "order", "Order", &ORDERS))
            button { "Search" }
        }
    }
}

fn choice<T>(fields: &Form, name: &str, label: &str, choices: &[(&str, T)]) -> Markup {
    let chosen = fields.text(name);
    let options = html! { @for (text, _) in choices { option selected[*text == chosen] { (text) } } };
    html! { label { (label) select name=(name) { (options) } } }
}

fn entry(fields: &Form, name: &str, label: &str) -> Markup {
    html! { label { (label) input type="number" name=(name) value=(fields.text(name)) min="0"; } }
}

fn results(page: &SearchPage, server: &str, fields: &Form) -> Markup {
    let conditions = FIELDS.map(|name| (name, fields.text(name))).into_iter().filter(|(_, text)| !text.is_empty());
    let next = page.next.as_deref().map(|cursor| address(PATH, conditions.chain([("cursor", cursor)])));
    let rows: Vec<Vec<Markup>> = page.found.iter().map(|found| row(found, server)).collect();
    html! {
        h2 { "Stored games" }
        @if rows.is_empty() { p.empty { "No stored game meets the conditions." } }
        @else { (table("Stored games", &COLUMNS, &rows)) }
        @if let Some(next) = &next { p { a href=(next) rel="next" { "Next page" } } }
    }
}

fn row(found: &Found, server: &str) -> Vec<Markup> {
    let id = found.id;
    let link = html! { a href=(replay_game::address_of(id, server, None)) { (id.slashed()) } };
    let state = if found.quarantined { "in quarantine" } else { "sampled" };
    let cells = [
        found.outcome.name().to_owned(),
        found.plies.to_string(),
        id.actor.to_string(),
        format!("v{}", found.weights_version.0),
        found.surprise.map_or(MISSING.to_owned(), |surprise| format!("{surprise:.3}")),
        state.to_owned(),
    ];
    [link].into_iter().chain(cells.map(|cell| html! { (cell) })).collect()
}
