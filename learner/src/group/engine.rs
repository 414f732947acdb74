//! The library that moves numbers between the members of a group.

use collective::{Collective, Error};
use proto::learners::Roster;

/// Makes the groups of a library.
pub(crate) trait Engine: Send + Sync {
    /// Serves the store of the next group, of which this learner is the coordinator.
    ///
    /// # Errors
    /// No port can be bound.
    fn serve(&self) -> Result<Served, Error>;

    /// Joins a group, and returns when all its members have.
    ///
    /// # Errors
    /// Not all members have joined in time.
    fn join(&self, roster: &Roster, rank: usize) -> Result<Box<dyn Collective>, Error>;
}

/// A store that is served until it is dropped.
#[cfg_attr(not(feature = "torch"), allow(dead_code, reason = "only an engine makes one"))]
pub(crate) struct Served {
    pub(crate) port: u16,
    pub(crate) _store: Box<dyn Send>,
}

/// Gloo, between hosts that are given by the endpoints of the learners.
#[cfg(feature = "torch")]
#[derive(Debug)]
pub(crate) struct Gloo {
    /// The host of each learner, by index.
    pub(crate) hosts: Vec<String>,
    pub(crate) own: usize,
    pub(crate) timeout: std::time::Duration,
}

#[cfg(feature = "torch")]
impl Engine for Gloo {
    fn serve(&self) -> Result<Served, Error> {
        let store = collective::gloo::Store::serve(&self.hosts[self.own], self.timeout)?;
        Ok(Served { port: store.port(), _store: Box::new(store) })
    }

    fn join(&self, roster: &Roster, rank: usize) -> Result<Box<dyn Collective>, Error> {
        let place = collective::gloo::Place {
            store: (self.hosts[roster.coordinator()].clone(), roster.store_port),
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

    use super::{Collective, Engine, Error, Roster, Served};

    /// The groups of one test, by port. A member whose others never come waits in vain, as with Gloo.
    #[derive(Debug, Default)]
    pub(crate) struct Threads {
        ports: Mutex<u16>,
        groups: Mutex<HashMap<u16, Vec<Option<collective::InProcess>>>>,
    }

    impl Engine for std::sync::Arc<Threads> {
        fn serve(&self) -> Result<Served, Error> {
            let mut ports = self.ports.lock().unwrap();
            *ports += 1;
            Ok(Served { port: *ports, _store: Box::new(()) })
        }

        fn join(&self, roster: &Roster, rank: usize) -> Result<Box<dyn Collective>, Error> {
            let mut groups = self.groups.lock().unwrap();
            let make = || collective::in_process(roster.members.len()).into_iter().map(Some).collect();
            let members = groups.entry(roster.store_port).or_insert_with(make);
            let place =
                members[rank].take().ok_or(Error { operation: "join", reason: "the place is taken".to_owned() });
            Ok(Box::new(place?))
        }
    }
}
