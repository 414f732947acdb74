/// The bounds of a trajectory from an untrusted source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of steps.
    pub steps_max: usize,
    /// A: the exclusive upper bound of actions.
    pub actions: usize,
}

impl Limits {
    /// No limits: any number of steps and any action that the format can represent.
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
