//! Which of several inference servers is asked: the one that rendezvous hashing ranks first for this client, the next while
//! that fails, and the first again once a look at it says that it serves.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::servers::{Server, Servers, preferred};

/// How long a server that failed is left alone before somebody looks at it: at first, and at most after it failed again and
/// again.
const LOOK_AFTER: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(30)];

/// The servers that there are, how this client ranks them, and which failed.
#[derive(Debug)]
pub(super) struct Replicas {
    servers: Servers,
    client: u64,
    /// The servers that were ranked last, best first; looked at with every message, and ranked again when they are others.
    ranked: Vec<Server>,
    ranked_set: Arc<[Server]>,
    current: Option<Server>,
    /// By the id of the server.
    failed: HashMap<Arc<str>, Failure>,
}

/// A server that did not answer, or no more.
#[derive(Debug, Clone, Copy)]
struct Failure {
    at: Instant,
    times: u32,
    /// It has been looked at since, and serves.
    serves: bool,
}

impl Failure {
    /// When it is worth a look.
    fn due(&self) -> Instant {
        let doublings = self.times.saturating_sub(1).min(8);
        self.at + (LOOK_AFTER[0] * 2_u32.pow(doublings)).min(LOOK_AFTER[1])
    }
}

impl Replicas {
    /// Of the client that is known by this number.
    pub(super) fn new(servers: Servers, client: u64) -> Self {
        let ranked_set = servers.current();
        let ranked = preferred(&ranked_set, client);
        Self { servers, client, ranked, ranked_set, current: None, failed: HashMap::new() }
    }

    /// The server to ask next, which is the current one from then on; waits until there is one.
    pub(super) async fn choose(&mut self) -> Arc<str> {
        loop {
            if let Some(server) = self.next() {
                let endpoint = Arc::clone(&server.endpoint);
                self.current = Some(server);
                return endpoint;
            }
            self.servers.changed().await;
        }
    }

    /// Where the current server listens.
    pub(super) fn endpoint(&self) -> Option<Arc<str>> {
        self.current.as_ref().map(|server| Arc::clone(&server.endpoint))
    }

    /// The current server failed.
    pub(super) fn failed(&mut self, now: Instant) {
        let Some(server) = &self.current else { return };
        let times = self.failed.get(&server.id).map_or(0, |failure| failure.times) + 1;
        self.failed.insert(Arc::clone(&server.id), Failure { at: now, times, serves: false });
    }

    /// The current server answers.
    pub(super) fn answered(&mut self) {
        if let Some(server) = &self.current {
            self.failed.remove(&server.id);
        }
    }

    /// Whether another server is to be asked: a better one, or any because the current one is gone.
    pub(super) fn is_outranked(&mut self) -> bool {
        self.rank();
        let Some(current) = &self.current else { return false };
        let best = self.ranked.iter().find(|server| server.id == current.id || self.is_good(server));
        best.is_some_and(|best| best != current)
    }

    /// A better server that failed, and when it is worth a look.
    pub(super) fn suspect(&mut self) -> Option<(Server, Instant)> {
        self.rank();
        let current = self.current.as_ref()?;
        let better = self.ranked.iter().take_while(|server| server.id != current.id);
        let failed = better.filter_map(|server| Some((server, self.failed.get(&server.id)?)));
        let (server, due) = failed.map(|(server, failure)| (server, failure.due())).min_by_key(|(_, due)| *due)?;
        Some((server.clone(), due))
    }

    /// Somebody had a look at a server that failed.
    pub(super) fn looked_at(&mut self, server: &Server, serves: bool, now: Instant) {
        if let Some(failure) = self.failed.get_mut(&server.id) {
            (failure.serves, failure.at) = (serves, now);
            failure.times += u32::from(!serves);
        }
    }

    /// Waits until there are other servers. Cancel-safe.
    pub(super) async fn changed(&mut self) {
        self.servers.changed().await;
    }

    /// Ranks the servers that there are now.
    fn rank(&mut self) {
        let set = self.servers.current();
        if !Arc::ptr_eq(&set, &self.ranked_set) {
            self.ranked = preferred(&set, self.client);
            self.ranked_set = set;
        }
    }

    fn is_good(&self, server: &Server) -> bool {
        self.failed.get(&server.id).is_none_or(|failure| failure.serves)
    }

    /// The best that has not failed, else the one whose failure is longest ago.
    fn next(&mut self) -> Option<Server> {
        self.rank();
        let Self { ranked, failed, .. } = self;
        failed.retain(|id, _| ranked.iter().any(|server| server.id == *id));
        let good = self.ranked.iter().find(|server| self.is_good(server));
        let oldest = || self.ranked.iter().min_by_key(|server| self.failed.get(&server.id).map(|failure| failure.at));
        good.or_else(oldest).cloned()
    }
}

#[cfg(test)]
mod tests;
