//! Tracks the set of servers that share one job, given as a list of endpoints. A host name stands for every address
//! that it resolves to, and is looked up repeatedly.
//!
//! When a name gains addresses (a headless service, a scaled compose service), clients use the new servers without a
//! restart. [`Servers`] yields the current set and later changes; [`preferred`] spreads clients over a set. This
//! module depends on no service and opens no connection.

use std::collections::BTreeSet;
use std::fmt;
use std::future::pending;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use game::mix;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::channel::{InvalidEndpoint, Target, check};
use crate::limits::SERVERS_MAX;

/// Interval between name lookups, and so the longest time before a new server is used.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(3);

/// One or several endpoints, in configuration syntax: `http://a:7001,https://b:7001`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints(Vec<String>);

impl FromStr for Endpoints {
    type Err = InvalidEndpoint;

    /// # Errors
    /// [`InvalidEndpoint`] of the first invalid endpoint; an empty endpoint is invalid.
    fn from_str(text: &str) -> Result<Self, InvalidEndpoint> {
        let one = |endpoint: &str| check(endpoint).map(|()| endpoint.to_owned());
        text.split(',').map(str::trim).map(one).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

/// One server of a set. Servers are sorted by id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Server {
    /// Identity of the server: the endpoint as written if it stands for only one address, so that a server that
    /// restarts at another address keeps the id; otherwise the address.
    pub id: Arc<str>,
    /// Current endpoint: `http://host:port`, `https://host:port`, or `https://name@host:port` for the address of a
    /// server with a certificate for `name`. Never has more than one address.
    pub endpoint: Arc<str>,
    /// True if the id is the endpoint as written, not an address, so that a process that replaces the server keeps the
    /// id.
    pub has_own_name: bool,
}

impl Server {
    /// Returns the server with this endpoint as id.
    #[must_use]
    pub fn at(endpoint: &str) -> Self {
        let endpoint: Arc<str> = endpoint.into();
        Self { id: Arc::clone(&endpoint), endpoint, has_own_name: true }
    }
}

/// The current set of servers. Clones share one task, which stops with the last clone.
#[derive(Debug, Clone)]
pub struct Servers {
    set: watch::Receiver<Arc<[Server]>>,
    _task: Option<Arc<DropGuard>>,
}

impl Servers {
    /// Follows `endpoints`. Servers given by address are in the set at once, servers given by name after the first
    /// lookup; later lookups update them. Must be called inside a tokio runtime.
    #[must_use]
    pub fn resolved(endpoints: &Endpoints) -> Self {
        Self::resolved_by(endpoints, |host, port| async move {
            Ok(tokio::net::lookup_host((&*host, port)).await?.collect())
        })
    }

