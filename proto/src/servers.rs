//! The set of servers that share one job: a list of endpoints, where each host name stands for all its addresses and is
//! looked up repeatedly.
//!
//! A name whose addresses grow (a headless service, a compose service that is scaled) gains servers without a restart
//! of their clients. [`Servers`] yields the current set and its changes; [`preferred`] spreads clients over a set. It
//! knows no service and opens no connection.

mod endpoints;
mod names;
mod preferred;

use std::collections::BTreeSet;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub use endpoints::Endpoints;
use names::Name;
pub(crate) use preferred::named;
pub use preferred::preferred;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::limits::SERVERS_MAX;

/// The interval between lookups of names: the longest time before a new server is used.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(3);

/// One server of a set. Ordered by its id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Server {
    /// The identity of the server: the endpoint as written if it stands for one address only, so that a server that
    /// comes back under another address is the same; otherwise its address.
    pub id: Arc<str>,
    /// The current endpoint: `http://host:port`, `https://host:port`, or `https://name@host:port` for the address of a
    /// server whose certificate is that of `name`. Never stands for more than one address.
    pub endpoint: Arc<str>,
    /// True if the id is the endpoint as written, not an address: another process may take it over.
    pub has_own_name: bool,
}

impl Server {
    /// The server that is known by this endpoint.
    #[must_use]
    pub fn at(endpoint: &str) -> Self {
        let endpoint: Arc<str> = endpoint.into();
        Self { id: Arc::clone(&endpoint), endpoint, has_own_name: true }
    }
}

/// Resolves a host name to addresses.
pub trait Resolve: Send + Sync + 'static {
    /// All addresses of `host`, each with `port`. An error leaves the last answer in force.
    fn resolve(&self, host: &str, port: u16) -> impl Future<Output = io::Result<Vec<SocketAddr>>> + Send;
}

impl<F> Resolve for F
where
    F: Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
{
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        self(host, port)
    }
}

/// The resolver of the operating system: hosts file and DNS.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((host, port)).await?.collect())
    }
}

/// The servers that there are now. Clones share one task, which ends with the last of them.
#[derive(Debug, Clone)]
pub struct Servers {
    set: watch::Receiver<Arc<[Server]>>,
    _task: Option<Arc<DropGuard>>,
}

impl Servers {
    /// Follows `endpoints`. Addresses are there at once; names when they were looked up for the first time, and from
    /// then on as they change. Must be called inside a tokio runtime.
    #[must_use]
    pub fn start(endpoints: &Endpoints, resolver: impl Resolve) -> Self {
        let names: Vec<Name> = endpoints.iter().map(Name::new).collect();
        let (sender, set) = watch::channel(set_of(&names));
        if names.iter().all(Name::is_fixed) {
            return Self { set, _task: None };
        }
        let stop = CancellationToken::new();
        let following = stop.clone().run_until_cancelled_owned(follow(names, resolver, sender));
        tokio::spawn(following);
        Self { set, _task: Some(Arc::new(stop.drop_guard())) }
    }

    /// [`Servers::start`] with the names as the operating system resolves them.
    #[must_use]
    pub fn resolved(endpoints: &Endpoints) -> Self {
        Self::start(endpoints, SystemResolver)
    }

    /// The set that the other end publishes.
    #[cfg(any(test, feature = "scripted"))]
    #[must_use]
    pub fn told(set: watch::Receiver<Arc<[Server]>>) -> Self {
        Self { set, _task: None }
    }

    /// The servers, ascending by id; none while no name was ever looked up.
    #[must_use]
    pub fn current(&self) -> Arc<[Server]> {
        Arc::clone(&self.set.borrow())
    }

    /// Returns true if the set differs from the one that this clone saw at the last call of this or of
    /// [`Servers::changed`].
    pub(crate) fn has_changed(&mut self) -> bool {
        let has_changed = self.set.has_changed().unwrap_or(false);
        self.set.mark_unchanged();
        has_changed
    }

    /// Waits until the set is another than this clone has seen by the last call; for ever where it cannot change.
    /// Cancel-safe.
    pub async fn changed(&mut self) {
        if self.set.changed().await.is_err() {
            pending().await
        }
    }
}

/// Looks the names up, for ever.
async fn follow(mut names: Vec<Name>, resolver: impl Resolve, sender: watch::Sender<Arc<[Server]>>) {
    let mut ticks = tokio::time::interval(LOOKUP_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for name in names.iter_mut().filter(|name| !name.is_fixed()) {
            let answer = resolver.resolve(name.host(), name.port()).await;
            name.learn(answer);
        }
        let set = set_of(&names);
        sender.send_if_modified(|current| {
            let is_new = **current != *set;
            if is_new {
                tracing::info!(servers = ?set.iter().map(|server| &*server.endpoint).collect::<Vec<_>>(), "servers");
                *current = set;
            }
            is_new
        });
    }
}

/// Each server once, however many names lead to it.
fn set_of(names: &[Name]) -> Arc<[Server]> {
    let mut servers: Vec<Server> = names.iter().flat_map(Name::servers).collect();
    servers.sort();
    let mut seen = BTreeSet::new();
    servers.retain(|server| seen.insert(address_of(&server.endpoint).to_owned()));
    servers.truncate(SERVERS_MAX);
    servers.into()
}

/// An endpoint without the name on the certificate.
fn address_of(endpoint: &str) -> &str {
    endpoint.rsplit_once(['@', '/']).map_or(endpoint, |(_, address)| address)
}

#[cfg(test)]
mod tests;
