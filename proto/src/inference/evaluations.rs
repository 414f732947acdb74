use std::sync::Arc;
use std::time::{Duration, Instant};

use ::inference::{Batch, Predictions};
use tokio::sync::{mpsc, oneshot, watch};

use super::connection::{Command, Connection};
use super::replicas::Replicas;
use super::{Hello, Refusal, Welcome, Why};
use crate::convert::Invalid;
use crate::convert::evaluation::{ask_to_wire, predictions_from_wire};
use crate::reconnect::{Reconnecting, entropy};
use crate::servers::{Endpoints, Servers, named};

#[cfg(test)]
mod tests;

/// Requests that may wait for the connection's task; further callers block.
const COMMANDS_MAX: usize = 64;

/// The servers, client and game of [`Evaluations`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvaluationsSettings {
    /// The endpoints of the inference servers: [`Endpoints`] as written, where each address of a host name is one
    /// server. Clients of different names spread over them.
    pub endpoint: String,
    /// The client's name and game.
    pub hello: Hello,
}

/// The state of the connection to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// The time since which no server is connected.
    Away(Instant),
    /// A server is connected.
    Up(Welcome),
}

/// One stream of requests to one of the inference servers, shared by all clones; several requests may be in flight.
///
/// A task of its own connects, and reconnects with growing delays for as long as a clone lives: to the server that this
/// client prefers, to the next one while that is unreachable, and back again. Requests in flight fail when their stream
/// breaks: only the caller knows whether to wait, to retry or to use another evaluator.
#[derive(Debug, Clone)]
pub struct Evaluations {
    commands: mpsc::Sender<Command>,
    link: watch::Receiver<Link>,
    actions: usize,
    _running: Arc<Reconnecting<Connection>>,
}

/// The answer of a server.
#[derive(Debug)]
pub struct Answered {
    /// The weights version.
    pub version: u64,
    /// In the order of the batch.
    pub predictions: Predictions,
}

/// The reason for which a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No server is reachable, or the connection broke before the answer arrived.
    #[error("the inference server is away")]
    Away,
    /// The server answers, but not this.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The answer breaks the protocol.
    #[error("the inference server's answer is invalid")]
    Answer(#[from] Invalid),
}

impl Evaluations {
    /// Starts the task. Must be called inside a tokio runtime.
    #[must_use]
    pub fn start(settings: EvaluationsSettings) -> Self {
        let servers = settings.endpoint.parse::<Endpoints>().ok().map(|endpoints| Servers::resolved(&endpoints));
        Self::connect(settings, servers)
    }

    /// The same with other servers than the settings name.
    #[cfg(any(test, feature = "scripted"))]
    #[must_use]
    pub fn over(servers: Servers, settings: EvaluationsSettings) -> Self {
        Self::connect(settings, Some(servers))
    }

    /// Without servers the endpoint is `none`, which the error of the first attempt contains.
    fn connect(settings: EvaluationsSettings, servers: Option<Servers>) -> Self {
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        let (tell, link) = watch::channel(Link::Away(Instant::now()));
        let actions = settings.hello.actions;
        let replicas = servers.map(|servers| Replicas::new(servers, named(&settings.hello.name)));
        let connection = Connection::new(settings, replicas, receiver, tell);
        Self { commands, link, actions, _running: Arc::new(Reconnecting::start(connection, entropy())) }
    }

    /// Returns the state of the connection.
    #[must_use]
    pub fn link(&self) -> Link {
        *self.link.borrow()
    }

    /// Resolves once a server is connected.
    pub async fn up(&self) -> Welcome {
        let mut link = self.link.clone();
        loop {
            if let Link::Up(welcome) = *link.borrow_and_update() {
                return welcome;
            }
            if link.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Requests the evaluation of a batch by `version`, or by the newest version, within `timeout`; waits no longer
    /// than that. Cancel-safe: the answer to a cancelled request is dropped. The request belongs to the trace that the
    /// calling thread is [within](service::trace::within).
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn ask(
        &self,
        batch: &Batch,
        version: Option<u64>,
        timeout: Option<Duration>,
    ) -> Result<Answered, AskError> {
        let Some(timeout) = timeout else { return self.ask_patiently(batch, version, None).await };
        let begun = Instant::now();
        let asked = tokio::time::timeout(timeout, self.ask_patiently(batch, version, Some(timeout))).await;
        // On a busy machine an answer may be found before the timer is.
        match asked {
            Ok(answered) if begun.elapsed() <= timeout || answered.is_err() => answered,
            _ => Err(too_late(timeout).into()),
        }
    }

    async fn ask_patiently(
        &self,
        batch: &Batch,
        version: Option<u64>,
        timeout: Option<Duration>,
    ) -> Result<Answered, AskError> {
        if !matches!(self.link(), Link::Up(_)) {
            return Err(AskError::Away);
        }
        let (reply, answer) = oneshot::channel();
        let command = Command { ask: ask_to_wire(batch, self.actions, version, timeout), reply };
        self.commands.send(command).await.map_err(|_| AskError::Away)?;
        // A task that drops the other end has lost the stream.
        let message = answer.await.map_err(|_| AskError::Away)??;
        let mut predictions = Predictions::new();
        predictions_from_wire(&message, batch, &mut predictions)?;
        Ok(Answered { version: message.version, predictions })
    }
}

/// An answer that did not arrive in time, whatever delayed it.
fn too_late(timeout: Duration) -> Refusal {
    Refusal { why: Why::Late, reason: format!("no answer came within {timeout:?}"), retry_after: None }
}
