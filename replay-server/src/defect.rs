//! Defects that the simulator plants, one in a run, to prove that it finds them. Without the feature `simulation` none
//! can be planted, and every question is answered at compile time.

/// A defect of the log, of its recovery, of its archive or of the table service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Defect {
    /// Inserts are acknowledged before their bytes are synced.
    AcknowledgedBeforeSync,
    /// The name of a new segment is not synced.
    DirectoryNotSynced,
    /// After a damaged record, any bytes with a matching checksum are taken for a frame, also inside a payload.
    ResynchronisedInside,
    /// `ready` carries no highest epoch, and the actor starts again at the first one if it lost its home.
    EpochReused,
    /// The ids seen are not restored.
    DuplicatesNotChecked,
    /// The counts of the rate limiters are not restored.
    LimiterNotRestored,
    /// Quarantines are not restored.
    QuarantineLost,
    /// A table removes a trajectory one item too late.
    CapacityOffByOne,
    /// Priorities are not restored.
    PrioritiesNotRestored,
    /// Changed settings of tables are not restored.
    SettingsNotRestored,
    /// Inserts are admitted whatever the rate limiter allows.
    RatioIgnored,
    /// The record of a trajectory is applied twice.
    RecordsAppliedTwice,
    /// Revisions are not restored.
    RevisionsLost,
    /// The bytes that a failed commit has left are not truncated.
    FailedCommitNotCut,
    /// Segments are dropped although the tables hold trajectories of them.
    SegmentsDroppedEarly,
    /// A failed commit is acknowledged.
    FailureAcknowledged,
    /// Trajectories without items are stored, which no limiter and no capacity counts.
    ItemlessStored,
    /// An insert does not count what the tables need beside the trajectory.
    GrowthNotCounted,
    /// An actor takes a server that is ready for one that stores: it never leaves a server whose disk is full.
    NotStoredCountsAsProgress,
    /// The ids seen have no bound.
    SeenUnbounded,
    /// A log of which no head can be read is opened as if nothing had been before.
    DamagedHeadIgnored,
    /// Priorities of unknown items are logged.
    UnknownPrioritiesLogged,
    /// A start syncs the newest segment in place, and takes what it has read of it for durable.
    PageCacheTrusted,
    /// A folder whose restore from the archive was interrupted is taken for a log.
    RestoreTakenAsComplete,
}

impl Defect {
    /// All defects.
    pub const ALL: [Self; 24] = [
        Self::AcknowledgedBeforeSync,
        Self::DirectoryNotSynced,
        Self::ResynchronisedInside,
        Self::EpochReused,
        Self::DuplicatesNotChecked,
        Self::LimiterNotRestored,
        Self::QuarantineLost,
        Self::CapacityOffByOne,
        Self::PrioritiesNotRestored,
        Self::SettingsNotRestored,
        Self::RatioIgnored,
        Self::RecordsAppliedTwice,
        Self::RevisionsLost,
        Self::FailedCommitNotCut,
        Self::SegmentsDroppedEarly,
        Self::FailureAcknowledged,
        Self::ItemlessStored,
        Self::GrowthNotCounted,
        Self::NotStoredCountsAsProgress,
        Self::SeenUnbounded,
        Self::DamagedHeadIgnored,
        Self::UnknownPrioritiesLogged,
        Self::PageCacheTrusted,
        Self::RestoreTakenAsComplete,
    ];
}

/// The planted defect, if there is one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Planted(#[cfg(feature = "simulation")] Option<Defect>);

impl Planted {
    /// Plants a defect.
    #[cfg(feature = "simulation")]
    #[must_use]
    pub fn new(defect: Option<Defect>) -> Self {
        Self(defect)
    }

    /// Returns true if this defect is planted.
    #[cfg(feature = "simulation")]
    #[must_use]
    pub fn is(self, defect: Defect) -> bool {
        self.0 == Some(defect)
    }

    /// Returns false: no defect can be planted.
    #[cfg(not(feature = "simulation"))]
    #[must_use]
    pub const fn is(self, _defect: Defect) -> bool {
        false
    }
}
