//! Limits how many trajectories each actor may insert per second.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Number of tracked actors at which the actors within the quota are forgotten.
const ACTORS_TRACKED_MAX: usize = 4096;

/// Number of trajectories that an idle actor may send at once, given as the time in which the quota allows as many.
const BURST: Duration = Duration::from_secs(1);

/// Limits the trajectories that each actor may insert per second, over all streams of the actor.
///
/// This is the generic cell rate algorithm of ATM networks: each trajectory advances the actor's theoretical arrival
/// time by one interval, which needs one word per actor and no timer.
#[derive(Debug, Clone)]
pub struct Quota {
    interval: Option<Duration>,
    used_until: Arc<Mutex<HashMap<u64, Instant>>>,
}

impl Quota {
    /// Creates a quota; `None` is unlimited.
    pub fn new(inserts_per_second_max: Option<NonZeroU32>) -> Self {
        let interval = inserts_per_second_max.map(|inserts| Duration::from_secs(1) / inserts.get());
        Self { interval, used_until: Arc::default() }
    }

    /// Counts a trajectory; returns the time until which the next trajectory of the actor must wait, if it must.
    pub fn count(&self, actor: u64, now: Instant) -> Option<Instant> {
        let interval = self.interval?;
        let mut used_until = self.used_until.lock();
        if used_until.len() >= ACTORS_TRACKED_MAX {
            used_until.retain(|_, until| *until > now);
        }
        let until = used_until.entry(actor).or_insert(now);
        *until = (*until).max(now) + interval;
        until.checked_sub(BURST).filter(|&ready| ready > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_actor_may_send_a_second_s_worth_at_once_and_then_waits_for_its_turn() {
        let quota = Quota::new(NonZeroU32::new(10));
        let now = Instant::now();
        let waits: Vec<_> = (0..12).map(|_| quota.count(1, now).map(|ready| ready - now)).collect();
        assert_eq!(waits[..10], [None; 10]);
        assert_eq!(waits[10..], [Some(Duration::from_millis(100)), Some(Duration::from_millis(200))]);
        assert_eq!(quota.count(2, now), None, "actors do not wait for each other");
        assert_eq!(quota.count(1, now + Duration::from_millis(500)), None);
    }

    #[test]
    fn actors_within_their_quota_are_removed_when_the_map_is_full() {
        let quota = Quota::new(NonZeroU32::new(1));
        let now = Instant::now();
        (0..ACTORS_TRACKED_MAX as u64).for_each(|actor| assert_eq!(quota.count(actor, now), None));
        quota.count(0, now + Duration::from_secs(2));
        assert_eq!(quota.used_until.lock().len(), 1);
    }

    #[test]
    fn without_a_quota_no_actor_waits_or_is_stored() {
        let quota = Quota::new(None);
        assert_eq!(quota.count(1, Instant::now()), None);
        assert_eq!(quota.used_until.lock().len(), 0);
    }
}
