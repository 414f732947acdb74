//! Checks every request before a page responds: host, origin, token and scope. Signs visitors in and out.
//!
//! The token of a visitor is in a cookie that scripts cannot read and that other sites cannot send. A request that
//! changes something is a POST, with the origin of this console and a word that only pages of the console contain.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, COOKIE, HOST, LOCATION, ORIGIN, REFERRER_POLICY,
    SET_COOKIE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tokio::time::timeout;
use transport::security::{Caller, Peer, Scope};
use url::form_urlencoded;

use crate::connections::Client;
use crate::page::sign_in as sign_in_form;
use crate::problem::Problem;
use crate::site::Site;

/// Paths that need no token: everything a browser loads before and after a session.
pub(crate) const SIGN_IN: &str = "/sign-in";
pub(crate) const SIGN_OUT: &str = "/sign-out";
pub(crate) const STYLE: &str = "/console.css";
pub(crate) const SCRIPT: &str = "/console.js";

/// Start of all paths at which the console searches for a visitor.
const SEARCHES: &str = "/play/";

/// Time limit of a request, without the time to send the response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest token in bytes.
const TOKEN_BYTES_MAX: usize = 1024;

/// Pages load style and script from the console only, and no other page may embed them.
const CONTENT_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
     img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Passes accepted requests to `next`, and sets the headers of every response.
pub(crate) async fn admit(
    State(site): State<Arc<Site>>,
    ConnectInfo(Client(peer)): ConnectInfo<Client>,
    mut request: Request,
    next: Next,
) -> Response {
    let is_program = request.uri().path().ends_with(".json");
    let mut response = match check(&site, &peer, &request) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            let late = |_| Problem::unavailable("It took more than 10 s; load the page again.").into_response();
            timeout(REQUEST_TIMEOUT, next.run(request)).await.unwrap_or_else(late)
        }
        Err(problem) if is_program => problem.as_json(),
        Err(problem) if problem.status == StatusCode::UNAUTHORIZED => sign_in_form(problem.status, &site.word, None),
        Err(problem) => problem.into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // Without a referrer, browsers would hide the origin of a form.
        (REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        // An idle connection would take a place.
        (CONNECTION, "close"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Checks a request and returns the caller; the default for a path that needs no token.
fn check(site: &Site, peer: &Peer, request: &Request) -> Result<Caller, Problem> {
    let (headers, path) = (request.headers(), request.uri().path());
    let is_change = request.method() != Method::GET && request.method() != Method::HEAD;
    let Some(host) = only(headers, HOST).filter(|host| site.has_name(host)) else {
        let text = "The console does not serve this host name; open it by the address that it prints.";
        return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, text));
    };
    let is_ours = match headers.contains_key(ORIGIN) {
        true => only(headers, ORIGIN).is_some_and(|origin| origin.eq_ignore_ascii_case(&site.origin(host))),
        false => !is_change,
    };
    // Browsers send no origin with images, but say that another site asks. A link from there may open a page.
    let fetched = |name| only(headers, HeaderName::from_static(name));
    let is_foreign = fetched("sec-fetch-site").is_some_and(|site| !["same-origin", "none"].contains(&site));
    if !is_ours || is_foreign && fetched("sec-fetch-dest") != Some("document") {
        return Err(Problem::new(StatusCode::FORBIDDEN, "Another site sent this request."));
    }
    let (scope, name) = match path {
        SIGN_IN | SIGN_OUT | STYLE | SCRIPT => return Ok(Caller::default()),
        // Searches, and a form that changes nothing.
        _ if path.starts_with(SEARCHES) => (Scope::Infer, "infer"),
        // A change that is not listed needs the strongest scope.
        _ if is_change => (Scope::Admin, "admin"),
        _ => (Scope::View, "view"),
    };
    if !site.settings.scopes.contains(scope) {
        let text = format!("This console does not grant the scope {name} (--console-scopes).");
        return Err(Problem::new(StatusCode::FORBIDDEN, text));
    }
    Ok(site.security.check_page(path, scope, &credentials(site, headers), peer)?)
}

/// Returns the value of a header that occurs once.
fn only(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then(|| value.to_str().ok()).flatten()
}

