//! Responds to requests for pages. Start with [`router`].

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, Uri, header};
use axum::middleware::from_fn_with_state;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use maud::{Markup, PreEscaped, html};
use transport::security::{Caller, Scope};

use crate::matches::Matches;
use crate::page::{Frame, LIVE, busy, notice, section};
use crate::play_page::Shown;
use crate::replay_servers::Problem;
use crate::site::Site;
use crate::snapshot::FLEET;
use crate::visitors::Form;
use crate::{
    configuration, control, events, games, matches, play, play_events, play_page, quarantine, records, replay,
    replay_game, run_json, strength_page, versions, visitors,
};

/// Path of the report.
const REPORT: &str = "/report.html";
/// Largest body of a request in bytes: a form with a few fields.
const BODY_BYTES_MAX: usize = 16 << 10;
/// Time for which a browser may use style sheet and script without asking.
const ASSET_CACHE: &str = "max-age=60";

/// Returns the service of all pages. Every request passes the checks of `visitors`.
pub(crate) fn router(site: Arc<Site>) -> Router {
    Router::new()
        .route("/", get(live))
        .route(matches::PAGE, get(from_files))
        .route(matches::PATH, post(change))
        .route(versions::PATH, get(from_files))
        .route("/weights/{file}", get(versions::download))
        .route(FLEET, get(live))
        .route("/config", get(from_files))
        .route(REPORT, get(send_file))
        .route(run_json::RUN, get(send_file))
        .route(run_json::METRICS, get(send_file))
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

async fn missing(uri: Uri) -> Response {
    notice(StatusCode::NOT_FOUND, "No such page", &format!("This console has no page {}.", uri.path()))
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
        @if path == FLEET && site.scopes.contains(Scope::Admin) { p { a href=(control::PATH) { "Change the session" } } }
        // In a cluster no files hold the metrics.
        @if path == "/" && site.run.admins().is_none() {
            p { a href=(REPORT) download { "Download a report of the run" } }
        }
    };
    framed(&site, &caller, path, Some(LIVE), &main)
}

/// Shows a page that is read from files, on a thread that may wait for a disk.
async fn from_files(State(site): State<Arc<Site>>, Extension(caller): Extension<Caller>, uri: Uri) -> Response {
    let (path, fields, shared) = (uri.path().to_owned(), Form::of_query(&uri), Arc::clone(&site));
    let render = move || match path.as_str() {
        matches::PAGE => Ok(strength_page::render(&shared, &fields)),
        versions::PATH => versions::render(&shared, &fields),
        _ => Ok(configuration::render(&shared.run)?),
    };
    match tokio::task::spawn_blocking(render).await.unwrap_or_else(|error| Err(error.into())) {
        Ok(main) => {
            let is_live = uri.path() == matches::PAGE && site.matches.is_played();
            framed(&site, &caller, uri.path(), is_live.then_some(LIVE), &main).into_response()
        }
        Err(error) => unread(&error),
    }
}

fn unread(error: &anyhow::Error) -> Response {
    notice(StatusCode::INTERNAL_SERVER_ERROR, "The files of the run cannot be read", &format!("{error:#}"))
}

/// Sends JSON for programs, or the report of the run as a file: its style would be refused in a page of the console.
async fn send_file(State(site): State<Arc<Site>>, uri: Uri) -> Response {
    let Ok(place) = Arc::clone(&site.downloads).try_acquire_owned() else {
        return busy("Too many downloads", "Try again later.");
    };
    let (path, fields, shared) = (uri.path().to_owned(), Form::of_query(&uri), Arc::clone(&site));
    let render = move || match path.as_str() {
        run_json::RUN => run_json::run(&shared, &fields),
        run_json::METRICS => run_json::metrics(&shared),
        _ => crate::report::report(&shared.run),
    };
    // The place is free after the work, however early the visitor leaves.
    let rendered = tokio::task::spawn_blocking(move || (render(), place).0).await;
    let disposition = format!("attachment; filename=\"{}-report.html\"", site.run.name());
    match rendered.unwrap_or_else(|error| Err(error.into())) {
        Ok(text) if uri.path() != REPORT => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Ok(text) => ([(header::CONTENT_DISPOSITION, disposition)], Html(text)).into_response(),
        Err(error) => unread(&error),
    }
}

/// Makes the change of a form, and leads to the page that shows it.
async fn change(
    State(site): State<Arc<Site>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    body: Bytes,
) -> Response {
    let Some(form) = Form::of_page(&site, &body) else { return visitors::forged() };
    // A visitor who leaves does not leave a change half made.
    let made = tokio::spawn(async move {
        let visitor = caller.name().map_or("a visitor of this machine", |name| &**name);
        match uri.path() {
            matches::PATH => change_match(&site.matches, visitor, &form).map_err(Problem::invalid),
            quarantine::PATH => quarantine::change(&site, visitor, &form).await,
            _ => control::change(&site, visitor, &form).await,
        }
    });
    match made.await.unwrap_or_else(|error| Err(Problem::unavailable(format!("The change failed: {error}.")))) {
        Ok(address) => (StatusCode::SEE_OTHER, [(header::LOCATION, address)]).into_response(),
        Err(Problem { status, text }) => {
            // The replay server may have received the change.
            let is_uncertain = status == StatusCode::SERVICE_UNAVAILABLE;
            let heading = if is_uncertain { "The change may not be complete" } else { "Nothing was changed" };
            notice(status, heading, &text)
        }
    }
}

fn change_match(matches: &Matches, visitor: &str, form: &Form) -> Result<String, String> {
    match form.text("change") {
        "stop" => matches.stop(visitor),
        _ => matches.start(["a", "b", "games", "simulations"].map(|name| form.text(name).parse().ok()), visitor)?,
    }
    Ok(format!("{}#match", matches::PAGE))
}

/// Shows a page that waits for replay servers or searches.
async fn asked(State(site): State<Arc<Site>>, Extension(caller): Extension<Caller>, uri: Uri) -> Response {
    let (path, fields) = (uri.path(), Form::of_query(&uri));
    let shown = match path {
        replay::PATH => Ok(replay::render(&site, &fields).await),
        replay_game::PATH => replay_game::render(&site, &caller, &fields).await.map(Shown::page),
        control::PATH => Ok(Shown::page(control::render(&site).await)),
        play::ANSWER => play_events::answer(&site, &caller, fields).await,
        _ => play_page::show(&site, site.may_search(&caller), fields).await,
    };
    of_shown(&site, &caller, path, shown)
}

async fn open_record(State(site): State<Arc<Site>>, Extension(caller): Extension<Caller>, body: Bytes) -> Response {
    of_shown(&site, &caller, play::PATH, records::open(body).await)
}

fn of_shown(site: &Site, caller: &Caller, path: &str, shown: Result<Shown, Problem>) -> Response {
    match shown {
        Ok(Shown::Moved(address)) => (StatusCode::SEE_OTHER, [(header::LOCATION, address)]).into_response(),
        Ok(Shown::Page { status, next, main }) => {
            (status, framed(site, caller, path, next.as_deref(), &main)).into_response()
        }
        Err(Problem { status, text }) => notice(status, "The game cannot be shown", &text),
    }
}

/// Puts the content of the page at this path into the frame.
fn framed(site: &Site, caller: &Caller, path: &str, refresh: Option<&str>, main: &Markup) -> Html<String> {
    let (path, name) = section(path);
    let title = format!("{name} of {}", site.run.name());
    let visitor = caller.name().map(|name| (&**name, site.word.as_str()));
    Frame { title: &title, path, refresh, visitor }.around(main)
}
