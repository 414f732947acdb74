//! Shares limits among all connections from one address: the number of requests, and the memory for unfinished and for
//! decompressed messages.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

use super::methods::Messages;
use super::shared_by_key::SharedByKey;
use crate::status::retry_after;

/// Maximum number of incomplete single-message requests from one network. Each may fill an HTTP/2 window.
pub(super) const REQUESTS_MAX: usize = 1024;

/// Delay before a client may send such a request again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Memory for unfinished messages of one network and kind, in KiB: four of the largest messages.
const UNFINISHED_KIB: usize = 64 << 10;

/// Memory for all unfinished messages of a server and kind, in KiB.
const UNFINISHED_KIB_OF_ALL: usize = 256 << 10;

/// Memory for decompressed stream messages, as a multiple of the memory for unfinished messages: sixteen streams from
/// one network may send the largest messages.
const UNPACKED_FACTOR: usize = 4;

/// The networks with open connections.
#[derive(Debug)]
pub(crate) struct Networks {
    open: SharedByKey<Prefix, Network>,
    unfinished_of_all: Unfinished,
}

/// Memory for unfinished messages, in KiB. Streams have separate memory: while the rate limiter blocks inserts, a
/// server may stop reading a stream in the middle of a message. Requests that would unblock the limiter must not wait
/// for that.
#[derive(Debug, Clone)]
struct Unfinished {
    of_requests: Arc<Semaphore>,
    of_streams: Arc<Semaphore>,
    /// Memory for the buffers of decompressed messages, which streams keep.
    unpacked: Arc<Semaphore>,
}

/// An IPv4 address, or the first 64 bits of an IPv6 address: one host may have all addresses with this prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Prefix(IpAddr);

/// State of all connections from one address.
#[derive(Debug)]
pub(crate) struct Network {
    prefix: Prefix,
    requests: Arc<Semaphore>,
    unfinished: Unfinished,
    unfinished_of_all: Unfinished,
}

/// Memory for an unfinished message, of the network and of the server; returned on drop.
pub(super) type UnfinishedPermit = (OwnedSemaphorePermit, OwnedSemaphorePermit);

impl Default for Networks {
    fn default() -> Self {
        Self { open: SharedByKey::default(), unfinished_of_all: Unfinished::new(UNFINISHED_KIB_OF_ALL) }
    }
}

impl Unfinished {
    fn new(kib: usize) -> Self {
        let semaphore = |kib| Arc::new(Semaphore::new(kib));
        Self { of_requests: semaphore(kib), of_streams: semaphore(kib), unpacked: semaphore(UNPACKED_FACTOR * kib) }
    }

    async fn acquire(&self, messages: Messages, kib: u32) -> Option<OwnedSemaphorePermit> {
        let memory = match messages {
            Messages::One => &self.of_requests,
            Messages::Many => &self.of_streams,
        };
        Arc::clone(memory).acquire_many_owned(kib).await.ok()
    }
}

impl Networks {
    /// Returns the network of `address`.
    pub(crate) fn of(&self, address: IpAddr) -> Arc<Network> {
        let prefix = Prefix::of(address);
        self.open.get_or_make(prefix, || Network {
            prefix,
            requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
            unfinished: Unfinished::new(UNFINISHED_KIB),
            unfinished_of_all: self.unfinished_of_all.clone(),
        })
    }
}

impl Network {
    /// Returns the address, of IPv6 the first of the /64.
    pub(crate) fn address(&self) -> IpAddr {
        self.prefix.0
    }

    /// Counts a single-message request until the message has arrived.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED`: too many such requests are arriving.
    pub(super) fn request(&self) -> Result<OwnedSemaphorePermit, Status> {
        Arc::clone(&self.requests).try_acquire_owned().map_err(|_| {
            let message = format!("too many requests arriving from this address ({REQUESTS_MAX})");
            retry_after(Status::resource_exhausted(message), RETRY_AFTER)
        })
    }

    /// Waits for memory for a message of `bytes`, at most the total of one network. Messages wait in request order.
    pub(super) async fn unfinished(self: Arc<Self>, messages: Messages, bytes: usize) -> Option<UnfinishedPermit> {
        let kib = u32::try_from(bytes.div_ceil(1 << 10).min(UNFINISHED_KIB)).ok()?;
        // The network's memory comes first, so that a waiting network holds none of the memory of the server.
        let own = self.unfinished.acquire(messages, kib).await?;
        let of_all = self.unfinished_of_all.acquire(messages, kib).await?;
        Some((own, of_all))
    }

    /// Counts `bytes` of memory for decompressed messages of a stream.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED`: other streams, from the same network or in total, hold the whole memory.
    pub(super) fn unpacked(&self, bytes: usize) -> Result<UnfinishedPermit, Status> {
        let take = |memory: &Unfinished| {
            let kib = u32::try_from(bytes.div_ceil(1 << 10)).ok()?;
            Arc::clone(&memory.unpacked).try_acquire_many_owned(kib).ok()
        };
        let both = take(&self.unfinished).zip(take(&self.unfinished_of_all));
        both.ok_or_else(|| {
            let message = "too many streams with compressed messages; send messages without compression";
            retry_after(Status::resource_exhausted(message), RETRY_AFTER)
        })
    }
}

impl Prefix {
    fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_ipv6_prefix_share_their_places_and_ipv4_addresses_do_not() {
        let networks = Networks::default();
        let of = |address: &str| networks.of(address.parse().unwrap());
        let one = of("2001:db8::1");
        assert!(Arc::ptr_eq(&one, &of("2001:db8::ffff:1")));
        assert!(!Arc::ptr_eq(&one, &of("2001:db8:0:1::1")));
        let four = of("192.0.2.1");
        assert!(Arc::ptr_eq(&four, &of("::ffff:192.0.2.1")));
        assert!(!Arc::ptr_eq(&four, &of("192.0.2.2")));
    }
}
