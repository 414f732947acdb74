/// Bounds that a trajectory from outside must keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most steps.
    pub steps_max: usize,
    /// A: actions are below it.
    pub actions: usize,
}

impl Limits {
    /// Any number of steps, any action that can be written.
    pub(crate) const NONE: Self = Self { steps_max: usize::MAX, actions: 1 << 16 };
}

/// The reason for which a trajectory is rejected: the field and its defect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct Invalid {
    /// The field, with its index: `steps[3].policy`.
    pub field: String,
    /// The defect.
    pub reason: String,
}
