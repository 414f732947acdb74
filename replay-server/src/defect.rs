//! Defines the defects that the simulator plants, one per run, to prove that it finds them. Without the feature
//! `simulation` no defect can be planted, and every query is resolved at compile time.

/// Declares the defects, and the list of all.
macro_rules! defects {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A defect in the log, recovery, archive or table service.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Defect {
            $($(#[$doc])* $name,)*
        }

        impl Defect {
            /// All defects, in order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];
        }
    };
}

defects! {
    /// Inserts are acknowledged before the sync.
    AcknowledgedBeforeSync,
    /// The name of a new segment is not synced.
    DirectoryNotSynced,
    /// After a damaged record, any bytes with a matching checksum count as a frame, even inside a payload.
    ResynchronisedInside,
    /// `ready` states no highest epoch, so that an actor that has lost its directory starts again at the first epoch.
    EpochReused,
    /// The ids of inserted trajectories are not restored.
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
    /// Inserts are admitted regardless of the rate limiter.
    RatioIgnored,
    /// The record of a trajectory is applied twice.
    RecordsAppliedTwice,
    /// Revisions are not restored.
    RevisionsLost,
    /// The bytes of a failed commit are not truncated.
    FailedCommitNotCut,
    /// Segments are dropped although the tables still hold trajectories from them.
    SegmentsDroppedEarly,
    /// A failed commit is acknowledged.
    FailureAcknowledged,
    /// Trajectories without items are stored, though no limiter and no capacity counts them.
    ItemlessStored,
    /// An insert does not count the growth of the tables that it causes.
    GrowthNotCounted,
    /// An actor confuses readiness with storing: it never leaves a server with a full disk.
    NotStoredCountsAsProgress,
    /// The memory for the ids of inserted trajectories is not bounded.
    SeenUnbounded,
    /// A log without a readable head is opened like a new log.
    DamagedHeadIgnored,
    /// Priorities of unknown items are logged.
    UnknownPrioritiesLogged,
    /// A start syncs the latest segment in place, and assumes that the bytes read from it are durable.
    PageCacheTrusted,
    /// A directory with an interrupted restore from the archive is accepted as a log.
    RestoreTakenAsComplete,
}

/// The planted defect, if there is one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Planted(#[cfg(feature = "simulation")] Option<Defect>);

impl Planted {
    /// Plants `defect`, or none.
    #[cfg(feature = "simulation")]
    #[must_use]
    pub fn new(defect: Option<Defect>) -> Self {
        Self(defect)
    }

    /// Returns true if `defect` is planted.
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
