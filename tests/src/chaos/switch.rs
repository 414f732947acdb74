//! Simulates a faulty network: delivers, delays and drops packets. Time is an argument.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// Maximum number of queued packets; further packets are lost, as in a router with a full queue.
const WAITING_MAX: usize = 20_000;

/// A host: the last byte of the address, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Host(pub u8);

impl Host {
    /// Returns the address of the host.
    #[must_use]
    pub fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, self.0 + 1)
    }

    /// Returns the destination of a packet; `None` unless it is an IPv4 packet for a host of the network.
    fn of(packet: &[u8]) -> Option<Self> {
        let is_v4 = packet.first().is_some_and(|first| first >> 4 == 4);
        let address = packet.get(16..20).filter(|_| is_v4)?;
        match *address {
            [10, 77, 0, last] => last.checked_sub(1).map(Self),
            _ => None,
        }
    }
}

/// State of the link between a host and all other hosts.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Link {
    /// The link has no fault.
    #[default]
    Good,
    /// Every packet is dropped without notice.
    Cut,
    /// Every packet is delayed, and a share of the packets is lost.
    Slow {
        /// Delay in each direction.
        delay: Duration,
        /// Share of lost packets in each direction, from 0 to 1.
        loss: f64,
    },
}

/// Packets in flight.
#[derive(Debug)]
pub(super) struct Switch {
    links: Vec<Link>,
    /// Pairs of hosts: packets from the first to the second are dropped.
    cuts: BTreeSet<(Host, Host)>,
    waiting: BinaryHeap<Reverse<Waiting>>,
    taken: u64,
    rng: ChaCha8Rng,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    due: Instant,
    /// Packets that are due at the same time leave in order of arrival.
    order: u64,
    from: Host,
    to: Host,
    packet: Vec<u8>,
}

impl Switch {
    pub(super) fn new(hosts: u8, seed: u64) -> Self {
        let links = vec![Link::Good; usize::from(hosts)];
        let (cuts, waiting) = (BTreeSet::new(), BinaryHeap::new());
        Self { links, cuts, waiting, taken: 0, rng: ChaCha8Rng::seed_from_u64(seed) }
    }

    pub(super) fn set(&mut self, host: Host, link: Link) {
        if let Some(of) = self.links.get_mut(usize::from(host.0)) {
            *of = link;
        }
    }

    /// Drops every packet from one host to the other from now on; packets in the other direction pass.
    pub(super) fn cut(&mut self, from: Host, to: Host) {
        self.cuts.insert((from, to));
    }

    /// Ends a [`cut`](Self::cut).
    pub(super) fn join(&mut self, from: Host, to: Host) {
        self.cuts.remove(&(from, to));
    }

    /// Accepts a packet from a host.
    pub(super) fn take(&mut self, now: Instant, from: Host, packet: &[u8]) {
        let Some(to) = Host::of(packet).filter(|to| usize::from(to.0) < self.links.len()) else { return };
        if self.cuts.contains(&(from, to)) {
            return;
        }
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

    /// Returns the next packet that is due, and the destination.
    pub(super) fn give(&mut self, now: Instant) -> Option<(Host, Vec<u8>)> {
        while self.next().is_some_and(|due| due <= now) {
            let Reverse(Waiting { from, to, packet, .. }) = self.waiting.pop()?;
            // A cut also drops the packets in flight.
            let is_cut = [from, to].iter().any(|&host| self.link(host) == Link::Cut);
            if !is_cut && !self.cuts.contains(&(from, to)) {
                return Some((to, packet));
            }
        }
        None
    }

    /// Returns the time at which the next packet is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.waiting.peek().map(|Reverse(waiting)| waiting.due)
    }

    fn link(&self, host: Host) -> Link {
        self.links.get(usize::from(host.0)).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Host = Host(0);
    const B: Host = Host(1);
    const C: Host = Host(2);

    fn packet(to: Host, mark: u8) -> Vec<u8> {
        let mut packet = vec![0; 21];
        packet[0] = 0x45;
        packet[16..20].copy_from_slice(&to.address().octets());
        packet[20] = mark;
        packet
    }

    fn given(switch: &mut Switch, now: Instant) -> Vec<(Host, u8)> {
        std::iter::from_fn(|| switch.give(now)).map(|(to, packet)| (to, packet[20])).collect()
    }

    #[test]
    fn packets_go_where_they_are_addressed_to_in_order() {
        let (mut switch, now) = (Switch::new(3, 1), Instant::now());
        switch.take(now, A, &packet(B, 1));
        switch.take(now, A, &packet(C, 2));
        switch.take(now, C, &packet(B, 3));
        assert_eq!(given(&mut switch, now), [(B, 1), (C, 2), (B, 3)]);
    }

    #[test]
    fn a_malformed_packet_or_one_for_an_unknown_host_is_dropped() {
        let (mut switch, now) = (Switch::new(2, 1), Instant::now());
        for odd in [&[][..], &[0x60; 40], &[0x45; 10], &packet(C, 1), &[0x45; 40]] {
            switch.take(now, A, odd);
        }
        assert_eq!(switch.next(), None);
    }

    #[test]
    fn a_cut_drops_packets_in_both_directions_and_in_flight() {
        let (mut switch, now) = (Switch::new(3, 1), Instant::now());
        switch.take(now, A, &packet(B, 1));
        switch.set(B, Link::Cut);
        switch.take(now, A, &packet(B, 2));
        switch.take(now, B, &packet(C, 3));
        switch.take(now, A, &packet(C, 4));
        assert_eq!(given(&mut switch, now), [(C, 4)]);
        switch.set(B, Link::Good);
        switch.take(now, A, &packet(B, 5));
        assert_eq!(given(&mut switch, now), [(B, 5)]);
    }

    #[test]
    fn a_cut_of_one_direction_of_a_pair_drops_only_its_packets() {
        let (mut switch, now) = (Switch::new(3, 1), Instant::now());
        switch.take(now, A, &packet(B, 1));
        switch.cut(A, B);
        for (from, to, mark) in [(A, B, 2), (B, A, 3), (A, C, 4), (C, B, 5)] {
            switch.take(now, from, &packet(to, mark));
        }
        assert_eq!(given(&mut switch, now), [(A, 3), (C, 4), (B, 5)]);
        switch.join(A, B);
        switch.take(now, A, &packet(B, 6));
        assert_eq!(given(&mut switch, now), [(B, 6)]);
    }

    #[test]
    fn a_slow_link_delays_both_ways_and_loses_its_share() {
        let (mut switch, now) = (Switch::new(3, 1), Instant::now());
        let delay = Duration::from_millis(100);
        switch.set(B, Link::Slow { delay, loss: 0.02 });
        let sent = 10_000;
        for _ in 0..sent / 2 {
            switch.take(now, A, &packet(B, 1));
            switch.take(now, B, &packet(A, 2));
        }
        switch.take(now, A, &packet(C, 3));
        assert_eq!(given(&mut switch, now), [(C, 3)]);
        assert_eq!(switch.next(), Some(now + delay));
        let lost = sent - given(&mut switch, now + delay).len();
        // The mean is 200 and the standard deviation 14; the bounds are five standard deviations from the mean, so that
        // practically no seed fails.
        assert!((130..=270).contains(&lost), "{lost} of {sent} lost");
    }

    #[test]
    fn a_full_switch_drops_further_packets() {
        let (mut switch, now) = (Switch::new(2, 1), Instant::now());
        for _ in 0..=WAITING_MAX {
            switch.take(now, A, &packet(B, 1));
        }
        assert_eq!(given(&mut switch, now).len(), WAITING_MAX);
    }
}