    /// Follows `endpoints` as [`Servers::resolved`] does, with `resolve` in place of the operating system's resolver.
    /// After an error the last result remains in use.
    fn resolved_by<F>(endpoints: &Endpoints, resolve: impl Fn(Arc<str>, u16) -> F + Send + 'static) -> Self
    where
        F: Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    {
        let names: Vec<Name> = endpoints.0.iter().map(|endpoint| Name::new(endpoint)).collect();
        let (sender, set) = watch::channel(set_of(&names));
        if names.iter().all(|name| name.is_fixed) {
            return Self { set, _task: None };
        }
        let stop = CancellationToken::new();
        let following = stop.clone().run_until_cancelled_owned(follow(names, resolve, sender));
        tokio::spawn(following);
        Self { set, _task: Some(Arc::new(stop.drop_guard())) }
    }

    /// Follows the set published by the sender of `set`.
    #[must_use]
    pub fn watching(set: watch::Receiver<Arc<[Server]>>) -> Self {
        Self { set, _task: None }
    }

    /// Returns the servers, ascending by id; a name adds none before the first successful lookup.
    #[must_use]
    pub fn current(&self) -> Arc<[Server]> {
        Arc::clone(&self.set.borrow())
    }

    /// Returns true if the set changed since the last call of this or of [`Servers::changed`] on this clone.
    pub fn has_changed(&mut self) -> bool {
        let has_changed = self.set.has_changed().unwrap_or(false);
        self.set.mark_unchanged();
        has_changed
    }

    /// Waits until the set changes after the last call on this clone; forever if the set cannot change. Cancel-safe.
    pub async fn changed(&mut self) {
        if self.set.changed().await.is_err() {
            pending().await
        }
    }
}

/// Resolves the names repeatedly, forever.
async fn follow<F>(mut names: Vec<Name>, resolve: impl Fn(Arc<str>, u16) -> F, sender: watch::Sender<Arc<[Server]>>)
where
    F: Future<Output = io::Result<Vec<SocketAddr>>>,
{
    let mut ticks = tokio::time::interval(LOOKUP_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for name in names.iter_mut().filter(|name| !name.is_fixed) {
            let answer = resolve(Arc::clone(&name.host), name.port).await;
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

/// Returns each server once, even if several names resolve to it.
fn set_of(names: &[Name]) -> Arc<[Server]> {
    let mut servers: Vec<Server> = names.iter().flat_map(Name::servers).collect();
    servers.sort();
    let mut seen = BTreeSet::new();
    servers.retain(|server| seen.insert(address_of(&server.endpoint).to_owned()));
    servers.truncate(SERVERS_MAX);
    servers.into()
}

/// Returns host and port of an endpoint, without the certificate name.
fn address_of(endpoint: &str) -> &str {
    endpoint.rsplit_once(['@', '/']).map_or(endpoint, |(_, address)| address)
}

/// One endpoint of the configuration, and the addresses of the host name at the last lookup.
#[derive(Debug)]
struct Name {
    written: Arc<str>,
    /// Certificate name of the servers, if they use TLS.
    certificate: Option<String>,
    host: Arc<str>,
    port: u16,
    /// True for an address or `localhost`, which is used as written and never looked up.
    is_fixed: bool,
    addresses: BTreeSet<SocketAddr>,
    /// The address that has the endpoint as written for an id, because it was the only address of the name before
    /// others appeared. It keeps this id afterwards, so that clients do not mistake another server for it.
    sole: Option<SocketAddr>,
    /// True once the name has had several addresses at once: a new address may then belong to any server.
    was_several: bool,
    /// True if the last lookup failed; logged once.
    failing: bool,
}

impl Name {
    /// Creates the entry for a checked `endpoint`.
    fn new(endpoint: &str) -> Self {
        let target = endpoint.parse::<Target>().expect("the endpoints of a configuration are checked");
        let (host, port) = target.dial;
        Self {
            written: endpoint.into(),
            certificate: target.tls_server.map(|name| name.to_str().into_owned()),
            // `localhost` has an address of each family, and both are one server.
            is_fixed: host.parse::<IpAddr>().is_ok() || host.eq_ignore_ascii_case("localhost"),
            host,
            port,
            addresses: BTreeSet::new(),
            sole: None,
            was_several: false,
            failing: false,
        }
    }

    /// Records the result of a lookup. A failed lookup changes nothing, since servers may be reachable while a name
    /// server is not.
    fn learn(&mut self, answer: io::Result<Vec<SocketAddr>>) {
        match answer {
            Ok(addresses) => {
                self.failing = false;
                self.hold(one_family(addresses));
            }
            Err(error) => {
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(host = &*self.host, %error, "cannot resolve a host; keeping the last addresses");
                }
            }
        }
    }

    fn hold(&mut self, addresses: BTreeSet<SocketAddr>) {
        self.was_several |= addresses.len() > 1;
        if !self.was_several {
            // A server that changes address keeps the id.
            self.sole = addresses.first().copied().or(self.sole);
        }
        self.addresses = addresses;
    }

    fn servers(&self) -> Vec<Server> {
        if self.is_fixed {
            return vec![Server::at(&self.written)];
        }
        let server = |&address: &SocketAddr| {
            let endpoint: Arc<str> = match &self.certificate {
                Some(name) => format!("https://{name}@{address}").into(),
                None => format!("http://{address}").into(),
            };
            let is_sole = self.sole == Some(address);
            let id = if is_sole { Arc::clone(&self.written) } else { Arc::clone(&endpoint) };
            Server { id, endpoint, has_own_name: is_sole && !self.was_several }
        };
        self.addresses.iter().map(server).collect()
    }
}

/// Selects the addresses of one family. A server that listens on both families has two addresses; for a name with
/// both families, one family covers all servers.
fn one_family(addresses: Vec<SocketAddr>) -> BTreeSet<SocketAddr> {
    let any_v4 = addresses.iter().any(SocketAddr::is_ipv4);
    addresses.into_iter().filter(|address| address.is_ipv4() == any_v4).collect()
}

/// Ranks the servers in the preference order of `client`, by rendezvous hashing (Thaler and Ravishankar 1998).
///
/// Each client ranks the servers by a hash of both ids. Clients spread evenly. A server that joins takes equally many
/// clients from every other server, and no other client moves; if a server leaves, each of its clients moves to the
/// next choice. The order is the same in every process and build.
#[must_use]
pub fn preferred(servers: &[Server], client: u64) -> Vec<Server> {
    let mut ranked = servers.to_vec();
    ranked.sort_by_cached_key(|server| (std::cmp::Reverse(score(&server.id, client)), server.id.clone()));
    ranked
}

/// Returns the number by which servers are ranked for the client `name`.
pub fn named(name: &str) -> u64 {
    score(name, 0)
}

/// Returns the rank of a server for a client: FNV-1a over the id, then [`mix`] with the client, since FNV alone gives
/// short inputs similar high bits.
fn score(id: &str, client: u64) -> u64 {
    let hash = id
        .bytes()
        .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
    mix(hash ^ mix(client))
}

#[cfg(test)]
mod tests;
