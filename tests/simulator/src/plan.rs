//! The steps of a run, derived from the seed.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Number of steps in a plan.
pub const STEPS: usize = 600;

/// One step: the kind of event, and the seed for all randomness in it. A step does not depend on earlier steps, so that
/// a plan remains a plan when steps are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Kind of event.
    pub kind: Kind,
    /// Seed of the random numbers in this step.
    pub salt: u64,
}

/// Kind of event in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// An actor finishes a game.
    Play,
    /// All clients check streams and time.
    Look,
    /// The bus delivers some messages of one stream.
    Deliver,
    /// The log commits some entries.
    Commit,
    /// The log commits some entries, and the process stops in the middle of it.
    CommitAndCrash,
    /// The learner gives credit.
    Learn,
    /// The server does the periodic work.
    Tick,
    /// Time passes.
    Wait,
    /// An operator quarantines, releases or configures.
    Operate,
    /// Reanalysis replaces searches.
    Revise,
    /// Priorities are updated.
    Prioritise,
    /// The item with the highest priority is drawn.
    Probe,
    /// A stream breaks on one side or on both.
    CutStream,
    /// The process of the server stops.
    CrashServer,
    /// The machine of the server loses power.
    LosePower,
    /// The server drains and stops.
    DrainServer,
    /// The server starts, if it is down.
    StartServer,
    /// The process of an actor stops.
    CrashActor,
    /// An actor drains and stops.
    DrainActor,
    /// An actor stops and loses the files of its home.
    LoseHome,
    /// The server's disk has little room.
    FillDisk,
    /// Syncs of the server's disk fail.
    FailSyncs,
    /// Any operation of the server's disk fails.
    FailDisk,
    /// The server's disk recovers.
    HealDisk,
    /// A bit on the server's disk flips, or a bit in every head, and the process restarts.
    Rot,
    /// The server's files are copied elsewhere.
    Snapshot,
    /// The server's disk is lost, and restored from the last copy or from the archive.
    LoseDisk,
    /// The log is copied to the archive.
    Archive,
    /// The wall clock of the server's machine jumps.
    JumpClock,
    /// A hostile client makes a random attack.
    Attack,
}

/// Every kind with weight and presence.
const WEIGHTS: [(Kind, u32, Presence); 30] = [
    (Kind::Play, 180, Presence::Always),
    (Kind::Look, 60, Presence::Always),
    (Kind::Deliver, 300, Presence::Always),
    (Kind::Commit, 180, Presence::Always),
    (Kind::CommitAndCrash, 8, Presence::Varies),
    (Kind::Learn, 80, Presence::Always),
    (Kind::Tick, 30, Presence::Always),
    (Kind::Wait, 15, Presence::Always),
    (Kind::Operate, 20, Presence::Varies),
    (Kind::Revise, 20, Presence::Varies),
    (Kind::Prioritise, 20, Presence::Varies),
    (Kind::Probe, 10, Presence::Varies),
    (Kind::CutStream, 20, Presence::Varies),
    (Kind::CrashServer, 8, Presence::Varies),
    (Kind::LosePower, 8, Presence::Varies),
    (Kind::DrainServer, 4, Presence::Varies),
    (Kind::StartServer, 40, Presence::Always),
    (Kind::CrashActor, 8, Presence::Varies),
    (Kind::DrainActor, 8, Presence::Varies),
    (Kind::LoseHome, 4, Presence::Varies),
    (Kind::FillDisk, 8, Presence::Varies),
    (Kind::FailSyncs, 8, Presence::Varies),
    (Kind::FailDisk, 8, Presence::Varies),
    (Kind::HealDisk, 30, Presence::Always),
    (Kind::Rot, 4, Presence::Varies),
    (Kind::Snapshot, 6, Presence::Varies),
    (Kind::LoseDisk, 2, Presence::Varies),
    (Kind::Archive, 12, Presence::Varies),
    (Kind::JumpClock, 8, Presence::Varies),
    (Kind::Attack, 25, Presence::Varies),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    Always,
    /// A seed may omit the kind, or make it frequent: rare combinations then occur in some seed.
    Varies,
}

/// Returns the steps of a seed.
#[must_use]
pub fn plan(seed: u64) -> Vec<Step> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let weights: Vec<(Kind, u32)> = WEIGHTS
        .iter()
        .map(|&(kind, weight, presence)| match presence {
            Presence::Always => (kind, weight),
            Presence::Varies => (kind, weight * [0, 1, 1, 5][rng.random_range(0..4_usize)]),
        })
        .collect();
    let total: u32 = weights.iter().map(|(_, weight)| weight).sum();
    (0..STEPS)
        .map(|_| {
            let mut at = rng.random_range(0..total);
            let mut kinds = weights.iter();
            let kind = loop {
                let &(kind, weight) = kinds.next().expect("the weights add up to the total");
                match at.checked_sub(weight) {
                    None => break kind,
                    Some(rest) => at = rest,
                }
            };
            Step { kind, salt: rng.random() }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_has_one_plan_and_another_seed_another_one() {
        assert_eq!(plan(7), plan(7));
        assert_ne!(plan(7), plan(8));
        assert_eq!(plan(7).len(), STEPS);
    }
}
