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
mod tests;
