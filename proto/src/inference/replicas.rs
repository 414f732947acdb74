//! Chooses one of several inference servers. Rendezvous hashing ranks the servers for each client; the client uses the
//! first server, the next server while the first fails, and the first again after a successful health check.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use transport::servers::{Server, Servers, preferred};

/// Delay before the health check of a failed server: the first, and the longest after repeated failures.
const LOOK_AFTER: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(30)];

/// The current servers, ranked for this client, and the failures of each.
#[derive(Debug)]
pub(super) struct Replicas {
    servers: Servers,
    client: u64,
    /// The ranked servers, best first; used with every message, and ranked again when the set changes.
    ranked: Vec<Server>,
    ranked_set: Arc<[Server]>,
    current: Option<Server>,
    /// Failures by server id.
    failed: HashMap<Arc<str>, Failure>,
}

/// The failure of a server that did not respond, or stopped responding.
#[derive(Debug, Clone, Copy)]
struct Failure {
    at: Instant,
    times: u32,
    /// True after a successful health check since the failure.
    serves: bool,
}

impl Failure {
    /// Returns the time of the next health check.
    fn due(&self) -> Instant {
        let doublings = self.times.saturating_sub(1).min(8);
        self.at + (LOOK_AFTER[0] * 2_u32.pow(doublings)).min(LOOK_AFTER[1])
    }
}

impl Replicas {
    /// Creates the replicas for the client with this number.
    pub(super) fn new(servers: Servers, client: u64) -> Self {
        let ranked_set = servers.current();
        let ranked = preferred(&ranked_set, client);
        Self { servers, client, ranked, ranked_set, current: None, failed: HashMap::new() }
    }

    /// Chooses the next server as the current server and returns the endpoint; waits until there is one.
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

    /// Returns the endpoint of the current server.
    pub(super) fn endpoint(&self) -> Option<Arc<str>> {
        self.current.as_ref().map(|server| Arc::clone(&server.endpoint))
    }

    /// Records that the current server failed.
    pub(super) fn failed(&mut self, now: Instant) {
        let Some(server) = &self.current else { return };
        let times = self.failed.get(&server.id).map_or(0, |failure| failure.times) + 1;
        self.failed.insert(Arc::clone(&server.id), Failure { at: now, times, serves: false });
    }

    /// Records that the current server responds.
    pub(super) fn answered(&mut self) {
        if let Some(server) = &self.current {
            self.failed.remove(&server.id);
        }
    }

    /// Returns true if requests should move to another server, because there is a better one or because the current
    /// server was removed.
    pub(super) fn is_outranked(&mut self) -> bool {
        self.rank();
        let Some(current) = &self.current else { return false };
        let best = self.ranked.iter().find(|server| server.id == current.id || self.is_good(server));
        best.is_some_and(|best| best != current)
    }

    /// Returns a better server that failed, and the time of the next health check.
    pub(super) fn suspect(&mut self) -> Option<(Server, Instant)> {
        self.rank();
        let current = self.current.as_ref()?;
        let better = self.ranked.iter().take_while(|server| server.id != current.id);
        let failed = better.filter_map(|server| Some((server, self.failed.get(&server.id)?)));
        let (server, due) = failed.map(|(server, failure)| (server, failure.due())).min_by_key(|(_, due)| *due)?;
        Some((server.clone(), due))
    }

    /// Records the health check of a failed server.
    pub(super) fn looked_at(&mut self, server: &Server, serves: bool, now: Instant) {
        if let Some(failure) = self.failed.get_mut(&server.id) {
            (failure.serves, failure.at) = (serves, now);
            failure.times += u32::from(!serves);
        }
    }

    /// Waits until the set of servers changes. Cancel-safe.
    pub(super) async fn changed(&mut self) {
        self.servers.changed().await;
    }

    /// Ranks the current servers, if the set has changed.
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

    /// Returns the best server without a failure, else the server with the oldest failure.
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
mod tests {
    use tokio::sync::watch;

    use super::*;

    const CLIENT: u64 = 7;

    fn set(numbers: &[u16]) -> Arc<[Server]> {
        numbers.iter().map(|number| Server::at(&format!("http://10.0.0.{number}:7003"))).collect()
    }

    /// Returns replicas of `count` servers, the sender of server changes, and the servers by rank.
    fn replicas(count: u16) -> (Replicas, watch::Sender<Arc<[Server]>>, Vec<Server>) {
        let numbers: Vec<u16> = (0..count).collect();
        let (set_sender, set_receiver) = watch::channel(set(&numbers));
        let ranked = preferred(&set_receiver.borrow(), CLIENT);
        (Replicas::new(Servers::watching(set_receiver), CLIENT), set_sender, ranked)
    }

    #[tokio::test]
    async fn the_next_server_is_chosen_while_better_ones_fail_and_all_in_turn_when_all_fail() {
        let (mut replicas, _sender, ranked) = replicas(3);
        let now = Instant::now();
        for (second, expected) in [0, 1, 2, 0, 1, 2].into_iter().enumerate() {
            assert_eq!(replicas.choose().await, ranked[expected].endpoint, "{second}");
            replicas.failed(now + Duration::from_secs(second as u64));
        }
    }

    #[tokio::test]
    async fn a_failed_better_server_is_probed_at_growing_intervals_and_chosen_again_once_it_serves() {
        let (mut replicas, _sender, ranked) = replicas(2);
        let start = Instant::now();
        replicas.choose().await;
        replicas.failed(start);
        assert_eq!(replicas.choose().await, ranked[1].endpoint);
        replicas.answered();
        let mut now = start;
        for wait in [2, 4, 8, 16, 30, 30] {
            let (suspect, due) = replicas.suspect().unwrap();
            assert_eq!((&suspect, due), (&ranked[0], now + Duration::from_secs(wait)));
            now = due;
            replicas.looked_at(&suspect, false, now);
            assert!(!replicas.is_outranked());
        }
        replicas.looked_at(&ranked[0], true, now);
        assert!(replicas.is_outranked());
        assert_eq!(replicas.choose().await, ranked[0].endpoint);
        replicas.answered();
        assert!(replicas.suspect().is_none() && !replicas.is_outranked());
    }

    #[tokio::test]
    async fn an_added_server_of_higher_rank_is_chosen_and_a_removed_one_is_left() {
        let (mut replicas, set_sender, _) = replicas(2);
        let first = replicas.choose().await;
        let newcomer =
            (2..200).find(|&number| preferred(&set(&[0, 1, number]), CLIENT)[0] == set(&[number])[0]).unwrap();
        set_sender.send_replace(set(&[0, 1, newcomer]));
        assert!(replicas.is_outranked());
        assert_eq!(replicas.choose().await, set(&[newcomer])[0].endpoint);
        assert!(!replicas.is_outranked());
        set_sender.send_replace(set(&[0, 1]));
        assert!(replicas.is_outranked());
        assert_eq!(replicas.choose().await, first);
    }

    #[tokio::test]
    async fn an_empty_set_keeps_the_last_server_until_it_fails_and_then_waits_for_a_server() {
        let (mut replicas, set_sender, ranked) = replicas(1);
        replicas.choose().await;
        set_sender.send_replace(set(&[]));
        assert!(!replicas.is_outranked(), "no server outranks the only one");
        replicas.failed(Instant::now());
        let choosing = tokio::spawn(async move { replicas.choose().await });
        tokio::task::yield_now().await;
        assert!(!choosing.is_finished());
        set_sender.send_replace(set(&[0]));
        assert_eq!(choosing.await.unwrap(), ranked[0].endpoint);
    }
}
