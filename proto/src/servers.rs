//! The set of servers that share one job: a list of endpoints, where each host name stands for all its addresses and is
//! looked up repeatedly.
//!
//! A name whose addresses grow (a headless service, a compose service that is scaled) gains servers without a restart
//! of their clients. [`Servers`] yields the current set and its changes; [`preferred`] spreads clients over a set. It
//! depends on no service and opens no connection.

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

/// The interval between lookups of names: the longest time before a new server is used.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(3);

/// One or several endpoints, as a configuration writes them: `http://a:7001,https://b:7001`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints(Vec<String>);

impl FromStr for Endpoints {
    type Err = InvalidEndpoint;

    /// # Errors
    /// The first that is not an endpoint; an empty one too.
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
    pub fn resolved(endpoints: &Endpoints) -> Self {
        Self::resolved_by(endpoints, |host, port| async move {
            Ok(tokio::net::lookup_host((&*host, port)).await?.collect())
        })
    }

    /// [`Servers::resolved`] with another resolver of host and port than the operating system; an error leaves the last
    /// answer in force.
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

    /// Follows a set that the sender of `set` decides.
    #[must_use]
    pub fn watching(set: watch::Receiver<Arc<[Server]>>) -> Self {
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

    /// Waits until the set is another than this clone has seen by the last call; forever where it cannot change.
    /// Cancel-safe.
    pub async fn changed(&mut self) {
        if self.set.changed().await.is_err() {
            pending().await
        }
    }
}

/// Resolves the names repeatedly, without end.
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

/// One endpoint of the configuration, and what its host name stood for when it was last looked up.
#[derive(Debug)]
struct Name {
    written: Arc<str>,
    /// The name on the certificate of its servers, if they speak TLS.
    certificate: Option<String>,
    host: Arc<str>,
    port: u16,
    /// It is an address, or this machine: used as written, and never looked up.
    is_fixed: bool,
    addresses: BTreeSet<SocketAddr>,
    /// The address that goes by the endpoint as written: the one it stood for while it stood for one alone. It stays
    /// when others are added, so that a client does not take another server for the one it knew.
    sole: Option<SocketAddr>,
    /// It has stood for several addresses at once: an address that comes may be any of them.
    was_several: bool,
    /// True if the last lookup failed; logged once.
    failing: bool,
}

impl Name {
    /// `endpoint` was checked.
    fn new(endpoint: &str) -> Self {
        let target = endpoint.parse::<Target>().expect("the endpoints of a configuration are checked");
        let (host, port) = target.dial;
        Self {
            written: endpoint.into(),
            certificate: target.tls_server.map(|name| name.to_str().into_owned()),
            // This machine has an address of either family, and they are one server.
            is_fixed: host.parse::<IpAddr>().is_ok() || host.eq_ignore_ascii_case("localhost"),
            host,
            port,
            addresses: BTreeSet::new(),
            sole: None,
            was_several: false,
            failing: false,
        }
    }

    /// Takes in an answer. A lookup that fails changes nothing: servers do not go because a name server does.
    fn learn(&mut self, answer: io::Result<Vec<SocketAddr>>) {
        match answer {
            Ok(addresses) => {
                self.failing = false;
                self.hold(one_family(addresses));
            }
            Err(error) => {
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(host = &*self.host, %error, "a host name cannot be looked up; its last addresses hold");
                }
            }
        }
    }

    fn hold(&mut self, addresses: BTreeSet<SocketAddr>) {
        self.was_several |= addresses.len() > 1;
        if !self.was_several {
            // A server that moves takes its name along.
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

/// A server that listens on both families has two addresses; where a name has both, those of one are all its servers.
fn one_family(addresses: Vec<SocketAddr>) -> BTreeSet<SocketAddr> {
    let any_v4 = addresses.iter().any(SocketAddr::is_ipv4);
    addresses.into_iter().filter(|address| address.is_ipv4() == any_v4).collect()
}

/// The servers in the order in which `client` prefers them: rendezvous hashing (Thaler and Ravishankar 1998).
///
/// Each client ranks the servers by a hash of both ids. Clients spread evenly; a server that joins takes its share from
/// all others and moves no other client, one that leaves passes its clients to their next choice. The order is the same
/// in every process and build.
#[must_use]
pub fn preferred(servers: &[Server], client: u64) -> Vec<Server> {
    let mut ranked = servers.to_vec();
    ranked.sort_by_cached_key(|server| (std::cmp::Reverse(score(&server.id, client)), server.id.clone()));
    ranked
}

/// A client that has a name and no number.
pub(crate) fn named(name: &str) -> u64 {
    score(name, 0)
}

/// FNV-1a over the id, then [`mix`] with the client: FNV alone leaves the high bits of short inputs alike.
fn score(id: &str, client: u64) -> u64 {
    let hash = id
        .bytes()
        .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
    mix(hash ^ mix(client))
}

#[cfg(test)]
mod tests;
