//! Searches for visitors who play: as a stream of events for the script of the page, or within a request for a browser
//! without scripts. Start with [`stream`] and [`answer`].

use std::convert::Infallible;
use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use maud::Markup;
use selfplay::Analysis;
use tokio::sync::mpsc::{self, Sender};
use tokio::time::{Instant, timeout_at};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use transport::security::Caller;

use crate::events::KEEP_ALIVE;
use crate::play::PATH;
use crate::play_page::{News, Page, Shown, progress, summary};
use crate::problem::{Problem, place};
use crate::site::Site;
use crate::thinking::Ticket;
use crate::visitors::Form;

/// Time limit of a search that the script follows. The moves found so far count.
const SEARCH_TIME: Duration = Duration::from_secs(20);
/// Time after which a request stops to wait in the queue, and after which the search ends: below the time limit of a
/// request.
const QUEUE_TIME: Duration = Duration::from_secs(3);
const ANSWER_TIME: Duration = Duration::from_secs(8);
/// Time for the end of a search that is to stop.
const GRACE: Duration = Duration::from_secs(1);
/// Time after which a browser asks again for a place in the queue.
const RETRY: Duration = Duration::from_secs(5);
/// Maximum number of events that wait for a slow reader.
const EVENTS_WAITING_MAX: usize = 8;

const FULL: &str = "Every place in the queue of searches is taken; the browser asks again in a few seconds.";

/// Searches for the page with this address. Sends place in the queue, value and variation, and at last the address of
/// the next position, or the parts of the page with the opinion.
pub(crate) async fn stream(
    State(site): State<Arc<Site>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    let place = place(&site.streams)?;
    let page = Page::read(&site, Form::of_query(&uri)).await?;
    if !page.play.needs_search() {
        return Err(Problem::invalid("This position needs no search."));
    }
    let (sender, receiver) = mpsc::channel(EVENTS_WAITING_MAX);
    let search = AbortOnDropHandle::new(tokio::spawn(follow(site, caller, page, sender)));
    let events = ReceiverStream::new(receiver).map(move |event| {
        let _held = (&place, &search);
        Ok::<_, Infallible>(event)
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

/// Sends the events of a search. A closed stream takes no events, and ends this task.
async fn follow(site: Arc<Site>, caller: Caller, page: Page, events: Sender<Event>) {
    let Some(mut ticket) = site.thinking.join(caller.name()) else {
        // The browser connects again when the stream has ended.
        let _ = events.send(Event::default().retry(RETRY).data(progress(FULL).0)).await;
        return;
    };
    // A slow reader misses a report.
    ticket.turn(|ahead| drop(events.try_send(fragment(&progress(&in_queue(ahead)))))).await;
    let (page, reported) = (Arc::new(page), events.clone());
    let searched = Arc::clone(&page);
    let report = move |analysis: &Analysis| {
        drop(reported.try_send(fragment(&progress(&summary(&searched.play, analysis)))));
        if reported.is_closed() { Break(()) } else { Continue(()) }
    };
    let last = match search(ticket, &page, Instant::now() + SEARCH_TIME, report).await {
        Shown::Moved(address) => Event::default().event("moved").data(address),
        Shown::Page { main, .. } => fragment(&main).event("shown"),
    };
    let _ = events.send(last).await;
}

/// Searches within the request, and moves on to the next position or shows the opinion.
pub(crate) async fn answer(site: &Site, caller: &Caller, fields: Form) -> Result<Shown, Problem> {
    let begin = Instant::now();
    let page = Page::read(site, fields).await?;
    if !page.play.needs_search() {
        return Ok(Shown::Moved(page.play.address.link(PATH)));
    }
    let (token, question) = (caller.name(), page.play.question());
    let kept = site.returning.take(token, &question);
    let Some(mut ticket) = kept.or_else(|| site.thinking.join(token)) else {
        return Ok(page.shown(&News { seconds: Some(RETRY.as_secs()), text: FULL, ..News::default() }));
    };
    let mut text = String::new();
    if timeout_at(begin + QUEUE_TIME, ticket.turn(|ahead| text = in_queue(ahead))).await.is_err() {
        site.returning.keep(token, question, ticket);
        return Ok(page.shown(&News { seconds: Some(0), text: &text, ..News::default() }));
    }
    let limit = begin + ANSWER_TIME;
    let found = timeout_at(limit + GRACE, search(ticket, &page, limit, |_| Continue(()))).await;
    // A search that cannot be stopped goes on, and the opinion is kept for the next request.
    let later = |_| page.shown(&News { text: "The search goes on.", seconds: Some(1), ..News::default() });
    Ok(found.unwrap_or_else(later))
}

/// Searches the position until the simulations are reached, the time is up, or `report` breaks off. Returns the next
/// position, or the page with the opinion.
async fn search(
    ticket: Ticket,
    page: &Page,
    until: Instant,
    mut report: impl FnMut(&Analysis) -> ControlFlow<()> + Send + 'static,
) -> Shown {
    let limited = move |analysis: &Analysis| if Instant::now() < until { report(analysis) } else { Break(()) };
    match ticket.think(page.play.question(), limited).await {
        Ok(found) if page.play.is_programs_turn() => Shown::Moved(page.play.after(found.analysis.best).link(PATH)),
        Ok(opinion) => page.shown(&News { opinion: Some(&opinion), ..News::default() }),
        Err(error) => {
            let (failure, text) = (Some(StatusCode::SERVICE_UNAVAILABLE), format!("The search failed: {error:#}."));
            page.shown(&News { text: &text, failure, ..News::default() })
        }
    }
}

fn fragment(part: &Markup) -> Event {
    Event::default().data(&part.0)
}

fn in_queue(ahead: usize) -> String {
    format!("Waiting: {ahead} searches come first.")
}
