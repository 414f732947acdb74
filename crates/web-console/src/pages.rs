//! Responds to requests for pages. Start with [`router`].

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, Uri, header};
use axum::middleware::from_fn_with_state;
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use maud::{Markup, PreEscaped, html};
use transport::security::{Caller, Scope};

use crate::matches::Matches;
use crate::page::{self, LIVE, section};
use crate::play_page::Shown;
use crate::problem::{Problem, blocking, place};
use crate::site::Site;
use crate::snapshot::FLEET;
use crate::visitors::Form;
use crate::{
    configuration, control, events, games, matches, play, play_events, play_page, quarantine, records, replay,
    replay_game, report, run_json, strength_page, versions, visitors,
};

/// Largest body of a request in bytes: a form with a few fields.
const BODY_BYTES_MAX: usize = 16 << 10;
/// Time for which a browser may use style sheet and script without asking.
const ASSET_CACHE: &str = "max-age=60";

/// Returns the service of all pages. Every request passes the checks of `visitors`.
pub(crate) fn router(site: Arc<Site>) -> Router {
    Router::new()
        .route("/", get(live))
        .route(matches::PAGE, get(asked))
        .route(matches::PATH, post(change))
        .route(versions::PATH, get(asked))
        .route("/weights/{file}", get(versions::download))
        .route(FLEET, get(live))
        .route(configuration::PATH, get(asked))
        .route("/report.html", get(send_report))
        .route(run_json::RUN, get(send_json))
        .route(run_json::METRICS, get(send_json))
        .route(games::PATH, get(live))
        .route(replay::PATH, get(asked))
        .route(replay_game::PATH, get(asked))
        .route(quarantine::PATH, post(change))
        .route(control::PATH, get(asked).post(change))
        .route(play::PATH, get(asked))
        .route(play::ANSWER, get(asked))
        .route(play::EVENTS, get(play_events::stream))
        .route(play::RECORD, post(open_record).layer(DefaultBodyLimit::max(records::BYTES_MAX)))
        .route("/events", get(events::stream))
        .route("/events/{*page}", get(events::stream))
        .route(visitors::SIGN_IN, get(visitors::sign_in_page).post(visitors::sign_in))
        .route(visitors::SIGN_OUT, post(visitors::sign_out))
        .route(visitors::STYLE, get(async || asset("text/css; charset=utf-8", include_str!("console.css"))))
        .route(visitors::SCRIPT, get(async || asset("text/javascript; charset=utf-8", include_str!("console.js"))))
        .fallback(missing)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(Arc::clone(&site), visitors::admit))
        .with_state(site)
}

fn asset(kind: &'static str, text: &'static str) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, ASSET_CACHE)], text)
}

async fn missing(uri: Uri) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, format!("This console has no page {}.", uri.path()))
}

/// Shows a page of live parts, after the game that the address selects.
async fn live(State(site): State<Arc<Site>>, Extension(caller): Extension<Caller>, uri: Uri) -> Html<String> {
    let (snapshot, path) = (site.snapshot(), uri.path());
    site.visit(path);
    let main = html! {
        @if uri.query() == Some(control::REQUESTED) { p role="status" { "The change was requested; events show it." } }
        @if uri.query() == Some(control::MADE) { p role="status" { "The change was made; the log of the console has it." } }
        @if path == games::PATH { h1 { "Games in progress" } }
        @if let Some(key) = games::Key::of_query(uri.query()) {
            (PreEscaped(games::selected(&snapshot.selected, &key)))
        }
        (PreEscaped(snapshot.page(path)))
        @if path == FLEET && site.settings.scopes.contains(Scope::Admin) { p { a href=(control::PATH) { "Change the session" } } }
        // In a cluster no files hold the metrics.
        @if path == "/" && site.settings.run.admins().is_none() {
            p { a href="/report.html" download { "Download a report of the run" } }
        }
    };
    frame(&site, &caller, path, Some(LIVE), &main)
}

/// Sends the report of the run as a file: its style would be refused in a page of the console.
async fn send_report(State(site): State<Arc<Site>>) -> Result<impl IntoResponse, Problem> {
    let place = place(&site.downloads)?;
    let disposition = format!("attachment; filename=\"{}-report.html\"", site.settings.run.name());
    let rendered = blocking(move || {
        // The place is free after the work, however early the visitor leaves.
        let _held = place;
        match &site.snapshot().charts {
            Some(charts) => report::of_charts(&site.settings.run, &site.ratings, charts),
            None => report::report(&site.settings.run),
        }
    });
    Ok(([(header::CONTENT_DISPOSITION, disposition)], Html(rendered.await?)))
}

