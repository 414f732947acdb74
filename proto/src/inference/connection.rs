use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use transport::reconnect::{Backoff, Broken, Client, until};
use transport::servers::Server;
use transport::{Channel, channel};

use super::convert::evaluation::rejection_from_wire;
use super::replicas::Replicas;
use super::v1::evaluate_request::Message as Request;
use super::v1::evaluate_response::Message as Response;
use super::{EvaluationsSettings, Link, Rejection, Welcome, client, v1};
use crate::convert::invalid;
use crate::replay::order::Fault;

/// Capacity of the request queue between task and socket: enough to keep a connection busy, at no cost.
const REQUESTS_BUFFERED: usize = 16;
/// Maximum time to wait for requests in flight before the client moves to another server and abandons the requests.
const MOVE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for a health check: a server that does not respond within this time counts as not serving.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);
/// Name of the health-checked service.
const SERVICE: &str = "zerofleet.inference.v1.Inference";

/// A running health check of a server that failed.
type Look = Pin<Box<dyn Future<Output = (Server, bool)> + Send>>;

/// A request, and the channel for the response.
#[derive(Debug)]
pub(super) struct Command {
    /// The request; the id is assigned here.
    pub(super) request: v1::EvalRequest,
    pub(super) reply: oneshot::Sender<Result<v1::Predictions, Rejection>>,
}

/// The client of [`Evaluations`](super::Evaluations): one stream at a time, and the unanswered requests.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) settings: EvaluationsSettings,
    pub(super) replicas: Replicas,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) link: watch::Sender<Link>,
    pub(super) unanswered: HashMap<u64, oneshot::Sender<Result<v1::Predictions, Rejection>>>,
    pub(super) next_id: u64,
}

impl Connection {
    fn receive(&mut self, message: v1::EvaluateResponse, welcomed: &mut Option<Welcome>) -> Result<(), Fault> {
        let (id, answer) = match (message.message.ok_or(Fault::Empty)?, &welcomed) {
            (Response::Welcome(welcome), None) => {
                let welcome = Welcome::try_from(welcome)?;
                *welcomed = Some(welcome);
                self.replicas.answered();
                self.link.send_replace(Link::Up(welcome));
                return Ok(());
            }
            (Response::Welcome(_), Some(_)) => return Err(Fault::Twice { message: "welcome" }),
            (_, None) => return Err(Fault::TooEarly { got: "response", expected: "welcome" }),
            (Response::Predictions(predictions), Some(_)) => (predictions.id, Ok(predictions)),
            (Response::Rejection(rejection), Some(_)) => {
                let (id, rejection) = rejection_from_wire(rejection)?;
                (id, Err(rejection))
            }
        };
        let Some(reply) = self.unanswered.remove(&id) else {
            return Err(invalid("id", format!("{id} was not requested, or has a duplicate response")).into());
        };
        // The caller may have stopped waiting.
        let _ = reply.send(answer);
        Ok(())
    }

    fn register(&mut self, Command { mut request, reply }: Command) -> v1::EvaluateRequest {
        request.id = self.next_id;
        self.next_id += 1;
        self.unanswered.insert(request.id, reply);
        v1::EvaluateRequest { message: Some(Request::Request(request)) }
    }
}

impl Client for Connection {
    const STREAM: &'static str = "evaluation";

    fn endpoint(&self) -> Arc<str> {
        let chosen = self.replicas.endpoint();
        // The first endpoint, for the log only: the server is chosen when the stream opens.
        let first = || self.settings.endpoint.split(',').next().unwrap_or_default().trim().into();
        chosen.unwrap_or_else(first)
    }

