/// The id of a trajectory, unique over all actors and restarts.
///
/// The triple makes inserts idempotent: a retry carries the same id and counts once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrajectoryId {
    /// The id of the actor, which is stable over restarts.
    pub actor: u64,
    /// The number of the actor's start, which grows with every restart.
    pub epoch: u64,
    /// The number of the trajectory within the epoch, counted from zero.
    pub sequence: u64,
}

impl std::fmt::Display for TrajectoryId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}-{}", self.actor, self.epoch, self.sequence)
    }
}