/// Sends JSON for programs.
async fn send_json(State(site): State<Arc<Site>>, uri: Uri) -> Response {
    let place = match place(&site.downloads) {
        Ok(place) => place,
        Err(problem) => return problem.as_json(),
    };
    let (is_run, fields) = (uri.path() == run_json::RUN, Form::of_query(&uri));
    let work = move || {
        let _held = place;
        if is_run { run_json::run(&site, &fields) } else { run_json::metrics(&site) }
    };
    match blocking(work).await {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(problem) => problem.as_json(),
    }
}

/// Makes the change of a form, and leads to the page that shows it.
async fn change(
    State(site): State<Arc<Site>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    body: Bytes,
) -> Result<Redirect, Problem> {
    let form = Form::of_page(&site, &body)?;
    // A visitor who leaves does not leave a change half made.
    let made = tokio::spawn(async move {
        let visitor = caller.name().map_or("a visitor of this machine", |name| &**name);
        match uri.path() {
            matches::PATH => change_match(&site.matches, visitor, &form).map_err(Problem::invalid),
            quarantine::PATH => quarantine::change(&site, visitor, &form).await,
            _ => control::change(&site, visitor, &form).await,
        }
    });
    let made = made.await.unwrap_or_else(|error| Err(Problem::unavailable(format!("The change failed: {error}."))));
    made.map(|address| Redirect::to(&address)).map_err(|Problem { status, text }| {
        // The replay server may have received the change.
        let is_uncertain = status == StatusCode::SERVICE_UNAVAILABLE;
        let outcome = if is_uncertain { "The change may not be complete." } else { "Nothing was changed." };
        Problem::new(status, format!("{outcome} {text}"))
    })
}

fn change_match(matches: &Matches, visitor: &str, form: &Form) -> Result<String, String> {
    match form.text("change") {
        "stop" => matches.stop(visitor),
        _ => matches.start(["a", "b", "games", "simulations"].map(|name| form.text(name).parse().ok()), visitor)?,
    }
    Ok(format!("{}#match", matches::PAGE))
}

/// Shows a page that waits for files, replay servers or searches.
async fn asked(
    State(site): State<Arc<Site>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    let (path, fields, shared) = (uri.path(), Form::of_query(&uri), Arc::clone(&site));
    let shown = match path {
        matches::PAGE => {
            let main = blocking(move || Ok::<_, Problem>(strength_page::render(&shared, &fields))).await?;
            let next = site.matches.is_played().then(|| LIVE.to_owned());
            Shown::Page { status: StatusCode::OK, next, main }
        }
        versions::PATH => Shown::page(blocking(move || versions::render(&shared, &fields)).await?),
        configuration::PATH => Shown::page(blocking(move || configuration::render(&shared.settings.run)).await?),
        replay::PATH => replay::render(&site, &fields).await,
        replay_game::PATH => Shown::page(replay_game::render(&site, &caller, &fields).await?),
        control::PATH => Shown::page(control::render(&site).await),
        play::ANSWER => play_events::answer(&site, &caller, fields).await?,
        _ => play_page::show(&site, site.may_search(&caller), fields).await?,
    };
    Ok(of_shown(&site, &caller, path, shown))
}

async fn open_record(
    State(site): State<Arc<Site>>,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Result<Response, Problem> {
    Ok(of_shown(&site, &caller, play::PATH, records::open(body).await?))
}

fn of_shown(site: &Site, caller: &Caller, path: &str, shown: Shown) -> Response {
    match shown {
        Shown::Moved(address) => Redirect::to(&address).into_response(),
        Shown::Page { status, next, main } => {
            (status, frame(site, caller, path, next.as_deref(), &main)).into_response()
        }
    }
}

/// Puts the content of the page at this path into the frame.
fn frame(site: &Site, caller: &Caller, path: &str, refresh: Option<&str>, main: &Markup) -> Html<String> {
    let (path, name) = section(path);
    let title = format!("{name} of {}", site.settings.run.name());
    let visitor = caller.name().map(|name| (&**name, site.word.as_str()));
    page::framed(&title, path, refresh, visitor, main)
}
