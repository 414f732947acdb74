//! What the clients of streams share: a task that opens one stream after another, with growing delays between them.
//!
//! A [`Client`] says what it does on a stream and when it has nothing left to do; [`Reconnecting`] owns its task and
//! stops it. No message is known here.

mod backoff;

use std::sync::Arc;
use std::time::Duration;

use ::weights::AssemblyError;
pub(crate) use backoff::{Backoff, entropy};
use experience::Invalid;
use rand_chacha::ChaCha8Rng;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Code, Status};

use crate::channel::{Channel, InvalidEndpoint, channel};
use crate::replay::order::Fault;

/// A client that talks over one stream at a time.
pub(crate) trait Client: Send + 'static {
    /// What its streams are called in the log.
    const STREAM: &'static str;

    /// Where its server listens.
    fn endpoint(&self) -> Arc<str>;

    /// One stream, from its opening to its end; `Ok` if there is nothing left to do. Whatever is worth a quick return
    /// to the server resets `backoff`.
    fn stream(&mut self, channel: Channel, backoff: &mut Backoff) -> impl Future<Output = Result<(), Broken>> + Send;

    /// A stream broke; another will be opened.
    fn broke(&mut self, broken: &Broken);

    /// Resolves once there is nothing left to do, so that nobody waits for a server that is away. Cancel-safe.
    fn finished(&mut self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

/// Why a stream is over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    /// It was never opened.
    #[error(transparent)]
    Endpoint(#[from] InvalidEndpoint),
    /// The server, or the way to it, failed.
    #[error(transparent)]
    Status(#[from] Status),
    /// A message came out of order.
    #[error(transparent)]
    Order(#[from] Fault),
    /// A field of a message is wrong.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// Chunks do not make the version that was promised.
    #[error(transparent)]
    Assembly(#[from] AssemblyError),
    /// By this side, for another server.
    #[error("another server is preferred from now on")]
    Moved,
    /// Without a reason.
    #[error("the server ended the stream")]
    Ended,
}

impl Broken {
    /// Whether somebody made a mistake that no waiting cures, so that a human must look.
    fn is_mistake(&self) -> bool {
        match self {
            Self::Status(status) => matches!(
                status.code(),
                Code::InvalidArgument
                    | Code::FailedPrecondition
                    | Code::Unimplemented
                    | Code::Unauthenticated
                    | Code::PermissionDenied
            ),
            Self::Moved | Self::Ended => false,
            Self::Endpoint(_) | Self::Order(_) | Self::Invalid(_) | Self::Assembly(_) => true,
        }
    }
}

/// The task of a client. Dropping this stops it.
#[derive(Debug)]
pub(crate) struct Reconnecting<C> {
    task: JoinHandle<C>,
    stop: DropGuard,
}

impl<C: Client> Reconnecting<C> {
    /// Starts the task; `rng` draws the jitter of its delays. Must be called inside a tokio runtime.
    pub(crate) fn start(client: C, rng: ChaCha8Rng) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(run(client, Backoff::new(rng), stop.clone()));
        Self { task, stop: stop.drop_guard() }
    }

    /// Ends the stream under way and hands the client back.
    pub(crate) async fn stop(self) -> C {
        self.finish(std::future::ready(())).await
    }

    /// Waits until the client has nothing left to do, at most until `deadline` resolves, and hands it back.
    pub(crate) async fn finish(self, deadline: impl Future<Output = ()>) -> C {
        let Self { mut task, stop } = self;
        let finished = tokio::select! {
            biased;
            joined = &mut task => Some(joined),
            () = deadline => None,
        };
        drop(stop);
        let joined = match finished {
            Some(joined) => joined,
            None => task.await,
        };
        joined.expect("the task of a client does not panic")
    }
}

async fn run<C: Client>(mut client: C, backoff: Backoff, stop: CancellationToken) -> C {
    let _ = stop.run_until_cancelled(reconnect(&mut client, backoff)).await;
    client
}

/// Opens one stream after another until there is nothing left to do.
async fn reconnect<C: Client>(client: &mut C, mut backoff: Backoff) {
    while let Err(broken) = open(client, &mut backoff).await {
        let delay = backoff.delay();
        tell::<C>(&client.endpoint(), &broken, delay);
        client.broke(&broken);
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = client.finished() => return,
        }
    }
}

async fn open<C: Client>(client: &mut C, backoff: &mut Backoff) -> Result<(), Broken> {
    let channel = channel(&client.endpoint())?;
    client.stream(channel, backoff).await
}

fn tell<C: Client>(endpoint: &str, broken: &Broken, delay: Duration) {
    let (stream, delay_ms) = (C::STREAM, delay.as_millis());
    if broken.is_mistake() {
        tracing::error!(endpoint, %broken, delay_ms, "{stream} stream broke");
    } else {
        tracing::info!(endpoint, %broken, delay_ms, "{stream} stream broke");
    }
}

#[cfg(test)]
mod tests;
