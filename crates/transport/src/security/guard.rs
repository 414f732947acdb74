use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, Either, Ready, ready};
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tower_layer::Layer;

use super::caller::Caller;
use super::certificates::CertificateScopes;
use super::held_body::HeldBody;
use super::methods::Method;
use super::peer::{Peer, Standing};
use super::quota::{Client, Quota};
use super::request_body::RequestBody;
use super::scope::{Credential, Holder, Need};
use super::tokens::Tokens;
use super::watched::{Usable, Watched};
use crate::status::retry_after;

/// The source from which the scopes of a client follow.
#[derive(Debug, Clone, Default)]
pub(super) enum Access {
    /// Every client may call every method.
    #[default]
    Open,
    /// The bearer token of each call, with or without a certificate on the connection.
    Tokens(Arc<Watched<Tokens>>),
    /// The client certificate of the connection.
    Certificates(Arc<Watched<CertificateScopes>>),
}

/// Checks the token or certificate, the scopes and the quota of every call before the service. A stream is one call,
/// checked on opening.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    access: Access,
    /// The files that identify clients.
    files: Vec<Arc<Usable>>,
    quota: Option<Arc<Quota>>,
}

impl Guard {
    /// Creates a guard. `clients` are the files for verifying client certificates, if any.
    pub(super) fn new(access: Access, clients: Option<Arc<Usable>>, quota: Option<Quota>) -> Self {
        let named = match &access {
            Access::Open => None,
            Access::Tokens(tokens) => Some(tokens.usable()),
            Access::Certificates(scopes) => Some(scopes.usable()),
        };
        Self { access, files: clients.into_iter().chain(named).collect(), quota: quota.map(Arc::new) }
    }

    /// Returns the client of a call; `None` if no credentials are required.
    pub(super) fn holder(
        &self,
        headers: &HeaderMap,
        certificate: Option<&str>,
        now: Instant,
    ) -> Option<Result<Arc<Holder>, Status>> {
        if let Err(status) = self.check_files(now) {
            return Some(Err(status));
        }
        match &self.access {
            Access::Open => None,
            Access::Tokens(tokens) => Some(tokens.current().holder(headers)),
            Access::Certificates(scopes) => Some(Ok(scopes.current().holder(certificate))),
        }
    }

    fn check_files(&self, now: Instant) -> Result<(), Status> {
        self.files.iter().try_for_each(|files| files.check(now))
    }

    /// Returns true if a call of `holder` would still be accepted at `now`, with the same scopes.
    pub(super) fn accepts(&self, holder: &Holder, now: Instant) -> bool {
        if self.check_files(now).is_err() {
            return false;
        }
        match (&self.access, &holder.credential) {
            (Access::Open, _) => true,
            (Access::Tokens(tokens), Credential::Token(digest)) => {
                tokens.current().of_digest(digest).is_some_and(|now| **now == *holder)
            }
            (Access::Certificates(scopes), Credential::Certificate(name)) => {
                *scopes.current().holder(name.as_deref()) == *holder
            }
            _ => false,
        }
    }

    /// Checks a call, limits the request body, and returns the result of [`check`](Self::check).
    fn admit(
        &self,
        request: &mut Request<Body>,
        peer: Option<&Peer>,
    ) -> Result<(Caller, Option<OwnedSemaphorePermit>), Status> {
        let path = request.uri().path();
        let limits = Method::of(path).limits;
        let accepted = self.check(path, request.headers(), peer, Instant::now())?;
        if let Some(peer) = peer {
            let body = std::mem::take(request.body_mut());
            let body = RequestBody::new(body, limits, Arc::clone(&peer.standing.network))?;
            *request.body_mut() = Body::new(body);
        }
        Ok(accepted)
    }

    /// Checks a call and returns the caller. The permit counts a call on a connection without accepted credentials.
    pub(super) fn check(
        &self,
        path: &str,
        headers: &HeaderMap,
        peer: Option<&Peer>,
        now: Instant,
    ) -> Result<(Caller, Option<OwnedSemaphorePermit>), Status> {
        self.check_need(path, Method::of(path).need, headers, peer, now)
    }

    /// Checks a call of the method, or a request for the page, with the name `what`.
    pub(super) fn check_need(
        &self,
        what: &str,
        need: Need,
        headers: &HeaderMap,
        peer: Option<&Peer>,
        now: Instant,
    ) -> Result<(Caller, Option<OwnedSemaphorePermit>), Status> {
        let holder = self.holder(headers, peer.and_then(|peer| peer.certificate_name.as_deref()), now);
        if let Some(quota) = &self.quota {
            let client = match &holder {
                Some(Ok(holder)) => Client::Holder(Arc::clone(&holder.name)),
                // Calls with unknown tokens are counted too.
                Some(Err(_)) | None => Client::Address(peer.and_then(Peer::ip)),
            };
            quota.count(client, now).map_err(over_quota)?;
        }
        let standing = peer.map(|peer| &*peer.standing);
        match (&holder, standing) {
            (None, Some(standing)) => standing.admit_anyone(),
            (Some(Ok(holder)), Some(standing)) => standing.admit(holder)?,
            (Some(Err(_)), _) | (_, None) => {}
        }
        let permit = standing.filter(|standing| !standing.is_known()).map(Standing::stranger_call).transpose();
        let Some(holder) = holder else { return Ok((Caller::default(), permit?)) };
        if need == Need::Nothing {
            return Ok((Caller::new(holder.ok()), permit?));
        }
        let holder = holder?;
        match need.missing(&holder.scopes) {
            None => Ok((Caller::new(Some(holder)), permit?)),
            Some(scope) => Err(Status::permission_denied(format!("{what} needs the scope {scope}; {holder}"))),
        }
    }
}

fn over_quota(wait: Duration) -> Status {
    let message = "too many calls per second from one client (security.requests_per_second_max)";
    retry_after(Status::resource_exhausted(message), wait)
}

impl<S> Layer<S> for Guard {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded { guard: self.clone(), inner }
    }
}

/// A service inside the [`Guard`] layer.
#[derive(Debug, Clone)]
pub struct Guarded<S> {
    guard: Guard,
    inner: S,
}

impl<S> Service<Request<Body>> for Guarded<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Either<S::Future, Either<Ready<Result<Response<Body>, S::Error>>, Held<S::Error>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let peer = request.extensions().get::<Peer>().cloned();
        match self.guard.admit(&mut request, peer.as_ref()) {
            Ok((caller, permit)) => {
                request.extensions_mut().insert(caller);
                if let Some(peer) = peer {
                    // Read by `tonic::Request::remote_addr`.
                    request.extensions_mut().insert(peer.connection);
                }
                let answer = self.inner.call(request);
                match permit {
                    None => Either::Left(answer),
                    Some(permit) => Either::Right(Either::Right(Box::pin(held(answer, permit)))),
                }
            }
            Err(status) => {
                let path = request.uri().path();
                tracing::debug!(path, peer = ?peer.as_ref().and_then(Peer::ip), code = ?status.code(), "call rejected");
                Either::Right(Either::Left(ready(Ok(status.into_http()))))
            }
        }
    }
}

/// The response to a call. The call counts as in progress until the whole response is sent.
type Held<E> = BoxFuture<'static, Result<Response<Body>, E>>;

async fn held<E>(
    answer: impl Future<Output = Result<Response<Body>, E>>,
    permit: OwnedSemaphorePermit,
) -> Result<Response<Body>, E> {
    Ok(answer.await?.map(|inner| Body::new(HeldBody { inner, _attached: permit })))
}
