//! Divides the places of connections without an accepted call among addresses.
//!
//! When all places are taken, a further connection takes the place of another one, and is not refused: clients of one
//! proxy or gateway have one address, so silent connections from there must not lock out the other clients.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::security::Network;

/// Maximum number of connections without an accepted call, and so of concurrent TLS handshakes.
const NEWCOMERS_MAX: usize = 512;

/// Age from which a connection without a byte from the client is silent. Clients speak first, in the packet after the
/// last of the TCP handshake, whatever the round trip takes.
const SILENT_AFTER: Duration = Duration::from_millis(20);

/// Interval between warnings that any client can cause.
pub(super) const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// The connections without an accepted call.
#[derive(Debug)]
pub(super) struct Newcomers {
    /// Places for connections of known clients.
    known: Arc<Semaphore>,
    places: usize,
    /// The connections in order of arrival, and those that have ended since the last arrival.
    open: Vec<Arc<Newcomer>>,
    closings: Closings,
}

/// Counts the connections closed to make room, for a warning at the first of them and a warning now and then.
#[derive(Debug, Default)]
struct Closings {
    since_warning: u64,
    warned: Option<Instant>,
}

/// A connection without an accepted call, held by nothing else than the connection and the list.
#[derive(Debug)]
pub(super) struct Newcomer {
    network: Arc<Network>,
    since: Instant,
    /// True after the first byte from the client.
    pub(super) has_spoken: AtomicBool,
    /// True after a handshake that has verified a client certificate.
    pub(super) has_certificate: AtomicBool,
    /// Cancelled when the connection must be closed to make room.
    pub(super) closed: CancellationToken,
    /// Places for connections of known clients.
    pub(super) known: Arc<Semaphore>,
}

impl Newcomers {
    /// Creates the places for a server with `connections_max` connections.
    pub(super) fn new(connections_max: usize) -> Self {
        let known = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
        let places = connections_max.div_ceil(2).min(NEWCOMERS_MAX);
        Self { known, places, open: Vec::new(), closings: Closings::default() }
    }

    /// Returns a place for a connection from `network`. If all are taken, closes another connection without a call.
    /// Returns `None` if known clients have all connections.
    pub(super) fn place(&mut self, network: &Arc<Network>, now: Instant) -> Option<Arc<Newcomer>> {
        self.open.retain(|newcomer| Arc::strong_count(newcomer) > 1);
        let room = self.places.min(self.known.available_permits());
        if room == 0 {
            return None;
        }
        if self.open.len() >= room {
            let index = yielding(&self.open, now)?;
            let newcomer = self.open.remove(index);
            newcomer.closed.cancel();
            if let Some(connections) = self.closings.count(now) {
                let address = newcomer.network.address();
                tracing::warn!(connections, %address, "closing connections without an accepted call to make room");
            }
        }
        let newcomer = Arc::new(Newcomer {
            network: Arc::clone(network),
            since: now,
            has_spoken: AtomicBool::new(false),
            has_certificate: AtomicBool::new(false),
            closed: CancellationToken::new(),
            known: Arc::clone(&self.known),
        });
        self.open.push(Arc::clone(&newcomer));
        Some(newcomer)
    }
}

impl Closings {
    /// Counts a connection. If a warning is due, returns the number of connections since the last warning.
    fn count(&mut self, now: Instant) -> Option<u64> {
        self.since_warning += 1;
        if self.warned.is_some_and(|warned| now.saturating_duration_since(warned) < WARNING_INTERVAL) {
            return None;
        }
        self.warned = Some(now);
        Some(std::mem::take(&mut self.since_warning))
    }
}

