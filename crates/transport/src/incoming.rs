//! Accepts a server's connections: a bounded number at once, with TLS if the server has a certificate, and
//! TCP_NODELAY.
//!
//! A connection is a *newcomer* until the first call with the required credentials. Newcomers have a deadline and
//! separate places, so silent connections do not displace known clients. When the places are taken, the oldest silent
//! newcomer makes room.

mod handshakes;
mod lifetime;
mod newcomers;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::Stream;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsStream;
use tokio_util::either::Either;
use tonic::transport::server::{Connected, TcpConnectInfo};

use crate::security::{Identities, Networks, Peer, Security, ServerTls, Standing, client_name};
use crate::socket::Socket;
use handshakes::{Arrival, Handshakes};
use lifetime::{Certificate, Lifetime};
use newcomers::Newcomers;

/// Delay after an error of the listener, such as a lack of file descriptors, during which other connections may close.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Number of file descriptors to reserve for uses other than open connections: files, timers, the admin port and
/// closing connections.
const DESCRIPTORS_OTHER: usize = 128;

/// A client connection. Counts towards the limits until dropped.
pub type Connection = Socket<Lifetime>;

/// Returns the connections that `listener` accepts, for tonic's `serve_with_incoming`. A connection beyond
/// `connections_max` is closed at once: the client retries with growing delays, and open connections are not affected.
/// Connections without an accepted call are closed after a time limit, and earlier if more of them arrive than half of
/// `connections_max` or a fixed number. With TLS in `security`, a connection is returned after the handshake;
/// handshakes run concurrently and have a time limit. The stream is endless.
pub fn incoming(
    listener: TcpListener,
    connections_max: usize,
    security: Security,
) -> impl Stream<Item = io::Result<Connection>> {
    warn_of_few_descriptors(connections_max);
    let state = Accepting {
        listener,
        newcomers: Newcomers::new(connections_max),
        networks: Networks::default(),
        identities: Arc::new(Identities::new(connections_max)),
        connections_max,
        is_refusing: false,
        is_failing: false,
        security,
        handshakes: Handshakes::default(),
    };
    futures::stream::unfold(state, async |mut state| Some((Ok(state.next().await), state)))
}

struct Accepting {
    listener: TcpListener,
    newcomers: Newcomers,
    networks: Networks,
    identities: Arc<Identities>,
    connections_max: usize,
    /// True after a refused connection. Consecutive refusals are logged once.
    is_refusing: bool,
    /// True after a failed accept.
    is_failing: bool,
    security: Security,
    handshakes: Handshakes,
}

impl Accepting {
    async fn next(&mut self) -> Connection {
        loop {
            let accepted = tokio::select! {
                Some(finished) = self.handshakes.next() => match finished {
                    Some((arrival, tls, stream)) => return self.encrypted(arrival, tls, stream),
                    None => continue,
                },
                accepted = self.listener.accept() => accepted,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) if is_of_one_connection(&error) => continue,
                Err(error) => {
                    self.log_once(&error);
                    tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
                    continue;
                }
            };
            self.is_failing = false;
            let network = self.networks.of(address.ip());
            let Some(newcomer) = self.newcomers.place(&network, Instant::now()) else {
                self.log_refusal();
                continue;
            };
            self.is_refusing = false;
            // Acknowledgements are a few bytes, and a client waits for each. An error is ignored: without TCP_NODELAY
            // they are only slower.
            let _ = stream.set_nodelay(true);
            let arrival = Arrival { network, newcomer };
            match self.security.tls() {
                None => {
                    let peer = self.peer(&stream, None, &arrival);
                    let attached = Lifetime::new(peer, arrival.newcomer, self.security.clone(), None);
                    return Connection { stream: Either::Left(stream), attached };
                }
                Some(tls) => self.handshakes.start(tls, stream, arrival),
            }
        }
    }

    /// Returns a connection after the handshake.
    fn encrypted(&self, arrival: Arrival, tls: Arc<ServerTls>, stream: Box<TlsStream<TcpStream>>) -> Connection {
        let (tcp, state) = stream.get_ref();
        let chain = state.peer_certificates();
        let peer = self.peer(tcp, chain.and_then(client_name), &arrival);
        let certificate = chain.map(|chain| Certificate::accepted(chain, tls));
        arrival.newcomer.has_certificate.store(certificate.is_some(), Ordering::Relaxed);
        let attached = Lifetime::new(peer, arrival.newcomer, self.security.clone(), certificate);
        Connection { stream: Either::Right(stream), attached }
    }

    /// Returns what is known about the client before the first call on a connection.
    fn peer(&self, stream: &TcpStream, certificate_name: Option<Arc<str>>, arrival: &Arrival) -> Peer {
        let standing = Arc::new(Standing::new(Arc::clone(&arrival.network), Arc::clone(&self.identities)));
        let connection: TcpConnectInfo = stream.connect_info();
        Peer { connection, certificate_name, standing }
    }

    /// Logs a refused connection; consecutive refusals are logged once.
    fn log_refusal(&mut self) {
        if !std::mem::replace(&mut self.is_refusing, true) {
            tracing::warn!(connections_max = self.connections_max, "rejecting connections; limit reached");
        }
    }

    /// Logs an error of the listener, and only the first of consecutive errors.
    fn log_once(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.is_failing, true) {
            let remedy = service::descriptors::exhausted(error).unwrap_or_default();
            tracing::error!(%error, remedy, "cannot accept connections; retrying");
        }
    }
}

/// Warns at start if file descriptors will run out before `connections_max` is reached.
fn warn_of_few_descriptors(connections_max: usize) {
    let wanted = connections_max.saturating_add(DESCRIPTORS_OTHER);
    if let Some(descriptors_max) = service::descriptors::limit().filter(|&limit| limit < wanted as u64) {
        tracing::warn!(
            descriptors_max,
            connections_max,
            "fewer file descriptors than allowed connections; raise RLIMIT_NOFILE"
        );
    }
}

/// Returns true for an error of a single connection, which the client closed before it was accepted.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

impl Connection {
    /// Returns the client of the connection.
    pub fn peer(&self) -> &Peer {
        &self.attached.peer
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer().clone()
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
    async fn a_connection_over_the_limit_of_known_clients_is_closed_and_one_after_another_has_ended_is_served() {
        let (mut connections, address) = listen(1).await;
        let mut first = TcpStream::connect(address).await.unwrap();
        let mut served = connections.next().await.unwrap().unwrap();
        let Either::Left(stream) = &served.stream else { panic!("a connection without TLS is plain") };
        assert!(stream.nodelay().unwrap());
        served.attached.peer.standing.admit_anyone();
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

    #[tokio::test]
    async fn the_oldest_silent_connection_is_closed_to_make_room() {
        let (mut connections, address) = listen(2).await;
        let silent = TcpStream::connect(address).await.unwrap();
        let mut first = connections.next().await.unwrap().unwrap();
        let mut later = TcpStream::connect(address).await.unwrap();
        let mut second = connections.next().await.unwrap().unwrap();
        let error = first.read(&mut [0]).await.unwrap_err();
        assert_eq!(error.to_string(), "closed to make room for another connection");
        later.write_all(b"here").await.unwrap();
        second.read_exact(&mut [0; 4]).await.unwrap();
        drop(silent);
    }
}
