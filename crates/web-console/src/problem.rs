//! The reasons why there is nothing to show, as responses. Start with [`Problem`].

use std::sync::Arc;

use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use maud::html;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, spawn_blocking};
use transport::security::Refused;

use crate::page::framed;

/// The reason why there is nothing to show.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    /// A sentence.
    pub(crate) text: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    /// The visitor asked for something impossible.
    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    /// The run or a server cannot respond now.
    pub(crate) fn unavailable(text: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, text)
    }

    /// Returns the problem for a program, as `{"error": TEXT}`.
    pub(crate) fn as_json(&self) -> Response {
        let text = serde_json::json!({ "error": self.text }).to_string();
        (self.status, [(CONTENT_TYPE, "application/json")], text).into_response()
    }

    /// Returns the problem after changes of these servers, each with a setting.
    pub(crate) fn after(self, changed: &[(String, String)]) -> Self {
        let names = changed.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
        if names.is_empty() { self } else { Self::unavailable(format!("{} Changed before: {names}.", self.text)) }
    }
}

/// The files of the run are unreadable.
impl From<anyhow::Error> for Problem {
    fn from(error: anyhow::Error) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, format!("The files of the run cannot be read: {error:#}."))
    }
}

/// The token does not allow the request.
impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Unknown(reason) => Self::new(StatusCode::UNAUTHORIZED, reason),
            Refused::Forbidden(reason) => Self::new(StatusCode::FORBIDDEN, reason),
            Refused::Later(reason) => Self::unavailable(format!("{reason}; try again later.")),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let later = (self.status == StatusCode::SERVICE_UNAVAILABLE).then_some([(RETRY_AFTER, "10")]);
        let heading = self.status.canonical_reason().unwrap_or("Nothing to show");
        let main = html! { h1 { (heading) } p { (self.text) } };
        (self.status, later, framed(heading, "", None, None, &main)).into_response()
    }
}

/// Takes a place of a maximum number of tabs or downloads.
pub(crate) fn place(places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Problem> {
    let full = |_| Problem::unavailable("Too many tabs or downloads are open; close a tab of this console.");
    Arc::clone(places).try_acquire_owned().map_err(full)
}

/// Works on a thread that may wait for a disk.
pub(crate) async fn blocking<T: Send + 'static, E: Into<Problem> + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, Problem> {
    let lost = |error: JoinError| Problem::unavailable(format!("The work failed: {error}."));
    spawn_blocking(work).await.map_err(lost)?.map_err(Into::into)
}
