//! Who is at the other end: TLS, certificates of clients, bearer tokens, quotas; one layer for every server and channel.
//!
//! A server opens [`Security`] from the `[security]` of its run file and hands it to [`incoming`](crate::incoming()), which
//! ends TLS, and to [`server`](crate::server()), which checks the token and the quota of every call. A client's
//! [`Credentials`] say whom it trusts and who it is; those of a process are set once, by [`use_credentials`], for every
//! channel that it opens. Files are read again when they change. Nothing set: nothing is asked, nothing is shown.

mod credentials;
mod guard;
mod quota;
mod scope;
mod tls;
mod tokens;
mod watched;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub use credentials::{Credentials, use_credentials};
pub use guard::{Guard, Guarded};
use rustls::ServerConfig;
use service::security::is_set;
use service::{ConfigError, SecuritySection};

use quota::Quota;
use watched::Watched;

/// How often it is looked whether a file has changed, at most: when a connection or a call comes.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What a server asks of its clients. Cheap to clone; the default asks nothing.
#[derive(Debug, Clone, Default)]
pub struct Security {
    tls: Option<Arc<Watched<ServerConfig>>>,
    guard: Guard,
}

impl Security {
    /// Reads the files that `section` names, for a server that listens at `address`.
    ///
    /// # Errors
    /// Names the key: of a file that cannot be read or used, one that another needs, and `security.insecure_bind` where
    /// the address is reached from other machines and nothing is asked of who comes.
    pub fn open(section: &SecuritySection, address: SocketAddr) -> Result<Self, ConfigError> {
        section.check_listen(address)?;
        Self::open_looking(section, LOOK_INTERVAL)
    }

    fn open_looking(section: &SecuritySection, interval: Duration) -> Result<Self, ConfigError> {
        section.check()?;
        let tls = section.serves_tls().then(|| Watched::open(tls::server_files(section), interval, tls::server));
        let tokens = || Watched::open(vec![("security.tokens", section.tokens.clone())], interval, tokens::of_files);
        let tokens = is_set(&section.tokens).then(tokens).transpose()?;
        let guard = Guard::new(tokens, Quota::new(section.requests_per_second_max));
        Ok(Self { tls: tls.transpose()?.map(Arc::new), guard })
    }

    /// How connections are encrypted from now on; `None`: not at all.
    pub(crate) fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.tls.as_ref().map(|tls| tls.current())
    }

    /// What checks calls.
    pub(crate) fn guard(&self) -> Guard {
        self.guard.clone()
    }
}

#[cfg(test)]
pub(crate) mod tests;