/// Returns the `authorization` header of a request, or the token in the cookie as one.
fn credentials(site: &Site, headers: &HeaderMap) -> HeaderMap {
    let sent = headers.get(AUTHORIZATION).cloned();
    let cookies = headers.get_all(COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    let mut pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let token = || pairs.find(|(name, _)| *name == site.cookie()).and_then(|(_, token)| bearer(token));
    HeaderMap::from_iter(sent.or_else(token).map(|value| (AUTHORIZATION, value)))
}

/// Returns the header that presents a token.
fn bearer(token: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Shows the form for a token.
pub(crate) async fn sign_in_page(State(site): State<Arc<Site>>) -> Response {
    sign_in_form(StatusCode::OK, &site.word, None)
}

/// Checks the token of the form and turns it into a cookie.
pub(crate) async fn sign_in(
    State(site): State<Arc<Site>>,
    ConnectInfo(Client(peer)): ConnectInfo<Client>,
    body: Bytes,
) -> Result<Response, Problem> {
    let form = Form::of_page(&site, &body)?;
    let again = |status, reason: &str| Ok(sign_in_form(status, &site.word, Some(reason)));
    let token = form.text("token");
    // A cookie cannot hold other characters.
    let is_plain = |c: char| c.is_ascii_graphic() && !"\",;\\".contains(c);
    let header =
        bearer(token).filter(|_| !token.is_empty() && token.len() <= TOKEN_BYTES_MAX && token.chars().all(is_plain));
    let Some(header) = header else { return again(StatusCode::UNAUTHORIZED, "This is no token.") };
    let headers = HeaderMap::from_iter([(AUTHORIZATION, header)]);
    match site.security.check_page("the console", Scope::View, &headers, &peer) {
        Ok(_) => Ok(moved_with(&site, token, "")),
        Err(refused) => {
            let Problem { status, text } = refused.into();
            again(status, &text)
        }
    }
}

/// Removes the cookie.
pub(crate) async fn sign_out(State(site): State<Arc<Site>>, body: Bytes) -> Result<Response, Problem> {
    Form::of_page(&site, &body)?;
    Ok(moved_with(&site, "", "; Max-Age=0"))
}

/// Returns a redirection to the overview that sets the cookie.
fn moved_with(site: &Site, token: &str, life: &str) -> Response {
    let secure = if site.is_secure() { "; Secure" } else { "" };
    let cookie = format!("{}={token}; Path=/; HttpOnly; SameSite=Strict{secure}{life}", site.cookie());
    (StatusCode::SEE_OTHER, [(LOCATION, "/".to_owned()), (SET_COOKIE, cookie)]).into_response()
}

/// Returns the address of a page with these fields.
pub(crate) fn address<'a>(path: &str, fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    format!("{path}?{query}")
}

/// The fields of a form.
#[derive(Debug, Default)]
pub(crate) struct Form(Vec<(String, String)>);

impl Form {
    /// Reads a form with the word of the pages.
    pub(crate) fn of_page(site: &Site, body: &[u8]) -> Result<Self, Problem> {
        let form = Self(form_urlencoded::parse(body).into_owned().collect());
        let text = "Forged form: it is not from a page of this console; load the page again.";
        let is_ours = form.field("word") == Some(site.word.as_str());
        if is_ours { Ok(form) } else { Err(Problem::new(StatusCode::FORBIDDEN, text)) }
    }

    /// Reads the fields of an address, which must change nothing.
    pub(crate) fn of_query(uri: &Uri) -> Self {
        Self(form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).into_owned().collect())
    }

    /// Returns the trimmed value of a field; empty if it is missing.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.field(name).unwrap_or_default().trim()
    }

    /// Reads a choice; the first applies if the field is empty. The error is a sentence with the name `what`.
    pub(crate) fn picked<T: Copy>(&self, name: &str, what: &str, choices: &[(&str, T)]) -> Result<T, String> {
        let text = self.text(name);
        let found = choices.iter().find(|(choice, _)| text.is_empty() || *choice == text);
        found.map(|(_, value)| *value).ok_or_else(|| format!("{what}: `{text}` is not a choice."))
    }

    /// Reads a number; `None` if the field is empty. The error is a sentence with the name `what`.
    pub(crate) fn number<N: FromStr>(&self, name: &str, what: &str) -> Result<Option<N>, String> {
        let text = self.text(name);
        let number = (!text.is_empty()).then(|| text.parse::<N>()).transpose();
        number.map_err(|_| format!("{what}: `{text}` is not a whole number in range."))
    }

    /// Checks that a visitor has confirmed a change.
    pub(crate) fn confirmed(&self) -> Result<(), Problem> {
        let unconfirmed = "The change was not confirmed; go back, and tick the box above the button.";
        if self.text("confirm").is_empty() { Err(Problem::invalid(unconfirmed)) } else { Ok(()) }
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }
}
