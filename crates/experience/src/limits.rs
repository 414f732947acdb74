/// Bounds of a trajectory from an untrusted source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of steps.
    pub steps_max: usize,
    /// A, the exclusive upper bound of actions.
    pub actions: usize,
}

impl Limits {
    /// No limits: any number of steps and any action that the format can represent.
    pub(crate) const NONE: Self = Self { steps_max: usize::MAX, actions: 1 << 16 };
}

/// The reason for rejecting a trajectory: the field and the defect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct Invalid {
    /// The field, with the index of the element: `steps[3].policy`.
    pub field: String,
    /// The defect, to follow the field: `is empty`.
    pub reason: String,
}

/// Returns an [`Invalid`] with this field and defect.
pub fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Invalid {
    Invalid { field: field.into(), reason: reason.into() }
}
