//! The connections that a server takes: so many at once, without delay for small messages.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::transport::server::{Connected, TcpConnectInfo};

#[cfg(test)]
mod tests;

/// After an error that is not one connection's, such as no file descriptor left: others may end meanwhile.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// A connection of a client; it counts until it is dropped.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    _permit: OwnedSemaphorePermit,
}

/// The connections that come to `listener`, for tonic's `serve_with_incoming`. One that comes while `connections_max` others
/// are open is closed at once: its client tries again with growing delays, and those that are served stay so. Never ends.
pub fn incoming(listener: TcpListener, connections_max: usize) -> impl Stream<Item = io::Result<Connection>> {
    let permits = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
    let state = Accepting { listener, permits, connections_max, is_full: false };
    futures::stream::unfold(state, async |mut state| Some((Ok(state.accept().await), state)))
}

struct Accepting {
    listener: TcpListener,
    permits: Arc<Semaphore>,
    connections_max: usize,
    /// Whether the last one found no room: a flood is told once.
    is_full: bool,
}

impl Accepting {
    async fn accept(&mut self) -> Connection {
        loop {
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) if is_of_one_connection(&error) => continue,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connections; trying again");
                    tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
                    continue;
                }
            };
            let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
                if !std::mem::replace(&mut self.is_full, true) {
                    let connections_max = self.connections_max;
                    tracing::warn!(connections_max, "connections are refused: as many are open as are allowed");
                }
                continue;
            };
            self.is_full = false;
            // An acknowledgement is a few bytes, and somebody waits for it. Without the option it comes later, not never.
            let _ = stream.set_nodelay(true);
            return Connection { stream, _permit: permit };
        }
    }
}

/// The client has gone before it was accepted.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
