/// Identifies an action by an index below [`Spec::actions`](crate::Spec::actions).
///
/// Passes, swaps and drops are actions like any other. User interfaces show an action in the notation of the game.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Action(pub u16);

impl Action {
    /// Returns the index into `[A]` arrays.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "action {}", self.0)
    }
}
