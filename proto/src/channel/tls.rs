//! Connections with TLS, made by us and not by tonic: certificates are read again when they change, one address of a name can
//! be dialled, and a refusal keeps its reason.

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

/// Why one side did not take the other for what it says it is: the error that a call sees does not carry it that far.
#[derive(Debug, Clone, Default)]
pub(super) struct Refusal(Arc<Mutex<Option<String>>>);

impl Refusal {
    fn set(&self, reason: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    /// The error of a call that there was no connection for, as the refusal that caused it, if one did.
    pub(super) fn explain(&self, error: tonic::transport::Error) -> Error {
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            Some(reason) => Box::new(Status::unauthenticated(reason)),
            None => Box::new(error),
        }
    }
}

/// Makes the connections of one channel.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    endpoint: Arc<str>,
    credentials: Credentials,
    server: ServerName<'static>,
    dial: (Arc<str>, u16),
    refusal: Refusal,
}

impl Connector {
    pub(super) fn new(
        endpoint: &str,
        credentials: Credentials,
        server: ServerName<'static>,
        dial: (Arc<str>, u16),
        refusal: Refusal,
    ) -> Self {
        Self { endpoint: endpoint.into(), credentials, server, dial, refusal }
    }

    async fn connect(self) -> io::Result<Connection> {
        self.refusal.set(None);
        let Some(config) = self.credentials.tls() else {
            let reason =
                format!("{} is not connected to: security.ca, which says whom to trust, is not set", self.endpoint);
            return Err(self.refuse(reason));
        };
        let (host, port) = &self.dial;
        let stream = TcpStream::connect((&**host, *port)).await?;
        // Without the option an answer comes later, not never.
        let _ = stream.set_nodelay(true);
        match TlsConnector::from(config).connect(self.server.clone(), stream).await {
            Ok(stream) => Ok(Connection { stream, endpoint: self.endpoint, refusal: self.refusal }),
            Err(error) => Err(match tls_error(&error).and_then(|fault| refused(&self.endpoint, fault)) {
                Some(reason) => self.refuse(reason),
                None => error,
            }),
        }
    }

    fn refuse(&self, reason: String) -> io::Error {
        self.refusal.set(Some(reason.clone()));
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

/// What a person must look after, in words; `None` for faults that are no refusal of a certificate.
fn refused(endpoint: &str, fault: &TlsError) -> Option<String> {
    let because = match fault {
        TlsError::InvalidCertificate(fault) => format!("its certificate is refused: {}", certificate_fault(fault)),
        // What a server says that wants to know who comes.
        TlsError::AlertReceived(AlertDescription::CertificateRequired) => {
            "it asks for a certificate of this client: set security.client_certificate and security.client_key"
                .to_owned()
        }
        TlsError::AlertReceived(AlertDescription::CertificateExpired) => {
            "it refuses the certificate of this client: expired".to_owned()
        }
        TlsError::AlertReceived(
            alert @ (AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError),
        ) => format!("it refuses the certificate of this client ({alert:?})"),
        TlsError::InvalidMessage(_) => "it does not answer with TLS; is it an http endpoint?".to_owned(),
        _ => return None,
    };
    Some(format!("{endpoint}: {because}"))
}

fn certificate_fault(fault: &CertificateError) -> String {
    match fault {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired".to_owned(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "it is not valid yet".to_owned(),
        // The second: of an authority with the name of one that is trusted.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "nobody in security.ca has signed it".to_owned()
        }
        other => other.to_string(),
    }
}

/// A connection that remembers why the server refused it: with TLS 1.3 a client hears that in the place of the first answer.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TlsStream<TcpStream>,
    endpoint: Arc<str>,
    refusal: Refusal,
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if let Poll::Ready(Err(error)) = &read
            && let Some(reason) = tls_error(error).and_then(|fault| refused(&self.endpoint, fault))
        {
            self.refusal.set(Some(reason));
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
