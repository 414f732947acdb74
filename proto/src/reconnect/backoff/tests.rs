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