    async fn stream(&mut self, _: Channel, backoff: &mut Backoff) -> Result<(), Broken> {
        let endpoint = tokio::select! {
            endpoint = self.replicas.choose() => endpoint,
            () = commands_closed(&mut self.commands) => return Ok(()),
        };
        let (requests, receiver) = mpsc::channel(REQUESTS_BUFFERED);
        let hello = Request::Hello(self.settings.hello.clone().into());
        requests.try_send(v1::EvaluateRequest { message: Some(hello) }).expect("a new channel has room");
        let mut client = client(channel(&endpoint)?);
        let mut replies = tokio::select! {
            response = client.evaluate(ReceiverStream::new(receiver)) => response?.into_inner(),
            () = self.finished() => return Ok(()),
        };
        let (mut welcomed, mut next): (Option<Welcome>, Option<Command>) = (None, None);
        let (mut look, mut moving): (Option<Look>, Option<Instant>) = (None, None);
        loop {
            let (outranked, suspect) = (self.replicas.is_outranked(), self.replicas.suspect());
            let moves_by = outranked.then(|| *moving.get_or_insert_with(|| Instant::now() + MOVE_TIMEOUT));
            if moves_by.is_some() && self.unanswered.is_empty() && next.is_none() {
                backoff.reset();
                return Err(Broken::Moved);
            }
            let has_room = welcomed.is_some_and(|welcome| self.unanswered.len() < welcome.requests_max);
            let may_send = has_room && moves_by.is_none();
            let due = suspect.as_ref().map(|(_, due)| *due);
            // This is the only await: responses must be read while a full window blocks requests.
            tokio::select! {
                () = until(moves_by) => return Err(Broken::Moved),
                () = until(due), if look.is_none() => {
                    look = suspect.map(|(server, _)| Box::pin(look_at(server)) as Look);
                }
                (server, serves) = under_way(&mut look) => {
                    look = None;
                    self.replicas.looked_at(&server, serves, Instant::now());
                }
                () = self.replicas.changed() => {}
                reply = replies.message() => {
                    self.receive(reply?.ok_or(Broken::Ended)?, &mut welcomed).map_err(Broken::invalid)?;
                    backoff.reset();
                }
                slot = requests.reserve(), if next.is_some() => {
                    let slot = slot.map_err(|_| Broken::Ended)?;
                    if let Some(command) = next.take() {
                        slot.send(self.register(command));
                    }
                }
                command = self.commands.recv(), if may_send && next.is_none() => match command {
                    Some(command) => next = Some(command),
                    None => return Ok(()),
                },
            }
        }
    }

    fn broke(&mut self, broken: &Broken) {
        if !matches!(broken, Broken::Moved) {
            self.replicas.failed(Instant::now());
        }
        if matches!(*self.link.borrow(), Link::Up(_)) {
            self.link.send_replace(Link::Away);
        }
        // Dropping the senders makes the waiting callers return `Away`.
        self.unanswered.clear();
        while self.commands.try_recv().is_ok() {}
    }

    /// Returns once every `Evaluations` handle is dropped; requests received until then fail as `Away`.
    async fn finished(&mut self) {
        commands_closed(&mut self.commands).await;
    }
}

/// Waits until the channel of commands is closed. Requests that arrive earlier fail: no server is available.
async fn commands_closed(commands: &mut mpsc::Receiver<Command>) {
    while commands.recv().await.is_some() {}
}

async fn under_way(look: &mut Option<Look>) -> (Server, bool) {
    match look {
        Some(look) => look.await,
        None => std::future::pending().await,
    }
}

/// Returns true if a server reports that it is serving, or if a server without health checks responds.
async fn look_at(server: Server) -> (Server, bool) {
    let probe = async {
        let mut client = HealthClient::new(channel(&server.endpoint).ok()?);
        let request = HealthCheckRequest { service: SERVICE.to_owned() };
        Some(match client.check(request).await {
            Ok(answer) => answer.into_inner().status == ServingStatus::Serving as i32,
            Err(status) => status.code() == Code::Unimplemented,
        })
    };
    let serves = timeout(LOOK_TIMEOUT, probe).await.ok().flatten().unwrap_or(false);
    (server, serves)
}
