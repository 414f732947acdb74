use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsStream};

use super::newcomers::{Newcomer, WARNING_INTERVAL};
use crate::security::{Network, ServerTls, client_fault};

/// Time limit of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Time during which the server still reads from a rejected client, so that the client receives the alert.
const LINGER: Duration = Duration::from_secs(1);

/// Runs the TLS handshakes of connections that are not served yet.
///
/// Handshakes run concurrently in the task that accepts connections and stop with it; none is spawned. The places of
/// newcomers limit the number.
#[derive(Default)]
pub(super) struct Handshakes {
    under_way: FuturesUnordered<BoxFuture<'static, Finished>>,
    warned: Option<Instant>,
}

/// Origin of a connection, and the place among the connections without an accepted call.
pub(super) struct Arrival {
    pub(super) network: Arc<Network>,
    pub(super) newcomer: Arc<Newcomer>,
}

/// A connection after the handshake, with the settings that accepted the certificate.
pub(super) type Encrypted = (Arrival, Arc<ServerTls>, Box<TlsStream<TcpStream>>);

/// Result of a handshake; `None` if the connection was closed to make room for another.
type Finished = Option<Result<Encrypted, Failure>>;

struct Failure {
    peer: String,
    error: io::Error,
}

impl Handshakes {
    pub(super) fn start(&mut self, tls: Arc<ServerTls>, stream: TcpStream, arrival: Arrival) {
        self.under_way.push(handshake(tls, stream, arrival).boxed());
    }

    /// Waits for a handshake to finish: `Some(None)` if it failed. `None` while none is in progress. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Option<Encrypted>> {
        let finished = self.under_way.next().await?;
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
        let of_tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let error = of_tls.map_or_else(|| error.to_string(), client_fault);
        if self.warned.is_some_and(|warned| now.duration_since(warned) < WARNING_INTERVAL) {
            tracing::debug!(peer, error, "TLS handshake failed");
        } else {
            self.warned = Some(now);
            tracing::warn!(peer, error, "TLS handshake failed");
        }
    }
}

async fn handshake(tls: Arc<ServerTls>, stream: TcpStream, arrival: Arrival) -> Finished {
    let peer = stream.peer_addr().map_or_else(|error| error.to_string(), |peer| peer.to_string());
    let accepted = async {
        stream.peek(&mut [0]).await?;
        arrival.newcomer.has_spoken.store(true, Ordering::Relaxed);
        accept(Arc::clone(&tls.config), stream).await
    };
    let shaken = arrival.newcomer.closed.run_until_cancelled(timeout(HANDSHAKE_TIMEOUT, accepted)).await?;
    Some(match shaken.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(stream) => Ok((arrival, tls, Box::new(stream))),
        Err(error) => Err(Failure { peer, error }),
    })
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
