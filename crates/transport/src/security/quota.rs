use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of credential holders, and also of addresses, that have separate quotas. All further holders share
/// one quota, and so do all further addresses.
const CLIENTS_TRACKED_MAX: usize = 4096;

/// Number of calls that an idle client may make at once, given as the time in which the quota allows as many.
const BURST: Duration = Duration::from_secs(1);

/// A group of clients with a common quota.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Client {
    /// All connections with the token or certificate of this name.
    Holder(Arc<str>),
    /// All connections from this address without a known token or certificate.
    Address(Option<IpAddr>),
    /// Further clients of a kind, beyond [`CLIENTS_TRACKED_MAX`].
    Others,
}

/// The time up to which each client has used up the quota.
type UsedUntil = HashMap<Client, Instant>;

/// Limits the calls that each client may start per second.
///
/// The generic cell rate algorithm of ATM networks: each call advances the client's theoretical arrival time by one
/// interval. This needs one word per client and no timer. A rejected call does not advance the time.
#[derive(Debug)]
pub(super) struct Quota {
    interval: Duration,
    /// Quotas of credential holders. The map is separate from addresses, so that clients without credentials cannot
    /// fill it, from any number of addresses.
    of_holders: Mutex<UsedUntil>,
    of_addresses: Mutex<UsedUntil>,
}

impl Quota {
    /// Creates a quota; returns `None` for 0, which means no limit.
    pub(super) fn new(requests_per_second_max: u32) -> Option<Self> {
        let interval = Duration::from_secs(1).checked_div(requests_per_second_max)?;
        Some(Self { interval, of_holders: Mutex::default(), of_addresses: Mutex::default() })
    }

    /// Counts a call of `client` at `now`.
    ///
    /// # Errors
    /// The delay before the client may retry.
    pub(super) fn count(&self, client: Client, now: Instant) -> Result<(), Duration> {
        let clients = match &client {
            Client::Holder(_) => &self.of_holders,
            Client::Address(_) | Client::Others => &self.of_addresses,
        };
        let mut used_until = clients.lock().unwrap_or_else(PoisonError::into_inner);
        if used_until.len() >= CLIENTS_TRACKED_MAX && !used_until.contains_key(&client) {
            used_until.retain(|_, until| *until > now);
        }
        let is_full = used_until.len() >= CLIENTS_TRACKED_MAX && !used_until.contains_key(&client);
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
        Client::Holder(name.into())
    }

    fn address(number: u32) -> Client {
        Client::Address(Some(Ipv4Addr::from_bits(number).into()))
    }

    #[test]
    fn a_client_may_begin_a_seconds_worth_of_calls_at_once_and_then_one_for_each_interval() {
        let (quota, start) = (Quota::new(4).unwrap(), Instant::now());
        for _ in 0..4 {
            quota.count(token("actor"), start).unwrap();
        }
        let wait = quota.count(token("actor"), start).unwrap_err();
        assert_eq!(wait, Duration::from_millis(250));
        // A rejected call does not extend the wait.
        assert_eq!(quota.count(token("actor"), start).unwrap_err(), wait);
        quota.count(token("actor"), start + wait).unwrap();
        quota.count(token("actor"), start + wait).unwrap_err();
    }

    #[test]
    fn a_client_over_its_quota_does_not_reduce_the_quota_of_another() {
        let (quota, now) = (Quota::new(1).unwrap(), Instant::now());
        quota.count(token("actor"), now).unwrap();
        quota.count(token("actor"), now).unwrap_err();
        quota.count(token("learner"), now).unwrap();
        quota.count(address(1), now).unwrap();
    }

    #[test]
    fn clients_beyond_the_tracked_maximum_share_one_quota() {
        let (quota, now) = (Quota::new(1).unwrap(), Instant::now());
        let tracked = CLIENTS_TRACKED_MAX as u32;
        for number in 0..tracked {
            quota.count(address(number), now).unwrap();
        }
        quota.count(address(tracked), now).unwrap();
        quota.count(address(tracked + 1), now).unwrap_err();
        quota.count(address(0), now).unwrap_err();
        assert!(quota.of_addresses.lock().unwrap().len() <= CLIENTS_TRACKED_MAX + 1);
        // Clients below the quota are dropped to free capacity.
        quota.count(address(tracked + 1), now + 2 * BURST).unwrap();
        assert_eq!(quota.of_addresses.lock().unwrap().len(), 1);
    }

    #[test]
    fn any_number_of_strangers_leaves_the_quota_of_a_holder_as_it_is() {
        let (quota, now) = (Quota::new(1).unwrap(), Instant::now());
        for number in 0..2 * CLIENTS_TRACKED_MAX as u32 {
            let _ = quota.count(address(number), now);
        }
        quota.count(token("actor"), now).unwrap();
        quota.count(token("learner"), now).unwrap();
    }

    #[test]
    fn a_limit_of_zero_means_no_quota() {
        assert!(Quota::new(0).is_none());
    }
}
