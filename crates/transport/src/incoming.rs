//! Accepts a server's connections: a bounded number at once, with TLS if the server has a certificate, and
//! TCP_NODELAY.
//!
//! A connection is a *newcomer* until the first call with the required credentials. Newcomers have a deadline, and a
//! separate limit on their number, so silent connections do not displace known clients.

mod handshakes;
mod lifetime;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsStream;
use tokio_util::either::Either;
use tonic::transport::server::{Connected, TcpConnectInfo};

use crate::security::{Identities, Networks, Peer, Security, ServerTls, Standing, client_name};
use crate::socket::Socket;
use handshakes::{Arrival, Handshakes};
use lifetime::{Certificate, Lifetime};

/// Delay after an error of the listener, such as a lack of file descriptors, during which other connections may close.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Number of file descriptors to reserve for uses other than open connections: files, timers, the admin port and
/// closing connections.
const DESCRIPTORS_OTHER: usize = 128;

/// A client connection. Counts towards the limits until dropped.
pub type Connection = Socket<Lifetime>;

/// Returns the connections that `listener` accepts, for tonic's `serve_with_incoming`. A connection beyond
/// `connections_max` is closed at once: the client retries with growing delays, and open connections are not affected.
/// Connections without an accepted call are closed after a time limit. Such connections are limited to half of
/// `connections_max`, and to a fixed number for each address. With TLS in `security`, a connection is returned after
/// the handshake; handshakes run concurrently and have a time limit. The stream is endless.
pub fn incoming(
    listener: TcpListener,
    connections_max: usize,
    security: Security,
) -> impl Stream<Item = io::Result<Connection>> {
    let semaphore = |permits: usize| Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)));
    warn_of_few_descriptors(connections_max);
    let state = Accepting {
        listener,
        permits: semaphore(connections_max),
        newcomers: semaphore(connections_max.div_ceil(2)),
        networks: Networks::default(),
        identities: Arc::new(Identities::new(connections_max)),
        connections_max,
        refusal: None,
        is_failing: false,
        security,
        handshakes: Handshakes::default(),
    };
    futures::stream::unfold(state, async |mut state| Some((Ok(state.next().await), state)))
}

struct Accepting {
    listener: TcpListener,
    permits: Arc<Semaphore>,
    /// Permits for connections without an accepted call.
    newcomers: Arc<Semaphore>,
    networks: Networks,
    identities: Arc<Identities>,
    connections_max: usize,
    /// The last reason for refusing a connection. Consecutive refusals for the same reason are logged once.
    refusal: Option<Refusal>,
    /// True after a failed accept.
    is_failing: bool,
    security: Security,
    handshakes: Handshakes,
}

/// The limit that a connection exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    /// The limit on the total number of connections.
    All,
    /// The limit of connections without an accepted call.
    Newcomers,
    /// The limit of connections from one address without an accepted call.
    OfOneAddress,
}

impl Accepting {
    async fn next(&mut self) -> Connection {
        loop {
            let accepted = tokio::select! {
                Some(finished) = self.handshakes.next() => {
                    if let Some((arrival, tls, stream)) = finished
                        && let Some(connection) = self.encrypted(arrival, tls, stream)
                    {
                        return connection;
                    }
                    continue;
                }
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
            let place = self.unless_refused(network.newcomer(), Refusal::OfOneAddress);
            let Some(place) = place else { continue };
            // Acknowledgements are a few bytes, and a client waits for each. An error is ignored: without TCP_NODELAY
            // they are only slower.
            let _ = stream.set_nodelay(true);
            let arrival = Arrival { network, place };
            match self.security.tls() {
                None => {
                    let peer = self.peer(&stream, None, &arrival);
                    if let Some(connection) = self.admit(Either::Left(stream), peer, arrival, None) {
                        return connection;
                    }
                }
                // A handshake takes no place among all connections, since it may never finish.
                Some(tls) if self.permits.available_permits() > 0 => self.handshakes.start(tls, stream, arrival),
                Some(_) => self.log_refusal(Refusal::All),
            }
        }
    }

    /// Admits a connection after the handshake.
    fn encrypted(
        &mut self,
        arrival: Arrival,
        tls: Arc<ServerTls>,
        stream: Box<TlsStream<TcpStream>>,
    ) -> Option<Connection> {
        let (tcp, state) = stream.get_ref();
        let chain = state.peer_certificates();
        let peer = self.peer(tcp, chain.and_then(client_name), &arrival);
        let certificate = chain.map(|chain| Certificate::accepted(chain, tls));
        self.admit(Either::Right(stream), peer, arrival, certificate)
    }

    /// Returns what is known about the client before the first call on a connection.
    fn peer(&self, stream: &TcpStream, certificate_name: Option<Arc<str>>, arrival: &Arrival) -> Peer {
        let standing = Arc::new(Standing::new(Arc::clone(&arrival.network), Arc::clone(&self.identities)));
        let connection: TcpConnectInfo = stream.connect_info();
        Peer { connection, certificate_name, standing }
    }

    /// Counts a connection towards the limits; returns `None` if a limit is reached.
    fn admit(
        &mut self,
        stream: Either<TcpStream, Box<TlsStream<TcpStream>>>,
        peer: Peer,
        arrival: Arrival,
        certificate: Option<Certificate>,
    ) -> Option<Connection> {
        let take = |from: &Arc<Semaphore>| Arc::clone(from).try_acquire_owned().ok();
        let permit = self.unless_refused(take(&self.permits), Refusal::All)?;
        let newcomer = self.unless_refused(take(&self.newcomers), Refusal::Newcomers)?;
        self.refusal = None;
        let newcomer = (arrival.place, newcomer);
        let attached = Lifetime::new(peer, permit, newcomer, self.security.clone(), certificate);
        Some(Connection { stream, attached })
    }

    fn unless_refused(&mut self, permit: Option<OwnedSemaphorePermit>, limit: Refusal) -> Option<OwnedSemaphorePermit> {
        if permit.is_none() {
            self.log_refusal(limit);
        }
        permit
    }

    /// Logs a refused connection; consecutive refusals with the same reason are logged once.
    fn log_refusal(&mut self, limit: Refusal) {
        if self.refusal.replace(limit) != Some(limit) {
            let connections_max = self.connections_max;
            tracing::warn!(connections_max, ?limit, "rejecting connections; limit reached");
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

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.attached.peer.clone()
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
