//! The faults, and the processes that they can affect.

use std::fmt;
use std::time::Duration;

use fleet::Role;

/// Number of actors of the fleet.
pub(super) const ACTORS: u8 = 3;
/// Number of replay servers of the fleet.
pub(super) const REPLAY_SERVERS: u8 = 2;

/// A process of the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// A replay server, which stores trajectories; numbers start at 0.
    Replay(u8),
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
    /// Returns every process, in start order.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let servers = Self::replay_servers().into_iter().chain([Self::Learner, Self::Inference]);
        servers.chain(Self::actors()).chain([Self::Arena]).collect()
    }

    /// Returns the replay servers.
    pub(super) fn replay_servers() -> Vec<Self> {
        (0..REPLAY_SERVERS).map(Self::Replay).collect()
    }

    /// Returns the actors.
    pub(super) fn actors() -> Vec<Self> {
        (0..ACTORS).map(Self::Actor).collect()
    }

    /// Returns the index of the process in [`Self::all`].
    pub(super) fn index(self) -> u8 {
        match self {
            Self::Replay(server) => server,
            Self::Learner => REPLAY_SERVERS,
            Self::Inference => REPLAY_SERVERS + 1,
            Self::Actor(actor) => REPLAY_SERVERS + 2 + actor,
            Self::Arena => REPLAY_SERVERS + 2 + ACTORS,
        }
    }

    /// Returns the processes that exchange messages with this process.
    pub(super) fn peers(self) -> Vec<Self> {
        let last_actor = Self::Actor(ACTORS - 1);
        match self {
            Self::Replay(_) => Self::actors().into_iter().chain([Self::Learner]).collect(),
            Self::Learner => Self::all().into_iter().filter(|&other| other != self).collect(),
            Self::Inference => vec![Self::Learner, last_actor],
            Self::Actor(_) if self == last_actor => {
                [Self::replay_servers(), vec![Self::Learner, Self::Inference]].concat()
            }
            Self::Actor(_) => [Self::replay_servers(), vec![Self::Learner]].concat(),
            Self::Arena => vec![Self::Learner],
        }
    }

    /// Returns the role of the process in a fleet.
    pub(super) fn role(self) -> Role {
        match self {
            Self::Replay(_) => Role::Replay,
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
            Self::Actor(number) | Self::Replay(number) => write!(f, "{} {number}", self.role().program()),
            other => f.write_str(other.role().program()),
        }
    }
}

/// Kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The process is killed; the system closes the connections, which the peers notice. The repair is a restart.
    Kill,
    /// The machine fails: it is disconnected, and the process is killed without notice to the peers. The repair is a
    /// reconnection and a restart.
    Vanish,
    /// The process is stopped (SIGSTOP).
    Pause,
    /// The host is disconnected: every packet from and to it is dropped, without notice to the peers.
    Cut,
    /// Every packet to one peer is dropped; packets from that peer arrive, and other peers are not affected.
    CutOneWay,
    /// Every packet to and from one peer is dropped; other peers are not affected.
    CutPair,
    /// Every packet is delayed by 100 ms in each direction, and one in fifty is lost in each direction.
    Slow,
    /// The disk of a replay server performs four operations a second.
    DiskSlow,
    /// No write to the disk of a replay server returns.
    DiskHung,
    /// The disk of a replay server is full.
    DiskFull,
    /// The process can open no further descriptor.
    Descriptors,
    /// The process gets no further address space. It may exit, and is then started again.
    Memory,
    /// The wall clock jumps, and jumps back at the repair.
    WallClock,
    /// The process is killed, and started again with another offset of the monotonic clock.
    MonotonicClock,
    /// The certificates of the process are replaced while it runs; no repair is needed.
    Certificates,
}

impl Kind {
    /// All kinds of faults.
    pub const ALL: [Self; 15] = [
        Self::Kill,
        Self::Vanish,
        Self::Pause,
        Self::Cut,
        Self::CutOneWay,
        Self::CutPair,
        Self::Slow,
        Self::DiskSlow,
        Self::DiskHung,
        Self::DiskFull,
        Self::Descriptors,
        Self::Memory,
        Self::WallClock,
        Self::MonotonicClock,
        Self::Certificates,
    ];

    /// Returns true if the fault stops the process, so that it starts over.
    #[must_use]
    pub fn ends_process(self) -> bool {
        matches!(self, Self::Kill | Self::Vanish | Self::MonotonicClock)
    }

    /// Returns true if the service can have the fault.
    #[must_use]
    pub fn affects(self, service: Service) -> bool {
        match self {
            Self::DiskSlow | Self::DiskHung | Self::DiskFull => matches!(service, Service::Replay(_)),
            _ => true,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kill => "killed",
            Self::Vanish => "vanished",
            Self::Pause => "paused",
            Self::Cut => "cut off",
            Self::CutOneWay => "cut off towards a peer",
            Self::CutPair => "cut off from a peer",
            Self::Slow => "slowed down",
            Self::DiskSlow => "disk slow",
            Self::DiskHung => "disk hung",
            Self::DiskFull => "disk full",
            Self::Descriptors => "short of descriptors",
            Self::Memory => "short of memory",
            Self::WallClock => "wall clock set",
            Self::MonotonicClock => "monotonic clock set",
            Self::Certificates => "certificates renewed",
        })
    }
}

/// A fault of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Process that the fault affects.
    pub service: Service,
    /// Kind of the fault.
    pub kind: Kind,
    /// Delay from the start of the round.
    pub after: Duration,
    /// Duration until the repair.
    pub length: Duration,
    /// Peer of [`Kind::CutOneWay`] and [`Kind::CutPair`].
    pub peer: Service,
    /// Offset of [`Kind::WallClock`] and [`Kind::MonotonicClock`].
    pub clock_seconds: i64,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.service, self.kind)?;
        match self.kind {
            Kind::CutOneWay | Kind::CutPair => write!(f, " ({})", self.peer)?,
            Kind::WallClock | Kind::MonotonicClock => write!(f, " ({:+} s)", self.clock_seconds)?,
            _ => {}
        }
        write!(f, " for {:.1} s", self.length.as_secs_f64())
    }
}
