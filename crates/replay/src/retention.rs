use std::time::Duration;

/// The bounds on the time for which a table keeps trajectories, beside the capacity of its [`Window`](crate::Window):
/// all of them hold together.
///
/// Trajectories leave whole and from the old end only, so one behind a trajectory that may stay waits for it. The
/// newest trajectory always stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// Since its insert. `None`: of any age.
    pub age_max: Option<Duration>,
    /// Bytes of all trajectories held, as [`Table::trajectory_bytes`](crate::Table::trajectory_bytes) counts them.
    /// `None`: as many as the capacity allows.
    pub trajectory_bytes_max: Option<u64>,
    /// The maximum number of weights versions by which the last step of a trajectory may be behind the newest, as set
    /// by [`Table::hold_to_newest`](crate::Table::hold_to_newest). `None`: unlimited.
    pub lag_versions_max: Option<u64>,
}
