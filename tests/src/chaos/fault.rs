//! The faults and their targets.

use std::fmt;
use std::time::Duration;

use fleet::Role;

/// Actors of the fleet.
pub(super) const ACTORS: u8 = 3;

/// A process of the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// Keeps trajectories.
    Replay,
    /// Trains.
    Learner,
    /// Evaluates for the last actor.
    Inference,
    /// Plays; counted from 0.
    Actor(u8),
    /// Measures.
    Arena,
}

impl Service {
    /// Everyone, in the order in which they are started.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let actors = (0..ACTORS).map(Self::Actor);
        [Self::Replay, Self::Learner, Self::Inference].into_iter().chain(actors).chain([Self::Arena]).collect()
    }

    /// Its place among all.
    pub(super) fn index(self) -> u8 {
        match self {
            Self::Replay => 0,
            Self::Learner => 1,
            Self::Inference => 2,
            Self::Actor(actor) => 3 + actor,
            Self::Arena => 3 + ACTORS,
        }
    }

    /// Its role in a fleet.
    pub(super) fn role(self) -> Role {
        match self {
            Self::Replay => Role::Replay,
            Self::Learner => Role::Learner,
            Self::Inference => Role::Inference,
            Self::Actor(_) => Role::Actor,
            Self::Arena => Role::Arena,
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Actor(actor) => write!(f, "actor {actor}"),
            other => f.write_str(other.role().program()),
        }
    }
}

/// The kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The process is killed; the system closes its connections, which its peers notice. Healed by a start.
    Kill,
    /// The machine is gone: cut off, and killed without notice to its peers. Healed by a start with its network.
    Vanish,
    /// The process is stopped (SIGSTOP).
    Pause,
    /// No packet comes or goes, without notice to any peer.
    Cut,
    /// Every packet takes 100 ms longer each way, and of each way one in fifty is lost.
    Slow,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::Kill, Self::Vanish, Self::Pause, Self::Cut, Self::Slow];

    /// Returns true if the fault ends the process, so that its work begins anew.
    #[must_use]
    pub fn ends_process(self) -> bool {
        matches!(self, Self::Kill | Self::Vanish)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kill => "killed",
            Self::Vanish => "vanished",
            Self::Pause => "paused",
            Self::Cut => "cut off",
            Self::Slow => "slowed down",
        })
    }
}

/// A fault of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The target.
    pub service: Service,
    /// The kind of the fault.
    pub kind: Kind,
    /// The delay from the beginning of its round.
    pub after: Duration,
    /// The time until it is healed.
    pub length: Duration,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} for {:.1} s", self.service, self.kind, self.length.as_secs_f64())
    }
}
