use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use inference::Predictions;
use proto::convert::{predictions_to_wire, refusal_to_wire};
use proto::inference::order::{Evaluate, EvaluateOrder};
use proto::inference::v1::evaluate_response::Message;
use proto::inference::{Hello, Refusal as Refused, Welcome, v1};
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use super::cached::Cached;
use super::traced::Traced;
use super::{Answers, OpenStream};
use crate::engine::{Model, Refusal};

/// The version that answered and its answer, or why there is none.
pub(super) type Answered = Result<(u64, Predictions), Refusal>;

/// One client's stream: requests in, an answer for each out, in any order.
pub(super) struct EvaluateStream {
    inbound: Streaming<v1::EvaluateRequest>,
    order: EvaluateOrder,
    cached: Cached,
    client: u64,
    asks_max: usize,
    drain: CancellationToken,
    under_way: FuturesUnordered<BoxFuture<'static, (u64, Answered)>>,
    has_ended: bool,
    _open: OpenStream,
}

impl EvaluateStream {
    pub(super) fn new(
        inbound: Streaming<v1::EvaluateRequest>,
        cached: Cached,
        client: u64,
        asks_max: usize,
        drain: CancellationToken,
        open: OpenStream,
    ) -> Self {
        Self {
            inbound,
            order: EvaluateOrder::default(),
            cached,
            client,
            asks_max,
            drain,
            under_way: FuturesUnordered::new(),
            has_ended: false,
            _open: open,
        }
    }

    pub(super) fn answers(self) -> Answers<v1::EvaluateResponse> {
        Box::pin(futures::stream::try_unfold(self, async |mut stream| {
            let message = stream.next().await?;
            let response = message.map(|message| v1::EvaluateResponse { message: Some(message) });
            Ok::<_, Status>(response.map(|response| (response, stream)))
        }))
    }

    /// The next answer; an error or `None` ends the stream.
    async fn next(&mut self) -> Result<Option<Message>, Status> {
        loop {
            if self.has_ended && self.under_way.is_empty() {
                return Ok(None);
            }
            tokio::select! {
                biased;
                () = self.drain.cancelled() => return Err(Refusal::Draining.into()),
                Some((id, answer)) = self.under_way.next() => {
                    self.order.answered(id);
                    return Ok(Some(response(id, answer)));
                }
                message = self.inbound.message(), if !self.has_ended => match message? {
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
                let drain = self.drain.clone();
                let model = tokio::select! {
                    model = self.cached.handle().served() => model,
                    () = drain.cancelled() => return Err(Refusal::Draining.into()),
                };
                fits(&hello, &model)?;
                tracing::info!(client = hello.name, "a client requests evaluations");
                let Model { newest, positions_max, .. } = model;
                let welcome = Welcome { version: newest, positions_max, asks_max: self.asks_max };
                self.order.welcomed(welcome);
                Ok(Some(welcome))
            }
            Evaluate::Ask(asked) => {
                let (cached, client, id) = (self.cached.clone(), self.client, asked.id);
                let mut traced = Traced::begin(&asked);
                self.under_way.push(Box::pin(async move {
                    let answered = cached.evaluate(client, asked, &mut traced).await;
                    traced.end(&answered);
                    (id, answered)
                }));
                Ok(None)
            }
        }
    }
}

fn response(id: u64, answer: Answered) -> Message {
    match answer {
        Ok((version, predictions)) => Message::Predictions(predictions_to_wire(id, version, &predictions)),
        Err(refusal) => {
            let (why, retry_after) = (refusal.why(), refusal.retry_after());
            Message::Refusal(refusal_to_wire(id, Refused { why, reason: refusal.to_string(), retry_after }))
        }
    }
}

/// Checks that the client's game is the one served.
fn fits(hello: &Hello, model: &Model) -> Result<(), Status> {
    let asks = (hello.game.as_str(), hello.shape, hello.actions);
    let serves = (model.game.as_str(), model.shape, model.actions);
    if asks == serves {
        return Ok(());
    }
    Err(Status::failed_precondition(format!(
        "the client requests {}, this server has weights for {}",
        say(asks),
        say(serves)
    )))
}

fn say((game, shape, actions): (&str, game::ObservationShape, usize)) -> String {
    let game::ObservationShape { planes, height, width } = shape;
    format!("{game}, observations [{planes}, {height}, {width}], {actions} actions")
}
