//! The addresses that group members leave for each other while connecting.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::sync::watch;

/// Maximum bytes in one group: in a group of [`LEARNERS_MAX`](super::LEARNERS_MAX), each member leaves some 10 KB.
const BYTES_MAX: usize = 4 << 20;
/// Maximum length of a key, in bytes.
pub(crate) const KEY_BYTES_MAX: usize = 256;

/// A secret that only the group members know: without the secret, no process can change how the members connect.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub [u8; 32]);

impl Secret {
    /// Draws a secret from the system's entropy; `None` if the system has none.
    #[must_use]
    pub fn draw() -> Option<Self> {
        let mut secret = [0; 32];
        SystemRandom::new().fill(&mut secret).ok()?;
        Some(Self(secret))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(..)")
    }
}

/// The addresses in the latest group that this learner coordinates. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Exchange {
    table: Arc<watch::Sender<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    secret: Option<Secret>,
    addresses: BTreeMap<String, Bytes>,
    bytes: usize,
}

/// A reason why an address was not set or not found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    /// No group with this secret is being connected.
    #[error("no group with this secret is being formed")]
    Unknown,
    /// The key already has an address.
    #[error("the key already has an address")]
    Taken,
    /// The addresses of the group would exceed the size limit.
    #[error("addresses of the group exceed {BYTES_MAX} bytes")]
    Full,
}

impl Exchange {
    /// Starts a group and forgets the addresses of the previous group.
    pub fn start(&self, secret: Secret) {
        self.table.send_replace(Table { secret: Some(secret), ..Table::default() });
    }

    /// Sets the address of `key`, once for each key.
    ///
    /// # Errors
    /// [`ExchangeError`].
    pub fn set(&self, secret: Secret, key: &str, address: Bytes) -> Result<(), ExchangeError> {
        let mut outcome = Ok(());
        self.table.send_if_modified(|table| {
            outcome = table.set(secret, key, address);
            outcome.is_ok()
        });
        outcome
    }

    /// Returns an address as soon as it is set.
    ///
    /// # Errors
    /// [`ExchangeError::Unknown`], also if another group starts meanwhile.
    pub async fn get(&self, secret: Secret, key: &str) -> Result<Bytes, ExchangeError> {
        let mut table = self.table.subscribe();
        let is_answered = |table: &Table| table.secret != Some(secret) || table.addresses.contains_key(key);
        let table = table.wait_for(is_answered).await.map_err(|_| ExchangeError::Unknown)?;
        table.get(secret, key)
    }
}

impl Table {
    fn set(&mut self, secret: Secret, key: &str, address: Bytes) -> Result<(), ExchangeError> {
        if self.secret != Some(secret) {
            return Err(ExchangeError::Unknown);
        }
        if self.addresses.contains_key(key) {
            return Err(ExchangeError::Taken);
        }
        let bytes = self.bytes.saturating_add(key.len()).saturating_add(address.len());
        if bytes > BYTES_MAX {
            return Err(ExchangeError::Full);
        }
        self.bytes = bytes;
        self.addresses.insert(key.to_owned(), address);
        Ok(())
    }

    fn get(&self, secret: Secret, key: &str) -> Result<Bytes, ExchangeError> {
        let is_of = self.secret == Some(secret);
        self.addresses.get(key).filter(|_| is_of).cloned().ok_or(ExchangeError::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Secret = Secret([1; 32]);
    const STRANGE: Secret = Secret([2; 32]);

    #[tokio::test]
    async fn an_address_reaches_those_that_wait_for_it_and_is_never_replaced() {
        let exchange = Exchange::default();
        exchange.start(OWN);
        let (waits, ()) = tokio::join!(exchange.get(OWN, "0"), async {
            exchange.set(OWN, "1", Bytes::from_static(b"b")).unwrap();
            exchange.set(OWN, "0", Bytes::from_static(b"a")).unwrap();
        });
        assert_eq!(waits.unwrap(), "a");
        assert_eq!(exchange.set(OWN, "0", Bytes::from_static(b"c")), Err(ExchangeError::Taken));
        assert_eq!(exchange.get(OWN, "0").await.unwrap(), "a");
    }

    #[tokio::test]
    async fn without_the_secret_of_the_group_nothing_is_set_or_read() {
        let exchange = Exchange::default();
        assert_eq!(exchange.set(OWN, "0", Bytes::new()), Err(ExchangeError::Unknown), "no group has started");
        exchange.start(OWN);
        assert_eq!(exchange.set(STRANGE, "0", Bytes::new()), Err(ExchangeError::Unknown));
        assert_eq!(exchange.get(STRANGE, "0").await, Err(ExchangeError::Unknown));
        let (waits, ()) = tokio::join!(exchange.get(OWN, "0"), async { exchange.start(STRANGE) });
        assert_eq!(waits, Err(ExchangeError::Unknown), "another group has started");
        assert_ne!(Secret::draw().unwrap(), Secret::draw().unwrap());
        assert_eq!(format!("{OWN:?}"), "Secret(..)", "no log shows a secret");
    }

    #[test]
    fn the_addresses_of_a_group_take_bounded_memory() {
        let exchange = Exchange::default();
        exchange.start(OWN);
        let address = Bytes::from(vec![0; 1 << 20]);
        let set = |number: usize| exchange.set(OWN, &number.to_string(), address.clone());
        assert!((0..3).all(|number| set(number).is_ok()));
        assert_eq!(set(3), Err(ExchangeError::Full), "the keys count too");
        exchange.start(OWN);
        set(3).unwrap();
    }
}
