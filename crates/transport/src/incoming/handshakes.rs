use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::{AbortHandle, BoxFuture, abortable};
use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsStream};

use crate::security::{Network, ServerTls};

/// Maximum number of concurrent handshakes. A handshake takes a few round trips; beyond the limit the oldest is
/// aborted, since it will most likely never finish.
const HANDSHAKES_MAX: usize = if cfg!(test) { 8 } else { 512 };

/// Time limit of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Time during which the server still reads from a rejected client, so that the client receives the alert.
const LINGER: Duration = Duration::from_secs(1);

/// Interval between warnings about failed handshakes, which any client can cause.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// Runs the TLS handshakes of connections that are not served yet.
///
/// Handshakes run concurrently in the task that accepts connections and stop with it; none is spawned.
#[derive(Default)]
pub(super) struct Handshakes {
    under_way: FuturesUnordered<BoxFuture<'static, Finished>>,
    /// Abort handles, keyed by the start order of the handshakes.
    give_up: BTreeMap<u64, AbortHandle>,
    started: u64,
    warned: Option<Instant>,
}

/// Origin of a connection, and the permit that counts the connection among those from its address without an accepted
/// call.
pub(super) struct Arrival {
    pub(super) network: Arc<Network>,
    pub(super) place: OwnedSemaphorePermit,
}

/// A connection after the handshake, with the settings that accepted the certificate.
pub(super) type Encrypted = (Arrival, Arc<ServerTls>, Box<TlsStream<TcpStream>>);

/// Number and result of a handshake; the result is `None` if the limit aborted the handshake.
type Finished = (u64, Option<Result<Encrypted, Failure>>);

struct Failure {
    peer: String,
    error: io::Error,
}

impl Handshakes {
    pub(super) fn start(&mut self, tls: Arc<ServerTls>, stream: TcpStream, arrival: Arrival) {
        if self.give_up.len() >= HANDSHAKES_MAX
            && let Some((_, oldest)) = self.give_up.pop_first()
        {
            oldest.abort();
        }
        let number = self.started;
        self.started += 1;
        let (handshake, give_up) = abortable(handshake(tls, stream, arrival));
        self.give_up.insert(number, give_up);
        self.under_way.push(handshake.map(move |finished| (number, finished.ok())).boxed());
    }

    /// Waits for a handshake to finish: `Some(None)` if it failed. `None` while none is in progress. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Option<Encrypted>> {
        let (number, finished) = self.under_way.next().await?;
        self.give_up.remove(&number);
        Some(match finished {
            Some(Ok(stream)) => Some(stream),
            Some(Err(failure)) => {
                self.log(&failure);
                None
            }
            None => None,
        })
    }

    fn log(&mut self, Failure { peer, error }: &Failure) {
        let now = Instant::now();
        if self.warned.is_some_and(|warned| now.duration_since(warned) < WARNING_INTERVAL) {
            tracing::debug!(peer, %error, "TLS handshake failed");
        } else {
            self.warned = Some(now);
            tracing::warn!(peer, %error, "TLS handshake failed");
        }
    }
}

async fn handshake(tls: Arc<ServerTls>, stream: TcpStream, arrival: Arrival) -> Result<Encrypted, Failure> {
    let peer = stream.peer_addr().map_or_else(|error| error.to_string(), |peer| peer.to_string());
    let shaken = timeout(HANDSHAKE_TIMEOUT, accept(Arc::clone(&tls.config), stream)).await;
    match shaken.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(stream) => Ok((arrival, tls, Box::new(stream))),
        Err(error) => Err(Failure { peer, error }),
    }
}

async fn accept(tls: Arc<rustls::ServerConfig>, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
    match TlsAcceptor::from(tls).accept(stream).into_fallible().await {
        Ok(stream) => Ok(stream.into()),
        Err((error, mut stream)) => {
            // Closing a socket with unread data would reset the connection and discard the alert.
            let _ = timeout(LINGER, async {
                stream.shutdown().await?;
                let mut unread = [0; 1024];
                while stream.read(&mut unread).await? > 0 {}
                io::Result::Ok(())
            })
            .await;
            Err(error)
        }
    }
}
