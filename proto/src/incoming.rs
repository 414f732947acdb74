//! Accepts a server's connections: a bounded number at once, with TLS if the server has a certificate, and TCP_NODELAY.

mod handshakes;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::either::Either;
use tonic::transport::server::Connected;

use crate::security::{Peer, Security, client_name};
use crate::socket::Socket;
use handshakes::Handshakes;

/// The wait after an error of the listener, such as a lack of file descriptors, in which other connections may end.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// The number of file descriptors in use besides open connections: files, timers, the admin port, connections that are
/// being closed.
const DESCRIPTORS_BESIDE: usize = 64;

/// A connection of a client; it counts towards the limit until it is dropped.
pub type Connection = Socket<OwnedSemaphorePermit>;

/// Returns the connections that `listener` accepts, for tonic's `serve_with_incoming`. A connection that arrives while
/// `connections_max` others are open is closed at once: its client retries with growing delays, and the open
/// connections are not affected. With TLS in `security`, a connection is returned when its handshake is complete;
/// handshakes run concurrently and have a time limit. The stream never ends.
pub fn incoming(
    listener: TcpListener,
    connections_max: usize,
    security: Security,
) -> impl Stream<Item = io::Result<Connection>> {
    let permits = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
    let handshakes = Handshakes::default();
    warn_of_few_descriptors(connections_max);
    let state =
        Accepting { listener, permits, connections_max, is_full: false, is_failing: false, security, handshakes };
    futures::stream::unfold(state, async |mut state| Some((Ok(state.next().await), state)))
}

struct Accepting {
    listener: TcpListener,
    permits: Arc<Semaphore>,
    connections_max: usize,
    /// True if the last connection was over the limit, so that a series of them is logged once.
    is_full: bool,
    /// True if the last accept failed.
    is_failing: bool,
    security: Security,
    handshakes: Handshakes,
}

impl Accepting {
    async fn next(&mut self) -> Connection {
        loop {
            let accepted = tokio::select! {
                Some(finished) = self.handshakes.next() => {
                    if let Some(stream) = finished && let Some(permit) = self.permit() {
                        return Connection { stream: Either::Right(stream), attached: permit };
                    }
                    continue;
                }
                accepted = self.listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) if is_of_one_connection(&error) => continue,
                Err(error) => {
                    self.log_once(&error);
                    tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
                    continue;
                }
            };
            self.is_failing = false;
            // Released during the handshake, which may never end: only established connections count.
            let Some(permit) = self.permit() else { continue };
            // Acknowledgements are a few bytes, and a client waits for each. An error is ignored: without TCP_NODELAY
            // they are only slower.
            let _ = stream.set_nodelay(true);
            match self.security.tls() {
                None => return Connection { stream: Either::Left(stream), attached: permit },
                Some(tls) => self.handshakes.begin(tls, stream),
            }
        }
    }

    /// Logs an error of the listener, once for a series of them.
    fn log_once(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.is_failing, true) {
            let remedy = service::descriptors::exhausted(error).unwrap_or_default();
            tracing::error!(%error, remedy, "cannot accept connections; trying again");
        }
    }

    /// Takes a permit of `connections_max`.
    fn permit(&mut self) -> Option<OwnedSemaphorePermit> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok();
        let was_full = std::mem::replace(&mut self.is_full, permit.is_none());
        if self.is_full && !was_full {
            let connections_max = self.connections_max;
            tracing::warn!(connections_max, "rejecting connections: the limit is reached");
        }
        permit
    }
}

/// Warns at start if file descriptors will run out before `connections_max` is reached.
fn warn_of_few_descriptors(connections_max: usize) {
    let wanted = connections_max.saturating_add(DESCRIPTORS_BESIDE);
    if let Some(descriptors_max) = service::descriptors::limit().filter(|&limit| limit < wanted as u64) {
        tracing::warn!(
            descriptors_max,
            connections_max,
            "fewer file descriptors than connections allowed: raise RLIMIT_NOFILE"
        );
    }
}

/// Returns true if the error concerns one connection, which the client closed before it was accepted.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        let (tcp, certificate_name) = match &self.stream {
            Either::Left(stream) => (stream, None),
            Either::Right(stream) => {
                let (tcp, tls) = stream.get_ref();
                (tcp, tls.peer_certificates().and_then(client_name))
            }
        };
        Peer { connection: tcp.connect_info(), certificate_name }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::pin::Pin;

    use futures::StreamExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;

    async fn listen(connections_max: usize) -> (Pin<Box<dyn Stream<Item = io::Result<Connection>>>>, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (Box::pin(incoming(listener, connections_max, Security::default())), address)
    }

    #[tokio::test]
    async fn a_connection_over_the_limit_is_closed_and_one_after_another_has_ended_is_served() {
        let (mut connections, address) = listen(1).await;
        let mut first = TcpStream::connect(address).await.unwrap();
        let mut served = connections.next().await.unwrap().unwrap();
        let Either::Left(stream) = &served.stream else { panic!("a connection without TLS is plain") };
        assert!(stream.nodelay().unwrap());
        served.write_all(b"served").await.unwrap();
        let mut answer = [0; 6];
        first.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"served");

        let mut second = TcpStream::connect(address).await.unwrap();
        let refused = tokio::select! {
            _ = connections.next() => panic!("there was no room for it"),
            read = second.read(&mut answer) => read,
        };
        // The connection is closed or reset.
        assert!(matches!(refused, Ok(0) | Err(_)));

        drop(served);
        let _third = TcpStream::connect(address).await.unwrap();
        connections.next().await.unwrap().unwrap();
    }
}
