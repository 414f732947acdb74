//! The frame of every page, and elements that several pages have.

use axum::http::StatusCode;
use axum::response::{Html, IntoResponse as _, Response};
use maud::{DOCTYPE, Markup, Render, html};

/// Seconds after which browsers without scripts load a live page again.
pub(crate) const LIVE: &str = "10";

/// Pages in the navigation: path and name.
const PAGES: [(&str, &str); 8] = [
    ("/", "Overview"),
    ("/games", "Games"),
    ("/play", "Play"),
    ("/replay", "Replay"),
    ("/strength", "Strength"),
    ("/weights", "Weights"),
    ("/fleet", "Fleet"),
    ("/config", "Configuration"),
];

/// Returns path and name of the page in the navigation to which the page at this path belongs.
pub(crate) fn section(path: &str) -> (&'static str, &'static str) {
    *PAGES.iter().rfind(|(at, _)| path.starts_with(at)).unwrap_or(&PAGES[0])
}

/// Returns the page at `path` with the content `main`. `refresh` is the time in seconds after which browsers without
/// scripts load a page, [`LIVE`] or with `;url=` and the address of another page; `None` for a page that does not
/// change. `visitor` is the name of the visitor's token, if any, with the word against forged forms.
pub(crate) fn framed(
    title: &str,
    path: &str,
    refresh: Option<&str>,
    visitor: Option<(&str, &str)>,
    main: &Markup,
) -> Html<String> {
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                (head(title))
                link rel="icon" href="data:,";
                link rel="stylesheet" href="/console.css";
                script src="/console.js" defer {}
                @if let Some(seconds) = refresh { noscript { meta http-equiv="refresh" content=(seconds); } }
            }
            body {
                a.skip href="#main" { "Skip to content" }
                header {
                    strong.brand { "zerofleet" }
                    nav aria-label="Pages" {
                        @for (at, name) in PAGES { a href=(at) aria-current=[(at == path).then_some("page")] { (name) } }
                    }
                    @if let Some((name, word)) = visitor {
                        form method="post" action="/sign-out" { (hidden([("word", word)])) button { "Sign out " (name) } }
                    }
                }
                p id="connection" role="alert" hidden {}
                main id="main" tabindex="-1" data-live[refresh == Some(LIVE)] { (main) }
            }
        }
    };
    Html(markup.into_string())
}

/// Renders the title and the settings of every document.
pub(crate) fn head(title: &str) -> Markup {
    html! {
        meta charset="utf-8";
        meta name="viewport" content="width=device-width, initial-scale=1";
        meta name="color-scheme" content="light dark";
        title { (title) " · zerofleet" }
    }
}

/// Renders fields of a form that visitors do not see.
pub(crate) fn hidden<'a>(fields: impl IntoIterator<Item = (&'a str, impl Render)>) -> Markup {
    html! { @for (name, value) in fields { input type="hidden" name=(name) value=(value); } }
}

/// Renders a table that scrolls on narrow screens. The first cell of a row is the heading of the row.
pub(crate) fn table<C: Render>(caption: &str, columns: &[impl AsRef<str>], rows: &[Vec<C>]) -> Markup {
    html! {
        div.wide role="region" aria-label=(caption) tabindex="0" {
            table {
                caption { (caption) }
                thead { tr { @for name in columns { th scope="col" { (name.as_ref()) } } } }
                tbody { @for (head, cells) in rows.iter().filter_map(|row| row.split_first()) {
                    tr { th scope="row" { (head) } @for cell in cells { td { (cell) } } }
                } }
            }
        }
    }
}

/// Renders the links from a ply to others of `plies`, of which `address` returns the addresses.
pub(crate) fn steps(ply: usize, plies: usize, address: impl Fn(usize) -> String) -> Markup {
    html! {
        (link("First", (ply > 0).then(|| address(0))))
        (link("Back", ply.checked_sub(1).map(&address)))
        (link("Forward", (ply < plies).then(|| address(ply + 1))))
        (link("Last", (ply < plies).then(|| address(plies))))
    }
}

/// Renders a link, or only the name without a target.
pub(crate) fn link(name: &str, target: Option<String>) -> Markup {
    let disabled = target.is_none().then_some("true");
    html! { a href=[target] aria-disabled=[disabled] { (name) } }
}

/// Returns the page on which a visitor types a token, with the reason for a refusal, if any.
pub(crate) fn sign_in(status: StatusCode, word: &str, reason: Option<&str>) -> Response {
    let main = html! {
        h1 { "Sign in" }
        @if let Some(reason) = reason { p.warning role="alert" { (reason) } }
        form.sign-in method="post" action="/sign-in" {
            (hidden([("word", word)]))
            label for="token" { "Token with the scope view" }
            input id="token" name="token" type="password" autocomplete="current-password" required autofocus;
            button { "Sign in" }
        }
        p.note { "The browser keeps the token until it closes. It is never part of an address or of a page." }
    };
    (status, framed("Sign in", "", None, None, &main)).into_response()
}
