//! Connections with TLS. Unlike tonic's, this connector reads certificates again when they change, can connect to one
//! address of a name, and keeps the reason of a rejected certificate.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, Error as TlsError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::Status;
use tonic::codegen::Service;
use tonic::transport::Uri;

use super::Error;
use crate::security::Credentials;

/// The reason for which one side rejected the other's certificate; tonic's error drops it on the way to the call.
#[derive(Debug, Clone, Default)]
pub(super) struct Rejection(Arc<Mutex<Option<String>>>);

impl Rejection {
    fn set(&self, reason: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    /// Turns the error of a call without a connection into `UNAUTHENTICATED` with the reason, if a rejection caused it.
    pub(super) fn explain(&self, error: tonic::transport::Error) -> Error {
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            Some(reason) => Box::new(Status::unauthenticated(reason)),
            None => Box::new(error),
        }
    }
}

/// Opens the connections of one channel.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    endpoint: Arc<str>,
    credentials: Credentials,
    server: ServerName<'static>,
    dial: (Arc<str>, u16),
    rejection: Rejection,
}

impl Connector {
    pub(super) fn new(
        endpoint: &str,
        credentials: Credentials,
        server: ServerName<'static>,
        dial: (Arc<str>, u16),
        rejection: Rejection,
    ) -> Self {
        Self { endpoint: endpoint.into(), credentials, server, dial, rejection }
    }

    async fn connect(self) -> io::Result<Connection> {
        self.rejection.set(None);
        let Some(config) = self.credentials.tls() else {
            let reason =
                format!("{}: security.ca, the authorities that sign server certificates, is not set", self.endpoint);
            return Err(self.reject(reason));
        };
        let (host, port) = &self.dial;
        let stream = TcpStream::connect((&**host, *port)).await?;
        // Without TCP_NODELAY responses are slower, not wrong.
        let _ = stream.set_nodelay(true);
        match TlsConnector::from(config).connect(self.server.clone(), stream).await {
            Ok(stream) => Ok(Connection { stream, endpoint: self.endpoint, rejection: self.rejection }),
            Err(error) => Err(match tls_error(&error).and_then(|fault| rejected(&self.endpoint, fault)) {
                Some(reason) => self.reject(reason),
                None => error,
            }),
        }
    }

    fn reject(&self, reason: String) -> io::Error {
        self.rejection.set(Some(reason.clone()));
        io::Error::other(reason)
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Connection>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Connection>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let connecting = self.clone().connect();
        Box::pin(async move { connecting.await.map(TokioIo::new) })
    }
}

fn tls_error(error: &io::Error) -> Option<&TlsError> {
    error.get_ref()?.downcast_ref()
}

/// Describes a rejected certificate for an operator; `None` for other faults.
fn rejected(endpoint: &str, fault: &TlsError) -> Option<String> {
    let because = match fault {
        TlsError::InvalidCertificate(fault) => format!("its certificate is rejected: {}", certificate_fault(fault)),
        // Sent by a server with `client_ca`.
        TlsError::AlertReceived(AlertDescription::CertificateRequired) => {
            "it requires a client certificate: set security.client_certificate and security.client_key".to_owned()
        }
        TlsError::AlertReceived(AlertDescription::CertificateExpired) => {
            "it rejects the certificate of this client: expired".to_owned()
        }
        TlsError::AlertReceived(
            alert @ (AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError),
        ) => format!("it rejects the certificate of this client ({alert:?})"),
        TlsError::InvalidMessage(_) => "it does not answer with TLS; is it an http endpoint?".to_owned(),
        _ => return None,
    };
    Some(format!("{endpoint}: {because}"))
}

fn certificate_fault(fault: &CertificateError) -> String {
    match fault {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired".to_owned(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "it is not valid yet".to_owned(),
        // `BadSignature`: the issuer has the name of a trusted authority and another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "it is not signed by an authority in security.ca".to_owned()
        }
        other => other.to_string(),
    }
}

/// A connection that records the reason for which the server rejected it: with TLS 1.3 the alert arrives in place of
/// the first response.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TlsStream<TcpStream>,
    endpoint: Arc<str>,
    rejection: Rejection,
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if let Poll::Ready(Err(error)) = &read
            && let Some(reason) = tls_error(error).and_then(|fault| rejected(&self.endpoint, fault))
        {
            self.rejection.set(Some(reason));
        }
        read
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
