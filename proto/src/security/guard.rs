use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::future::{Either, Ready, ready};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tonic::transport::server::TcpConnectInfo;
use tower_layer::Layer;

use super::certificates::CertificateScopes;
use super::quota::{Client, Quota};
use super::scope::{Holder, Need};
use super::tokens::Tokens;
use super::watched::Watched;
use crate::status::retry_after;

/// The source of a client's scopes.
#[derive(Debug, Clone, Default)]
pub(super) enum Access {
    /// Every client may call every method.
    #[default]
    Open,
    /// The bearer token of each call, whether or not the connection presented a certificate.
    Tokens(Arc<Watched<Tokens>>),
    /// The client certificate of the connection.
    Certificates(Arc<Watched<CertificateScopes>>),
}

/// The client at the other end of a connection, in the extensions of its requests.
#[derive(Debug, Clone)]
pub struct Peer {
    pub(crate) connection: TcpConnectInfo,
    /// The first DNS name of its certificate.
    pub(crate) certificate_name: Option<Arc<str>>,
}

/// Checks the token or certificate, the scopes and the quota of every call before it reaches its service. A stream is
/// one call, checked when it opens.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    access: Access,
    quota: Option<Arc<Quota>>,
}

impl Guard {
    pub(super) fn new(access: Access, quota: Option<Quota>) -> Self {
        Self { access, quota: quota.map(Arc::new) }
    }

    /// The client that a call is from; `None` where no credentials are required.
    fn holder(&self, headers: &HeaderMap, certificate: Option<&str>) -> Option<Result<Arc<Holder>, Status>> {
        match &self.access {
            Access::Open => None,
            Access::Tokens(tokens) => Some(tokens.current().holder(headers)),
            Access::Certificates(scopes) => Some(Ok(scopes.current().holder(certificate))),
        }
    }

    fn check(&self, path: &str, headers: &HeaderMap, peer: Option<&Peer>, now: Instant) -> Result<(), Status> {
        let holder = self.holder(headers, peer.and_then(|peer| peer.certificate_name.as_deref()));
        if let Some(quota) = &self.quota {
            let client = match &holder {
                Some(Ok(holder)) => Client::Holder(Arc::clone(&holder.name)),
                // Calls with unknown tokens are counted too.
                Some(Err(_)) | None => Client::Address(peer.and_then(Peer::ip)),
            };
            quota.count(client, now).map_err(over_quota)?;
        }
        let (Some(holder), need) = (holder, Need::of(path)) else { return Ok(()) };
        if need == Need::Nothing {
            return Ok(());
        }
        let holder = holder?;
        match need.missing(&holder.scopes) {
            None => Ok(()),
            Some(scope) => Err(Status::permission_denied(format!("{path} needs the scope {scope}; {holder}"))),
        }
    }
}

impl Peer {
    fn ip(&self) -> Option<IpAddr> {
        self.connection.remote_addr().map(|address| address.ip())
    }
}

fn over_quota(wait: Duration) -> Status {
    let message = "more calls per second than security.requests_per_second_max allows one client";
    retry_after(Status::resource_exhausted(message), wait)
}

impl<S> Layer<S> for Guard {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded { guard: self.clone(), inner }
    }
}

/// Services behind a [`Guard`].
#[derive(Debug, Clone)]
pub struct Guarded<S> {
    guard: Guard,
    inner: S,
}

impl<S> Service<Request<Body>> for Guarded<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Either<S::Future, Ready<Result<Response<Body>, S::Error>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let peer = request.extensions().get::<Peer>().cloned();
        let path = request.uri().path();
        match self.guard.check(path, request.headers(), peer.as_ref(), Instant::now()) {
            Ok(()) => {
                // `tonic::Request::remote_addr` reads it.
                peer.map(|peer| request.extensions_mut().insert(peer.connection));
                Either::Left(self.inner.call(request))
            }
            Err(status) => {
                tracing::debug!(path, peer = ?peer.as_ref().and_then(Peer::ip), code = ?status.code(), "call rejected");
                Either::Right(ready(Ok(status.into_http())))
            }
        }
    }
}
