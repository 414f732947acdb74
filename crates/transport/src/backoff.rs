use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// First delay before jitter, chosen so that a server restarts within a few such delays.
const FIRST: Duration = Duration::from_millis(50);
/// Longest delay before jitter, and so the longest time until a client notices that the server is reachable again.
const LONGEST: Duration = Duration::from_secs(1);

/// The delay before the next attempt: doubling, bounded, and jittered so that the clients of a fleet do not reconnect
/// simultaneously.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    rng: ChaCha8Rng,
}

impl Backoff {
    /// Starts with the shortest delay; `rng` draws the jitter.
    pub(crate) fn new(rng: ChaCha8Rng) -> Self {
        Self { next: FIRST, rng }
    }

    /// Returns the delay before the next attempt: between half of the bound and the bound. Doubles the bound.
    pub(crate) fn delay(&mut self) -> Duration {
        let delay = self.next.mul_f64(self.rng.random_range(0.5..=1.0));
        self.next = (self.next * 2).min(LONGEST);
        delay
    }

    /// Resets the next delay to the shortest, after a success.
    pub fn reset(&mut self) {
        self.next = FIRST;
    }
}

/// Returns a generator seeded by the system, so that the delays of two processes differ.
pub fn entropy() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(RandomState::new().hash_one(()))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha8Rng;

    use super::{Backoff, FIRST, LONGEST};

    fn backoff(seed: u64) -> Backoff {
        Backoff::new(ChaCha8Rng::seed_from_u64(seed))
    }

    #[test]
    fn delays_double_up_to_the_longest_and_stay_within_their_jitter() {
        let mut backoff = backoff(1);
        let mut bound = FIRST;
        for _ in 0..20 {
            let delay = backoff.delay();
            assert!(bound / 2 <= delay && delay <= bound, "{delay:?} for a bound of {bound:?}");
            bound = (bound * 2).min(LONGEST);
        }
    }

    #[test]
    fn success_starts_over() {
        let mut backoff = backoff(2);
        for _ in 0..10 {
            let _ = backoff.delay();
        }
        backoff.reset();
        assert!(backoff.delay() <= FIRST);
    }

    #[test]
    fn two_clients_do_not_wait_alike() {
        assert_ne!(backoff(3).delay(), backoff(4).delay());
    }
}
