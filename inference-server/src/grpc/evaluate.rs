use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{Stream, StreamExt as _};
use proto::inference::order::{Evaluate, EvaluateOrder};
use proto::inference::v1::evaluate_response::Message;
use proto::inference::{EvalRequest, Hello, Welcome, predictions_to_wire, rejection_to_wire, v1};
use service::trace::{self, Kind, Span};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use super::cached::Cached;
use crate::engine::{Answer, Model};
use crate::metrics;
use crate::rejection::Rejection;

/// The answer and the number of cache hits, or the reason for a rejection.
type Answered = Result<(Answer, usize), Rejection>;

/// The stream of one client, which answers each request, in any order.
pub(super) struct EvaluateStream {
    pub(super) inbound: Streaming<v1::EvaluateRequest>,
    pub(super) order: EvaluateOrder,
    pub(super) cached: Cached,
    pub(super) client: u64,
    pub(super) requests_max: usize,
    pub(super) drain: CancellationToken,
    pub(super) in_flight: FuturesUnordered<BoxFuture<'static, (u64, Answered)>>,
    pub(super) has_ended: bool,
    pub(super) _open: OpenStream,
}

impl EvaluateStream {
    pub(super) fn answers(self) -> impl Stream<Item = Result<v1::EvaluateResponse, Status>> {
        futures::stream::try_unfold(self, async |mut stream| {
            let message = stream.next().await?;
            let response = message.map(|message| v1::EvaluateResponse { message: Some(message) });
            Ok::<_, Status>(response.map(|response| (response, stream)))
        })
    }

    /// Waits for the next message to the client; an error or `None` ends the stream.
    async fn next(&mut self) -> Result<Option<Message>, Status> {
        loop {
            let is_draining = self.drain.is_cancelled();
            if self.in_flight.is_empty() && (self.has_ended || is_draining) {
                return if self.has_ended { Ok(None) } else { Err(Rejection::Draining.into()) };
            }
            tokio::select! {
                biased;
                Some((id, answered)) = self.in_flight.next() => {
                    self.order.answered(id);
                    return Ok(Some(match answered {
                        Ok((Answer { version, predictions, .. }, _)) => {
                            Message::Predictions(predictions_to_wire(id, version, &predictions))
                        }
                        Err(rejection) => Message::Rejection(rejection_to_wire(id, rejection.into())),
                    }));
                }
                // Accepted requests are answered, and no more are read.
                () = self.drain.cancelled(), if !is_draining => {}
                message = self.inbound.message(), if !self.has_ended && !is_draining => match message? {
                    None => self.has_ended = true,
                    Some(message) => if let Some(welcome) = self.receive(message).await? {
                        return Ok(Some(Message::Welcome(welcome.into())));
                    }
                },
            }
        }
    }

    async fn receive(&mut self, message: v1::EvaluateRequest) -> Result<Option<Welcome>, Status> {
        match self.order.receive(message)? {
            Evaluate::Hello(hello) => {
                let model = self.drain.run_until_cancelled(self.cached.handle.served()).await;
                let model = model.ok_or(Rejection::Draining)?;
                fits(&hello, &model)?;
                tracing::info!(client = hello.name, "evaluation stream opened");
                let Model { newest, positions_max, .. } = model;
                let welcome = Welcome { version: newest, positions_max, requests_max: self.requests_max };
                self.order.welcomed(welcome);
                Ok(Some(welcome))
            }
            Evaluate::Request(request) => {
                let (cached, client, id) = (self.cached.clone(), self.client, request.id);
                let span = begin_span(&request);
                self.in_flight.push(Box::pin(async move {
                    let answered = cached.evaluate(client, request).await;
                    if let Some(span) = span {
                        end_span(span, &answered);
                    }
                    (id, answered)
                }));
                Ok(None)
            }
        }
    }
}

/// Returns the server's span of a traced evaluation; `None` for a request without a trace.
fn begin_span(request: &EvalRequest) -> Option<Span> {
    let mut span = trace::joined("evaluate", request.trace)?.of_kind(Kind::Server);
    span.set("positions", request.positions.count());
    Some(span)
}

fn end_span(mut span: Span, answered: &Answered) {
    match answered {
        Ok((answer, hits)) => {
            span.set("cached", *hits);
            span.set("queued_ms", answer.queued.as_secs_f64() * 1e3);
            span.set("computed_ms", answer.computed.as_secs_f64() * 1e3);
            span.set("weights_version", answer.version);
        }
        Err(rejection) => span.fail(&rejection.to_string()),
    }
    span.end();
}

/// Checks that the client's game is the served game.
fn fits(hello: &Hello, model: &Model) -> Result<(), Status> {
    let requested = (hello.game.as_str(), hello.shape, hello.actions);
    let served = (model.game.as_str(), model.shape, model.actions);
    if requested == served {
        return Ok(());
    }
    let text = |(game, shape, actions): (&str, game::ObservationShape, usize)| {
        let game::ObservationShape { planes, height, width } = shape;
        format!("{game}, observations [{planes}, {height}, {width}], {actions} actions")
    };
    Err(Status::failed_precondition(format!(
        "the client requests {}, this server has weights for {}",
        text(requested),
        text(served)
    )))
}

/// A permit for one open stream, released on drop.
pub(super) struct OpenStream {
    _permit: OwnedSemaphorePermit,
}

impl OpenStream {
    pub(super) fn new(permit: OwnedSemaphorePermit) -> Self {
        metrics::streams(1.0);
        Self { _permit: permit }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        metrics::streams(-1.0);
    }
}
