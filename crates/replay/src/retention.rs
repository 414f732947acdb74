use std::time::Duration;

/// How long a table keeps trajectories, beside the capacity of its [`Window`](crate::Window): all of these bounds hold
/// together.
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
    /// By how many weights versions the last step of a trajectory may be behind the newest, as
    /// [`Table::hold_to_newest`](crate::Table::hold_to_newest) was told. `None`: by any number.
    pub lag_versions_max: Option<u64>,
}
