//! Wraps the connections of channels and servers, plain TCP or TLS, and ties a value to the lifetime of each.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;
use tokio_util::either::Either;

/// A connection and the value attached to it.
#[derive(Debug)]
pub struct Socket<A> {
    pub(crate) stream: Either<TcpStream, Box<TlsStream<TcpStream>>>,
    pub(crate) attached: A,
}

/// A value that is dropped with the connection.
pub(crate) trait Attached: Unpin {
    /// Receives the result of a read.
    fn has_read(&self, _read: &io::Result<()>) {}

    /// Returns ready with an error when the connection must close. Both reads and writes poll this, because HTTP/2
    /// stops reading while a response to the client cannot be written.
    fn poll_end(&mut self, _cx: &mut Context<'_>) -> Poll<io::Error> {
        Poll::Pending
    }
}

impl<A: Attached> AsyncRead for Socket<A> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        check_end(&mut self.attached, cx)?;
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if let Poll::Ready(read) = &read {
            self.attached.has_read(read);
        }
        read
    }
}

impl<A: Attached> AsyncWrite for Socket<A> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        check_end(&mut self.attached, cx)?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        check_end(&mut self.attached, cx)?;
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

fn check_end(attached: &mut impl Attached, cx: &mut Context<'_>) -> io::Result<()> {
    match attached.poll_end(cx) {
        Poll::Ready(error) => Err(error),
        Poll::Pending => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::security::tests::within;

    struct Ends;

    impl Attached for Ends {
        fn poll_end(&mut self, _: &mut Context<'_>) -> Poll<io::Error> {
            Poll::Ready(io::ErrorKind::PermissionDenied.into())
        }
    }

    #[tokio::test]
    async fn a_connection_that_must_end_neither_reads_nor_writes() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut socket = Socket { stream: Either::Left(stream), attached: Ends };
        let ended = |result: io::Result<usize>| assert_eq!(result.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        ended(within(socket.read(&mut [0])).await);
        ended(within(socket.write(&[0])).await);
        ended(within(socket.write_vectored(&[io::IoSlice::new(&[0])])).await);
    }
}
