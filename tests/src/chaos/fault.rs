//! The faults and their targets.

use std::fmt;
use std::time::Duration;

use fleet::Role;

/// Number of actors of the fleet.
pub(super) const ACTORS: u8 = 3;

/// A process of the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// The replay server, which stores trajectories.
    Replay,
    /// The learner, which trains the network.
    Learner,
    /// The inference server, which evaluates positions for the last actor.
    Inference,
    /// An actor, which plays; numbers start at 0.
    Actor(u8),
    /// The arena, which measures strength.
    Arena,
}

impl Service {
    /// Returns every process, in the order in which they are started.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let actors = (0..ACTORS).map(Self::Actor);
        [Self::Replay, Self::Learner, Self::Inference].into_iter().chain(actors).chain([Self::Arena]).collect()
    }

    /// Returns the index of the process in [`Self::all`].
    pub(super) fn index(self) -> u8 {
        match self {
            Self::Replay => 0,
            Self::Learner => 1,
            Self::Inference => 2,
            Self::Actor(actor) => 3 + actor,
            Self::Arena => 3 + ACTORS,
        }
    }

    /// Returns the role of the process in a fleet.
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
    /// The process is killed; the system closes its connections, which its peers notice. The repair is a restart.
    Kill,
    /// The machine fails: it is disconnected, and its process is killed without notice to its peers. The repair is a
    /// reconnection and a restart.
    Vanish,
    /// The process is stopped (SIGSTOP).
    Pause,
    /// The host is disconnected: every packet from and to it is dropped, without notice to its peers.
    Cut,
    /// Every packet is delayed by 100 ms in each direction, and one in fifty is lost in each direction.
    Slow,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::Kill, Self::Vanish, Self::Pause, Self::Cut, Self::Slow];

    /// Returns true if the fault ends the process, so that its work starts again.
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
    /// The duration until the repair.
    pub length: Duration,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} for {:.1} s", self.service, self.kind, self.length.as_secs_f64())
    }
}
