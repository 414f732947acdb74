//! Which packet goes where, and when: what a faulty network does, without a network. Time is an argument.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

#[cfg(test)]
mod tests;

/// Packets that wait for their time; one that comes beyond is lost, as where a router is full.
const WAITING_MAX: usize = 20_000;

/// A host: the last byte of its address, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Host(pub u8);

impl Host {
    /// Its address.
    #[must_use]
    pub fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, self.0 + 1)
    }

    /// Whom a packet is for, if it is an IPv4 packet for a host.
    fn of(packet: &[u8]) -> Option<Self> {
        let is_v4 = packet.first().is_some_and(|first| first >> 4 == 4);
        let address = packet.get(16..20).filter(|_| is_v4)?;
        match *address {
            [10, 77, 0, last] => last.checked_sub(1).map(Self),
            _ => None,
        }
    }
}

/// How the way between a host and all others is.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Link {
    /// Nothing is wrong.
    #[default]
    Good,
    /// Every packet is lost, and nobody is told.
    Cut,
    /// Every packet takes this much longer, each way, and this share of them is lost.
    Slow {
        /// One way.
        delay: Duration,
        /// From 0 to 1, one way.
        loss: f64,
    },
}

/// The packets that are under way.
#[derive(Debug)]
pub(super) struct Switch {
    links: Vec<Link>,
    waiting: BinaryHeap<Reverse<Waiting>>,
    taken: u64,
    rng: ChaCha8Rng,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    due: Instant,
    /// Packets of one time leave as they came.
    order: u64,
    from: Host,
    to: Host,
    packet: Vec<u8>,
}

impl Switch {
    pub(super) fn new(hosts: u8, seed: u64) -> Self {
        let links = vec![Link::Good; usize::from(hosts)];
        Self { links, waiting: BinaryHeap::new(), taken: 0, rng: ChaCha8Rng::seed_from_u64(seed) }
    }

    pub(super) fn set(&mut self, host: Host, link: Link) {
        if let Some(of) = self.links.get_mut(usize::from(host.0)) {
            *of = link;
        }
    }

    /// Takes a packet that a host sent.
    pub(super) fn take(&mut self, now: Instant, from: Host, packet: &[u8]) {
        let Some(to) = Host::of(packet).filter(|to| usize::from(to.0) < self.links.len()) else { return };
        let mut due = now;
        for host in [from, to] {
            match self.link(host) {
                Link::Good => {}
                Link::Cut => return,
                Link::Slow { loss, .. } if self.rng.random_bool(loss.clamp(0.0, 1.0)) => return,
                Link::Slow { delay, .. } => due += delay,
            }
        }
        if self.waiting.len() < WAITING_MAX {
            self.taken += 1;
            self.waiting.push(Reverse(Waiting { due, order: self.taken, from, to, packet: packet.to_owned() }));
        }
    }

    /// The next packet whose time has come, and for whom it is.
    pub(super) fn give(&mut self, now: Instant) -> Option<(Host, Vec<u8>)> {
        while self.next().is_some_and(|due| due <= now) {
            let Reverse(Waiting { from, to, packet, .. }) = self.waiting.pop()?;
            // A cut loses what is on the wire, too.
            if [from, to].iter().all(|&host| self.link(host) != Link::Cut) {
                return Some((to, packet));
            }
        }
        None
    }

    /// When the next packet is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.waiting.peek().map(|Reverse(waiting)| waiting.due)
    }

    fn link(&self, host: Host) -> Link {
        self.links.get(usize::from(host.0)).copied().unwrap_or_default()
    }
}
