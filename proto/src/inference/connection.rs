use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::wrappers::ReceiverStream;

use super::v1::evaluate_request::Message as Request;
use super::v1::evaluate_response::Message as Response;
use super::v1::inference_client::InferenceClient;
use super::{EvaluationsSettings, Link, Refusal, Welcome, v1};
use crate::channel::Channel;
use crate::convert::evaluation::{refusal_from_wire, required_message};
use crate::convert::invalid;
use crate::limits::MESSAGE_BYTES_MAX;
use crate::reconnect::{Backoff, Broken, Client};
use crate::replay::order::Fault;

/// Requests between the task and the socket: enough to keep a connection busy, few enough to lose nothing by it.
const REQUESTS_BUFFERED: usize = 16;

/// Something to ask, and who waits for the answer.
#[derive(Debug)]
pub(super) struct Command {
    /// Its id is given here.
    pub(super) ask: v1::Ask,
    pub(super) reply: oneshot::Sender<Result<v1::Predictions, Refusal>>,
}

/// The client of [`Evaluations`](super::Evaluations): one stream at a time, and what is unanswered on it.
#[derive(Debug)]
pub(super) struct Connection {
    settings: EvaluationsSettings,
    commands: mpsc::Receiver<Command>,
    link: watch::Sender<Link>,
    unanswered: HashMap<u64, oneshot::Sender<Result<v1::Predictions, Refusal>>>,
    next_id: u64,
}

impl Connection {
    pub(super) fn new(
        settings: EvaluationsSettings,
        commands: mpsc::Receiver<Command>,
        link: watch::Sender<Link>,
    ) -> Self {
        Self { settings, commands, link, unanswered: HashMap::new(), next_id: 0 }
    }

    fn receive(&mut self, message: v1::EvaluateResponse, welcomed: &mut Option<Welcome>) -> Result<(), Broken> {
        let (id, answer) = match (required_message(message.message)?, &welcomed) {
            (Response::Welcome(welcome), None) => {
                let welcome = Welcome::try_from(welcome)?;
                *welcomed = Some(welcome);
                self.link.send_replace(Link::Up(welcome));
                return Ok(());
            }
            (Response::Welcome(_), Some(_)) => return Err(Fault::Twice { message: "welcome" }.into()),
            (_, None) => return Err(Fault::TooEarly { got: "an answer", expected: "welcome" }.into()),
            (Response::Predictions(predictions), Some(_)) => (predictions.id, Ok(predictions)),
            (Response::Refusal(refusal), Some(_)) => {
                let (id, refusal) = refusal_from_wire(refusal)?;
                (id, Err(refusal))
            }
        };
        let Some(reply) = self.unanswered.remove(&id) else {
            return Err(invalid("id", format!("{id} was not asked, or is answered twice")).into());
        };
        // Whoever asked may have given up.
        let _ = reply.send(answer);
        Ok(())
    }

    fn register(&mut self, Command { mut ask, reply }: Command) -> v1::EvaluateRequest {
        ask.id = self.next_id;
        self.next_id += 1;
        self.unanswered.insert(ask.id, reply);
        v1::EvaluateRequest { message: Some(Request::Ask(ask)) }
    }
}

impl Client for Connection {
    const STREAM: &'static str = "evaluation";

    fn endpoint(&self) -> Arc<str> {
        self.settings.endpoint.as_str().into()
    }

    async fn stream(&mut self, channel: Channel, backoff: &mut Backoff) -> Result<(), Broken> {
        let (requests, receiver) = mpsc::channel(REQUESTS_BUFFERED);
        let hello = Request::Hello(self.settings.hello.clone().into());
        requests.try_send(v1::EvaluateRequest { message: Some(hello) }).expect("a new channel has room");
        let mut client = InferenceClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let mut replies = tokio::select! {
            response = client.evaluate(ReceiverStream::new(receiver)) => response?.into_inner(),
            () = self.finished() => return Ok(()),
        };
        let (mut welcomed, mut next): (Option<Welcome>, Option<Command>) = (None, None);
        loop {
            let may_ask = welcomed.is_some_and(|welcome| self.unanswered.len() < welcome.asks_max);
            // Nothing is awaited but here: answers must be read while a full window holds up what is asked.
            tokio::select! {
                reply = replies.message() => {
                    self.receive(reply?.ok_or(Broken::Ended)?, &mut welcomed)?;
                    backoff.reset();
                }
                slot = requests.reserve(), if next.is_some() => {
                    let slot = slot.map_err(|_| Broken::Ended)?;
                    if let Some(command) = next.take() {
                        slot.send(self.register(command));
                    }
                }
                command = self.commands.recv(), if may_ask && next.is_none() => match command {
                    Some(command) => next = Some(command),
                    None => return Ok(()),
                },
            }
        }
    }

    fn broke(&mut self, _: &Broken) {
        if matches!(*self.link.borrow(), Link::Up(_)) {
            self.link.send_replace(Link::Away(Instant::now()));
        }
        // Whoever waits hears that the other end is gone.
        self.unanswered.clear();
        while self.commands.try_recv().is_ok() {}
    }

    /// Nobody is left who could ask; what is asked meanwhile has failed.
    async fn finished(&mut self) {
        while self.commands.recv().await.is_some() {}
    }
}