/// Returns the index of the connection to close: of the address with the most connections the oldest silent one, or
/// else the oldest. Connections with a certificate come last.
fn yielding(open: &[Arc<Newcomer>], now: Instant) -> Option<usize> {
    let mut counts: HashMap<*const Network, usize> = HashMap::new();
    for newcomer in open {
        *counts.entry(Arc::as_ptr(&newcomer.network)).or_default() += 1;
    }
    let order = |newcomer: &Newcomer| {
        let is_young = now.saturating_duration_since(newcomer.since) < SILENT_AFTER;
        let has_spoken = is_young || newcomer.has_spoken.load(Ordering::Relaxed);
        let count = counts[&Arc::as_ptr(&newcomer.network)];
        (newcomer.has_certificate.load(Ordering::Relaxed), Reverse(count), has_spoken)
    };
    // The first of equals is the oldest.
    (0..open.len()).min_by_key(|&index| order(&open[index]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::security::Networks;

    struct Fixture {
        newcomers: Newcomers,
        networks: Networks,
        start: Instant,
    }

    impl Fixture {
        /// Creates three places for newcomers, of six connections.
        fn new() -> Self {
            Self { newcomers: Newcomers::new(6), networks: Networks::default(), start: Instant::now() }
        }

        /// Returns a place for a connection that arrives `ms` milliseconds after the start.
        fn place(&mut self, address: &str, ms: u64) -> Arc<Newcomer> {
            let network = self.networks.of(address.parse().unwrap());
            self.newcomers.place(&network, self.start + Duration::from_millis(ms)).unwrap()
        }
    }

    fn closed<const N: usize>(places: [&Arc<Newcomer>; N]) -> [bool; N] {
        places.map(|place| place.closed.is_cancelled())
    }

    #[test]
    fn the_oldest_silent_connection_of_an_address_makes_room_for_another() {
        let mut fixture = Fixture::new();
        let [spoken, silent, later] = [0, 1, 2].map(|ms| fixture.place("192.0.2.1", ms));
        spoken.has_spoken.store(true, Ordering::Relaxed);
        let fourth = fixture.place("192.0.2.1", 100);
        assert_eq!(closed([&spoken, &silent, &later, &fourth]), [false, true, false, false]);
        later.has_spoken.store(true, Ordering::Relaxed);
        // The client of a young connection may still speak, so the oldest is closed.
        let _fifth = fixture.place("192.0.2.1", 101);
        assert_eq!(closed([&spoken, &later, &fourth]), [true, false, false]);
    }

    #[test]
    fn the_address_with_the_most_connections_makes_room_and_a_certificate_is_closed_last() {
        let mut fixture = Fixture::new();
        let certified = fixture.place("192.0.2.1", 0);
        certified.has_certificate.store(true, Ordering::Relaxed);
        let [first, second] = [1, 2].map(|ms| fixture.place("192.0.2.1", ms));
        let other = fixture.place("192.0.2.2", 3);
        assert_eq!(closed([&certified, &first, &second, &other]), [false, true, false, false]);
        let _more = fixture.place("192.0.2.2", 4);
        assert_eq!(closed([&certified, &second, &other]), [false, true, false]);
    }

    #[test]
    fn the_first_closed_connection_is_warned_of_at_once_and_later_ones_as_a_number() {
        let start = Instant::now();
        let mut closings = Closings::default();
        let warnings = [0, 1, 9, 10, 11, 30].map(|s| closings.count(start + Duration::from_secs(s)));
        assert_eq!(warnings, [Some(1), None, None, Some(3), None, Some(2)]);
    }

    #[test]
    fn a_place_is_free_again_when_the_connection_has_ended() {
        let mut fixture = Fixture::new();
        let [first, second, third] = [0, 1, 2].map(|ms| fixture.place("192.0.2.1", ms));
        drop(second);
        let fourth = fixture.place("192.0.2.1", 100);
        assert_eq!(closed([&first, &third, &fourth]), [false; 3]);
    }

    #[test]
    fn known_clients_keep_the_connections_that_newcomers_compete_for() {
        let mut fixture = Fixture::new();
        let establish = |newcomer: Arc<Newcomer>| Arc::clone(&newcomer.known).try_acquire_owned().unwrap();
        let known: Vec<_> = (0..5).map(|ms| establish(fixture.place("192.0.2.1", ms))).collect();
        // One connection is left.
        let first = fixture.place("192.0.2.1", 5);
        let second = fixture.place("192.0.2.1", 6);
        assert_eq!(closed([&first, &second]), [true, false]);
        let _last = establish(second);
        let network = fixture.networks.of("192.0.2.1".parse().unwrap());
        assert!(fixture.newcomers.place(&network, fixture.start).is_none());
        drop(known);
        fixture.place("192.0.2.1", 7);
    }
}
