//! The stream of changes: one event per second at most, with the changed fragments as HTML.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::Uri;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::WatchStream;

use crate::games::{self, Key};
use crate::matches;
use crate::problem::{Problem, place};
use crate::site::Site;
use crate::snapshot::Snapshot;

/// Time after which a stream ends, so that no stream outlives a forgotten tab for long. Browsers connect again.
const STREAM_TIME: Duration = Duration::from_secs(600);
/// Time after which a browser connects again.
const RETRY: Duration = Duration::from_secs(1);
/// Interval of comments without a change, which reveal a broken connection.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Sends the fragments of a page that have changed, first all of them. The address is `/events` and the address of the
/// page. Streams beyond a maximum number are refused.
pub(crate) async fn stream(State(site): State<Arc<Site>>, uri: Uri) -> Result<Response, Problem> {
    let place = place(&site.streams)?;
    let begin = Instant::now();
    let mut seen = Arc::<Snapshot>::default();
    let path = uri.path().trim_start_matches("/events").to_owned();
    let (key, mut shown) = (Key::of_query(uri.query()), String::new());
    // A slow reader gets the latest snapshot only: no snapshot waits for it.
    let snapshots = WatchStream::new(site.snapshots()).take_while(move |_| begin.elapsed() < STREAM_TIME);
    let events = snapshots.filter_map(move |snapshot| {
        let _held = &place;
        site.visit(&path);
        let mut changes = snapshot.changes(&path, &seen);
        seen = Arc::clone(&snapshot);
        let part = match &key {
            _ if path == matches::PAGE => site.matches.render().into_string(),
            Some(key) => games::selected(&snapshot.selected, key),
            None => String::new(),
        };
        if part != shown {
            changes.push_str(&part);
            shown = part;
        }
        (!changes.is_empty()).then(|| Ok::<_, Infallible>(Event::default().retry(RETRY).data(changes)))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}
