//! Decides how long a connection stays open: at first until the deadline of the first call, afterwards as long as the
//! credentials are accepted.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustls::pki_types::{CertificateDer, UnixTime};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::newcomers::Newcomer;
use crate::security::{Peer, Security, ServerTls, client_fault};
use crate::socket::Attached;

/// Time after the deadline of the first call for reading data that has already arrived. A process that was paused
/// finds expired deadlines on connections with unread calls.
const GRACE: Duration = Duration::from_secs(1);

/// State of an open connection: the counted permits and the conditions for closing it.
#[derive(Debug)]
pub struct Lifetime {
    pub(super) peer: Peer,
    /// The place among the newcomers, held until the first accepted call.
    newcomer: Option<Arc<Newcomer>>,
    /// The place among all connections, held from the first accepted call.
    _permit: Option<OwnedSemaphorePermit>,
    /// Completes when the newcomer is closed to make room.
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    security: Security,
    certificate: Option<Certificate>,
    timer: Pin<Box<Sleep>>,
    /// True once the deadline of the first call has passed.
    in_grace: bool,
    /// True after logging the reason for closing the connection.
    has_ended: bool,
}

/// The certificate that a client presented.
#[derive(Debug)]
pub(super) struct Certificate {
    chain: Vec<CertificateDer<'static>>,
    /// TLS settings under which the client certificate was last verified.
    accepted_by: Arc<ServerTls>,
    /// Time of the handshake. The certificate is verified as of then, so expiry closes no connection.
    at: UnixTime,
}

impl Certificate {
    pub(super) fn accepted(chain: &[CertificateDer<'_>], by: Arc<ServerTls>) -> Self {
        let chain = chain.iter().map(|each| each.clone().into_owned()).collect();
        Self { chain, accepted_by: by, at: UnixTime::now() }
    }

    /// Verifies the certificate under changed settings.
    fn verify(&mut self, current: Arc<ServerTls>) -> Result<(), rustls::Error> {
        if !Arc::ptr_eq(&current, &self.accepted_by) {
            current.verify_client(&self.chain, self.at)?;
            self.accepted_by = current;
        }
        Ok(())
    }
}

impl Lifetime {
    pub(super) fn new(
        peer: Peer,
        newcomer: Arc<Newcomer>,
        security: Security,
        certificate: Option<Certificate>,
    ) -> Self {
        let timer = Box::pin(sleep(security.timing.first_call));
        Self {
            peer,
            closed: Box::pin(newcomer.closed.clone().cancelled_owned()),
            newcomer: Some(newcomer),
            _permit: None,
            security,
            certificate,
            timer,
            in_grace: false,
            has_ended: false,
        }
    }

    /// Returns true before the first accepted call. A known client keeps the connection, also while all places of known
    /// clients are taken.
    fn is_stranger(&self) -> bool {
        self.newcomer.is_some() && !self.peer.standing.is_known()
    }

    fn check(&mut self) -> io::Result<()> {
        if self.is_stranger() {
            let reason = "no call with accepted credentials in time";
            return Err(io::Error::new(io::ErrorKind::TimedOut, reason));
        }
        let revoked = |reason: String| io::Error::new(io::ErrorKind::PermissionDenied, reason);
        if let (Some(certificate), Some(current)) = (&mut self.certificate, self.security.tls()) {
            let verified = certificate.verify(current);
            let refused = |error| format!("client certificate no longer accepted: {}", client_fault(&error));
            verified.map_err(|error| revoked(refused(error)))?;
        }
        match self.security.no_longer_accepted(&self.peer) {
            Some(holder) => Err(revoked(format!("credentials no longer accepted: {holder}"))),
            None => Ok(()),
        }
    }
}

impl Attached for Lifetime {
    fn has_read(&self, read: &io::Result<()>) {
        if let (Some(newcomer), Ok(())) = (&self.newcomer, read) {
            newcomer.has_spoken.store(true, Ordering::Relaxed);
        }
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if let Some(newcomer) = &self.newcomer
            && self.peer.standing.is_known()
            && let Ok(permit) = Arc::clone(&newcomer.known).try_acquire_owned()
        {
            (self.newcomer, self._permit) = (None, Some(permit));
            self.timer.as_mut().reset(Instant::now() + self.security.timing.review);
        }
        if self.is_stranger() && self.closed.as_mut().poll(cx).is_ready() {
            let reason = "closed to make room for another connection";
            return Poll::Ready(io::Error::new(io::ErrorKind::ConnectionAborted, reason));
        }
        loop {
            ready!(self.timer.as_mut().poll(cx));
            if self.newcomer.is_some() && !std::mem::replace(&mut self.in_grace, true) {
                self.timer.as_mut().reset(Instant::now() + GRACE);
                continue;
            }
            if let Err(error) = self.check() {
                if !std::mem::replace(&mut self.has_ended, true) {
                    tracing::info!(peer = ?self.peer.connection.remote_addr(), %error, "closing connection");
                }
                return Poll::Ready(error);
            }
            self.timer.as_mut().reset(Instant::now() + self.security.timing.review);
        }
    }
}
