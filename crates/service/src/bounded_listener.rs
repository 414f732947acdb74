//! Bounds the connections of the admin port in number and time, so that they take neither descriptors nor memory from
//! the data path.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Sleep, sleep};
use tokio_util::sync::{CancellationToken, DropGuard, WaitForCancellationFutureOwned};

/// Maximum open connections; probes and scrapers need only a few. Another connection displaces the oldest, which
/// neither sends nor reads.
const CONNECTIONS_MAX: usize = 64;

/// Wait after an error of the listener, such as a lack of file descriptors.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// A listener with bounded connections.
pub(crate) struct BoundedListener {
    listener: TcpListener,
    /// Per connection, oldest first: a token that closes it, and a token that shows that it has closed.
    open: VecDeque<(CancellationToken, CancellationToken)>,
    time_limit: Duration,
}

impl BoundedListener {
    /// Creates a listener that closes each connection after `time_limit`.
    pub(crate) fn new(listener: TcpListener, time_limit: Duration) -> Self {
        Self { listener, open: VecDeque::new(), time_limit }
    }

    fn admit(&mut self, stream: TcpStream) -> Connection {
        self.open.retain(|(_, ended)| !ended.is_cancelled());
        while self.open.len() >= CONNECTIONS_MAX
            && let Some((end, _)) = self.open.pop_front()
        {
            end.cancel();
        }
        let (end, ended) = (CancellationToken::new(), CancellationToken::new());
        self.open.push_back((end.clone(), ended.clone()));
        let timer = Box::pin(sleep(self.time_limit));
        Connection { stream, timer, displaced: Box::pin(end.cancelled_owned()), _ended: ended.drop_guard() }
    }
}

impl Listener for BoundedListener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => return (self.admit(stream), address),
                Err(error) => {
                    tracing::debug!(%error, "the admin port cannot accept a connection; retrying");
                    sleep(ACCEPT_RETRY_INTERVAL).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that fails at the time limit, or when a later connection displaces it.
pub(crate) struct Connection {
    stream: TcpStream,
    timer: Pin<Box<Sleep>>,
    displaced: Pin<Box<WaitForCancellationFutureOwned>>,
    _ended: DropGuard,
}

impl Connection {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Option<io::Error> {
        let is_over = self.timer.as_mut().poll(cx).is_ready() || self.displaced.as_mut().poll(cx).is_ready();
        is_over.then(|| io::ErrorKind::TimedOut.into())
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.poll_end(cx) {
            Some(error) => Poll::Ready(Err(error)),
            None => Pin::new(&mut self.stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.poll_end(cx) {
            Some(error) => Poll::Ready(Err(error)),
            None => Pin::new(&mut self.stream).poll_write(cx, bytes),
        }
    }

    // A response that waits for its next part neither reads nor writes, but flushes.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.poll_end(cx) {
            Some(error) => Poll::Ready(Err(error)),
            None => Pin::new(&mut self.stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::{Body, Bytes};
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::task::JoinSet;
    use tokio::time::timeout;

    use super::*;

    async fn serve(time_limit: Duration) -> (SocketAddr, JoinSet<io::Result<()>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut task = JoinSet::new();
        let router = Router::new().route("/", get(async || "ok")).route("/endless", get(endless));
        let listener = BoundedListener::new(listener, time_limit);
        task.spawn(async move { axum::serve(listener, router).await });
        (address, task)
    }

    /// A response whose body never comes.
    async fn endless() -> Body {
        Body::from_stream(tokio_stream::pending::<io::Result<Bytes>>())
    }

    /// Reads until the server closes the connection.
    async fn rest(stream: &mut TcpStream) -> Vec<u8> {
        let mut bytes = Vec::new();
        // The connection is closed or reset.
        let _ = timeout(Duration::from_secs(30), stream.read_to_end(&mut bytes)).await.expect("it is closed");
        bytes
    }

    #[tokio::test]
    async fn a_connection_that_asks_nothing_is_closed_at_its_time_limit() {
        let (address, _task) = serve(Duration::from_millis(50)).await;
        for sent in [&b""[..], b"GET / HT"] {
            let mut silent = TcpStream::connect(address).await.unwrap();
            silent.write_all(sent).await.unwrap();
            assert_eq!(rest(&mut silent).await, b"");
        }
    }

    #[tokio::test]
    async fn a_connection_with_an_idle_response_is_closed_at_its_time_limit() {
        let (address, _task) = serve(Duration::from_millis(50)).await;
        // After further bytes, the server does not read until the response is complete.
        for more in ["", "x"] {
            let mut listening = TcpStream::connect(address).await.unwrap();
            let request = format!("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n{more}");
            listening.write_all(request.as_bytes()).await.unwrap();
            rest(&mut listening).await;
        }
    }

    #[tokio::test]
    async fn any_number_of_silent_connections_leaves_room_for_a_probe_and_ends_the_oldest() {
        let (address, _task) = serve(Duration::from_secs(3600)).await;
        let mut silent = Vec::new();
        for _ in 0..2 * CONNECTIONS_MAX {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let mut probe = TcpStream::connect(address).await.unwrap();
        probe.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
        assert!(rest(&mut probe).await.starts_with(b"HTTP/1.1 200"));
        for oldest in &mut silent[..CONNECTIONS_MAX] {
            assert_eq!(rest(oldest).await, b"");
        }
    }
}
