//! The engine that transfers data between the members of a group.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

#[cfg(feature = "torch")]
use bytes::Bytes;
use collective::nccl::{Nccl, UniqueId};
use collective::{Collective, Error};
#[cfg(feature = "torch")]
use proto::learners::{Exchange, Peer, Secret};
use proto::learners::{Gpu, Meeting, Roster};
use run_file::learner::CollectiveKind;

use super::library::Library;

/// Number of consecutive failed joins after which this learner stops using NCCL.
const JOINS_MAX: usize = 3;

/// Starts and joins groups, with one or several communication libraries.
pub(crate) trait Engine: Send + Sync {
    /// Returns this learner's GPU for sums with NCCL; `None` if NCCL is not available.
    fn gpu(&self) -> Option<Gpu> {
        None
    }

    /// Prepares the next group, with this learner as the coordinator. Returns the data with which the members connect.
    ///
    /// # Errors
    /// The library cannot prepare a group.
    fn serve(&self, library: Library) -> Result<Meeting, Error>;

    /// Joins a group, and returns once all members have joined. Setting `interrupt` aborts operations that cannot
    /// detect the loss of a member.
    ///
    /// # Errors
    /// Not all members joined in time.
    fn join(&self, roster: &Roster, rank: usize, interrupt: &Arc<AtomicBool>) -> Result<Box<dyn Collective>, Error>;

    /// Checks, after a failed join, that the configured library can still be used.
    ///
    /// # Errors
    /// The configured library is NCCL, and several consecutive joins failed.
    fn check(&self) -> anyhow::Result<()> {
        Ok(())
    }
}

/// An engine that uses NCCL if every member has a separate GPU, and another engine for all other groups.
#[cfg_attr(not(feature = "torch"), allow(dead_code, reason = "no learner without libtorch trains on a GPU"))]
pub(crate) struct WithNccl {
    nccl: Nccl,
    other: Arc<dyn Engine>,
    kind: CollectiveKind,
    timeout: Duration,
    /// Number of consecutive failed joins.
    failed: AtomicUsize,
}

#[cfg_attr(not(feature = "torch"), allow(dead_code, reason = "no learner without libtorch trains on a GPU"))]
impl WithNccl {
    pub(crate) fn new(nccl: Nccl, other: Arc<dyn Engine>, kind: CollectiveKind, timeout: Duration) -> Self {
        Self { nccl, other, kind, timeout, failed: AtomicUsize::new(0) }
    }

    fn has_given_up(&self) -> bool {
        self.failed.load(Ordering::Relaxed) >= JOINS_MAX
    }
}

impl Engine for WithNccl {
    fn gpu(&self) -> Option<Gpu> {
        (!self.has_given_up()).then(|| self.nccl.gpu())
    }

    fn serve(&self, library: Library) -> Result<Meeting, Error> {
        match library {
            Library::Gloo => self.other.serve(library),
            Library::Nccl => {
                let UniqueId(id) = self.nccl.unique_id()?;
                Ok(Meeting::Nccl { id: Box::new(id) })
            }
        }
    }

    fn join(&self, roster: &Roster, rank: usize, interrupt: &Arc<AtomicBool>) -> Result<Box<dyn Collective>, Error> {
        let Meeting::Nccl { id } = &roster.meeting else { return self.other.join(roster, rank, interrupt) };
        let joined = self.nccl.join(&UniqueId(**id), [rank, roster.members.len()], self.timeout, interrupt);
        match joined {
            Ok(member) => {
                self.failed.store(0, Ordering::Relaxed);
                Ok(Box::new(member))
            }
            Err(error) => {
                let failed = self.failed.fetch_add(1, Ordering::Relaxed) + 1;
                if failed == JOINS_MAX && self.kind == CollectiveKind::Auto {
                    tracing::warn!("cannot form a group with NCCL after {failed} attempts; switching to Gloo");
                }
                Err(error)
            }
        }
    }

    fn check(&self) -> anyhow::Result<()> {
        let is_needed = self.kind == CollectiveKind::Nccl && self.has_given_up();
        anyhow::ensure!(!is_needed, "`nccl` is configured, but no NCCL group formed in {JOINS_MAX} attempts");
        Ok(())
    }
}

/// The Gloo engine, which connects to the hosts in the learners' endpoints. Members exchange socket addresses over the
/// coordinator's gRPC server, which authenticates clients.
#[cfg(feature = "torch")]
#[derive(Debug)]
pub(crate) struct Gloo {
    /// Host of this learner.
    pub(crate) host: String,
    /// Connections to the other learners, by index; `None` at this learner's index.
    pub(crate) peers: Vec<Option<Peer>>,
    /// Addresses of members in the groups that this learner coordinates.
    pub(crate) exchange: Exchange,
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) timeout: Duration,
}

#[cfg(feature = "torch")]
impl Engine for Gloo {
    fn serve(&self, _: Library) -> Result<Meeting, Error> {
        let failed = || Error { operation: "create a secret", reason: "the system has no entropy".to_owned() };
        let secret = Secret::draw().ok_or_else(failed)?;
        self.exchange.start(secret);
        Ok(Meeting::Exchange { secret })
    }

