//! Opens the connections of a channel. Unlike tonic's connectors, this one also bounds the time of name resolution,
//! often the longest step while the network is down. It reads changed certificates again, can connect to one address
//! of a name, and keeps the reason for a rejected certificate.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use rustls::{AlertDescription, Error as TlsError};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::either::Either;
use tonic::Status;
use tonic::codegen::Service;
use tonic::transport::Uri;

use super::Error;
use super::endpoint::Target;
use crate::security::{Credentials, certificate_fault};
use crate::socket::{Attached, Socket};

/// The reason why one side rejected the certificate of the other side; tonic's errors do not carry the reason to the
/// call. Also attached to each connection, since with TLS 1.3 the alert arrives in place of the first response.
#[derive(Debug, Clone)]
pub(super) struct Rejection {
    endpoint: Arc<str>,
    reason: Arc<Mutex<Option<String>>>,
}

impl Rejection {
    /// Creates an empty reason for connections to `endpoint`.
    pub(super) fn new(endpoint: &str) -> Self {
        Self { endpoint: endpoint.into(), reason: Arc::default() }
    }

    fn set(&self, reason: Option<String>) {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    /// Turns the error of a call without a connection into `UNAUTHENTICATED` with the reason, if a rejection caused it.
    pub(super) fn explain(&self, error: tonic::transport::Error) -> Error {
        match self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            Some(reason) => Box::new(Status::unauthenticated(reason)),
            None => Box::new(error),
        }
    }
}

impl Attached for Rejection {
    fn has_read(&self, read: &io::Result<()>) {
        if let Some(reason) = read.as_ref().err().and_then(|error| rejected(&self.endpoint, error)) {
            self.set(Some(reason));
        }
    }
}

/// Opens the connections of one channel. The caller sets the time limit.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    target: Arc<Target>,
    credentials: Credentials,
    rejection: Rejection,
}

impl Connector {
    pub(super) fn new(target: Target, credentials: Credentials, rejection: Rejection) -> Self {
        Self { target: Arc::new(target), credentials, rejection }
    }

    async fn connect(self) -> io::Result<TokioIo<Socket<Rejection>>> {
        let Self { target, credentials, rejection } = self;
        rejection.set(None);
        let reject = |reason: String| {
            rejection.set(Some(reason.clone()));
            io::Error::other(reason)
        };
        let tls = match &target.tls_server {
            None => None,
            Some(server) => {
                Some((server.clone(), credentials.tls().ok_or_else(|| reject(no_authorities(&rejection)))?))
            }
        };
        let (host, port) = &target.dial;
        let stream = TcpStream::connect((&**host, *port)).await?;
        // An error is ignored: without TCP_NODELAY responses are only slower.
        let _ = stream.set_nodelay(true);
        let stream = match tls {
            None => Either::Left(stream),
            Some((server, config)) => match TlsConnector::from(config).connect(server, stream).await {
                Ok(stream) => Either::Right(Box::new(stream.into())),
                Err(error) => return Err(rejected(&rejection.endpoint, &error).map_or(error, reject)),
            },
        };
        Ok(TokioIo::new(Socket { stream, attached: rejection }))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Socket<Rejection>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().connect())
    }
}

fn no_authorities(Rejection { endpoint, .. }: &Rejection) -> String {
    format!("{endpoint}: security.ca (CA certificates of the servers) is not set")
}

/// Describes a rejected certificate for an operator; `None` for any other fault.
fn rejected(endpoint: &str, error: &io::Error) -> Option<String> {
    let because = match error.get_ref()?.downcast_ref::<TlsError>()? {
        TlsError::InvalidCertificate(fault) => {
            format!("server certificate rejected: {}", certificate_fault(fault, "security.ca"))
        }
        // Sent by a server with `client_ca`.
        TlsError::AlertReceived(AlertDescription::CertificateRequired) => {
            "client certificate required; set security.client_certificate and security.client_key".to_owned()
        }
        TlsError::AlertReceived(AlertDescription::CertificateExpired) => {
            "the server rejected the client certificate: expired".to_owned()
        }
        TlsError::AlertReceived(
            alert @ (AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError),
        ) => format!("the server rejected the client certificate ({alert:?}); the log of the server has the reason"),
        TlsError::InvalidMessage(_) => "the server does not speak TLS; is it an http endpoint?".to_owned(),
        _ => return None,
    };
    Some(format!("{endpoint}: {because}"))
}
