//! Accepts the connections of browsers, bounded in number, in bytes and in time.
//!
//! `transport` accepts them as it does for gRPC: with TLS, a deadline for the first accepted request, and a maximum
//! number. A connection serves one request. It may send few bytes, and must keep reading the response.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::time::{Instant, Sleep, sleep};
use tokio_stream::{Stream, StreamExt as _};
use transport::Connection;
use transport::security::{Peer, Security};

/// Maximum number of open connections: the streams of all tabs, and many requests.
const CONNECTIONS_MAX: usize = 256;
/// Largest request in bytes: a game record with headers. The other limits of bodies are smaller.
const REQUEST_BYTES_MAX: usize = 320 << 10;
/// Least number of bytes that a client reads per [`READ_TIME`] while a response waits. A client that reads less would
/// hold the place of an event stream or a download.
const READ_BYTES_MIN: usize = 64 << 10;
const READ_TIME: Duration = Duration::from_secs(20);

/// The connections that a listener accepts.
pub(crate) struct Connections {
    accepted: Pin<Box<dyn Stream<Item = io::Result<Connection>> + Send>>,
    address: SocketAddr,
}

impl Connections {
    pub(crate) fn new(listener: TcpListener, address: SocketAddr, security: Security) -> Self {
        Self { accepted: Box::pin(transport::incoming(listener, CONNECTIONS_MAX, security)), address }
    }
}

impl Listener for Connections {
    type Io = Bounded<Connection>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            if let Some(Ok(connection)) = self.accepted.next().await {
                return (Bounded::new(connection), self.address);
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

/// The client of a request.
#[derive(Debug, Clone)]
pub(crate) struct Client(pub(crate) Peer);

impl Connected<IncomingStream<'_, Connections>> for Client {
    fn connect_info(stream: IncomingStream<'_, Connections>) -> Self {
        Self(stream.io().inner.peer().clone())
    }
}

/// A connection that fails after too many bytes from the client, or when the client reads too slowly.
pub(crate) struct Bounded<C> {
    inner: C,
    /// Number of bytes that the client may still send.
    left: usize,
    /// Number of bytes written since the timer was set; `None` while no response waits.
    written: Option<usize>,
    timer: Pin<Box<Sleep>>,
}

impl<C> Bounded<C> {
    fn new(inner: C) -> Self {
        Self { inner, left: REQUEST_BYTES_MAX, written: None, timer: Box::pin(sleep(READ_TIME)) }
    }

    /// Limits the time for which writes are pending with little progress.
    fn limited<T>(&mut self, polled: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            return polled;
        }
        while self.written.is_none() || self.timer.as_mut().poll(cx).is_ready() {
            if self.written.is_some_and(|written| written < READ_BYTES_MIN) {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.written = Some(0);
            self.timer.as_mut().reset(Instant::now() + READ_TIME);
        }
        Poll::Pending
    }
}

impl<C: AsyncRead + Unpin> AsyncRead for Bounded<C> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buffer);
        let left = self.left.checked_sub(buffer.filled().len() - before);
        self.left = left.unwrap_or_default();
        if left.is_some() { read } else { Poll::Ready(Err(io::Error::other("the request is too large"))) }
    }
}

impl<C: AsyncWrite + Unpin> AsyncWrite for Bounded<C> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, bytes);
        if let (Poll::Ready(Ok(count)), Some(written)) = (&polled, &mut self.written) {
            *written += count;
        }
        self.limited(polled, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        // A flush follows when the server has written all that waits.
        if flushed.is_ready() {
            self.written = None;
        }
        self.limited(flushed, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.limited(shut, cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_hardly_reads_is_disconnected_and_a_slow_one_is_not() {
        let (mut client, server) = duplex(READ_BYTES_MIN / 2);
        let mut server = Bounded::new(server);
        let response = vec![7; 16 * READ_BYTES_MIN];
        let writing = tokio::spawn(async move { server.write_all(&response).await.map_err(|error| error.kind()) });
        for _ in 0..8 {
            sleep(READ_TIME / 4).await;
            client.read_exact(&mut vec![0; READ_BYTES_MIN / 2]).await.unwrap();
        }
        assert!(!writing.is_finished());
        for _ in 0..8 {
            sleep(READ_TIME / 4).await;
            client.read_exact(&mut [0; 4]).await.unwrap();
        }
        assert_eq!(writing.await.unwrap(), Err(io::ErrorKind::TimedOut));
    }

    #[tokio::test]
    async fn a_client_that_sends_too_much_is_disconnected() {
        let (mut client, server) = duplex(2 * REQUEST_BYTES_MAX);
        let mut server = Bounded::new(server);
        client.write_all(&[7; REQUEST_BYTES_MAX]).await.unwrap();
        server.read_exact(&mut vec![0; REQUEST_BYTES_MAX]).await.unwrap();
        client.write_all(b"more").await.unwrap();
        assert_eq!(server.read(&mut [0; 4]).await.unwrap_err().to_string(), "the request is too large");
    }
}
