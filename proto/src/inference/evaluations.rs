use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::inference::{Batch, Predictions};
use tokio::sync::{mpsc, oneshot, watch};
use transport::InvalidEndpoint;
use transport::reconnect::{Reconnecting, entropy};
use transport::servers::{Endpoints, Servers, named};

use super::connection::{Command, Connection};
use super::convert::evaluation::{predictions_from_wire, request_to_wire};
use super::replicas::Replicas;
use super::{Hello, RejectReason, Rejection, Welcome};
use crate::convert::Invalid;

#[cfg(test)]
mod tests;

/// Maximum number of requests waiting for the connection task; further callers block.
const COMMANDS_MAX: usize = 64;

/// Servers, client and game of [`Evaluations`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvaluationsSettings {
    /// Endpoints of the inference servers, in the form that [`Endpoints`] parses; each address of a host name is one
    /// server. Clients with different names are spread over the servers.
    pub endpoint: String,
    /// Name and game of the client.
    pub hello: Hello,
}

/// The state of the connection to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// No server is connected.
    Away,
    /// A server is connected.
    Up(Welcome),
}

/// One stream of requests to an inference server, shared by all clones; several requests may be in flight.
///
/// A background task connects, and reconnects with growing delays while a clone exists: to the server that this client
/// prefers, to the next while the preferred server is unreachable, and back again. If the stream breaks, requests in
/// flight fail, and the caller decides whether to wait, to retry or to use another evaluator.
#[derive(Debug, Clone)]
pub struct Evaluations {
    commands: mpsc::Sender<Command>,
    link: watch::Receiver<Link>,
    actions: usize,
    _running: Arc<Reconnecting<Connection>>,
}

/// The response of a server.
#[derive(Debug)]
pub struct Evaluated {
    /// The weights version of the evaluation.
    pub version: u64,
    /// The predictions, in the order of the batch.
    pub predictions: Predictions,
}

/// A reason why a request has no result.
#[derive(Debug, thiserror::Error)]
pub enum EvalError {
    /// No server is reachable, or the connection broke before the response arrived.
    #[error("the inference server is away")]
    Away,
    /// The server rejected the request.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The response violates the protocol.
    #[error("invalid response from the inference server")]
    Answer(#[from] Invalid),
}

impl Evaluations {
    /// Starts the task. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// [`InvalidEndpoint`].
    pub fn start(settings: EvaluationsSettings) -> Result<Self, InvalidEndpoint> {
        let endpoints: Endpoints = settings.endpoint.parse()?;
        Ok(Self::over(Servers::resolved(&endpoints), settings))
    }

    /// Starts the task for `servers`, in place of the servers in the settings.
    fn over(servers: Servers, settings: EvaluationsSettings) -> Self {
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        let (sender, link) = watch::channel(Link::Away);
        let actions = settings.hello.actions;
        let replicas = Replicas::new(servers, named(&settings.hello.name));
        let unanswered = HashMap::new();
        let connection = Connection { settings, replicas, commands: receiver, link: sender, unanswered, next_id: 0 };
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

    /// Requests the evaluation of a batch by `version`, or by the latest version; waits at most `timeout`.
    /// Cancel-safe: the response to a cancelled request is dropped. The request belongs to the trace that the calling
    /// thread is [within](service::trace::within).
    ///
    /// # Errors
    /// [`EvalError`].
    pub async fn evaluate(
        &self,
        batch: &Batch,
        version: Option<u64>,
        timeout: Option<Duration>,
    ) -> Result<Evaluated, EvalError> {
        let Some(timeout) = timeout else { return self.evaluate_patiently(batch, version, None).await };
        let start = Instant::now();
        let result = tokio::time::timeout(timeout, self.evaluate_patiently(batch, version, Some(timeout))).await;
        // On a busy machine a response may be polled before the expired timer.
        match result {
            Ok(answered) if start.elapsed() <= timeout || answered.is_err() => answered,
            _ => Err(too_late(timeout).into()),
        }
    }

    async fn evaluate_patiently(
        &self,
        batch: &Batch,
        version: Option<u64>,
        timeout: Option<Duration>,
    ) -> Result<Evaluated, EvalError> {
        if !matches!(self.link(), Link::Up(_)) {
            return Err(EvalError::Away);
        }
        let (reply, answer) = oneshot::channel();
        let command = Command { request: request_to_wire(batch, self.actions, version, timeout), reply };
        self.commands.send(command).await.map_err(|_| EvalError::Away)?;
        // The task drops the sender if the stream breaks.
        let message = answer.await.map_err(|_| EvalError::Away)??;
        Ok(Evaluated { version: message.version, predictions: predictions_from_wire(&message, batch)? })
    }
}

/// Returns the rejection to report when no response arrived in time.
fn too_late(timeout: Duration) -> Rejection {
    Rejection { reason: RejectReason::Late, message: format!("no response within {timeout:?}"), retry_after: None }
}
