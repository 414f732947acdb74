use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;
use tonic::transport::server::TcpConnectInfo;

use super::identities::Identities;
use super::networks::Network;
use super::scope::Holder;

/// Maximum number of calls in progress on a connection without an accepted call: health probes need one or two.
const STRANGER_CALLS_MAX: usize = 8;

/// Maximum number of different tokens on one connection. A proxy may serve several processes over one connection.
const HOLDERS_MAX: usize = 64;

/// The client of a connection, in the extensions of each request.
#[derive(Debug, Clone)]
pub struct Peer {
    pub(crate) connection: TcpConnectInfo,
    /// First DNS name of the client certificate.
    pub(crate) certificate_name: Option<Arc<str>>,
    pub(crate) standing: Arc<Standing>,
}

/// State that a connection shares with the checks of its calls.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(super) network: Arc<Network>,
    identities: Arc<Identities>,
    is_known: AtomicBool,
    /// The holders of the tokens or the certificate in accepted calls, each with the permit that counts this
    /// connection.
    holders: Mutex<Vec<(Arc<Holder>, OwnedSemaphorePermit)>>,
    stranger_calls: Arc<Semaphore>,
}

impl Peer {
    pub(super) fn ip(&self) -> Option<IpAddr> {
        self.connection.remote_addr().map(|address| address.ip())
    }
}

impl Standing {
    pub(crate) fn new(network: Arc<Network>, identities: Arc<Identities>) -> Self {
        let stranger_calls = Arc::new(Semaphore::new(STRANGER_CALLS_MAX));
        Self { network, identities, is_known: AtomicBool::new(false), holders: Mutex::default(), stranger_calls }
    }

    /// Returns true after the first call with the required credentials.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    /// Records a call without credentials on a server that requires none.
    pub(crate) fn admit_anyone(&self) {
        self.is_known.store(true, Ordering::Relaxed);
    }

    /// Records the holder of an accepted call.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED`: the calls of this connection use too many tokens, or too many connections use this
    /// token.
    pub(super) fn admit(&self, holder: &Arc<Holder>) -> Result<(), Status> {
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        if !holders.iter().any(|(known, _)| Arc::ptr_eq(known, holder) || known == holder) {
            if holders.len() >= HOLDERS_MAX {
                let message = format!("too many tokens on one connection ({HOLDERS_MAX}); open another connection");
                return Err(Status::resource_exhausted(message));
            }
            let place = self.identities.place(holder)?;
            holders.push((Arc::clone(holder), place));
        }
        self.is_known.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the holders of the accepted calls.
    pub(super) fn holders(&self) -> Vec<Arc<Holder>> {
        let holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        holders.iter().map(|(holder, _)| Arc::clone(holder)).collect()
    }

    /// Counts a call on a connection that has no accepted call yet.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED`: too many calls are in progress.
    pub(super) fn stranger_call(&self) -> Result<OwnedSemaphorePermit, Status> {
        let full = |_| {
            let message = format!("too many calls without accepted credentials in progress ({STRANGER_CALLS_MAX})");
            Status::resource_exhausted(message)
        };
        Arc::clone(&self.stranger_calls).try_acquire_owned().map_err(full)
    }
}
