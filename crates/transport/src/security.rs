//! Authenticates and authorizes clients and servers: TLS, client certificates, bearer tokens, scopes and quotas for
//! every server and channel.
//!
//! A server opens [`Security`] from the `[security]` section of the run file and passes it to
//! [`incoming`](crate::incoming()), which terminates TLS, and to [`server`](crate::server()), which checks scopes and
//! quota of every call. Requests for web pages pass [`Security::check_page`]. [`Credentials`] of a client hold the
//! trusted authorities, the certificate and the token. [`use_credentials`] sets the credentials of a process once, for
//! all later channels. Background threads reload changed files. If the section sets no key, a server accepts every call
//! and a client sends no credentials.

mod caller;
mod certificates;
mod credentials;
mod expiry;
mod faults;
mod guard;
mod held_body;
mod identities;
mod methods;
mod networks;
mod peer;
mod quota;
mod request_body;
mod scope;
mod shared_by_key;
mod tls;
mod tokens;
mod watched;
mod web;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use caller::Caller;
pub(crate) use certificates::client_name;
pub use credentials::{Credentials, use_credentials};
pub(crate) use faults::{certificate_fault, client_fault};
pub use guard::{Guard, Guarded};
pub(crate) use identities::Identities;
pub use methods::takes_stream;
pub(crate) use networks::{Network, Networks};
pub use peer::Peer;
pub(crate) use peer::Standing;
pub use scope::{Scope, Scopes};
use service::security::is_set;
use service::{ConfigError, SecuritySection};
pub use shared_by_key::SharedByKey;
pub use web::{Refused, secret_word};

use guard::Access;
use quota::Quota;
use scope::Holder;
pub(crate) use tls::ServerTls;
use watched::{Fault, Times, Watched};

/// Interval at which the files are read again.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Time limits for connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// Maximum time from the opening of a connection to the first call with the required credentials.
    pub(crate) first_call: Duration,
    /// Interval at which the credentials of open connections are checked again.
    pub(crate) review: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { first_call: Duration::from_secs(10), review: Duration::from_secs(5) }
    }
}

/// The client credentials that a server requires. Cheap to clone; the default requires none.
#[derive(Debug, Clone, Default)]
pub struct Security {
    tls: Option<Arc<Watched<ServerTls>>>,
    guard: Guard,
    pub(crate) timing: Timing,
}

impl Security {
    /// Reads the files in `section`, for a server that listens at `address`.
    ///
    /// # Errors
    /// Names the key of a file that cannot be read or used, or a key that another key requires. For an address that
    /// other machines can reach, also the errors of [`SecuritySection::check_listen`].
    pub fn open(section: &SecuritySection, address: SocketAddr) -> Result<Self, ConfigError> {
        section.check_listen(address)?;
        Self::open_looking(section, LOOK_INTERVAL)
    }

    fn open_looking(section: &SecuritySection, interval: Duration) -> Result<Self, ConfigError> {
        Self::open_with(section, interval, tls::server)
    }

    fn open_with(
        section: &SecuritySection,
        interval: Duration,
        server: fn(&[Vec<u8>]) -> Result<ServerTls, Fault>,
    ) -> Result<Self, ConfigError> {
        section.check()?;
        let unusable_max = match section.unusable_seconds_max {
            0 => Duration::MAX,
            seconds => Duration::from_secs(seconds.into()),
        };
        let times = Times { interval, unusable_max };
        let tls = section.serves_tls().then(|| Watched::open(tls::server_files(section), times, server));
        let tls = tls.transpose()?.map(Arc::new);
        let tokens = || Watched::open(vec![("security.tokens", section.tokens.clone())], times, tokens::of_files);
        let access = if is_set(&section.tokens) {
            Access::Tokens(Arc::new(tokens()?))
        } else if is_set(&section.client_ca) {
            let named = ("security.client_scopes", section.client_scopes.clone());
            let files = is_set(&section.client_scopes).then_some(named).into_iter().collect();
            Access::Certificates(Arc::new(Watched::open(files, times, certificates::of_files)?))
        } else {
            Access::Open
        };
        let clients = tls.as_ref().filter(|_| is_set(&section.client_ca)).map(|tls| tls.usable());
        let guard = Guard::new(access, clients, Quota::new(section.requests_per_second_max));
        Ok(Self { tls, guard, timing: Timing::default() })
    }

    /// Returns the TLS settings for new connections; `None`: no TLS.
    pub(crate) fn tls(&self) -> Option<Arc<ServerTls>> {
        self.tls.as_ref().map(|tls| tls.current())
    }

    /// Returns a holder whose calls as `peer` were accepted, but whose token or certificate would now be rejected or
    /// have other scopes.
    pub(crate) fn no_longer_accepted(&self, peer: &Peer) -> Option<Arc<Holder>> {
        let now = Instant::now();
        peer.standing.holders().into_iter().find(|holder| !self.guard.accepts(holder, now))
    }

    /// Returns the layer that checks calls.
    pub(crate) fn guard(&self) -> Guard {
        self.guard.clone()
    }
}

#[cfg(test)]
pub(crate) mod tests;
