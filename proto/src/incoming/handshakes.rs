use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::{AbortHandle, BoxFuture, abortable};
use futures::stream::{FuturesUnordered, StreamExt as _};
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Handshakes that are under way at once. A client that means it needs a few round trips; beyond the limit the one that
/// began first is given up, which is one of those that never end.
const HANDSHAKES_MAX: usize = if cfg!(test) { 8 } else { 512 };

/// A client that is not done with its handshake within that is given up.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// What a client sends on after it was refused is read this long, so that it can read why.
const LINGER: Duration = Duration::from_secs(1);

/// Between two warnings about clients that fail: anybody can cause them.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// The TLS handshakes of connections that are not served yet.
///
/// They run where connections are accepted, one beside another, and end when that does: nothing is spawned.
#[derive(Default)]
pub(super) struct Handshakes {
    under_way: FuturesUnordered<BoxFuture<'static, Finished>>,
    /// By the order in which they began.
    give_up: BTreeMap<u64, AbortHandle>,
    begun: u64,
    warned: Option<Instant>,
}

/// The number of a handshake and what became of it; nothing where it was given up for others.
type Finished = (u64, Option<Result<Box<TlsStream<TcpStream>>, Failure>>);

struct Failure {
    peer: String,
    error: io::Error,
}

impl Handshakes {
    pub(super) fn begin(&mut self, tls: Arc<ServerConfig>, stream: TcpStream) {
        if self.give_up.len() >= HANDSHAKES_MAX
            && let Some((_, oldest)) = self.give_up.pop_first()
        {
            oldest.abort();
        }
        let number = self.begun;
        self.begun += 1;
        let (handshake, give_up) = abortable(handshake(tls, stream));
        self.give_up.insert(number, give_up);
        self.under_way.push(handshake.map(move |finished| (number, finished.ok())).boxed());
    }

    /// Waits for one to end: with an encrypted stream, or without. `None` while none is under way. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Option<Box<TlsStream<TcpStream>>>> {
        let (number, finished) = self.under_way.next().await?;
        self.give_up.remove(&number);
        Some(match finished {
            Some(Ok(stream)) => Some(stream),
            Some(Err(failure)) => {
                self.tell(&failure);
                None
            }
            None => None,
        })
    }

    fn tell(&mut self, Failure { peer, error }: &Failure) {
        let now = Instant::now();
        if self.warned.is_some_and(|warned| now.duration_since(warned) < WARNING_INTERVAL) {
            tracing::debug!(peer, %error, "a TLS handshake failed");
        } else {
            self.warned = Some(now);
            tracing::warn!(peer, %error, "a TLS handshake failed");
        }
    }
}

async fn handshake(tls: Arc<ServerConfig>, stream: TcpStream) -> Result<Box<TlsStream<TcpStream>>, Failure> {
    let peer = stream.peer_addr().map_or_else(|error| error.to_string(), |peer| peer.to_string());
    let shaken = timeout(HANDSHAKE_TIMEOUT, accept(tls, stream)).await;
    match shaken.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => Err(Failure { peer, error }),
    }
}

async fn accept(tls: Arc<ServerConfig>, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
    match TlsAcceptor::from(tls).accept(stream).into_fallible().await {
        Ok(stream) => Ok(stream),
        Err((error, mut stream)) => {
            // Closing over what was not read would reset the connection, and take the alert that says why with it.
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