    fn join(&self, roster: &Roster, rank: usize, _: &Arc<AtomicBool>) -> Result<Box<dyn Collective>, Error> {
        let Meeting::Exchange { secret } = roster.meeting else {
            return Err(Error { operation: "join", reason: "this learner cannot use NCCL".to_owned() });
        };
        let place = collective::gloo::Place { host: self.host.clone(), rank, size: roster.members.len() };
        let at = match self.peers.get(roster.coordinator()).cloned().flatten() {
            Some(coordinator) => At::Peer(Box::new(coordinator)),
            None => At::Own(self.exchange.clone()),
        };
        let addresses = Addresses { at, secret, runtime: self.runtime.clone(), timeout: self.timeout };
        Ok(Box::new(collective::gloo::Gloo::join(&place, Box::new(addresses), self.timeout)?))
    }
}

/// Access to the member addresses of one group.
#[cfg(feature = "torch")]
struct Addresses {
    at: At,
    secret: Secret,
    runtime: tokio::runtime::Handle,
    timeout: Duration,
}

/// The location of the addresses: on this learner as coordinator, or on another learner.
#[cfg(feature = "torch")]
enum At {
    Own(Exchange),
    Peer(Box<Peer>),
}

#[cfg(feature = "torch")]
impl collective::gloo::Addresses for Addresses {
    fn set(&self, key: &str, address: &[u8]) -> Result<(), String> {
        let address = Bytes::copy_from_slice(address);
        match &self.at {
            At::Own(exchange) => exchange.set(self.secret, key, address).map_err(|error| error.to_string()),
            At::Peer(peer) => {
                let set = peer.set_address(self.secret, key, address, self.timeout);
                self.runtime.block_on(set).map_err(|error| error.to_string())
            }
        }
    }

    fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>, String> {
        let got = match &self.at {
            At::Own(exchange) => {
                let get = async { tokio::time::timeout(timeout, exchange.get(self.secret, key)).await };
                let late = |_| format!("no address of {key} within {} s", timeout.as_secs_f32());
                self.runtime.block_on(get).map_err(late)?.map_err(|error| error.to_string())
            }
            At::Peer(peer) => {
                let get = peer.get_address(self.secret, key, timeout);
                self.runtime.block_on(get).map_err(|error| error.to_string())
            }
        };
        got.map(|address| address.to_vec())
    }
}

#[cfg(test)]
#[path = "../../../crates/collective/src/in_process.rs"]
mod in_process;

/// An engine for tests, in which the members are threads and find each other by the secret of the group.
#[cfg(test)]
pub(crate) mod threads {
    use std::collections::HashMap;
    use std::sync::Mutex;

    use proto::learners::Secret;

    use super::in_process::{InProcess, in_process};
    use super::{Arc, AtomicBool, Collective, Engine, Error, Library, Meeting, Roster};

    /// The groups of one test. As with Gloo, a member waits until the timeout for members that never join.
    #[derive(Debug, Default)]
    pub(crate) struct Threads {
        groups: Mutex<HashMap<[u8; 32], Vec<Option<InProcess>>>>,
    }

    impl Engine for Arc<Threads> {
        fn serve(&self, _: Library) -> Result<Meeting, Error> {
            Ok(Meeting::Exchange { secret: Secret::draw().unwrap() })
        }

        fn join(&self, roster: &Roster, rank: usize, _: &Arc<AtomicBool>) -> Result<Box<dyn Collective>, Error> {
            let Meeting::Exchange { secret: Secret(secret) } = roster.meeting else {
                panic!("{roster:?} meets over NCCL")
            };
            let mut groups = self.groups.lock().unwrap();
            let make = || in_process(roster.members.len()).into_iter().map(Some).collect();
            let members = groups.entry(secret).or_insert_with(make);
            let place =
                members[rank].take().ok_or(Error { operation: "join", reason: "the place is taken".to_owned() });
            Ok(Box::new(place?))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use collective::nccl::Clock;
    use fake_nccl::Fault;

    use super::threads::Threads;
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    /// Returns an NCCL engine for this device, with a fake of the NCCL library.
    fn on_device(device: usize, kind: CollectiveKind) -> WithNccl {
        let clock = Clock { now: Instant::now, pause: std::thread::sleep, give_up: || panic!("NCCL hangs") };
        let nccl = Nccl::found_by(fake_nccl::lookup, device, clock).unwrap();
        WithNccl::new(nccl, Arc::new(Arc::<Threads>::default()), kind, TIMEOUT)
    }

    fn join_alone(engine: &WithNccl, library: Library) -> Result<usize, Error> {
        let meeting = engine.serve(library)?;
        let roster = Roster { generation: 1, members: vec![0], source: 0, weights_version: 0, meeting };
        engine.join(&roster, 0, &Arc::default()).map(|member| member.size())
    }

    #[test]
    fn after_three_joins_in_a_row_that_fail_a_learner_offers_no_gpu_and_a_configured_nccl_is_an_error() {
        for (device, kind) in [(20, CollectiveKind::Auto), (21, CollectiveKind::Nccl)] {
            let engine = on_device(device, kind);
            let fails = |times: usize| {
                fake_nccl::set_fault(device, Some(Fault::JoinRefused));
                (0..times).for_each(|_| drop(join_alone(&engine, Library::Nccl).unwrap_err()));
                fake_nccl::set_fault(device, None);
            };
            fails(JOINS_MAX - 1);
            assert!(engine.gpu().is_some() && engine.check().is_ok());
            assert_eq!(join_alone(&engine, Library::Nccl), Ok(1));
            fails(JOINS_MAX - 1);
            assert!(engine.gpu().is_some(), "a join in between succeeded");
            fails(1);
            assert_eq!(engine.gpu(), None);
            assert_eq!(engine.check().is_err(), kind == CollectiveKind::Nccl);
            assert_eq!(join_alone(&engine, Library::Gloo), Ok(1), "the other library still works");
        }
    }
}
