//! The library that moves numbers between the members of a group.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use collective::nccl::{Nccl, UniqueId};
use collective::{Collective, Error};
use learner::config::CollectiveKind;
use proto::learners::{Gpu, Meeting, Roster};

use super::library::Library;

/// The joins in a row that fail before NCCL is given up.
const JOINS_MAX: usize = 3;

/// Makes the groups of one or more libraries.
pub(crate) trait Engine: Send + Sync {
    /// The GPU on which this learner can sum with NCCL.
    fn gpu(&self) -> Option<Gpu> {
        None
    }

    /// Begins the next group, of which this learner is the coordinator.
    ///
    /// # Errors
    /// No port can be bound.
    fn serve(&self, library: Library) -> Result<Served, Error>;

    /// Joins a group, and returns when all its members have. Once `interrupt` is set, operations that would not notice
    /// the end of a member fail.
    ///
    /// # Errors
    /// Not all members have joined in time.
    fn join(&self, roster: &Roster, rank: usize, interrupt: &Arc<AtomicBool>) -> Result<Box<dyn Collective>, Error>;

    /// Checks that the library that is configured can still be used, after a join that failed.
    ///
    /// # Errors
    /// Several joins in a row failed.
    fn check(&self) -> anyhow::Result<()> {
        Ok(())
    }
}

/// The beginning of a group. A store is served until it is dropped.
pub(crate) struct Served {
    pub(crate) meeting: Meeting,
    pub(crate) _store: Box<dyn Send>,
}

/// NCCL for groups whose members each have a GPU, and another library for all others.
#[cfg_attr(not(feature = "torch"), allow(dead_code, reason = "no learner without libtorch trains on a GPU"))]
pub(crate) struct WithNccl {
    nccl: Nccl,
    other: Arc<dyn Engine>,
    kind: CollectiveKind,
    timeout: Duration,
    /// Joins in a row that failed.
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

    fn serve(&self, library: Library) -> Result<Served, Error> {
        match library {
            Library::Gloo => self.other.serve(library),
            Library::Nccl => {
                let UniqueId(id) = self.nccl.unique_id()?;
                Ok(Served { meeting: Meeting::Nccl { id: Box::new(id) }, _store: Box::new(()) })
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
                    tracing::warn!("{failed} groups of NCCL were not formed: this learner sums with Gloo from now on");
                }
                Err(error)
            }
        }
    }

    fn check(&self) -> anyhow::Result<()> {
        let is_needed = self.kind == CollectiveKind::Nccl && self.has_given_up();
        anyhow::ensure!(!is_needed, "`nccl` is configured, and {JOINS_MAX} groups of it were not formed");
        Ok(())
    }
}

/// Gloo, between hosts that are given by the endpoints of the learners.
#[cfg(feature = "torch")]
#[derive(Debug)]
pub(crate) struct Gloo {
    /// The host of each learner, by index.
    pub(crate) hosts: Vec<String>,
    pub(crate) own: usize,
    pub(crate) timeout: Duration,
}

#[cfg(feature = "torch")]
impl Engine for Gloo {
    fn serve(&self, _: Library) -> Result<Served, Error> {
        let store = collective::gloo::Store::serve(&self.hosts[self.own], self.timeout)?;
        Ok(Served { meeting: Meeting::Store { port: store.port() }, _store: Box::new(store) })
    }

    fn join(&self, roster: &Roster, rank: usize, _: &Arc<AtomicBool>) -> Result<Box<dyn Collective>, Error> {
        let Meeting::Store { port } = roster.meeting else {
            return Err(Error { operation: "join", reason: "this learner cannot use NCCL".to_owned() });
        };
        let place = collective::gloo::Place {
            store: (self.hosts[roster.coordinator()].clone(), port),
            group: format!("generation-{}", roster.generation),
            host: self.hosts[self.own].clone(),
            rank,
            size: roster.members.len(),
        };
        Ok(Box::new(collective::gloo::Gloo::join(&place, self.timeout)?))
    }
}

/// Groups of threads, for tests: stores are places in a table.
#[cfg(test)]
pub(crate) mod threads {
    use std::collections::HashMap;
    use std::sync::Mutex;

    use super::{Arc, AtomicBool, Collective, Engine, Error, Library, Meeting, Roster, Served};

    /// The groups of one test, by port. A member whose others never come waits in vain, as with Gloo.
    #[derive(Debug, Default)]
    pub(crate) struct Threads {
        ports: Mutex<u16>,
        groups: Mutex<HashMap<u16, Vec<Option<collective::InProcess>>>>,
    }

    impl Engine for Arc<Threads> {
        fn serve(&self, _: Library) -> Result<Served, Error> {
            let mut ports = self.ports.lock().unwrap();
            *ports += 1;
            Ok(Served { meeting: Meeting::Store { port: *ports }, _store: Box::new(()) })
        }

        fn join(&self, roster: &Roster, rank: usize, _: &Arc<AtomicBool>) -> Result<Box<dyn Collective>, Error> {
            let Meeting::Store { port } = roster.meeting else { panic!("{roster:?} meets over NCCL") };
            let mut groups = self.groups.lock().unwrap();
            let make = || collective::in_process(roster.members.len()).into_iter().map(Some).collect();
            let members = groups.entry(port).or_insert_with(make);
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

    /// Groups over a stand-in for NCCL on this device.
    fn on_device(device: usize, kind: CollectiveKind) -> WithNccl {
        let clock = Clock { now: Instant::now, pause: std::thread::sleep };
        let nccl = Nccl::found_by(fake_nccl::lookup, device, clock).unwrap();
        WithNccl::new(nccl, Arc::new(Arc::<Threads>::default()), kind, TIMEOUT)
    }

    fn join_alone(engine: &WithNccl, library: Library) -> Result<usize, Error> {
        let meeting = engine.serve(library)?.meeting;
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
