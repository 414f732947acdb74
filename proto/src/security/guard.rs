use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::future::{Either, Ready, ready};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tonic::metadata::MetadataValue;
use tonic::transport::server::TcpConnectInfo;
use tower_layer::Layer;

use super::quota::{Client, Quota};
use super::scope::Need;
use super::tokens::Tokens;
use super::watched::Watched;

/// The trailer that says after how many milliseconds to try again.
const RETRY_AFTER: &str = "grpc-retry-pushback-ms";

/// Checks every call of a server before its service sees it: token, scope, quota. A stream is one call, checked when it
/// begins.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    tokens: Option<Arc<Watched<Tokens>>>,
    quota: Option<Arc<Quota>>,
}

impl Guard {
    pub(super) fn new(tokens: Option<Watched<Tokens>>, quota: Option<Quota>) -> Self {
        Self { tokens: tokens.map(Arc::new), quota: quota.map(Arc::new) }
    }

    fn check(&self, path: &str, headers: &HeaderMap, peer: Option<IpAddr>, now: Instant) -> Result<(), Status> {
        let tokens = self.tokens.as_ref().map(|tokens| tokens.current());
        let holder = tokens.as_ref().map(|tokens| tokens.holder(headers));
        if let Some(quota) = &self.quota {
            let client = match &holder {
                Some(Ok(holder)) => Client::Token(Arc::clone(&holder.name)),
                // Guessing tokens is counted too.
                Some(Err(_)) | None => Client::Address(peer),
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
            Some(scope) => Err(Status::permission_denied(format!(
                "{path} needs the scope {scope}; the token of {} has {}",
                holder.name, holder.scopes
            ))),
        }
    }
}

fn over_quota(wait: Duration) -> Status {
    let message = "more calls per second than security.requests_per_second_max allows one client";
    let mut status = Status::resource_exhausted(message);
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
    // What gRPC calls it; a client that knows no better than its own delays does no harm.
    status.metadata_mut().insert(RETRY_AFTER, MetadataValue::from(wait_ms));
    status
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

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let connection = request.extensions().get::<TcpConnectInfo>();
        let peer = connection.and_then(TcpConnectInfo::remote_addr).map(|address| address.ip());
        let path = request.uri().path();
        match self.guard.check(path, request.headers(), peer, Instant::now()) {
            Ok(()) => Either::Left(self.inner.call(request)),
            Err(status) => {
                tracing::debug!(path, ?peer, code = ?status.code(), "a call was refused");
                Either::Right(ready(Ok(status.into_http())))
            }
        }
    }
}
