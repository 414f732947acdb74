use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Clients that are remembered while they may be over their quota. Beyond, all others share one.
const CLIENTS_REMEMBERED: usize = 4096;

/// How much a client that was idle may ask at once: a second's worth.
const BURST: Duration = Duration::from_secs(1);

/// Whose calls are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Client {
    /// All who have this token.
    Token(Arc<str>),
    /// Whoever comes from this address without one.
    Address(Option<IpAddr>),
    /// Those that came when too many were remembered.
    Others,
}

/// How many calls each client may begin per second.
///
/// The generic cell rate algorithm of ATM networks: each call moves the moment at which its client has used up what it may by
/// one interval, which needs one word for each client and no timer. A call that is refused moves nothing.
#[derive(Debug)]
pub(super) struct Quota {
    interval: Duration,
    used_until: Mutex<HashMap<Client, Instant>>,
}

impl Quota {
    /// `None` where any number of calls is fine: 0.
    pub(super) fn new(requests_per_second_max: u32) -> Option<Self> {
        let interval = Duration::from_secs(1).checked_div(requests_per_second_max)?;
        Some(Self { interval, used_until: Mutex::default() })
    }

    /// Counts a call.
    ///
    /// # Errors
    /// How long the client must wait.
    pub(super) fn count(&self, client: Client, now: Instant) -> Result<(), Duration> {
        let mut used_until = self.used_until.lock().unwrap_or_else(PoisonError::into_inner);
        if used_until.len() >= CLIENTS_REMEMBERED && !used_until.contains_key(&client) {
            used_until.retain(|_, until| *until > now);
        }
        let is_full = used_until.len() >= CLIENTS_REMEMBERED && !used_until.contains_key(&client);
        let until = used_until.entry(if is_full { Client::Others } else { client }).or_insert(now);
        let next = (*until).max(now) + self.interval;
        match next.duration_since(now).checked_sub(BURST) {
            Some(wait) if !wait.is_zero() => Err(wait),
            _ => {
                *until = next;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn token(name: &str) -> Client {
        Client::Token(name.into())
    }

    fn address(number: u32) -> Client {
        Client::Address(Some(Ipv4Addr::from_bits(number).into()))
    }

    #[test]
    fn a_client_may_ask_a_seconds_worth_at_once_and_then_one_for_each_interval() {
        let (quota, start) = (Quota::new(4).unwrap(), Instant::now());
        for _ in 0..4 {
            quota.count(token("actor"), start).unwrap();
        }
        let wait = quota.count(token("actor"), start).unwrap_err();
        assert_eq!(wait, Duration::from_millis(250));
        // However often it is refused, it waits no longer.
        assert_eq!(quota.count(token("actor"), start).unwrap_err(), wait);
        quota.count(token("actor"), start + wait).unwrap();
        quota.count(token("actor"), start + wait).unwrap_err();
    }

    #[test]
    fn one_client_over_its_quota_takes_nothing_from_another() {
        let (quota, now) = (Quota::new(1).unwrap(), Instant::now());
        quota.count(token("actor"), now).unwrap();
        quota.count(token("actor"), now).unwrap_err();
        quota.count(token("learner"), now).unwrap();
        quota.count(address(1), now).unwrap();
    }

    #[test]
    fn clients_without_number_share_one_quota_beyond_those_that_are_remembered() {
        let (quota, now) = (Quota::new(1).unwrap(), Instant::now());
        let remembered = CLIENTS_REMEMBERED as u32;
        for number in 0..remembered {
            quota.count(address(number), now).unwrap();
        }
        quota.count(address(remembered), now).unwrap();
        quota.count(address(remembered + 1), now).unwrap_err();
        quota.count(address(0), now).unwrap_err();
        assert!(quota.used_until.lock().unwrap().len() <= CLIENTS_REMEMBERED + 1);
        // Once they have waited they are forgotten, and there is room.
        quota.count(address(remembered + 1), now + 2 * BURST).unwrap();
        assert_eq!(quota.used_until.lock().unwrap().len(), 1);
    }

    #[test]
    fn no_number_is_no_quota() {
        assert!(Quota::new(0).is_none());
    }
}
