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

use crate::page::{Frame, SignOut, name_of, notice};
use crate::replay_servers::Problem;
use crate::site::Site;
use crate::snapshot::FLEET;
use crate::visitors::Form;
use crate::{
    configuration, control, events, games, quarantine, replay, replay_game, strength_page, versions, visitors,
};

/// Largest body of a request in bytes: a form with a few fields.
const BODY_BYTES_MAX: usize = 16 << 10;
/// Seconds after which a browser without scripts loads a live page again.
const REFRESH_SECONDS: u32 = 10;
/// Time for which a browser may use style sheet and script without asking.
const ASSET_CACHE: &str = "max-age=60";

/// Returns the service of all pages. Every request passes the checks of `visitors`.
pub(crate) fn router(site: Arc<Site>) -> Router {
    Router::new()
        .route("/", get(live))
        .route("/strength", get(strength))
        .route("/weights", get(weights))
        .route("/weights/{file}", get(versions::download))
        .route(FLEET, get(live))
        .route("/config", get(configuration))
        .route(games::PATH, get(live))
        .route(replay::PATH, get(search))
        .route(replay_game::PATH, get(stored_game))
        .route(quarantine::PATH, post(change_quarantine))
        .route(control::PATH, get(changes).post(change_session))
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
        @if path == games::PATH { h1 { "Games in progress" } }
        @if let Some(key) = games::Key::of_query(uri.query()) {
            (PreEscaped(games::selected(&snapshot.selected, &key)))
        }
        (PreEscaped(snapshot.page(path)))
        @if path == FLEET && site.scopes.contains(Scope::Admin) { p { a href=(control::PATH) { "Change the session" } } }
    };
    framed(&site, &caller, path, Some(REFRESH_SECONDS), &main)
}

async fn strength(State(site): State<Arc<Site>>, Extension(caller): Extension<Caller>) -> Response {
    from_files(site, caller, "/strength", |site| Ok(strength_page::render(site))).await
}

async fn weights(State(site): State<Arc<Site>>, Extension(caller): Extension<Caller>, uri: Uri) -> Response {
    let fields = Form::of_query(&uri);
    from_files(site, caller, "/weights", move |site| versions::render(site, &fields)).await
}

async fn configuration(State(site): State<Arc<Site>>, Extension(caller): Extension<Caller>) -> Response {
    from_files(site, caller, "/config", |site| Ok(configuration::render(&site.run)?)).await
}

/// Returns a page that `render` makes on a thread that may wait for a disk.
async fn from_files(
    site: Arc<Site>,
    caller: Caller,
    path: &'static str,
    render: impl FnOnce(&Site) -> anyhow::Result<Markup> + Send + 'static,
) -> Response {
    let shared = Arc::clone(&site);
    let rendered = tokio::task::spawn_blocking(move || render(&shared)).await;
    match rendered.unwrap_or_else(|error| Err(error.into())) {
        Ok(main) => framed(&site, &caller, path, None, &main).into_response(),
        Err(error) => {
            let reason = format!("{error:#}");
            notice(StatusCode::INTERNAL_SERVER_ERROR, "The files of the run cannot be read", &reason)
        }
    }
}

async fn search(State(site): State<Arc<Site>>, Extension(caller): Extension<Caller>, uri: Uri) -> Response {
    let (status, main) = replay::render(&site, &Form::of_query(&uri)).await;
    of_replay(&site, &caller, status, &main)
}

async fn stored_game(State(site): State<Arc<Site>>, Extension(caller): Extension<Caller>, uri: Uri) -> Response {
    match replay_game::render(&site, &caller, &Form::of_query(&uri)).await {
        Ok(main) => of_replay(&site, &caller, StatusCode::OK, &main),
        Err(Problem { status, text }) => notice(status, "The game cannot be shown", &text),
    }
}

async fn change_quarantine(
    State(site): State<Arc<Site>>,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Response {
    let Some(form) = Form::of_page(&site, &body) else { return visitors::forged() };
    changed(quarantine::change(&site, &caller, &form).await)
}

async fn changes(State(site): State<Arc<Site>>, Extension(caller): Extension<Caller>) -> Html<String> {
    framed(&site, &caller, control::PATH, None, &control::render(&site).await)
}

async fn change_session(State(site): State<Arc<Site>>, Extension(caller): Extension<Caller>, body: Bytes) -> Response {
    let Some(form) = Form::of_page(&site, &body) else { return visitors::forged() };
    changed(control::change(&site, &caller, &form).await)
}

/// Returns a redirection to the page that shows a change, or says why there is none.
fn changed(made: Result<String, Problem>) -> Response {
    match made {
        Ok(address) => (StatusCode::SEE_OTHER, [(header::LOCATION, address)]).into_response(),
        Err(Problem { status, text }) => {
            // The replay server may have received the change.
            let is_uncertain = status == StatusCode::SERVICE_UNAVAILABLE;
            let heading = if is_uncertain { "The change may not be complete" } else { "Nothing was changed" };
            notice(status, heading, &text)
        }
    }
}

fn of_replay(site: &Site, caller: &Caller, status: StatusCode, main: &Markup) -> Response {
    (status, framed(site, caller, replay::PATH, None, main)).into_response()
}

/// Puts the content of the page at this path into the frame.
fn framed(site: &Site, caller: &Caller, path: &str, refresh: Option<u32>, main: &Markup) -> Html<String> {
    let title = format!("{} of {}", name_of(path), site.run.name());
    let visitor = caller.name().map(|name| SignOut { name, word: &site.word });
    Frame { title: &title, path, refresh, visitor }.around(main)
}
