//! Generates the sequence of faults from a seed alone.

use std::ops::Range;
use std::time::Duration;

use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::fault::{Fault, Kind, Service};

/// Durations of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lengths {
    /// As in the field: pauses of ten seconds, cuts short enough for connections to survive and cuts that break them.
    Whole,
    /// For a test of a few seconds.
    Short,
}

impl Lengths {
    /// Returns the range of durations for a kind, in seconds.
    fn of(self, kind: Kind) -> Range<f64> {
        let (whole, short) = match kind {
            // Time until the process is started again.
            Kind::Kill | Kind::MonotonicClock => (0.0..2.0, 0.0..0.5),
            Kind::Vanish => (1.0..8.0, 0.5..1.5),
            Kind::Pause | Kind::Slow => (10.0..10.1, 1.0..2.0),
            Kind::Cut | Kind::CutOneWay | Kind::CutPair => (1.0..15.0, 1.0..2.0),
            // Longer than `actor.replay_away_seconds_max`, so that actors use the other server.
            Kind::DiskSlow | Kind::DiskHung | Kind::DiskFull => (5.0..10.0, 1.0..2.0),
            Kind::Descriptors | Kind::Memory | Kind::WallClock => (3.0..8.0, 1.0..2.0),
            // Files are checked once a second.
            Kind::Certificates => (3.0..5.0, 1.5..2.0),
        };
        match self {
            Self::Whole => whole,
            Self::Short => short,
        }
    }
}

/// Faults of different services that overlap in time, in ascending order of start.
#[derive(Debug, Clone, PartialEq)]
pub struct Round(pub Vec<Fault>);

/// Maximum delay of a fault from the start of a two-fault round, in seconds.
const APART_SECONDS_MAX: f64 = 3.0;
/// Number of rounds with a single fault before a round with two.
const ALONE: usize = 4;
/// Maximum offset of a clock, in either direction: an hour of the wall clock, since certificates are valid from a day
/// before they are made.
const CLOCK_SECONDS_MAX: i64 = 3_600;

/// An infinite sequence of rounds: every kind of fault for every service, each alone and in random order, repeated in
/// another order. Rounds of two random faults are interspersed.
#[derive(Debug)]
pub struct Schedule {
    /// Remaining single faults of the current pass.
    alone: Vec<(Service, Kind)>,
    /// Number of rounds with a single fault since the last round of two.
    since_two: usize,
    lengths: Lengths,
    rng: ChaCha8Rng,
}

impl Schedule {
    /// Creates the schedule of a seed.
    #[must_use]
    pub fn new(seed: u64, lengths: Lengths) -> Self {
        Self { alone: Vec::new(), since_two: 0, lengths, rng: ChaCha8Rng::seed_from_u64(seed) }
    }

    fn one(&mut self) -> (Service, Kind) {
        if let Some(one) = self.alone.pop() {
            return one;
        }
        self.alone = combinations();
        self.alone.shuffle(&mut self.rng);
        self.alone.pop().expect("there are services and kinds")
    }

    fn two(&mut self) -> Vec<(Service, Kind)> {
        let mut services = Service::all();
        let (two, _) = services.partial_shuffle(&mut self.rng, 2);
        let mut any = |service| {
            let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| kind.affects(service)).collect();
            (service, kinds[self.rng.random_range(0..kinds.len())])
        };
        two.iter().map(|&service| any(service)).collect()
    }

    fn fault(&mut self, service: Service, kind: Kind, after: Range<f64>) -> Fault {
        let after = Duration::from_secs_f64(self.rng.random_range(after));
        let length = Duration::from_secs_f64(self.rng.random_range(self.lengths.of(kind)));
        let peers = service.peers();
        let peer = peers[self.rng.random_range(0..peers.len())];
        let clock_seconds = self.rng.random_range(-CLOCK_SECONDS_MAX..=CLOCK_SECONDS_MAX);
        Fault { service, kind, after, length, peer, clock_seconds }
    }
}

impl Iterator for Schedule {
    type Item = Round;

    fn next(&mut self) -> Option<Round> {
        let is_alone = self.since_two < ALONE;
        self.since_two = if is_alone { self.since_two + 1 } else { 0 };
        if is_alone {
            let (service, kind) = self.one();
            return Some(Round(vec![self.fault(service, kind, 0.0..0.1)]));
        }
        let two = self.two();
        let mut faults: Vec<Fault> =
            two.into_iter().map(|(service, kind)| self.fault(service, kind, 0.0..APART_SECONDS_MAX)).collect();
        faults.sort_by_key(|fault| fault.after);
        Some(Round(faults))
    }
}

/// Returns every service with every fault that it can have.
fn combinations() -> Vec<(Service, Kind)> {
    let all = Service::all().into_iter().flat_map(|service| Kind::ALL.map(|kind| (service, kind)));
    all.filter(|(service, kind)| kind.affects(*service)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_determines_the_faults() {
        let rounds = |seed| Schedule::new(seed, Lengths::Whole).take(100).collect::<Vec<_>>();
        assert_eq!(rounds(7), rounds(7));
        assert_ne!(rounds(7), rounds(8));
    }

    #[test]
    fn every_service_has_every_fault_alone_before_any_fault_repeats() {
        let combinations = combinations().len();
        let alone: Vec<(Service, Kind)> = Schedule::new(7, Lengths::Whole)
            .filter_map(|Round(faults)| <[Fault; 1]>::try_from(faults).ok())
            .map(|[fault]| (fault.service, fault.kind))
            .take(3 * combinations)
            .collect();
        for pass in alone.chunks(combinations) {
            assert_eq!(pass.iter().collect::<BTreeSet<_>>().len(), combinations);
        }
        assert_ne!(alone[..combinations], alone[combinations..][..combinations], "and then in another order");
    }

    #[test]
    fn a_fault_between_two_services_is_between_peers() {
        for service in Service::all() {
            assert!(service.peers().iter().all(|peer| peer.peers().contains(&service) && *peer != service));
        }
    }

    #[test]
    fn every_fifth_round_has_faults_of_two_services_at_once() {
        for (index, Round(faults)) in Schedule::new(7, Lengths::Whole).take(100).enumerate() {
            assert_eq!(faults.len(), if index % 5 == 4 { 2 } else { 1 });
            assert!(faults.windows(2).all(|two| two[0].service != two[1].service && two[0].after <= two[1].after));
        }
    }
}
