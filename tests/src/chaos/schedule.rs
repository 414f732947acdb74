//! What goes wrong one after another: a seed decides, and nothing else.

use std::ops::Range;
use std::time::Duration;

use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::fault::{Fault, Kind, Service};

#[cfg(test)]
mod tests;

/// How long faults last, in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Lengths {
    /// Until somebody who was killed is started again.
    pub kill: Range<f64>,
    /// Until a machine that vanished is back.
    pub vanish: Range<f64>,
    /// A pause.
    pub pause: Range<f64>,
    /// A cut.
    pub cut: Range<f64>,
    /// A slow-down.
    pub slow: Range<f64>,
}

impl Lengths {
    /// As in the field: pauses of ten seconds, cuts that connections survive and cuts that they do not.
    #[must_use]
    pub fn whole() -> Self {
        Self { kill: 0.0..2.0, vanish: 1.0..8.0, pause: 10.0..10.1, cut: 1.0..15.0, slow: 10.0..10.1 }
    }

    /// For a test that has seconds.
    #[must_use]
    pub fn short() -> Self {
        Self { kill: 0.0..0.5, vanish: 0.5..1.5, pause: 1.0..2.0, cut: 1.0..2.0, slow: 2.0..3.0 }
    }

    fn of(&self, kind: Kind) -> Range<f64> {
        match kind {
            Kind::Kill => self.kill.clone(),
            Kind::Vanish => self.vanish.clone(),
            Kind::Pause => self.pause.clone(),
            Kind::Cut => self.cut.clone(),
            Kind::Slow => self.slow.clone(),
        }
    }
}

/// Faults that are under way together, of different services, ascending by their beginning.
#[derive(Debug, Clone, PartialEq)]
pub struct Round(pub Vec<Fault>);

/// Rounds without end: first every kind for every service, each alone and in any order; then two at once.
#[derive(Debug)]
pub struct Schedule {
    alone: Vec<(Service, Kind)>,
    lengths: Lengths,
    rng: ChaCha8Rng,
}

impl Schedule {
    /// That of a seed.
    #[must_use]
    pub fn new(seed: u64, lengths: Lengths) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let services = Service::all();
        let mut alone: Vec<_> =
            Kind::ALL.iter().flat_map(|&kind| services.iter().map(move |&service| (service, kind))).collect();
        alone.shuffle(&mut rng);
        Self { alone, lengths, rng }
    }

    fn fault(&mut self, service: Service, kind: Kind, after: Range<f64>) -> Fault {
        let after = Duration::from_secs_f64(self.rng.random_range(after));
        let length = Duration::from_secs_f64(self.rng.random_range(self.lengths.of(kind)));
        Fault { service, kind, after, length }
    }
}

impl Iterator for Schedule {
    type Item = Round;

    fn next(&mut self) -> Option<Round> {
        if let Some((service, kind)) = self.alone.pop() {
            return Some(Round(vec![self.fault(service, kind, 0.0..0.1)]));
        }
        let mut services = Service::all();
        let (two, _) = services.partial_shuffle(&mut self.rng, 2);
        let mut faults = Vec::new();
        for &mut service in two {
            let kind = Kind::ALL[self.rng.random_range(0..Kind::ALL.len())];
            faults.push(self.fault(service, kind, 0.0..3.0));
        }
        faults.sort_by_key(|fault| fault.after);
        Some(Round(faults))
    }
}
