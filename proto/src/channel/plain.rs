//! Connections without TLS. tonic's own connect timeout leaves out name resolution, which may take longest of all while
//! a network is cut off; that of this connector includes it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tonic::codegen::Service;
use tonic::transport::Uri;

/// Opens the connections of one channel; the caller bounds the time.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    dial: (Arc<str>, u16),
}

impl Connector {
    pub(super) fn new(dial: (Arc<str>, u16)) -> Self {
        Self { dial }
    }

    async fn connect(self) -> io::Result<TokioIo<TcpStream>> {
        let (host, port) = &self.dial;
        let stream = TcpStream::connect((&**host, *port)).await?;
        // Without TCP_NODELAY responses are slower, not wrong.
        let _ = stream.set_nodelay(true);
        Ok(TokioIo::new(stream))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<TcpStream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().connect())
    }
}
