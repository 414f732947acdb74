//! Divides the places for searches among clients.
//!
//! A client may take every place that is free. When none is free, a client with fewer than an equal share takes the
//! place of the longest search of the client with the most, which returns the best move found. Start with
//! [`Places::take`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Time after which a search may lose the place to a client without a search, even if there are more clients than
/// places.
const TURN: Duration = Duration::from_secs(1);

/// The places for the searches of a server.
#[derive(Debug)]
pub(crate) struct Places {
    count: usize,
    /// Signal on which all searches end.
    closing: CancellationToken,
    /// The searches in order of the start, and those that have ended since the last start.
    taken: Mutex<Vec<Arc<Place>>>,
}

/// The place of a search, which nothing else holds than the search and the list.
#[derive(Debug)]
pub(crate) struct Place {
    client: u64,
    since: Instant,
    /// Signal on which the search must end.
    pub(crate) lost: CancellationToken,
}

impl Places {
    /// Creates `count` places. All searches lose the places when `closing` fires.
    pub(crate) fn new(count: usize, closing: CancellationToken) -> Self {
        Self { count, closing, taken: Mutex::default() }
    }

    /// Returns a place for a search of `client`, until dropped.
    ///
    /// # Errors
    /// The delay before a retry: the client has its share, or more clients than places have just started searches.
    pub(crate) fn take(&self, client: u64, now: Instant) -> Result<Arc<Place>, Duration> {
        let mut taken = self.taken.lock();
        taken.retain(|place| Arc::strong_count(place) > 1);
        if taken.len() >= self.count {
            let index = yielding(&taken, client, now)?;
            taken.remove(index).lost.cancel();
        }
        let place = Arc::new(Place { client, since: now, lost: self.closing.child_token() });
        taken.push(Arc::clone(&place));
        Ok(place)
    }
}

/// Returns the index of the search that yields the place to `client`.
fn yielding(taken: &[Arc<Place>], client: u64, now: Instant) -> Result<usize, Duration> {
    let mut counts: HashMap<u64, usize> = HashMap::new();
    for place in taken {
        *counts.entry(place.client).or_default() += 1;
    }
    let own = counts.get(&client).copied().unwrap_or(0);
    // The last of equals is the longest search.
    let longest = (0..taken.len()).rev().max_by_key(|&index| counts[&taken[index].client]);
    let index = longest.ok_or(TURN)?;
    let left = TURN.saturating_sub(now.saturating_duration_since(taken[index].since));
    if counts[&taken[index].client] > own + 1 || (own == 0 && left.is_zero()) {
        return Ok(index);
    }
    Err(if own == 0 { left } else { TURN })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(count: usize) -> Places {
        Places::new(count, CancellationToken::new())
    }

    /// Takes places for `client` until refused, at most `most`.
    fn fill(places: &Places, client: u64, most: usize, now: Instant) -> Vec<Arc<Place>> {
        (0..most).map_while(|_| places.take(client, now).ok()).collect()
    }

    fn kept(searches: &[Arc<Place>]) -> usize {
        searches.iter().filter(|place| !place.lost.is_cancelled()).count()
    }

    #[test]
    fn any_number_of_greedy_clients_leaves_each_client_its_share_at_once() {
        let now = Instant::now();
        for clients in 1..=64 {
            let places = places(64);
            let held: Vec<_> = (0..clients).map(|client| fill(&places, client, 100, now)).collect();
            let share = 64 / clients as usize;
            for (client, searches) in held.iter().enumerate() {
                assert!(kept(searches) >= share, "client {client} of {clients} has {} places", kept(searches));
            }
            assert_eq!(held.iter().map(|searches| kept(searches)).sum::<usize>(), 64);
        }
    }

    #[test]
    fn the_longest_search_of_the_client_with_the_most_yields() {
        let (places, start) = (places(3), Instant::now());
        let greedy = fill(&places, 1, 2, start);
        let other = places.take(2, start).unwrap();
        let newcomer = places.take(3, start).unwrap();
        let lost = [&greedy[0], &greedy[1], &other, &newcomer].map(|place| place.lost.is_cancelled());
        assert_eq!(lost, [true, false, false, false]);
        assert_eq!(places.take(3, start + 9 * TURN).unwrap_err(), TURN, "a second search takes no place of equals");
        drop(other);
        places.take(3, start).unwrap();
        places.closing.cancel();
        assert!(newcomer.lost.is_cancelled());
    }

    #[test]
    fn a_client_without_a_search_waits_for_one_turn_however_many_clients_there_are() {
        let (places, start) = (places(2), Instant::now());
        let searches = [1, 2].map(|client| places.take(client, start).unwrap());
        assert_eq!(places.take(3, start + TURN / 4).unwrap_err(), TURN * 3 / 4);
        let _third = places.take(3, start + TURN).unwrap();
        assert_eq!(searches.each_ref().map(|place| place.lost.is_cancelled()), [true, false]);
    }

    #[test]
    fn a_search_that_has_yielded_releases_no_other_place() {
        let (places, start) = (places(1), Instant::now());
        let first = places.take(1, start).unwrap();
        let _second = places.take(2, start + TURN).unwrap();
        drop(first);
        places.take(3, start + TURN).unwrap_err();
    }
}
