//! Connections without TLS, made by us and not by tonic: its time to connect does not count looking up a name, which may take
//! longer than everything else while a network is cut off.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tonic::codegen::Service;
use tonic::transport::Uri;

/// Makes the connections of one channel; whoever uses it bounds how long that may take.
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
        // Without the option an answer comes later, not never.
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
